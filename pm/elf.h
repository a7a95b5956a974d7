// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <expected>
#include <string>

namespace cede::pm {

// The loader (PT_INTERP, elf(5)) of the ELF program behind `fd`. The error says why the agent could not be
// preloaded into it: another class, byte order or machine than ours, no program, not dynamically linked,
// damaged. The file is untrusted: whatever it holds is an error at worst.
std::expected<std::string, std::string> elf_loader(int fd);

}  // namespace cede::pm

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace cede::pm {

// The variables that lsphp and its own parent process know (php-src, sapi/litespeed: lsapilib.c, lscriu.c and
// lsapi_main.c), and what becomes of each here. docs/moving-from-lsphp.md has the reasons.
enum class LsapiFate : std::uint8_t {
    ours,            // cede does what it asks for; lsphp never sees it
    handed_on,       // lsphp does what it asks for, also in a process that forks no children
    without_effect,  // nothing is left for it to say; lsphp never sees it
};

struct LsapiVariable {
    std::string_view name;
    LsapiFate fate;
    bool prefix = false;  // all names that begin with `name`
};

std::span<const LsapiVariable> lsapi_variables() noexcept;

// Nothing for a name that is none of these.
std::optional<LsapiFate> lsapi_fate(std::string_view name) noexcept;

// The names in `own` (NAME=VALUE as in environ(7)) that are set in vain, each once, in their order there.
std::vector<std::string_view> set_in_vain(std::span<const char* const> own);

}  // namespace cede::pm

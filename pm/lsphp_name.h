// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cede::pm {

// cede in the place of lsphp: a link named `lsphp`, with the real one beside it as `lsphp.real`.

// Whether the path that the kernel was asked to execute (getauxval(3), AT_EXECFN) has that name.
[[nodiscard]] bool is_lsphp_name(std::string_view executed) noexcept;

// The lsphp.real that belongs to `executed`: in the same folder, or in one that the chain of links from there
// leads through. Empty if there is none. Links are followed one by one because the folder of cede itself, at
// the end of the chain, is nobody's choice for it.
[[nodiscard]] std::string find_real_lsphp(const std::string& executed);

// lsphp's command line (php-src sapi/litespeed/lsapi_main.c, parse_opt).
struct LsphpCall {
    // To serve; else it asks for something that lsphp itself does (-v, -i, a script), and the rest is empty.
    bool serve = false;
    std::vector<std::string> own;        // for cede: its own long options, and -b as --listen
    std::vector<std::string> handed_on;  // for lsphp: -c X, -n, -s
};

// `argv` as main() gets it. `socket_on_0`: descriptor 0 is a socket, which is how a web server asks to serve.
[[nodiscard]] LsphpCall read_lsphp_arguments(std::span<const char* const> argv, bool socket_on_0);

}  // namespace cede::pm

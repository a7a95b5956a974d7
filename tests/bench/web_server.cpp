// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/web_server.h"

#include <stdexcept>

#include "tests/bench/nginx.h"
#include "tests/bench/open_litespeed.h"
#include "tests/bench/script.h"

namespace cede::bench {

const WebServer& web_server(Protocol protocol) noexcept {
    static const Nginx nginx;
    static const OpenLitespeed open_litespeed;
    if (protocol == Protocol::lsapi) {
        return open_litespeed;
    }
    return nginx;
}

void refuse_script(const std::string& file, const std::string& what) {
    throw std::invalid_argument("--script " + file.substr(0, 40) + "...: the name does not fit into " + what +
                                "; use a shorter path");
}

}  // namespace cede::bench

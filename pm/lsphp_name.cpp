// SPDX-License-Identifier: Apache-2.0
#include "pm/lsphp_name.h"

#include <filesystem>
#include <system_error>

#include "pm/option_table.h"

namespace cede::pm {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view link_name = "lsphp";
constexpr std::string_view real_name = "lsphp.real";

// lsphp's `[*]` is every address of both families on one socket, which is our `*`.
std::string listen_address(std::string_view bind) {
    constexpr std::string_view any6 = "[*]";
    return bind.starts_with(any6) ? "*" + std::string{bind.substr(any6.size())} : std::string{bind};
}

// Whether the value of this long option is an argument of its own.
bool value_follows(std::string_view argument) {
    const std::string_view name = argument.substr(2);
    const Option* option = find_option(name);
    return name == "config" || (option != nullptr && !option->argument.empty());
}

class Reader {
  public:
    explicit Reader(std::span<const char* const> arguments) : arguments_{arguments} {}

    // False when it is not to serve.
    bool read(bool socket_on_0) {
        bool bound = false;
        while (!arguments_.empty()) {
            const std::string_view argument = next();
            if (argument == "--") {
                call_.own.emplace_back(argument);
                call_.own.insert(call_.own.end(), arguments_.begin(), arguments_.end());
                break;
            }
            if (argument.starts_with("--")) {
                call_.own.emplace_back(argument);
                if (value_follows(argument) && !arguments_.empty()) {
                    call_.own.emplace_back(next());
                }
            } else if (!read_short(argument, bound)) {
                return false;
            }
        }
        return socket_on_0 || bound;
    }

    [[nodiscard]] const LsphpCall& call() const noexcept { return call_; }

  private:
    std::string_view next() {
        const std::string_view argument = arguments_.front();
        arguments_ = arguments_.subspan(1);
        return argument;
    }

    // lsphp looks at one letter only and takes the value from the next argument.
    bool read_short(std::string_view argument, bool& bound) {
        const char letter = argument.size() > 1 && argument[0] == '-' ? argument[1] : '\0';
        const bool takes_value = letter == 'b' || letter == 'c';
        if (takes_value && arguments_.empty()) {
            return false;
        }
        switch (letter) {
            case 'b':
                bound = true;
                call_.own.insert(call_.own.begin(), {"--listen", listen_address(next())});
                return true;
            case 'c':
                call_.handed_on.emplace_back("-c");
                call_.handed_on.emplace_back(next());
                return true;
            case 'n':
            case 's':
                call_.handed_on.emplace_back(argument);
                return true;
            default:
                return false;
        }
    }

    std::span<const char* const> arguments_;
    LsphpCall call_;
};

}  // namespace

bool is_lsphp_name(std::string_view executed) noexcept {
    return executed.substr(executed.rfind('/') + 1) == link_name;
}

std::string find_real_lsphp(const std::string& executed) {
    constexpr int most_links = 40;  // as many as the kernel follows (path_resolution(7))
    std::error_code error;
    fs::path place = fs::absolute(executed, error);
    for (int followed = 0; followed <= most_links; ++followed) {
        const fs::path candidate = fs::canonical(place.parent_path(), error) / real_name;
        if (!error && fs::exists(candidate, error)) {
            return candidate.string();
        }
        const fs::path target = fs::read_symlink(place, error);
        if (error) {
            break;
        }
        place = place.parent_path() / target;
    }
    return {};
}

LsphpCall read_lsphp_arguments(std::span<const char* const> argv, bool socket_on_0) {
    Reader reader{argv.subspan(argv.empty() ? 0 : 1)};
    if (!reader.read(socket_on_0)) {
        return {};
    }
    LsphpCall call = reader.call();
    call.serve = true;
    return call;
}

}  // namespace cede::pm

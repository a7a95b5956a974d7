// SPDX-License-Identifier: Apache-2.0
#include "pm/surroundings.h"

#include <cerrno>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

using namespace cede::pm;
using namespace std::string_view_literals;
using cede::children::SpawnError;
using Step = SpawnError::Step;

namespace {

bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

}  // namespace

TEST_CASE("directories are whole paths") {
    CHECK(parse_directory("/") == "/");
    CHECK(parse_directory("/srv/www/") == "/srv/www/");
    CHECK(parse_directory("/srv/..www/a..") == "/srv/..www/a..");
    for (const std::string_view bad :
         {""sv, "srv"sv, "./srv"sv, "~"sv, "/srv/.."sv, "/srv/../etc"sv, "/.."sv}) {
        CAPTURE(bad);
        CHECK_FALSE(parse_directory(bad).has_value());
    }
}

TEST_CASE("a umask is octal and has permission bits only") {
    CHECK(parse_umask("022") == 022U);
    CHECK(parse_umask("0") == 0U);
    CHECK(parse_umask("0077") == 077U);
    CHECK(parse_umask("777") == 0777U);
    for (const std::string_view bad :
         {""sv, "8"sv, "1777"sv, "00022"sv, "-22"sv, "0x12"sv, "u=rwx"sv, " 22"sv}) {
        CAPTURE(bad);
        const auto bits = parse_umask(bad);
        REQUIRE_FALSE(bits.has_value());
        CHECK(contains(bits.error(), "0022"));
    }
}

TEST_CASE("a priority is a number that setpriority takes") {
    CHECK(parse_nice("-20") == -20);
    CHECK(parse_nice("0") == 0);
    CHECK(parse_nice("19") == 19);
    for (const std::string_view bad : {""sv, "-21"sv, "20"sv, "+5"sv, "5.0"sv, "low"sv, "5 "sv}) {
        CAPTURE(bad);
        CHECK_FALSE(parse_nice(bad).has_value());
    }
}

TEST_CASE("limits are numbers, and a core file's may be unlimited") {
    CHECK(parse_descriptor_limit("256") == 256U);
    CHECK(parse_descriptor_limit("1024") == 1024U);
    for (const std::string_view bad : {""sv, "0"sv, "255"sv, "-1"sv, "unlimited"sv, "99999999999"sv}) {
        CAPTURE(bad);
        CHECK_FALSE(parse_descriptor_limit(bad).has_value());
    }
    CHECK(parse_core_limit("0") == 0U);
    CHECK(parse_core_limit("unlimited") == std::uint64_t{RLIM_INFINITY});
    CHECK(parse_core_limit("1099511627776") == 1099511627776U);
    for (const std::string_view bad : {""sv, "-1"sv, "1M"sv, "Unlimited"sv, "18446744073709551615"sv}) {
        CAPTURE(bad);
        CHECK_FALSE(parse_core_limit(bad).has_value());
    }
}

TEST_CASE("a title may be in any language, but has no control characters") {
    CHECK(parse_title("www") == "www");
    CHECK(parse_title("caf\xc3\xa9 1") == "caf\xc3\xa9 1");
    for (const std::string_view bad : {"a\tb"sv, "\x1b[1m"sv, "a\x7f"sv}) {
        CHECK_FALSE(parse_title(bad).has_value());
    }
}

TEST_CASE("what is not configured stays as it is") {
    const auto none = surroundings_of(Config{});
    CHECK_FALSE(none.open_files.has_value());
    CHECK_FALSE(none.core.has_value());
    CHECK_FALSE(none.nice.has_value());
    CHECK_FALSE(none.umask.has_value());
    CHECK(none.root.empty());
    CHECK(none.directory.empty());
}

TEST_CASE("limits hold for the soft and the hard limit, as in php-fpm") {
    Config config;
    config.rlimit_nofile = 1024;
    config.rlimit_core = 0;
    config.umask = 077;
    config.nice = -5;
    config.chroot = "/srv/root";
    config.chdir = "/www";
    const auto all = surroundings_of(config);
    CHECK(all.open_files->rlim_cur == 1024);
    CHECK(all.open_files->rlim_max == 1024);
    CHECK(all.core->rlim_cur == 0);
    CHECK(all.core->rlim_max == 0);
    CHECK(all.umask == mode_t{077});
    CHECK(all.nice == -5);
    CHECK(all.root == "/srv/root");
    CHECK(all.directory == "/www");
}

TEST_CASE("a step that failed is named with the option's place, the reason and the remedy") {
    Config config;
    config.origins["chroot"] = "/etc/cede.conf:3: chroot";
    CHECK(explain({Step::root, ENOENT}, config) ==
          "/etc/cede.conf:3: chroot: can't change the root directory: No such file or directory; create the "
          "directory, or correct --chroot");
    struct Row {
        Step step;
        int error;
        std::string_view place;
        std::string_view remedy;
    };
    for (const Row& row : {Row{Step::root, EPERM, "/etc/cede.conf:3: chroot: ", "CAP_SYS_CHROOT"},
                           Row{Step::directory, ENOENT, "--chdir: ", "inside --chroot"},
                           Row{Step::open_files, EPERM, "--rlimit-nofile: ", "LimitNOFILE="},
                           Row{Step::core, EPERM, "--rlimit-core: ", "LimitCORE="},
                           Row{Step::nice, EACCES, "--nice: ", "CAP_SYS_NICE"},
                           Row{Step::groups, EPERM, "--user: ", "CAP_SETGID"},
                           Row{Step::group, EPERM, "--group: ", "CAP_SETGID"},
                           Row{Step::user, EPERM, "--user: ", "CAP_SETUID"},
                           Row{Step::user, EAGAIN, "--user: ", "LimitNPROC="},
                           Row{Step::execute, EACCES, "--command: ", "permissions"},
                           Row{Step::fork, EAGAIN, "can't fork", "pids.max"},
                           Row{Step::descriptors, EMFILE, "can't pass descriptors on", "open files"}}) {
        const std::string message = explain({row.step, row.error}, config);
        CAPTURE(message);
        CHECK(message.starts_with(row.place));
        CHECK(contains(message, row.remedy));
    }
}

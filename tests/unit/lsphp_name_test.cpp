// SPDX-License-Identifier: Apache-2.0
#include "pm/lsphp_name.h"

#include <filesystem>
#include <string>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/in_child.h"
#include "tests/support/temp_directory.h"

using namespace cede::pm;
using cede::tests::in_child;
using cede::tests::TempDirectory;
using Words = std::vector<std::string>;

namespace {

LsphpCall call(const Words& arguments, bool socket_on_0) {
    std::vector<const char*> argv{"lsphp"};
    for (const std::string& argument : arguments) {
        argv.push_back(argument.c_str());
    }
    return read_lsphp_arguments(argv, socket_on_0);
}

void make_folder(const TempDirectory& directory, const char* name) {
    std::filesystem::create_directories(directory.path(name));
}

void make_link(const std::string& target, const std::string& path) {
    REQUIRE(::symlink(target.c_str(), path.c_str()) == 0);
}

}  // namespace

TEST_CASE("the last part of the executed path says whether cede stands in for lsphp") {
    for (const char* yes : {"lsphp", "./lsphp", "/usr/local/lsws/fcgi-bin/lsphp"}) {
        CAPTURE(yes);
        CHECK(is_lsphp_name(yes));
    }
    for (const char* no :
         {"", "cede", "/usr/bin/cede", "/x/lsphp/cede", "/x/lsphp.real", "/x/lsphp/", "/x/mylsphp"}) {
        CAPTURE(no);
        CHECK_FALSE(is_lsphp_name(no));
    }
}

TEST_CASE("the real lsphp is looked for beside the link, then beside what that leads to") {
    const TempDirectory directory;
    for (const char* name : {"fcgi-bin", "lsphp83/bin", "cede"}) {
        make_folder(directory, name);
    }
    directory.write("cede/cede", "");
    make_link("../lsphp83/bin/lsphp", directory.path("fcgi-bin/lsphp"));
    make_link(directory.path("cede/cede"), directory.path("lsphp83/bin/lsphp"));
    const std::string executed = directory.path("fcgi-bin/lsphp");
    CHECK(find_real_lsphp(executed).empty());
    directory.write("cede/lsphp.real", "");
    CHECK(find_real_lsphp(executed) == directory.path("cede/lsphp.real"));
    directory.write("lsphp83/bin/lsphp.real", "");
    CHECK(find_real_lsphp(executed) == directory.path("lsphp83/bin/lsphp.real"));
    directory.write("fcgi-bin/lsphp.real", "");
    CHECK(find_real_lsphp(executed) == directory.path("fcgi-bin/lsphp.real"));
    CHECK(find_real_lsphp(directory.path("lsphp83/bin/lsphp")) == directory.path("lsphp83/bin/lsphp.real"));
}

TEST_CASE("a relative path works, and links in a circle end") {
    const TempDirectory directory;
    directory.write("lsphp.real", "");
    const std::string found = in_child([&] {
        return ::chdir(directory.path().c_str()) == 0
                   ? find_real_lsphp("lsphp") + "|" + find_real_lsphp("./lsphp")
                   : "chdir";
    });
    CHECK(found == directory.path("lsphp.real") + "|" + directory.path("lsphp.real"));
    make_folder(directory, "a");
    make_link("other", directory.path("a/lsphp"));
    make_link("lsphp", directory.path("a/other"));
    CHECK(find_real_lsphp(directory.path("a/lsphp")).empty());
}

TEST_CASE("lsphp serves when it is given a socket, or an address to bind") {
    CHECK(call({}, true).serve);
    CHECK(call({"-b", "/run/x.sock"}, false).serve);
    CHECK_FALSE(call({}, false).serve);
    CHECK_FALSE(call({"-c", "/etc/php.ini"}, false).serve);
    CHECK_FALSE(read_lsphp_arguments({}, false).serve);
}

TEST_CASE("what lsphp does on the command line is left to it, whatever descriptor 0 is") {
    const std::vector<Words> calls{{"-v"},
                                   {"-i"},
                                   {"script.php"},
                                   {"-q", "script.php", "--children"},
                                   {"-b", "/run/x.sock", "script.php"},
                                   {"-c", "/etc/php.ini", "script.php", "-b"},
                                   {"-b"},
                                   {"-c"},
                                   {"-"},
                                   {""}};
    for (const Words& arguments : calls) {
        CAPTURE(arguments.front());
        CHECK_FALSE(call(arguments, true).serve);
        CHECK_FALSE(call(arguments, false).serve);
        CHECK(call(arguments, true).own.empty());
    }
    CHECK_FALSE(call({"--ini"}, false).serve);
    CHECK_FALSE(call({"--", "script.php"}, false).serve);
}

TEST_CASE("-b is --listen, in each of lsphp's spellings") {
    CHECK(call({"-b", "/run/x.sock"}, false).own == Words{"--listen", "/run/x.sock"});
    CHECK(call({"-b", "127.0.0.1:9000"}, false).own == Words{"--listen", "127.0.0.1:9000"});
    CHECK(call({"-b", "*:9000"}, true).own == Words{"--listen", "*:9000"});
    CHECK(call({"-b", "[::1]:9000"}, false).own == Words{"--listen", "[::1]:9000"});
    CHECK(call({"-b", "[*]:9000"}, false).own == Words{"--listen", "*:9000"});
    CHECK(call({"-bind", "-c"}, false).own == Words{"--listen", "-c"});
}

TEST_CASE("lsphp's own options go on to it, and cede's long ones are cede's") {
    const LsphpCall mixed = call({"--children", "20", "-c", "/etc/php.ini", "--config=/etc/cede.conf", "-n",
                                  "-s", "--allow-root", "--config", "-x", "-b", "/run/x.sock"},
                                 false);
    CHECK(mixed.serve);
    CHECK(mixed.own == Words{"--listen", "/run/x.sock", "--children", "20", "--config=/etc/cede.conf",
                             "--allow-root", "--config", "-x"});
    CHECK(mixed.handed_on == Words{"-c", "/etc/php.ini", "-n", "-s"});
}

TEST_CASE("a command behind -- is cede's business, and mistakes in long options are cede's to tell") {
    const LsphpCall with_command = call({"-b", "/run/x.sock", "-n", "--", "/x/lsphp", "-v"}, false);
    CHECK(with_command.serve);
    CHECK(with_command.own == Words{"--listen", "/run/x.sock", "--", "/x/lsphp", "-v"});
    CHECK(with_command.handed_on == Words{"-n"});
    CHECK(call({"--childern=3"}, true).own == Words{"--childern=3"});
    CHECK(call({"--children"}, true).own == Words{"--children"});
}

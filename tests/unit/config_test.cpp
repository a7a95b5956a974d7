// SPDX-License-Identifier: Apache-2.0
#include "pm/config.h"

#include <filesystem>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/temp_directory.h"

using namespace cede::pm;
using namespace std::chrono_literals;
using cede::protocol::Protocol;
using cede::tests::TempDirectory;
using Words = std::vector<std::string>;

namespace {

std::expected<Invocation, Error> parse(const Words& arguments, const Environment& environment = {}) {
    std::vector<const char*> argv{"cede"};
    for (const std::string& argument : arguments) {
        argv.push_back(argument.c_str());
    }
    return parse_invocation(argv, environment);
}

Config parsed(const Words& arguments, const Environment& environment = {}) {
    const auto invocation = parse(arguments, environment);
    INFO((invocation ? std::string{} : invocation.error().message));
    REQUIRE(invocation.has_value());
    return invocation->config;
}

// The whole message, to see that all of `parts` are in it.
void check_error(const std::expected<Invocation, Error>& invocation, const Words& parts,
                 int status = Error::usage) {
    REQUIRE_FALSE(invocation.has_value());
    CAPTURE(invocation.error().message);
    CHECK(invocation.error().exit_status == status);
    CHECK(invocation.error().message.find('\n') == std::string::npos);
    for (const std::string& part : parts) {
        CAPTURE(part);
        CHECK(invocation.error().message.find(part) != std::string::npos);
    }
}

}  // namespace

TEST_CASE("a command alone gets all the defaults") {
    const Config config = parsed({"--", "/usr/bin/php-cgi8.2"});
    CHECK(config.command == Words{"/usr/bin/php-cgi8.2"});
    CHECK(config.listen.empty());
    CHECK(config.listen_mode == 0660);
    CHECK(config.backlog == 511);
    CHECK(config.protocol == Protocol::unknown);
    CHECK(config.children == 5);
    CHECK(config.max_requests == 0);
    CHECK(config.request_timeout == 0s);
    CHECK(config.read_timeout == 60s);
    CHECK(config.spawn == SpawnMode::zygote);
    CHECK_FALSE(config.allow_root);
    CHECK(config.give_up == GiveUp::park);
    CHECK_FALSE(config.keepalive_limit.has_value());
    CHECK(config.max_parked == 16384);
    CHECK(config.stop_timeout == 30s);
    CHECK(config.start_timeout == 30s);
    CHECK(config.log_level == LogLevel::notice);
    CHECK(config.agent.empty());
}

TEST_CASE("every option reaches its field, with a blank or an equals sign before the value") {
    const Words options{"listen=127.0.0.1:9000",
                        "listen-mode=0600",
                        "listen-owner=a",
                        "listen-group=b",
                        "backlog=100",
                        "children=10",
                        "user=c",
                        "group=d",
                        "give-up=close",
                        "keepalive-limit=75%",
                        "max-parked=7",
                        "stop-timeout=2m",
                        "start-timeout=500ms",
                        "log-level=debug",
                        "agent=/x/agent.so",
                        "protocol=lsapi",
                        "max-requests=1000",
                        "request-timeout=30"};
    Words glued{"run"};
    Words apart;
    for (const std::string& option : options) {
        const std::size_t equals = option.find('=');
        glued.push_back("--" + option);
        apart.push_back("--" + option.substr(0, equals));
        apart.push_back(option.substr(equals + 1));
    }
    for (Words arguments : {glued, apart}) {
        for (const char* last : {"--allow-root", "--", "php", "-d", "--x=y", "--"}) {
            arguments.emplace_back(last);
        }
        const Config config = parsed(arguments);
        CHECK(config.listen == Words{"127.0.0.1:9000"});
        CHECK(config.listen_mode == 0600);
        CHECK(config.listen_owner == "a");
        CHECK(config.listen_group == "b");
        CHECK(config.backlog == 100);
        CHECK(config.children == 10);
        CHECK(config.protocol == Protocol::lsapi);
        CHECK(config.max_requests == 1000);
        CHECK(config.request_timeout == 30s);
        CHECK(config.user == "c");
        CHECK(config.group == "d");
        CHECK(config.allow_root);
        CHECK(config.give_up == GiveUp::close);
        CHECK(config.keepalive_limit->value == 75);
        CHECK(config.max_parked == 7);
        CHECK(config.stop_timeout == 2min);
        CHECK(config.start_timeout == 500ms);
        CHECK(config.log_level == LogLevel::debug);
        CHECK(config.agent == "/x/agent.so");
        CHECK(config.command == Words{"php", "-d", "--x=y", "--"});
        CHECK(where(config, "user") == "--user");
    }
}

TEST_CASE("the children's surroundings and variables are options like all others") {
    const Config config = parsed(
        {"--chroot",        "/srv/root", "--chdir=/www",  "--umask",   "027",   "--nice", "-5",
         "--rlimit-nofile", "1024",      "--rlimit-core", "unlimited", "--env", "A=1 2",  "--env=B=$HOME",
         "--env",           "A=x=y",     "--clear-env",   "--title",   "www",   "--",     "php"});
    CHECK(config.chroot == "/srv/root");
    CHECK(config.chdir == "/www");
    CHECK(config.umask == 027U);
    CHECK(config.nice == -5);
    CHECK(config.rlimit_nofile == 1024U);
    CHECK(config.rlimit_core.has_value());
    // Of several with one name the last one counts.
    CHECK(config.environment.set == decltype(config.environment.set){{"A", "x=y"}, {"B", "$HOME"}});
    CHECK(config.environment.clear);
    CHECK(config.title == "www");
    CHECK(where(config, "nice") == "--nice");
}

TEST_CASE("a keep-alive limit is turned into children, percentages rounded down") {
    CHECK(KeepaliveLimit{75, true}.children(10) == 7);
    CHECK(KeepaliveLimit{75, true}.children(1) == 0);
    CHECK(KeepaliveLimit{100, true}.children(10000) == 10000);
    CHECK(KeepaliveLimit{0, true}.children(10) == 0);
    CHECK(KeepaliveLimit{3, false}.children(10) == 3);
    CHECK(KeepaliveLimit{30, false}.children(10) == 10);
    CHECK(KeepaliveLimit{100, true}.children(4294967295U) == 4294967295U);
}

TEST_CASE("the mode comes first, and help and version win over everything before the command") {
    CHECK(parse({"run", "--", "php"})->mode == Mode::run);
    CHECK(parse({"check", "--", "php"})->mode == Mode::check);
    CHECK(parse({"--help"})->mode == Mode::help);
    CHECK(parse({"-h"})->mode == Mode::help);
    CHECK(parse({"--children", "nonsense", "--help"})->mode == Mode::help);
    CHECK(parse({"check", "--version"})->mode == Mode::version);
    CHECK(parse({"--", "php", "--help"})->mode == Mode::run);
    CHECK(parse({"--version"})->text.starts_with("cede "));
    const std::string help = parse({"--help"})->text;
    for (const char* option : {"--config",       "--listen ",       "--listen-mode",  "--listen-owner",
                               "--listen-group", "--backlog",       "--children",     "--user",
                               "--group",        "--allow-root",    "--give-up",      "--keepalive-limit",
                               "--max-parked",   "--protocol",      "--max-requests", "--request-timeout",
                               "--stop-timeout", "--start-timeout", "--read-timeout", "--log-level",
                               "--agent",        "--help",          "--version"}) {
        CAPTURE(option);
        CHECK(help.find(option) != std::string::npos);
    }
}

TEST_CASE("each mistake on the command line has its own message, with the remedy") {
    struct Row {
        Words arguments;
        Words parts;
    };
    const std::vector<Row> rows{
        {{}, {"no command", "--"}},
        {{"--"}, {"no command"}},
        {{"--", ""}, {"command", "empty"}},
        {{"php"}, {"unexpected argument 'php'", "behind '--'"}},
        {{"/usr/bin/php-cgi"}, {"cede OPTIONS -- /usr/bin/php-cgi"}},
        {{"chekc", "--", "php"}, {"unexpected argument 'chekc'", "cede check"}},
        {{"check", "run", "--", "php"}, {"unexpected argument 'run'"}},
        {{"--childern", "3", "--", "php"}, {"'--childern'", "did you mean '--children'?", "--help"}},
        {{"--childern=3", "--", "php"}, {"did you mean '--children'?"}},
        {{"--child", "3", "--", "php"}, {"did you mean '--children'?"}},
        {{"--frobnicate", "--", "php"}, {"unknown option '--frobnicate'", "--help"}},
        {{"-c", "3", "--", "php"}, {"unknown option '-c'"}},
        {{"-", "--", "php"}, {"unknown option '-'"}},
        {{"--=3", "--", "php"}, {"unknown option"}},
        {{"--children"}, {"--children has no value"}},
        {{"--children", "--", "php"}, {"--children has no value"}},
        {{"--children=", "--", "php"}, {"--children has no value"}},
        {{"--children", "", "--", "php"}, {"--children", "empty"}},
        {{"--children", "--user", "x", "--", "php"}, {"--children has no value"}},
        {{"--children", "0", "--", "php"}, {"--children: '0'", "1 to 10000"}},
        {{"--children", "10001", "--", "php"}, {"--children: '10001'", "1 to 10000"}},
        {{"--children", "3", "--children", "3", "--", "php"}, {"--children is given twice"}},
        {{"--allow-root", "--allow-root", "--", "php"}, {"--allow-root is given twice"}},
        {{"--allow-root=yes", "--", "php"}, {"--allow-root takes no value"}},
        {{"--command", "php", "--", "php"}, {"--command", "behind '--'"}},
        {{"--listen", "9000", "--", "php"}, {"--listen", "127.0.0.1:9000", "*:9000"}},
        {{"--listen", "example.org:9000", "--", "php"}, {"--listen", "'example.org:9000'", "no name server"}},
        {{"--listen-mode", "999", "--", "php"}, {"--listen-mode: '999'", "0660"}},
        {{"--backlog", "0", "--", "php"}, {"--backlog: '0'"}},
        {{"--user", "a\nb", "--", "php"}, {"--user", "line feed"}},
        {{"--spawn", "thread", "--", "php"}, {"--spawn: 'thread'", "zygote", "exec"}},
        {{"--read-timeout", "-1", "--", "php"}, {"--read-timeout"}},
        {{"--give-up", "drop", "--", "php"}, {"--give-up: 'drop'", "park, close"}},
        {{"--keepalive-limit", "200%", "--", "php"}, {"--keepalive-limit: '200%'"}},
        {{"--max-parked", "-1", "--", "php"}, {"--max-parked: '-1'"}},
        {{"--protocol", "http", "--", "php"}, {"--protocol: 'http'", "auto, fastcgi, lsapi"}},
        {{"--max-requests", "-1", "--", "php"}, {"--max-requests: '-1'"}},
        {{"--max-requests", "4294967296", "--", "php"}, {"--max-requests: '4294967296'", "out of range"}},
        {{"--request-timeout", "25h", "--", "php"}, {"--request-timeout: '25h'", "24h"}},
        {{"--stop-timeout", "soon", "--", "php"}, {"--stop-timeout: 'soon'", "500ms"}},
        {{"--start-timeout", "0", "--", "php"}, {"--start-timeout: '0'", "out of range"}},
        {{"--log-level", "loud", "--", "php"}, {"--log-level: 'loud'", "notice"}},
        {{"--config", "", "--", "php"}, {"--config", "empty"}},
    };
    for (const Row& row : rows) {
        std::string line;
        for (const std::string& argument : row.arguments) {
            line += argument + ' ';
        }
        CAPTURE(line);
        check_error(parse(row.arguments), row.parts);
    }
    CHECK_FALSE(parse_invocation({}, {}).has_value());
}

TEST_CASE("at most 64 addresses are taken") {
    Words arguments;
    for (int i = 0; i < 65; ++i) {
        arguments.push_back("--listen=127.0.0.1:0");
    }
    arguments.insert(arguments.end(), {"--", "php"});
    check_error(parse(arguments), {"--listen", "64"});
}

TEST_CASE("the environment sets what the command line leaves open") {
    const Environment environment{{"PHP_FCGI_CHILDREN", "12"}, {"CEDE_CHILD", "/usr/bin/other"}};
    const Config config = parsed({"--", "php"}, environment);
    CHECK(config.children == 12);
    CHECK(where(config, "children") == "PHP_FCGI_CHILDREN in the environment");
    CHECK(config.command == Words{"php"});
    CHECK(parsed({"--children", "3", "--", "php"}, environment).children == 3);
    check_error(parse({"--", "php"}, {{"PHP_FCGI_CHILDREN", "many"}}), {"PHP_FCGI_CHILDREN", "--children"});
}

TEST_CASE("of equal names in the environment the first counts, and what has no name does not") {
    const std::vector<const char*> entries{"A=1", "B=2=3", "A=4", "C", "=5", "D="};
    CHECK(environment_of(entries) == Environment{{"A", "1"}, {"B", "2=3"}, {"", "5"}, {"D", ""}});
}

TEST_CASE("CEDE_CHILD names the command when neither the command line nor the file does") {
    const TempDirectory directory;
    const Config config = parsed({}, {{"CEDE_CHILD", "/opt/lsphp -d 'x=a b'"}});
    CHECK(config.command == Words{"/opt/lsphp", "-d", "x=a b"});
    CHECK(where(config, "command") == "CEDE_CHILD in the environment: command");
    const std::string file = directory.write("c", "command = /usr/bin/php-cgi8.2\n");
    CHECK(parsed({"--config", file}, {{"CEDE_CHILD", "/opt/lsphp"}}).command == Words{"/usr/bin/php-cgi8.2"});
    for (const char* bad : {"", "  ", "''", "a | b", "'a"}) {
        CAPTURE(bad);
        check_error(parse({}, {{"CEDE_CHILD", bad}}), {"CEDE_CHILD in the environment: "});
        CHECK(parse({"--", "php"}, {{"CEDE_CHILD", bad}}).has_value());
    }
}

TEST_CASE("started under the name lsphp, cede runs what is beside it, unless somebody names something else") {
    const StartedAs started_as{"started as /x/lsphp", {"/x/lsphp.real"}, {"-c", "/etc/php.ini"}};
    const std::vector<const char*> argv{"cede", "--children", "3"};
    const Config config = parse_invocation(argv, {}, started_as)->config;
    CHECK(config.command == Words{"/x/lsphp.real", "-c", "/etc/php.ini"});
    CHECK(where(config, "command") == "started as /x/lsphp: command");
    CHECK(config.children == 3);
    CHECK(parse_invocation(argv, {{"CEDE_CHILD", "/y/lsphp -n"}}, started_as)->config.command ==
          Words{"/y/lsphp", "-n", "-c", "/etc/php.ini"});
    check_error(parse_invocation(argv, {}, {"started as /x/lsphp", {}, {}}),
                {"started as /x/lsphp", "no lsphp.real", "CEDE_CHILD", "--config"});
}

TEST_CASE("a file sets what the command line leaves open") {
    const TempDirectory directory;
    const std::string file = directory.write("cede.conf",
                                             "\xef\xbb\xbf# a pool\n"
                                             "\n"
                                             "listen = 127.0.0.1:9001\r\n"
                                             "listen=/run/x.sock   # a second one\n"
                                             "  children\t=\t7\n"
                                             "user = \"some body\"\n"
                                             "allow-root = no\n"
                                             "stop-timeout = 5m\n"
                                             "command = /usr/bin/php-cgi8.2 -d 'x=a b' -c /etc/php\n"
                                             "give-up = close");
    const Config config = parsed({"--config", file, "--stop-timeout", "1s"});
    CHECK(config.listen == Words{"127.0.0.1:9001", "/run/x.sock"});
    CHECK(config.children == 7);
    CHECK(config.user == "some body");
    CHECK_FALSE(config.allow_root);
    CHECK(config.stop_timeout == 1s);
    CHECK(config.give_up == GiveUp::close);
    CHECK(config.command == Words{"/usr/bin/php-cgi8.2", "-d", "x=a b", "-c", "/etc/php"});
    CHECK(where(config, "user") == file + ":6: user");
    CHECK(where(config, "listen", "/run/x.sock") == file + ":4: listen");
    CHECK(where(config, "stop-timeout") == "--stop-timeout");
    CHECK(where(config, "group") == "--group");
}

TEST_CASE("addresses and the command on the command line replace those of the file") {
    const TempDirectory directory;
    const std::string file =
        directory.write("c", "listen = 127.0.0.1:9001\nlisten = 127.0.0.1:9002\ncommand = a b\n");
    const Config config = parsed({"--listen", "127.0.0.1:9003", "--config", file, "--", "c"});
    CHECK(config.listen == Words{"127.0.0.1:9003"});
    CHECK(config.command == Words{"c"});
    CHECK(parsed({"--config", file}, {{"PHP_FCGI_CHILDREN", "9"}}).children == 9);
}

TEST_CASE("each mistake in a file is reported with its line, also where the command line would win") {
    struct Row {
        std::string content;
        Words parts;
    };
    const TempDirectory directory;
    const std::vector<Row> rows{
        {"\n\n\n\n\n\nchildern = 3\n",
         {":7: unknown option 'childern'", "did you mean 'children'?", "--help"}},
        {"frobnicate = 1\n", {":1: unknown option 'frobnicate'"}},
        {"children = 3\n\nchildren = 4\n", {":3: children is set twice", "line 1"}},
        {"command = a\ncommand = b\n", {":2: command is set twice", "line 1"}},
        {"children = 0\n", {":1: children: '0'", "1 to 10000"}},
        {"children =\n", {":1: children", "empty"}},
        {"children = # five\n", {":1: children", "empty"}},
        {"user = ''\n", {":1: user", "empty"}},
        {"children 5\n", {":1: 'children 5'", "name = value"}},
        {"= 5\n", {":1:", "no name"}},
        {"[pool]\n", {":1: '[pool]'", "name = value"}},
        {"user = a b\n", {":1: user: 'b'", "quotes"}},
        {"user = 'a\n", {":1: user", "never closed"}},
        {"command = a | b\n", {":1: command", "no shell"}},
        {"command = ''\n", {":1: command", "empty"}},
        {"config = other\n", {":1: config", "command line only"}},
        {"help = yes\n", {":1: help", "command line only"}},
        {"allow-root = perhaps\n", {":1: allow-root: 'perhaps'", "yes, no"}},
        {"listen = 127.0.0.1:9000\nlisten = 9000\n", {":2: listen", "*:9000"}},
        {std::string("user = a\0b\n", 11), {":1: user", "NUL"}},
        {std::string("\x7f"
                     "ELF\0\0\0",
                     7),
         {":1:", "name = value"}},
        {std::string(100000, 'x'), {":1:", "name = value"}},
    };
    for (const Row& row : rows) {
        CAPTURE(row.content.substr(0, 60));
        const std::string file = directory.write("cede.conf", row.content);
        check_error(parse({"--config", file, "--children", "3", "--", "php"}), row.parts);
        check_error(parse({"--config", file, "--children", "3", "--", "php"}), {file + ":"});
    }
}

TEST_CASE("an order for those who wait too long needs to know what is too long") {
    for (const char* const order : {"lifo", "reject"}) {
        check_error(parse({"--overload", order, "--", "php"}), {"--overload", order, "--max-wait"});
        CHECK(parse({"--overload", order, "--max-wait", "1s", "--", "php"}).has_value());
    }
    CHECK(parse({"--overload", "fifo", "--", "php"}).has_value());
}

TEST_CASE("a configuration that is no readable regular file of a sane size is refused") {
    const TempDirectory directory;
    const auto refused = [](const std::string& path, const Words& parts) {
        CAPTURE(path);
        check_error(parse({"--config", path, "--", "php"}), parts, Error::failure);
        check_error(parse({"--config", path, "--", "php"}), {"--config: " + path}, Error::failure);
    };
    refused(directory.path("missing"), {"No such file"});
    refused(directory.path(), {"not a regular file"});
    refused("/dev/null", {"not a regular file"});
    REQUIRE(::mkfifo(directory.path("pipe").c_str(), 0600) == 0);
    refused(directory.path("pipe"), {"not a regular file"});
    refused(directory.write("large", std::string(1024 * 1024 + 1, '#')), {"larger than 1048576 bytes"});
    if (::geteuid() != 0) {
        refused(directory.write("secret", "", 0000), {"Permission denied"});
    }
    CHECK(parse({"--config", directory.write("empty", ""), "--", "php"}).has_value());
    CHECK(
        parse({"--config", directory.write("full", std::string(1024 * 1024, '#')), "--", "php"}).has_value());
}

// SPDX-License-Identifier: Apache-2.0
#include "pm/preflight.h"

#include <cstddef>
#include <cstring>
#include <elf.h>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <link.h>
#include <linux/capability.h>
#include <random>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/in_child.h"
#include "tests/support/listening.h"
#include "tests/support/temp_directory.h"

using namespace cede::pm;
using namespace cede::tests;

namespace {

std::string content_of(const std::string& path) {
    std::ifstream file{path, std::ios::binary};
    return {std::istreambuf_iterator<char>{file}, {}};
}

// A small dynamically linked program.
std::string program() {
    return content_of("/bin/true");
}

template <typename T>
T at(const std::string& bytes, std::size_t offset) {
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
}

// The program with this field of its ELF header replaced.
template <typename T>
std::string with_field(std::string bytes, T ElfW(Ehdr)::*field, T value) {
    auto header = at<ElfW(Ehdr)>(bytes, 0);
    header.*field = value;
    std::memcpy(bytes.data(), &header, sizeof header);
    return bytes;
}

// The program with its PT_INTERP entry changed by `change(entry, bytes)`.
template <typename Change>
std::string with_loader(std::string bytes, Change&& change) {
    const auto header = at<ElfW(Ehdr)>(bytes, 0);
    for (std::size_t i = 0; i < header.e_phnum; ++i) {
        const std::size_t offset = header.e_phoff + i * sizeof(ElfW(Phdr));
        auto entry = at<ElfW(Phdr)>(bytes, offset);
        if (entry.p_type == PT_INTERP) {
            change(entry, bytes);
            std::memcpy(bytes.data() + offset, &entry, sizeof entry);
            return bytes;
        }
    }
    FAIL("no PT_INTERP");
    return bytes;
}

void check_refused(const std::string& path, std::string_view part) {
    CAPTURE(part);
    const auto checked = check_command(path);
    REQUIRE_FALSE(checked.has_value());
    CAPTURE(checked.error().message);
    CHECK(checked.error().message.find(part) != std::string::npos);
    CHECK(checked.error().message.starts_with("command '"));
    CHECK(checked.error().exit_status == Error::failure);
}

std::string refusal(const Config& config) {
    const auto checked = check_listen(config);
    return checked ? "none" : checked.error().message;
}

Config listening_at(std::vector<std::string> addresses) {
    Config config;
    config.listen = std::move(addresses);
    return config;
}

}  // namespace

TEST_CASE("dynamically linked programs and scripts with an interpreter pass") {
    const TempDirectory directory;
    REQUIRE(check_command("/bin/true").has_value());
    for (const char* script : {"#!/bin/sh\n", "#!/bin/sh", "#! /bin/sh -e\nexit 0\n", "#!\t/bin/sh\t\n"}) {
        CAPTURE(script);
        CHECK(check_command(directory.write("script", script, 0755)).has_value());
    }
    CHECK(check_command(directory.write("copy", program(), 0755)).has_value());
    REQUIRE(::symlink("/bin/true", directory.path("link").c_str()) == 0);
    CHECK(check_command(directory.path("link")).has_value());
}

TEST_CASE("what is no executable regular file is refused, each with its own reason") {
    const TempDirectory directory;
    check_refused("true", "PATH is not searched");
    check_refused("", "PATH is not searched");
    check_refused(directory.path("missing"), "No such file");
    check_refused(directory.path("a\nb"), "\\x0a");
    check_refused(directory.path(), "not a regular file");
    check_refused(directory.write("plain", program(), 0644), "chmod +x");
    check_refused(directory.write("plain", program(), 0644) + "/x", "Not a directory");
    check_refused(directory.write("suid", program(), 04755), "set-user-id");
    check_refused(directory.write("sgid", program(), 02755), "set-group-id");
    REQUIRE(::mkfifo(directory.path("pipe").c_str(), 0755) == 0);
    check_refused(directory.path("pipe"), "not a regular file");
    REQUIRE(::symlink("nowhere", directory.path("dangling").c_str()) == 0);
    check_refused(directory.path("dangling"), "No such file");
    REQUIRE(::symlink("loop", directory.path("loop").c_str()) == 0);
    check_refused(directory.path("loop"), "symbolic links");
}

TEST_CASE("scripts without a usable interpreter are refused") {
    const TempDirectory directory;
    check_refused(directory.write("s", "#!", 0755), "names no interpreter");
    check_refused(directory.write("s", "#! \t\n/bin/sh", 0755), "names no interpreter");
    check_refused(directory.write("s", "#!/nonexistent/php -n\n", 0755), "'/nonexistent/php'");
    check_refused(directory.write("s", "#!" + directory.write("plain", "", 0644) + "\n", 0755),
                  "Permission denied");
    check_refused(directory.write("s", "#!" + std::string(5000, 'x'), 0755), "interpreter");
}

TEST_CASE("files that the agent can not be preloaded into are refused") {
    const TempDirectory directory;
    const auto refused = [&directory](const std::string& content, std::string_view part) {
        check_refused(directory.write("binary", content, 0755), part);
    };
    const std::string good = program();
    refused("", "neither an ELF program nor a #! script");
    refused("echo hello\n", "neither an ELF program nor a #! script");
    refused(
        "\x7f"
        "EL",
        "neither an ELF program nor a #! script");
    std::string other_class = good;
    other_class[EI_CLASS] = other_class[EI_CLASS] == ELFCLASS64 ? ELFCLASS32 : ELFCLASS64;
    refused(other_class, "-bit like cede");
    std::string other_order = good;
    other_order[EI_DATA] = other_order[EI_DATA] == ELFDATA2LSB ? ELFDATA2MSB : ELFDATA2LSB;
    refused(other_order, "-bit like cede");
    using Half = ElfW(Half);
    refused(with_field<Half>(good, &ElfW(Ehdr)::e_machine, EM_S390), "another processor");
    refused(with_field<Half>(good, &ElfW(Ehdr)::e_type, ET_CORE), "not a program");
    refused(with_field<Half>(good, &ElfW(Ehdr)::e_type, ET_REL), "not a program");
    refused(with_field<Half>(good, &ElfW(Ehdr)::e_phnum, 0), "statically linked");
    refused(with_field<Half>(good, &ElfW(Ehdr)::e_phnum, 0xffff), "damaged");
    refused(with_field<Half>(good, &ElfW(Ehdr)::e_phentsize, 1), "damaged");
    refused(with_field<ElfW(Off)>(good, &ElfW(Ehdr)::e_phoff, ~ElfW(Off){0}), "damaged");
    refused(with_field<ElfW(Off)>(good, &ElfW(Ehdr)::e_phoff, good.size() - 1), "damaged");
    refused(with_loader(good, [](auto& entry, auto&) { entry.p_type = PT_NULL; }), "statically linked");
    refused(with_loader(good, [](auto& entry, auto&) { entry.p_filesz = 0; }), "damaged");
    refused(with_loader(good, [](auto& entry, auto&) { entry.p_filesz = ~ElfW(Off){0}; }), "damaged");
    refused(with_loader(good, [](auto& entry, auto&) { entry.p_offset = ~ElfW(Off){0}; }), "damaged");
    refused(with_loader(good, [](auto& entry, auto&) { entry.p_filesz -= 1; }), "damaged");
    refused(with_loader(good, [](auto& entry, std::string& bytes) { bytes[entry.p_offset + 1] = '!'; }),
            "its loader '/!");
}

TEST_CASE("a program that is cut or changed at random is refused or passes, and does no harm") {
    const TempDirectory directory;
    const std::string good = program();
    const auto header = at<ElfW(Ehdr)>(good, 0);
    const std::size_t end = header.e_phoff + std::size_t{header.e_phnum} * sizeof(ElfW(Phdr));
    for (std::size_t size = 0; size < end; size += 7) {
        CAPTURE(size);
        CHECK_FALSE(check_command(directory.write("cut", good.substr(0, size), 0755)).has_value());
    }
    std::mt19937 random{20240601};
    for (int i = 0; i < 500; ++i) {
        std::string changed = good.substr(0, 4096);
        for (int change = 0; change < 4; ++change) {
            changed[random() % end] = static_cast<char>(random());
        }
        static_cast<void>(check_command(directory.write("changed", changed, 0755)));
    }
}

TEST_CASE("the identity is judged as at a start") {
    Config config;
    CHECK_FALSE(check_identity(config, 0).has_value());
    config.user = "daemon";
    CHECK(check_identity(config, 0).has_value());
    CHECK_FALSE(check_identity(config, 4000000).has_value());
}

TEST_CASE("children's surroundings are tried out before the start") {
    const TempDirectory directory;
    const uid_t euid = ::geteuid();
    const std::string good = directory.write("program", "#!/bin/sh\n", 0755);
    const auto objections = [euid](const Config& config) {
        std::string all;
        for (const Error& error : check_start(config, euid)) {
            CHECK(error.exit_status == Error::failure);
            all += error.message + '\n';
        }
        return all;
    };
    Config config;
    config.user = euid == 0 ? "daemon" : "";
    config.command = {good};
    CHECK(objections(config).empty());
    config.umask = 077;
    config.nice = 5;
    config.rlimit_nofile = 256;
    config.rlimit_core = 0;
    config.chdir = directory.path();
    CHECK(objections(config).empty());

    // A relative path counts from the directory in which children start.
    config.command = {"./program"};
    CHECK(objections(config).empty());
    config.chdir = "/usr";
    CHECK(objections(config).starts_with("--command './program': "));
    config.chdir = directory.path("missing");
    CHECK(objections(config).starts_with("--chdir: can't change the directory: No such file"));
}

TEST_CASE("another root directory has to have the command and a /proc, and needs root") {
    const TempDirectory directory;
    Config config;
    config.user = "daemon";
    config.command = {directory.write("program", "#!/bin/sh\n", 0755)};
    config.chroot = directory.path();
    const auto refused = check_start(config, 1000);
    REQUIRE(refused.size() == 1);
    CHECK(refused[0].message.starts_with("--chroot: only root"));
    if (::geteuid() != 0) {
        MESSAGE("only root can change the root directory");
        return;
    }
    const auto errors = check_start(config, 0);
    REQUIRE(errors.size() == 2);
    CHECK(errors[0].message.find("mount --bind /proc " + directory.path() + "/proc") != std::string::npos);
    CHECK(errors[1].message.starts_with("--command inside '" + directory.path() + "' '"));
    config.chroot = "/";
    CHECK(check_start(config, 0).empty());
    config.chroot = directory.path("missing");
    const auto missing = check_start(config, 0);
    REQUIRE(missing.size() == 1);
    CHECK(missing[0].message.starts_with("--chroot: can't change the root directory: No such file"));
}

TEST_CASE("root that may not signal its children is told which capability is missing") {
    if (::geteuid() != 0) {
        MESSAGE("only root starts children as another user");
        return;
    }
    Config config;
    config.user = "daemon";
    CHECK(check_signalling(config, 0).empty());
    const auto without = [&config] {
        return in_child([&config] {
            __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
            __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3]{};
            ::syscall(SYS_capget, &header, sets);
            sets[0].effective &= ~CAP_TO_MASK(CAP_KILL);
            return ::syscall(SYS_capset, &header, sets) == 0 ? check_signalling(config, 0) : "no capset";
        });
    };
    CHECK(without().find("CAP_KILL") != std::string::npos);
    CHECK(without().find("daemon") != std::string::npos);
    config.user = "root";
    config.allow_root = true;
    CHECK(without().empty());
}

TEST_CASE("addresses that can be listened on pass, whether or not somebody does already") {
    const TempDirectory directory;
    const UniqueFd live = listening_socket(unix_address(directory.path("live")));
    Config config = listening_at({"127.0.0.1:9000", "[::1]:9000", "*:9001", "127.0.0.1:0", "127.0.0.1:0",
                                  directory.path("new"), directory.path("live")});
    config.listen_owner = "daemon";
    config.listen_group = "4000000";
    CHECK(refusal(config) == "none");
    CHECK(refusal(Config{}) == "none");
}

TEST_CASE("addresses that can not be listened on are refused where they were set") {
    const TempDirectory directory;
    Config config = listening_at({"9000"});
    config.origins["listen 9000"] = "cede.conf:2: listen";
    CHECK(refusal(config).starts_with("cede.conf:2: listen: '9000'"));
    const auto refused = [](const Config& bad, std::string_view part) {
        CAPTURE(refusal(bad));
        CHECK(refusal(bad).starts_with("--listen"));
        CHECK(refusal(bad).find(part) != std::string::npos);
    };
    refused(listening_at({directory.path("no/s")}), "there is no directory");
    refused(listening_at({directory.write("file", "") + "/s"}), "is not a directory");
    refused(listening_at({directory.path("file")}), "a regular file at this path");
    refused(listening_at({"unix:" + directory.path()}), "a directory at this path");
    REQUIRE(::symlink("nowhere", directory.path("dangling").c_str()) == 0);
    refused(listening_at({directory.path("dangling")}), "a symbolic link at this path");
    Config owner = listening_at({directory.path("s")});
    owner.listen_owner = "nosuchuser";
    refused(owner, "no user 'nosuchuser'");
    owner.listen_owner.clear();
    owner.listen_group = "nosuchgroup";
    refused(owner, "no group 'nosuchgroup'");
}

TEST_CASE("one address in two spellings is found") {
    const TempDirectory directory;
    REQUIRE(::symlink(".", directory.path("here").c_str()) == 0);
    const std::vector<std::vector<std::string>> pairs{
        {"127.0.0.1:9000", "127.0.0.1:09000"},
        {"[::1]:9000", "[0:0::1]:9000"},
        {directory.path("s"), "unix:" + directory.path("s")},
        {directory.path("s"), directory.path("here/here/s")},
    };
    for (const auto& pair : pairs) {
        CAPTURE(pair[1]);
        CHECK(refusal(listening_at(pair)).find("same address") != std::string::npos);
    }
    CHECK(refusal(listening_at({directory.path("s"), directory.path("t")})) == "none");
}

TEST_CASE("a directory that may not be written is refused" * doctest::skip(::geteuid() != 0)) {
    const TempDirectory directory;
    const std::string refused = in_child([&] {
        return ::setgid(4000000) == 0 && ::setuid(4000000) == 0 ? refusal(listening_at({directory.path("s")}))
                                                                : "setuid failed";
    });
    CAPTURE(refused);
    CHECK(refused.find("Permission denied") != std::string::npos);
}

TEST_CASE("cede is no command for itself") {
    const TempDirectory directory;
    REQUIRE(::symlink("/proc/self/exe", directory.path("lsphp").c_str()) == 0);
    check_refused("/proc/self/exe", "this is cede itself");
    check_refused(directory.path("lsphp"), "this is cede itself");
}

TEST_CASE("children that are known to be lsphp may not be root") {
    Config config = listening_at({"127.0.0.1:9000"});
    config.command = {"/bin/true"};
    config.allow_root = true;
    CHECK(check_all(config, 0).empty());
    config.protocol = cede::protocol::Protocol::lsapi;
    const auto errors = check_all(config, 0);
    REQUIRE(errors.size() == 1);
    CHECK(errors[0].message.starts_with("--allow-root: lsphp can not serve as root; give --user"));
    config.user = "root";
    CHECK(check_all(config, 0)[0].message.starts_with("--user: lsphp can not serve as root"));
    config.user = "daemon";
    CHECK(check_all(config, 0).empty());
    config.user.clear();
    CHECK(check_all(config, 1000).empty());
}

TEST_CASE("all objections come at once") {
    Config config = listening_at({"/nonexistent/s"});
    config.command = {"/nonexistent/php"};
    config.origins["command"] = "/etc/cede.conf:3: command";
    const auto errors = check_all(config, 0);
    REQUIRE(errors.size() == 3);
    CHECK(errors[0].message.starts_with("--listen"));
    CHECK(errors[1].message.starts_with("--user"));
    CHECK(errors[2].message.starts_with("/etc/cede.conf:3: command '/nonexistent/php': No such file"));
    config = listening_at({"127.0.0.1:9000"});
    config.user = "daemon";
    config.command = {"/bin/true"};
    CHECK(check_all(config, 0).empty());
}

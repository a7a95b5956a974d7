// SPDX-License-Identifier: Apache-2.0
#include "pm/identity.h"

#include <algorithm>
#include <pwd.h>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

using namespace cede::pm;

namespace {

Config with(std::string user, std::string group = {}, bool allow_root = false) {
    Config config;
    config.user = std::move(user);
    config.group = std::move(group);
    config.allow_root = allow_root;
    return config;
}

void check_refused(const Config& config, uid_t euid, const std::vector<std::string>& parts) {
    const auto identity = resolve_identity(config, euid);
    REQUIRE_FALSE(identity.has_value());
    CAPTURE(identity.error().message);
    CHECK(identity.error().exit_status == Error::failure);
    for (const std::string& part : parts) {
        CAPTURE(part);
        CHECK(identity.error().message.find(part) != std::string::npos);
    }
}

// Every Debian has the user and group daemon, with number 1.
constexpr uid_t daemon_id = 1;

}  // namespace

TEST_CASE("root needs --user, and gets that user with its groups") {
    check_refused(with(""), 0, {"--user", "--user www-data", "--allow-root"});
    const auto identity = resolve_identity(with("daemon"), 0);
    REQUIRE(identity.has_value());
    CHECK(identity->uid == daemon_id);
    CHECK(identity->gid == daemon_id);
    CHECK(identity->name == "daemon");
    CHECK(identity->change);
    CHECK(std::ranges::find(identity->supplementary, daemon_id) != identity->supplementary.end());
}

TEST_CASE("a group of its own replaces the user's first group") {
    const auto identity = resolve_identity(with("daemon", "mail"), 0);
    REQUIRE(identity.has_value());
    CHECK(identity->uid == daemon_id);
    CHECK(identity->gid == resolve_group("mail", "").value());
    CHECK(std::ranges::find(identity->supplementary, identity->gid) != identity->supplementary.end());
}

TEST_CASE("numbers are users and groups, known ones by their name, unknown ones with a group only") {
    CHECK(resolve_identity(with("1"), 0)->name == "daemon");
    check_refused(with("4000000"), 0, {"--user", "'4000000'", "--group"});
    const auto identity = resolve_identity(with("4000000", "4000001"), 0);
    REQUIRE(identity.has_value());
    CHECK(identity->uid == 4000000);
    CHECK(identity->gid == 4000001);
    CHECK(identity->supplementary == std::vector<gid_t>{4000001});
    CHECK(identity->name == "4000000");
}

TEST_CASE("children are root only when that is allowed, however root is spelled") {
    for (const char* root : {"root", "0", "00"}) {
        CAPTURE(root);
        check_refused(with(root), 0, {"--user", "--allow-root"});
        CHECK(resolve_identity(with(root, "", true), 0)->uid == 0);
    }
    const auto same = resolve_identity(with("", "", true), 0);
    REQUIRE(same.has_value());
    CHECK(same->uid == 0);
    CHECK_FALSE(same->change);
    const auto other_group = resolve_identity(with("", "daemon", true), 0);
    REQUIRE(other_group.has_value());
    CHECK(other_group->uid == 0);
    CHECK(other_group->gid == daemon_id);
    CHECK(other_group->change);
    CHECK(resolve_identity(with("daemon", "", true), 0)->uid == daemon_id);
}

TEST_CASE("who is not root stays who he is, and may say so") {
    const auto silent = resolve_identity(with(""), daemon_id);
    REQUIRE(silent.has_value());
    CHECK(silent->uid == daemon_id);
    CHECK(silent->gid == ::getegid());
    CHECK(silent->name == "daemon");
    CHECK_FALSE(silent->change);
    CHECK_FALSE(resolve_identity(with("daemon", std::to_string(::getegid())), daemon_id)->change);
    CHECK_FALSE(resolve_identity(with("1"), daemon_id)->change);
    check_refused(with("nobody"), daemon_id, {"--user", "only root", "nobody", "daemon"});
    check_refused(with("root"), daemon_id, {"--user", "only root"});
    check_refused(with("", "4000001"), daemon_id, {"--group", "only root", "'4000001'"});
}

TEST_CASE("users and groups that do not exist, or can not, are refused where they were set") {
    Config config = with("nosuchuser");
    config.origins["user"] = "cede.conf:3: user";
    check_refused(config, 0, {"cede.conf:3: user: ", "no user 'nosuchuser'"});
    check_refused(config, daemon_id, {"cede.conf:3: user: ", "no user 'nosuchuser'"});
    check_refused(with("daemon", "nosuchgroup"), 0, {"--group: ", "no group 'nosuchgroup'"});
    check_refused(with("", "nosuchgroup"), daemon_id, {"--group: ", "no group 'nosuchgroup'"});
    for (const std::string& bad :
         {std::string{"4294967295"}, std::string{"99999999999"}, std::string{"-1"}, std::string{"+1"},
          std::string{"1 "}, std::string{"a:b"}, std::string{"a/b"}, std::string(10000, 'u')}) {
        CAPTURE(bad.substr(0, 20));
        CHECK_FALSE(resolve_user(bad, "--listen-owner").has_value());
        CHECK_FALSE(resolve_group(bad, "--listen-group").has_value());
    }
    CHECK(resolve_user("nosuchuser", "--listen-owner").error().message.starts_with("--listen-owner: "));
}

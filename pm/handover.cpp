// SPDX-License-Identifier: Apache-2.0
#include "pm/handover.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <string_view>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/describe/class.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <boost/json/value_from.hpp>
#include <boost/json/value_to.hpp>
#include <fmt/format.h>

#include "children/scoreboard.h"
#include "children/zygote_protocol.h"

namespace cede::pm {

BOOST_DESCRIBE_STRUCT(Handover::Socket, (),
                      (fd, kind, name, created, access, path, device, inode, backlog_asked, backlog_granted,
                       nonblocking_before))
BOOST_DESCRIBE_STRUCT(Handover::Child, (),
                      (slot, pid, channel, ready, leaving, outdated, reserved, generation, chance, ordered_at,
                       ready_at, leaving_since))
BOOST_DESCRIBE_STRUCT(Handover::Zygote, (), (pid, channel, generation, protocol, started_at))
BOOST_DESCRIBE_STRUCT(Held, (), (fd, since_ns))
BOOST_DESCRIBE_STRUCT(Handover::Setting, (), (name, value))
BOOST_DESCRIBE_STRUCT(Handover::Output, (), (kind, number, fd, author))
BOOST_DESCRIBE_STRUCT(Handover::Control, (), (fd, path, device, inode))
BOOST_DESCRIBE_STRUCT(Handover, (),
                      (format, scoreboard_version, protocol_version, born, supervisor, version, executed,
                       arguments, executable, files_soft, files_hard, settings, command, slots, listeners,
                       scoreboard, handoff_ours, handoff_theirs, parent, client, control, totals, generation,
                       zygote, children, outputs, parked, fresh, partial, leaving, lingering, queued))

namespace {

namespace json = boost::json;

constexpr int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
constexpr std::uint64_t largest = 256ULL << 20U;  // far above a million connections

bool write_all(int fd, std::string_view text) noexcept {
    while (!text.empty()) {
        const ssize_t written = ::write(fd, text.data(), text.size());
        if (written <= 0) {
            return false;
        }
        text.remove_prefix(static_cast<std::size_t>(written));
    }
    return true;
}

std::expected<std::string, std::string> read_sealed(int fd) {
    struct stat status {};
    // Only what one of us has made is sealed like this, and can not change while it is read.
    if (::fcntl(fd, F_GET_SEALS) != seals || ::fstat(fd, &status) != 0 ||
        static_cast<std::uint64_t>(status.st_size) > largest) {
        return std::unexpected{
            fmt::format("descriptor {} is not what a cede leaves behind; unset {}", fd, handover_variable)};
    }
    std::string text(static_cast<std::size_t>(status.st_size), '\0');
    std::size_t done = 0;
    while (done < text.size()) {
        const ssize_t got = ::pread(fd, text.data() + done, text.size() - done, static_cast<off_t>(done));
        if (got <= 0) {
            return std::unexpected{std::string{"what was left behind can't be read"}};
        }
        done += static_cast<std::size_t>(got);
    }
    return text;
}

// Before anything else of another version's is looked at.
std::string objection(const json::value& value) {
    const auto number = [&value](const char* name) -> std::uint64_t {
        const json::object* const object = value.if_object();
        const json::value* const member = object == nullptr ? nullptr : object->if_contains(name);
        json::error_code error;
        const auto read = member == nullptr ? 0 : member->to_number<std::uint64_t>(error);
        return error ? 0 : read;
    };
    const auto differs = [&](const char* what, const char* name, std::uint32_t ours) {
        const std::uint64_t theirs = number(name);
        return theirs == ours ? ""
                              : fmt::format(
                                    "the running cede's {} is {}, and this one's {}; restart cede instead "
                                    "of upgrading it",
                                    what, theirs, ours);
    };
    for (std::string problem :
         {differs("handover format", "format", Handover::current_format),
          differs("scoreboard", "scoreboard_version", children::scoreboard_version),
          differs("protocol with its children", "protocol_version", children::protocol_version)}) {
        if (!problem.empty()) {
            return problem;
        }
    }
    return {};
}

}  // namespace

std::expected<children::UniqueFd, int> write_handover(const Handover& handover) {
    children::UniqueFd file{::memfd_create("cede-handover", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
    if (!file) {
        return std::unexpected{errno};
    }
    if (!write_all(file.get(), json::serialize(json::value_from(handover))) ||
        ::fcntl(file.get(), F_ADD_SEALS, seals) != 0) {
        return std::unexpected{errno};
    }
    return file;
}

std::expected<Handover, std::string> read_handover(int fd, Reading reading) {
    const auto text = read_sealed(fd);
    if (!text) {
        return std::unexpected{text.error()};
    }
    json::error_code error;
    const json::value value = json::parse(*text, error);
    if (error) {
        return std::unexpected{fmt::format("what was left behind is no JSON: {}", error.message())};
    }
    if (std::string problem = objection(value); !problem.empty()) {
        return std::unexpected{std::move(problem)};
    }
    auto handover = json::try_value_to<Handover>(value);
    if (!handover) {
        return std::unexpected{
            fmt::format("what was left behind can't be understood: {}", handover.error().message())};
    }
    if (reading == Reading::look) {
        return std::move(*handover);
    }
    if (handover->supervisor != ::getpid()) {
        return std::unexpected{fmt::format("what was left behind is for process {}; unset {}",
                                           handover->supervisor, handover_variable)};
    }
    for (const int descriptor : descriptors_of(*handover)) {
        if (::fcntl(descriptor, F_GETFD) < 0) {
            return std::unexpected{fmt::format("descriptor {} was promised and is not open", descriptor)};
        }
    }
    if (handover->listeners.empty() || handover->scoreboard < 0 || handover->handoff_ours < 0 ||
        handover->handoff_theirs < 0) {
        return std::unexpected{std::string{"what was left behind lacks the listening sockets"}};
    }
    return std::move(*handover);
}

std::vector<int> descriptors_of(const Handover& handover) {
    std::vector<int> all{handover.executable,     handover.scoreboard, handover.handoff_ours,
                         handover.handoff_theirs, handover.parent,     handover.client,
                         handover.zygote.channel, handover.control.fd};
    for (const auto& listener : handover.listeners) {
        all.push_back(listener.fd);
    }
    for (const auto& child : handover.children) {
        all.push_back(child.channel);
    }
    for (const auto& output : handover.outputs) {
        all.push_back(output.fd);
    }
    for (const auto* connections : {&handover.parked, &handover.fresh, &handover.partial, &handover.leaving,
                                    &handover.lingering, &handover.queued}) {
        for (const auto& connection : *connections) {
            all.push_back(connection.fd);
        }
    }
    std::erase_if(all, [](int fd) { return fd < 0; });
    return all;
}

}  // namespace cede::pm

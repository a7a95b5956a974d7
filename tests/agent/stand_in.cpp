// SPDX-License-Identifier: Apache-2.0
#include "tests/agent/stand_in.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <poll.h>
#include <stdexcept>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "children/fd_passing.h"
#include "children/spawn.h"
#include "pm/child_environment.h"
#include "pm/queue_depth.h"
#include "tests/support/descriptors.h"
#include "tests/support/temp_directory.h"

namespace cede::tests {

using children::ChildState;
using children::Received;
using children::ZygoteReport;
using children::ZygoteSays;

namespace {

constexpr int patience_ms = 10000;

// False when nothing has come in time.
bool readable(int fd, int timeout_ms = patience_ms) {
    pollfd watched{fd, POLLIN, 0};
    return ::poll(&watched, 1, timeout_ms) > 0;
}

// The letter of proc(5), stat.
char state_of(pid_t pid) {
    std::ifstream stat{"/proc/" + std::to_string(pid) + "/stat"};
    const std::string text{std::istreambuf_iterator<char>{stat}, {}};
    const auto end = text.rfind(") ");
    return end == std::string::npos ? '?' : text[end + 2];
}

// How often a process has gone to sleep, in the words of proc(5).
std::string times_asleep(pid_t pid) {
    std::ifstream status{"/proc/" + std::to_string(pid) + "/status"};
    std::string line;
    while (std::getline(status, line) && !line.starts_with("voluntary_ctxt_switches:")) {
    }
    return line;
}

}  // namespace

struct StandIn::Directory : TempDirectory {};

std::string host_path() {
    return CEDE_TEST_HOST;
}
std::string agent_path() {
    return CEDE_TEST_AGENT;
}
std::string source_path(const std::string& file) {
    return std::string{CEDE_TEST_SOURCE} + "/" + file;
}

StandIn::StandIn(Options options)
    : directory_{std::make_unique<Directory>()},
      scoreboard_{*children::ScoreboardMap::create(options.slots)},
      channels_(options.slots) {
    if (options.command.empty()) {
        options.command = {host_path()};
    }
    control().protocol = options.protocol;
    control().slots_used = options.slots;
    control().linger_timeout_ms = 1000;
    open_listeners(options);
    Ends handoff = socket_pair(SOCK_SEQPACKET | SOCK_NONBLOCK);
    handoff_sender_ = std::move(handoff.ours);
    handoff_receiver_ = std::move(handoff.theirs);
    start(options);
}

void StandIn::open_listeners(const Options& options) {
    for (std::size_t i = 0; i < options.listeners; ++i) {
        listeners_.push_back(listening_socket(
            options.unix_sockets ? unix_address(directory_->path("s" + std::to_string(i))) : loopback4(),
            128));
        const int yes = 1;  // accepted sockets inherit it; see can_listen_at()
        ::setsockopt(listeners_.back().get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        ::fcntl(listeners_.back().get(), F_SETFL, options.blocking_listeners ? 0 : O_NONBLOCK);
        addresses_.push_back(address_of(listeners_.back().get()));
    }
}

void StandIn::start(const Options& options) {
    Ends channel = socket_pair();
    zygote_channel_ = std::move(channel.ours);
    const UniqueFd library{::open(agent_path().c_str(), O_RDONLY | O_CLOEXEC)};
    children::SpawnRequest request;
    request.command = options.command;
    request.stdin_fd = listeners_.front().get();
    request.output_fd = options.output;
    request.inherited_fds = {channel.theirs.get(), scoreboard_.fd(), handoff_receiver_.get()};
    for (const UniqueFd& listener : listeners_) {
        request.inherited_fds.push_back(listener.get());
    }
    request.inherited_fds.push_back(library.get());
    std::vector<const char*> own;
    for (const std::string& entry : options.environment) {
        own.push_back(entry.c_str());
    }
    const auto number = children::inherited_base + static_cast<int>(request.inherited_fds.size()) - 1;
    request.environment = pm::child_environment(own, "/proc/self/fd/" + std::to_string(number),
                                                listeners_.size(), options.slots);
    if (!options.agent_variable.empty()) {
        std::erase_if(request.environment,
                      [](const auto& entry) { return entry.starts_with("CEDE_AGENT="); });
        request.environment.push_back("CEDE_AGENT=" + options.agent_variable);
    }
    const auto pid = children::spawn(request);
    if (!pid) {
        throw std::runtime_error{std::string{"start: "} + std::strerror(pid.error().error)};
    }
    zygote_ = *pid;
}

StandIn::~StandIn() {
    zygote_channel_.reset();
    close_all_channels();
    for (const pid_t child : children_) {
        if (child > 0) {
            ::kill(child, SIGKILL);
            ::waitpid(child, nullptr, 0);
        }
    }
    if (zygote_ > 0) {
        ::kill(zygote_, SIGKILL);
        ::waitpid(zygote_, nullptr, 0);
    }
}

std::optional<ZygoteReport> StandIn::hear_zygote() {
    ZygoteReport report;
    if (!readable(zygote_channel_.get())) {
        throw std::runtime_error{"the zygote says nothing"};
    }
    const Received received = children::receive_message(zygote_channel_.get(), &report, sizeof report, false);
    if (received.kind == Received::Kind::closed || received.kind == Received::Kind::failed) {
        return std::nullopt;
    }
    if (received.size != sizeof report || report.version != children::protocol_version) {
        throw std::runtime_error{"a report of another version"};
    }
    return report;
}

ZygoteReport StandIn::wait_until_ready() {
    while (const auto report = hear_zygote()) {
        if (report->says == ZygoteSays::ready) {
            return *report;
        }
    }
    throw std::runtime_error{"the zygote has gone without having been ready"};
}

void StandIn::order(std::uint32_t slot, std::uint32_t generation, Output output) {
    Ends channel = socket_pair();
    children::ForkOrder order;
    order.slot = slot;
    order.generation = generation;
    order.replaced = output.replaced;
    if (slot < channels_.size()) {
        scoreboard_.reset(slot, ChildState::starting);
        scoreboard_.slot(slot).reserved = reserve_ ? 1 : 0;
        channels_[slot] = std::move(channel.ours);
    }
    if (!children::send_message(zygote_channel_.get(), &order, sizeof order, channel.theirs.get(),
                                output.fd)) {
        throw std::runtime_error{"the zygote takes no order"};
    }
}

pid_t StandIn::start_child(std::uint32_t index, Output output) {
    order(index, 1, output);
    const auto report = hear_zygote();
    if (!report || report->says != ZygoteSays::forked || report->slot != index) {
        throw std::runtime_error{"no child was forked"};
    }
    children_.push_back(report->pid);
    if (hear(index).says != children::ChildSays::ready || !becomes(index, ChildState::free)) {
        throw std::runtime_error{"the child did not become ready"};
    }
    return report->pid;
}

void StandIn::start_reserved_child() {
    reserve_ = true;
    (void)start_child(0);
    reserve_ = false;
}

StandIn::Heard StandIn::hear(std::uint32_t index) {
    children::ChildReport report;
    if (!readable(channels_[index].get())) {
        throw std::runtime_error{"the child says nothing"};
    }
    const Received received =
        children::receive_message(channels_[index].get(), &report, sizeof report, false);
    const bool message = received.kind == Received::Kind::message;
    if (message && received.size != sizeof report) {
        throw std::runtime_error{"the child's message has another size"};
    }
    const UniqueFd unwanted{received.fd};
    if (unwanted) {
        throw std::runtime_error{"a descriptor where none belongs"};
    }
    return {!message, report.says, report.why, report.spoken};
}

UniqueFd StandIn::hear_parked() {
    return hear_given_up(children::ChildSays::park);
}

UniqueFd StandIn::hear_seen_off() {
    return hear_given_up(children::ChildSays::see_off);
}

UniqueFd StandIn::hear_partial() {
    return hear_given_up(children::ChildSays::park_partial);
}

UniqueFd StandIn::hear_lingering() {
    return hear_given_up(children::ChildSays::linger);
}

UniqueFd StandIn::hear_given_up(children::ChildSays how) {
    children::ChildReport report;
    if (!readable(handoff_sender_.get())) {
        throw std::runtime_error{"no connection is given up"};
    }
    const Received received = children::receive_message(handoff_sender_.get(), &report, sizeof report, false);
    UniqueFd connection{received.fd};
    if (received.size != sizeof report || report.says != how || !connection) {
        throw std::runtime_error{"a connection is given up in another way"};
    }
    return connection;
}

bool StandIn::has_parked() {
    return readable(handoff_sender_.get(), 0);
}

bool StandIn::has_spoken(std::uint32_t index) {
    return readable(channels_[index].get(), 0);
}

void StandIn::ring(std::uint32_t index) {
    const children::Doorbell bell;
    if (!children::send_message(channels_[index].get(), &bell, sizeof bell, -1)) {
        throw std::runtime_error{"the doorbell does not work"};
    }
}

void StandIn::close_all_channels() {
    for (UniqueFd& channel : channels_) {
        channel.reset();
    }
}

bool StandIn::tell_to_give_up(std::uint32_t index) {
    ChildState expected = ChildState::idle;
    if (!slot(index).state.compare_exchange_strong(expected, ChildState::giving_up)) {
        return false;
    }
    ring(index);
    return true;
}

void StandIn::tell_to_end_request(pid_t child, std::uint64_t begun) {
    siginfo_t info{};
    info.si_code = SI_QUEUE;
    info.si_pid = ::getpid();
    info.si_uid = ::getuid();
    info.si_value.sival_int = static_cast<int>(begun);
    ::syscall(SYS_rt_tgsigqueueinfo, child, child, children::overtime_signal, &info);
}

bool StandIn::becomes(std::uint32_t index, ChildState state) {
    return soon([&] { return slot(index).state.load() == state; });
}

bool StandIn::stop(pid_t pid) {
    ::kill(pid, SIGSTOP);
    return soon([&] { return state_of(pid) == 'T'; });
}

bool StandIn::sleeps(pid_t pid) {
    return state_of(pid) == 'S';
}

bool StandIn::disturb(pid_t pid, int signal) {
    if (!soon([&] { return sleeps(pid); })) {
        return false;
    }
    const std::string before = times_asleep(pid);
    return ::kill(pid, signal) == 0 && soon([&] { return times_asleep(pid) != before && sleeps(pid); });
}

std::optional<int> StandIn::exit_of(pid_t pid) {
    int status = 0;
    if (!soon([&] { return ::waitpid(pid, &status, WNOHANG) == pid; })) {
        return std::nullopt;
    }
    std::ranges::replace(children_, pid, -1);
    zygote_ = zygote_ == pid ? -1 : zygote_;
    return status;
}

UniqueFd StandIn::connect(std::size_t listener) {
    UniqueFd fd = connected_to(addresses_[listener]);
    pollfd watched{fd.get(), POLLOUT, 0};
    ::poll(&watched, 1, patience_ms);
    return fd;
}

void StandIn::hand_off(UniqueFd connection, std::uint64_t since_ns, bool as_it_is) {
    const children::Handoff message{since_ns, as_it_is ? 1U : 0U};
    if (!children::send_message(handoff_sender_.get(), &message, sizeof message, connection.get())) {
        throw std::runtime_error{"the handoff queue is full"};
    }
}

int StandIn::fill_parking() {
    const UniqueFd null{::open("/dev/null", O_RDWR | O_CLOEXEC)};
    const children::ChildReport report{children::ChildSays::park};
    int sent = 0;
    while (sent < 10000 &&
           children::send_message(handoff_receiver_.get(), &report, sizeof report, null.get())) {
        ++sent;
    }
    return sent;
}

std::size_t StandIn::waiting_in_listen_queue() {
    std::size_t sum = 0;
    for (const UniqueFd& listener : listeners_) {
        if (const auto reading = pm::QueueDepth::best_for(listener.get()).read()) {
            sum += reading->waiting;
        }
    }
    return sum;
}

SocketAddress StandIn::address(std::size_t listener) const {
    return addresses_[listener];
}

bool has_ended(pid_t pid) {
    const char state = state_of(pid);
    return state == '?' || state == 'Z';
}

bool can_listen_at(const SocketAddress& address) {
    const UniqueFd fd{::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    const int yes = 1;
    // As every server does it: connections that have ended are no obstacle.
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    return ::bind(fd.get(), address.get(), address.length) == 0 && ::listen(fd.get(), 1) == 0;
}

std::string run_program(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                        int& status) {
    Ends output = pipe_pair();
    const UniqueFd null{::open("/dev/null", O_RDWR | O_CLOEXEC)};
    children::SpawnRequest request;
    request.command = command;
    request.environment = environment;
    request.stdin_fd = null.get();
    request.output_fd = output.theirs.get();
    const auto pid = children::spawn(request);
    if (!pid) {
        throw std::runtime_error{std::string{"start: "} + std::strerror(pid.error().error)};
    }
    output.theirs.reset();
    std::string text;
    char buffer[4096];
    for (ssize_t size = 0; (size = ::read(output.ours.get(), buffer, sizeof buffer)) > 0;) {
        text.append(buffer, static_cast<std::size_t>(size));
    }
    ::waitpid(*pid, &status, 0);
    return text;
}

}  // namespace cede::tests

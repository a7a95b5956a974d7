// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "children/agent/agent.h"
#include "children/agent/libc.h"
#include "children/agent/overtime.h"
#include "children/agent/title.h"
#include "children/fd_passing.h"
#include "children/zygote_protocol.h"

namespace cede::agent {

using children::ChildState;
using children::FileId;
using children::ForkOrder;
using children::Slot;
using children::ZygoteReport;
using children::ZygoteSays;
using protocol::Protocol;

namespace {

// Our descriptors stand above those that a script gets, so that numbers come out as without the agent.
constexpr rlim_t preferred_base = 512;
constexpr rlim_t room_at_top = 64;
constinit int fd_base = 0;

int choose_base() noexcept {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    const rlim_t top = limit.rlim_cur > 2 * room_at_top ? limit.rlim_cur - room_at_top : room_at_top;
    return static_cast<int>(top < preferred_base ? top : preferred_base);
}

// Moves a descriptor above fd_base and marks it close-on-exec: programs that a script starts get none of
// ours.
bool move_up(int& fd) noexcept {
    const int moved = fcntl(fd, F_DUPFD_CLOEXEC, fd_base);
    if (moved < 0) {
        return false;
    }
    libc().close(fd);
    fd = moved;
    return true;
}

bool move_all_up() noexcept {
    fd_base = choose_base();
    libc().close(agent.library);
    bool moved = move_up(agent.zygote_channel) && move_up(agent.scoreboard) && move_up(agent.handoff);
    for (int i = 0; i < agent.listener_count; ++i) {
        moved = moved && move_up(agent.listeners[i]);
    }
    return moved;
}

// php-fpm's children have /dev/null there, too; a listener would be inherited by every program of a script.
bool replace_listener_by_null() noexcept {
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) {
        return false;
    }
    const int flags = agent.listener_fd == STDIN_FILENO ? 0 : O_CLOEXEC;
    const bool done = dup3(null, agent.listener_fd, flags) >= 0;
    libc().close(null);
    return done;
}

bool map_scoreboard() noexcept {
    const std::size_t size = children::scoreboard_size(agent.slot_count);
    void* const memory = mmap(nullptr, size, PROT_READ, MAP_SHARED, agent.scoreboard, 0);
    if (memory == MAP_FAILED) {
        return false;
    }
    agent.control = static_cast<const children::Control*>(memory);
    agent.slots = reinterpret_cast<const Slot*>(static_cast<const std::byte*>(memory) + children::page_size);
    return agent.control->magic == children::scoreboard_magic &&
           agent.control->version == children::scoreboard_version &&
           agent.control->slot_count == agent.slot_count;
}

int count_tasks() noexcept {
    DIR* const tasks = opendir("/proc/self/task");
    if (tasks == nullptr) {
        return 1;  // no /proc: nothing is known, and nothing is claimed
    }
    int count = 0;
    while (const dirent* entry = readdir(tasks)) {
        count += entry->d_name[0] != '.';
    }
    closedir(tasks);
    return count;
}

void report(ZygoteSays says, const ForkOrder& order, pid_t pid, int number) noexcept {
    ZygoteReport message;
    message.says = says;
    message.slot = order.slot;
    message.generation = order.generation;
    message.pid = pid;
    message.number = number;
    message.protocol = agent.protocol;
    // The first member of PHP's sapi_module_struct is its name (main/SAPI.h).
    if (const auto* module = static_cast<const char* const*>(dlsym(RTLD_DEFAULT, "sapi_module"));
        module != nullptr && *module != nullptr && says != ZygoteSays::hello) {
        std::strncpy(message.sapi, *module, sizeof message.sapi - 1);
    }
    (void)children::send_message(agent.zygote_channel, &message, sizeof message, -1);
}

bool watch(int fd, std::uint32_t events) noexcept {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    return epoll_ctl(agent.epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

// EPOLLEXCLUSIVE: one connection wakes one child, and the supervisor only if no child sleeps (epoll_ctl(2)).
bool watch_sources() noexcept {
    agent.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (agent.epoll < 0 || !move_up(agent.epoll)) {
        return false;
    }
    bool watching =
        watch(agent.channel, EPOLLIN) && (agent.reserved || watch(agent.handoff, EPOLLIN | EPOLLEXCLUSIVE));
    for (int i = 0; i < agent.listener_count; ++i) {
        watching = watching && watch(agent.listeners[i], EPOLLIN | EPOLLEXCLUSIVE);
    }
    return watching;
}

void know_listeners() noexcept {
    for (int i = 0; i < agent.listener_count; ++i) {
        int domain = AF_UNSPEC;
        socklen_t length = sizeof domain;
        getsockopt(agent.listeners[i], SOL_SOCKET, SO_DOMAIN, &domain, &length);
        agent.over_tcp[i] = domain == AF_INET || domain == AF_INET6;
    }
}

bool leads_to(int fd, const FileId& file) noexcept {
    struct stat status {};
    return fstat(fd, &status) == 0 && status.st_dev == file.device && status.st_ino == file.inode;
}

// On a failure the child shares the zygote's pipe: what it says is not lost.
void take_output(const FileId& replaced, int output) noexcept {
    if (output < 0) {
        return;
    }
    for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
        if (replaced.inode != 0 && leads_to(fd, replaced)) {
            (void)dup3(output, fd, 0);
        }
    }
    libc().close(output);
}

// What an order brings; the zygote closes its copies.
struct Brought {
    int channel = -1;
    int output = -1;  // -1: the zygote's
};

bool begin_child(Slot* slot, const ForkOrder& order, Brought brought) noexcept {
    agent.role = Role::child;
    restore_title();
    agent.slot = slot;
    agent.channel = brought.channel;
    take_output(order.replaced, brought.output);
    if (agent.zygote_channel >= 0) {
        libc().close(agent.zygote_channel);
    }
    libc().close(agent.scoreboard);
    agent.zygote_channel = agent.scoreboard = -1;
    // A session of its own: a script's kill(0, ...) reaches what the script started, not its siblings; and
    // the scheduler weighs it by itself (docs/design/0007-a-session-for-each-child.md).
    setsid();
    setpriority(PRIO_PROCESS, 0, agent.nice);
    watch_overtime();
    know_listeners();
    agent.reserved = slot->reserved.load(std::memory_order_relaxed) != 0;
    if (!move_up(agent.channel) || !watch_sources()) {
        return false;
    }
    const children::ChildReport ready;
    static_assert(children::ChildReport{}.says == children::ChildSays::ready);
    return children::send_message(agent.channel, &ready, sizeof ready, -1);
}

Slot* map_slot(std::uint32_t index) noexcept {
    const auto offset = static_cast<off_t>(children::page_size * (1 + std::size_t{index}));
    void* const page =
        mmap(nullptr, children::page_size, PROT_READ | PROT_WRITE, MAP_SHARED, agent.scoreboard, offset);
    return page == MAP_FAILED ? nullptr : static_cast<Slot*>(page);
}

// Executed by itself: the channel that a zygote would have is this child's.
bool begin_executed_child() noexcept {
    Slot* const slot = map_slot(static_cast<std::uint32_t>(agent.own_slot));
    if (slot == nullptr) {
        return false;
    }
    slot->pid.store(static_cast<std::uint32_t>(getpid()), std::memory_order_release);
    const int channel = agent.zygote_channel;
    agent.zygote_channel = -1;
    return begin_child(slot, {}, {channel, -1});
}

enum class Forked { in_zygote, in_child, in_broken_child };

// Forks twice, so that the child's parent is the supervisor (a subreaper, prctl(2)), which can then wait for
// it.
Forked fork_child(const ForkOrder& order, Brought brought) noexcept {
    Slot* const slot = order.slot < agent.slot_count ? map_slot(order.slot) : nullptr;
    if (slot == nullptr) {
        report(ZygoteSays::not_forked, order, 0, order.slot >= agent.slot_count ? ERANGE : errno);
        return Forked::in_zygote;
    }
    slot->pid.store(0, std::memory_order_relaxed);
    // The process between needs no memory of its own, and copying PHP's page tables for it would double the
    // cost. It changes nothing here: what it stores goes into shared memory, and its own child leaves on a
    // copy of this stack.
    const pid_t middle = vfork();
    if (middle == 0) {
        const pid_t pid = fork();
        if (pid == 0) {
            return begin_child(slot, order, brought) ? Forked::in_child : Forked::in_broken_child;
        }
        slot->pid.store(pid > 0 ? static_cast<std::uint32_t>(pid) : 0, std::memory_order_release);
        _exit(pid > 0 ? 0 : errno & 0x7f);
    }
    int status = 0;
    int error = errno;
    if (middle > 0) {
        while (waitpid(middle, &status, 0) < 0 && errno == EINTR) {
        }
        error = WIFEXITED(status) ? WEXITSTATUS(status) : ECHILD;
    }
    const auto pid = static_cast<pid_t>(slot->pid.load(std::memory_order_acquire));
    if (middle > 0 && pid > 0) {
        report(ZygoteSays::forked, order, pid, 0);
    } else {
        report(ZygoteSays::not_forked, order, 0, error);
    }
    munmap(slot, children::page_size);
    return Forked::in_zygote;
}

Forked serve_orders() noexcept {
    for (;;) {
        ForkOrder order;
        Brought brought;
        const auto received =
            children::receive_message(agent.zygote_channel, &order, sizeof order, true, &brought.output);
        brought.channel = received.fd;
        if (received.kind == children::Received::Kind::nothing) {
            continue;
        }
        if (received.kind != children::Received::Kind::message) {
            return Forked::in_zygote;
        }
        Forked forked = Forked::in_zygote;
        if (received.size == sizeof order && order.version == children::protocol_version &&
            received.fd >= 0) {
            forked = fork_child(order, brought);
        }
        if (forked != Forked::in_zygote) {
            return forked;
        }
        for (const int fd : {brought.channel, brought.output}) {
            if (fd >= 0) {
                libc().close(fd);
            }
        }
    }
}

}  // namespace

void say_hello() noexcept {
    if (agent.own_slot >= 0) {
        return;
    }
    report(ZygoteSays::hello, {}, getpid(), 0);
}

void say_goodbye() noexcept {
    if (agent.own_slot >= 0) {
        return;
    }
    report(ZygoteSays::ended, {}, getpid(), 0);
}

bool grow_up(int listener_fd, Protocol protocol) noexcept {
    clean_environment(true);
    agent.listener_fd = listener_fd;
    if (!move_all_up() || !replace_listener_by_null() || !map_scoreboard()) {
        return false;
    }
    const Protocol wanted = agent.control->protocol.load(std::memory_order_relaxed);
    agent.protocol = wanted != Protocol::unknown ? wanted : protocol;
    if (agent.own_slot >= 0) {
        return begin_executed_child();
    }
    // TERM or USR1 would set PHP's shutdown flag in here, and every child forked later would end after one
    // request. Blocked signals stay pending in the zygote and are not inherited by fork(2).
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    agent.role = Role::zygote;
    agent.nice = getpriority(PRIO_PROCESS, 0);
    show_zygote_title();
    report(ZygoteSays::ready, {}, getpid(), count_tasks());
    const Forked forked = serve_orders();
    sigprocmask(SIG_SETMASK, &before, nullptr);
    if (forked == Forked::in_broken_child && agent.slot != nullptr) {
        agent.slot->state.store(ChildState::exiting, std::memory_order_seq_cst);
    }
    return forked == Forked::in_child;
}

void become_stranger() noexcept {
    agent.role = Role::stranger;
    forget_overtime();
    const int connection = agent.connection.fd();
    agent.connection.forget();
    for (int i = 0; i < agent.listener_count; ++i) {
        libc().close(agent.listeners[i]);
    }
    libc().close(agent.handoff);
    libc().close(agent.epoll);
    libc().close(agent.channel);
    if (connection >= 0) {
        redirect_to_null(connection);  // PHP in the copy still knows the number
    }
}

void redirect_to_null(int fd) noexcept {
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
        dup3(null, fd, O_CLOEXEC);
        libc().close(null);
    } else {
        libc().close(fd);
    }
}

}  // namespace cede::agent

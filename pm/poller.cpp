// SPDX-License-Identifier: Apache-2.0
#include "pm/poller.h"

#include <cerrno>
#include <sys/epoll.h>
#include <system_error>

namespace cede::pm {
namespace {

constexpr std::size_t batch = 256;

std::uint64_t pack(Poller::Tag tag) noexcept {
    return (std::uint64_t{static_cast<std::uint8_t>(tag.kind)} << 56U) | (std::uint64_t{tag.age} << 32U) |
           tag.index;
}

Poller::Tag unpack(std::uint64_t packed) noexcept {
    return {static_cast<Poller::Kind>(packed >> 56U), static_cast<std::uint32_t>(packed),
            static_cast<std::uint16_t>(packed >> 32U)};
}

}  // namespace

Poller::Poller() : epoll_{epoll_create1(EPOLL_CLOEXEC)}, raw_(batch) {
    if (!epoll_) {
        throw std::system_error{errno, std::generic_category(), "epoll_create1"};
    }
    events_.reserve(batch);
}

bool Poller::add(int fd, std::uint32_t flags, Tag tag) noexcept {
    epoll_event event{};
    event.events = flags;
    event.data.u64 = pack(tag);
    return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void Poller::remove(int fd) noexcept {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

std::span<const Poller::Event> Poller::poll() {
    events_.clear();
    const int count = epoll_wait(epoll_.get(), raw_.data(), static_cast<int>(raw_.size()), 0);
    for (int i = 0; i < count; ++i) {
        const epoll_event& event = raw_[static_cast<std::size_t>(i)];
        events_.push_back({unpack(event.data.u64), event.events});
    }
    return events_;
}

}  // namespace cede::pm

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "pm/parking_lot.h"
#include "pm/poller.h"

namespace cede::pm {

// A table from which many leave in any order. A place has an index as long as it is taken, and an age by
// which an event for somebody who has left is told from one for who has the place now.
template <typename Content>
class Places {
  public:
    // Where the next one will be put: what its events are to be tagged with.
    [[nodiscard]] Poller::Tag next(Poller::Kind kind) const noexcept {
        if (free_.empty()) {
            return {kind, static_cast<std::uint32_t>(places_.size()), 0};
        }
        return {kind, free_.back(), places_[free_.back()].age};
    }
    std::uint32_t put(Content content) {
        const std::uint32_t index = next({}).index;
        if (free_.empty()) {
            places_.emplace_back();
        } else {
            free_.pop_back();
        }
        places_[index].content = std::move(content);
        ++size_;
        return index;
    }
    // Null: it has left.
    [[nodiscard]] Content* find(Poller::Tag tag) noexcept {
        if (tag.index >= places_.size() || places_[tag.index].age != tag.age || !places_[tag.index].content) {
            return nullptr;
        }
        return &*places_[tag.index].content;
    }
    // `index` is taken.
    Content take(std::uint32_t index) {
        Place& place = places_[index];
        Content content = std::move(*place.content);
        place.content.reset();
        ++place.age;
        --size_;
        free_.push_back(index);
        return content;
    }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    // The indices up to which there may be somebody, and who is there; null: nobody.
    [[nodiscard]] std::uint32_t end() const noexcept { return static_cast<std::uint32_t>(places_.size()); }
    [[nodiscard]] const Content* at(std::uint32_t index) const noexcept {
        return places_[index].content ? &*places_[index].content : nullptr;
    }

    // The connection and the time in each, in no order.
    [[nodiscard]] std::vector<Held> list() const {
        std::vector<Held> all;
        for (const Place& place : places_) {
            if (place.content) {
                all.push_back({place.content->fd.get(), place.content->since_ns});
            }
        }
        return all;
    }

  private:
    struct Place {
        std::optional<Content> content;
        std::uint16_t age = 0;
    };
    std::vector<Place> places_;
    std::vector<std::uint32_t> free_;
    std::size_t size_ = 0;
};

}  // namespace cede::pm

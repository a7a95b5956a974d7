// SPDX-License-Identifier: Apache-2.0
// What zygotes and children say: a pipe for each (pm/child_output.h).
#include <cstring>

#include "pm/log.h"
#include "pm/supervisor.h"

namespace cede::pm {
namespace {

ChildOutput::Owner owner_of(std::uint32_t slot) {
    return {ChildOutput::Owner::Kind::child, slot};
}

ChildOutput::Owner owner_of_generation(std::uint32_t generation) {
    return {ChildOutput::Owner::Kind::zygote, generation};
}

std::string identity_of(std::uint32_t generation, pid_t pid) {
    return fmt::format("zygote gen={} pid={}", generation, pid);
}

}  // namespace

// Starts it as the next generation.
bool Supervisor::launch(ZygoteHost& zygote, const Config& config, std::string& explanation) {
    const std::uint32_t generation = ++generation_;
    const ChildOutput::Owner owner = owner_of_generation(generation);
    auto output = output_.open(owner, config, zygote.request());
    if (!output) {
        explanation =
            fmt::format("can't make a pipe for its output: {} (raise the limit of open files, ulimit -n)",
                        std::strerror(output.error()));
        return false;
    }
    const bool started = zygote.start(generation, Clock::now(), output->get(), explanation);
    output->reset();
    if (!started) {
        output_.end(owner, identity_of(generation, 0));
        return false;
    }
    output_.begin(owner, identity_of(generation, zygote.pid()));
    log(LogLevel::info, "{} gen={} pid={} started: {}", zygote.role(), generation, zygote.pid(),
        zygote.program());
    return true;
}

// The end for the child; an empty one if its output is not captured.
std::optional<children::UniqueFd> Supervisor::open_output(std::uint32_t slot, const ZygoteHost& zygote,
                                                          const Config& config) {
    auto output = output_.open(owner_of(slot), config, zygote.request());
    if (!output) {
        log(LogLevel::error, "can't make a pipe for child={}: {} (raise the limit of open files, ulimit -n)",
            slot, std::strerror(output.error()));
        return std::nullopt;
    }
    return std::move(*output);
}

children::FileId Supervisor::output_of(const ZygoteHost& zygote) const noexcept {
    return output_.file_of(owner_of_generation(zygote.generation()));
}

void Supervisor::begin_output(std::uint32_t slot) {
    output_.begin(owner_of(slot), pool_.identity(slot));
}

void Supervisor::end_output(std::uint32_t slot) {
    output_.end(owner_of(slot), pool_.identity(slot));
}

void Supervisor::end_output(const ZygoteHost& zygote, pid_t pid) {
    output_.end(owner_of_generation(zygote.generation()), identity_of(zygote.generation(), pid));
}

}  // namespace cede::pm

// SPDX-License-Identifier: Apache-2.0
#include "children/agent/libc.h"

#include <dlfcn.h>

namespace cede::agent {
namespace {

constinit Libc originals{};

template <typename Function>
void resolve(Function& function, const char* name) noexcept {
    function = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

const Libc& libc() noexcept {
    if (originals.close == nullptr) [[unlikely]] {
        resolve(originals.accept, "accept");
        resolve(originals.accept4, "accept4");
        resolve(originals.read, "read");
        resolve(originals.recv, "recv");
        resolve(originals.write, "write");
        resolve(originals.send, "send");
        resolve(originals.writev, "writev");
        resolve(originals.poll, "poll");
        resolve(originals.select, "select");
        resolve(originals.shutdown, "shutdown");
        resolve(originals.sigaction, "sigaction");
        resolve(originals.close, "close");
    }
    return originals;
}

}  // namespace cede::agent

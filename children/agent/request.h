// SPDX-License-Identifier: Apache-2.0
#pragma once

// What becomes of a request whose first bytes are there: PHP gets it, or the supervisor, which waits for the
// rest of it, or it is answered or dropped here. Nothing is taken out of the socket before that is known, so
// that who sends slowly holds no child. docs/design/0014-whole-before-a-child.md has why.
namespace cede::agent {

enum class Taken {
    buffered,     // it is in the connection's buffer, to be admitted
    nothing,      // there was none after all, or it has been answered: the connection waits on
    gone,         // the peer is, or the connection was given up: PHP is to close its copy
    interrupted,  // by a signal, as nothing
};

// With nothing buffered. `hung_up`: the peer has said that it will send no more.
Taken take_request(bool hung_up) noexcept;

}  // namespace cede::agent

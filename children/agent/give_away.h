// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "children/zygote_protocol.h"

namespace cede::agent {

// Hands the connection to the supervisor, for the reason that is said: park, park_partial or see_off. PHP is
// then to close its copy. When the supervisor is late there is a wait for it, of a second at the most, but
// for see_off. False: the connection stays ours.
bool give_away(children::ChildSays says) noexcept;

// Whether the supervisor has room for what has a part of a request in it, or still waits for its peer, and
// will be there to wait: not in a drain or stop.
bool can_be_given_away() noexcept;

}  // namespace cede::agent

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "children/zygote_protocol.h"

namespace cede::agent {

// Hands the connection to the supervisor, for the reason that is said: park, park_partial or see_off. PHP is
// then to close its copy. When the supervisor is late there is a wait for it, of a second at the most, but
// for see_off. False: the connection stays ours.
bool give_away(children::ChildSays says) noexcept;

}  // namespace cede::agent

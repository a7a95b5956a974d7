// SPDX-License-Identifier: Apache-2.0
// Boost.JSON itself, compiled once: Debian's libboost1.81-dev has its source among the headers.
#include <boost/json/src.hpp>

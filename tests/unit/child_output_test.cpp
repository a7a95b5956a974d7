// SPDX-License-Identifier: Apache-2.0
#include "pm/child_output.h"

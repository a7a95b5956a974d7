<?php // SPDX-License-Identifier: Apache-2.0
// What ps shows of this process while the script runs, up to the first NUL.
echo strtok(file_get_contents('/proc/self/cmdline'), "\0");

<?php // SPDX-License-Identifier: Apache-2.0
echo "before\n";
this_function_does_not_exist();

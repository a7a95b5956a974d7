<?php // SPDX-License-Identifier: Apache-2.0
// Asks for this process to end after the request.
apache_child_terminate();
echo getmypid();

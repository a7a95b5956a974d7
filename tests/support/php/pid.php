<?php // SPDX-License-Identifier: Apache-2.0
// ?ms=N: says which process served this, after N milliseconds.
usleep((int) ($_GET['ms'] ?? 0) * 1000);
echo getmypid();

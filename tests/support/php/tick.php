<?php // SPDX-License-Identifier: Apache-2.0
// ?file=F&id=I&ms=N: leaves a line in F, so that a test can count how often the script really ran.
file_put_contents($_GET['file'], $_GET['id'] . "\n", FILE_APPEND | LOCK_EX);
usleep((int) ($_GET['ms'] ?? 0) * 1000);
echo $_GET['id'];

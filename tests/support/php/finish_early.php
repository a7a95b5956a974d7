<?php // SPDX-License-Identifier: Apache-2.0
// ?file=F&id=I&ms=N: the answer is complete at once; the script works on for N milliseconds and leaves a line in F.
header('X-Early: yes');
echo "early\n";
litespeed_finish_request();
echo "nobody sees this\n";
usleep((int) ($_GET['ms'] ?? 100) * 1000);
file_put_contents($_GET['file'], $_GET['id'] . ' ' . getmypid() . "\n", FILE_APPEND | LOCK_EX);

<?php // SPDX-License-Identifier: Apache-2.0
// ?signal=N: the process dies of signal N in the middle of a flushed answer.
while (ob_get_level()) {
    ob_end_clean(); // php.ini's output_buffering would hold back what is flushed
}
echo "before\n";
flush();
posix_kill(getmypid(), (int) ($_GET['signal'] ?? 9));
usleep(10_000_000);

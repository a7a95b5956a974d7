<?php // SPDX-License-Identifier: Apache-2.0
// ?code=N: ends in the middle of its output, after a flush.
while (ob_get_level()) {
    ob_end_clean(); // php.ini's output_buffering would hold back what is flushed
}
echo "before\n";
flush();
exit((int) ($_GET['code'] ?? 0));
echo "never\n";

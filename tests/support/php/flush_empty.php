<?php // SPDX-License-Identifier: Apache-2.0
// Flushes before, between and after output: a flush with nothing pending writes zero bytes.
while (ob_get_level()) {
    ob_end_clean(); // php.ini's output_buffering would hold back what is flushed
}
flush();
flush();
echo "between\n";
flush();
flush();

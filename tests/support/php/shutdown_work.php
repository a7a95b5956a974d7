<?php // SPDX-License-Identifier: Apache-2.0
// ?ms=N: the whole page is out and flushed, then N milliseconds of work follow.
while (ob_get_level()) {
    ob_end_clean(); // php.ini's output_buffering would hold back what is flushed
}
header('Content-Length: 5');
echo "page\n";
flush();
usleep((int) ($_GET['ms'] ?? 500) * 1000);

<?php // SPDX-License-Identifier: Apache-2.0
// ?pieces=N&size=S&ms=M: N pieces of S bytes, each flushed, M milliseconds apart.
while (ob_get_level()) {
    ob_end_clean(); // php.ini's output_buffering would hold back what is flushed
}
$size = (int) ($_GET['size'] ?? 10);
for ($piece = 0; $piece < (int) ($_GET['pieces'] ?? 5); $piece++) {
    echo str_pad("piece $piece ", $size, '.'), "\n";
    flush();
    usleep((int) ($_GET['ms'] ?? 50) * 1000);
}

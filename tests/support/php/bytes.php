<?php // SPDX-License-Identifier: Apache-2.0
// ?bytes=N&chunk=C: N bytes of a pattern of period 251 (a prime, so that lost or doubled blocks show), C at a time.
header('Content-Type: application/octet-stream');
$left = (int) ($_GET['bytes'] ?? 1000);
$chunk = (int) ($_GET['chunk'] ?? 65536);
if (isset($_GET['length'])) {
    header("Content-Length: $left");
}
$period = implode('', array_map('chr', range(0, 250)));
$pattern = str_repeat($period, intdiv($chunk, 251) + 2);
$offset = 0;
while ($left > 0) {
    $size = min($chunk, $left);
    echo substr($pattern, $offset % 251, $size);
    $offset += $size;
    $left -= $size;
}

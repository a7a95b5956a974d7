<?php // SPDX-License-Identifier: Apache-2.0
// Reads the whole body in pieces and answers with its length and hash.
$hash = hash_init('sha256');
$length = 0;
$input = fopen('php://input', 'rb');
while (!feof($input)) {
    $piece = fread($input, 65536);
    $length += strlen($piece);
    hash_update($hash, $piece);
}
echo $_SERVER['REQUEST_METHOD'], ' ', $length, ' ', hash_final($hash), "\n";

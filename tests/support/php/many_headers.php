<?php // SPDX-License-Identifier: Apache-2.0
// ?count=N&size=S: an answer with so many header lines, each with a value of S bytes.
for ($number = 0; $number < (int) ($_GET['count'] ?? 10); $number++) {
    header("X-Number-$number: " . str_repeat(chr(97 + $number % 26), (int) ($_GET['size'] ?? 10)));
}
echo "many headers\n";

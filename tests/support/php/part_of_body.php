<?php // SPDX-License-Identifier: Apache-2.0
// ?bytes=N: reads so much of its body and leaves the rest.
$input = fopen('php://input', 'rb');
$wanted = (int) ($_GET['bytes'] ?? 10);
$part = '';
while (strlen($part) < $wanted && !feof($input)) {
    $part .= fread($input, $wanted - strlen($part));
}
echo strlen($part), ' ', hash('sha256', $part), "\n";

<?php // SPDX-License-Identifier: Apache-2.0
// ?count=N: lists the cookies that came and sets N.
for ($number = 0; $number < (int) ($_GET['count'] ?? 2); $number++) {
    setcookie("set$number", "value $number");
}
foreach ($_COOKIE as $name => $value) {
    echo $name, '=', $value, "\n";
}

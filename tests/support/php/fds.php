<?php // SPDX-License-Identifier: Apache-2.0
// The descriptors of this very process.
header('Content-Type: application/json');
$found = [];
foreach (scandir('/proc/self/fd') as $name) {
    if (ctype_digit($name)) {
        $found[$name] = @readlink("/proc/self/fd/$name");
    }
}
echo json_encode($found);

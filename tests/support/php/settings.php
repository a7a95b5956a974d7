<?php // SPDX-License-Identifier: Apache-2.0
// ?names=A,B&set=V: each PHP setting as the web server gave it, and whether the script could change it to V.
foreach (explode(',', $_GET['names'] ?? 'memory_limit') as $name) {
    $before = ini_get($name);
    $changed = isset($_GET['set']) ? var_export(ini_set($name, $_GET['set']) !== false, true) : 'not tried';
    echo $name, '=', $before, ' ', $changed, ' ', ini_get($name), "\n";
}

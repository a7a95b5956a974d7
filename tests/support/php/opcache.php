<?php // SPDX-License-Identifier: Apache-2.0
// ?file=F&include=0|1: whether F is in the cache that this process sees; with include=1, F is run first.
if ($_GET['include'] ?? 0) {
    include $_GET['file'];
}
header('Content-Type: application/json');
$status = opcache_get_status(false);
echo json_encode([
    'pid' => getmypid(),
    'enabled' => $status['opcache_enabled'] ?? false,
    'cached' => opcache_is_script_cached($_GET['file']),
]);

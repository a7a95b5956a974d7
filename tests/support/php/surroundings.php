<?php // SPDX-License-Identifier: Apache-2.0
// Where and how the process runs that answers.
header('Content-Type: application/json');
$file = $_GET['file'] ?? '';
if ($file !== '') {
    file_put_contents($file, 'x');
}
echo json_encode([
    'umask' => umask(),
    'limits' => posix_getrlimit(),
    'cwd' => getcwd(),
    'root' => scandir('/'),
    'getenv' => getenv(),
    'pid' => getmypid(),
]);

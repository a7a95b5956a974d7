<?php // SPDX-License-Identifier: Apache-2.0
// ?text=T: to the process's own standard error, and to the error log (a STDERR record by default).
file_put_contents('php://stderr', 'raw ' . ($_GET['text'] ?? 'text') . "\n");
error_log('logged ' . ($_GET['text'] ?? 'text'));
echo "complained\n";

<?php // SPDX-License-Identifier: Apache-2.0
// ?text=T: to the process's own standard output, and to that of a program, which is not where answers go.
file_put_contents('php://stdout', 'out ' . ($_GET['text'] ?? 'text') . "\n");
$process = proc_open('echo program ' . escapeshellarg($_GET['text'] ?? 'text'), [], $pipes);
proc_close($process);
echo "said\n";

<?php // SPDX-License-Identifier: Apache-2.0
// Every way to start a program, each with its output and its exit status.
exec('echo from exec; exit 3', $lines, $status);
echo $lines[0], ' ', $status, "\n";
echo trim(shell_exec('echo from shell_exec')), "\n";
echo system('echo from system; exit 4 >/dev/null', $status), ' ', $status, "\n";
$pipe = popen('cat; exit 5', 'w');
fwrite($pipe, '');
echo 'popen ', pclose($pipe), "\n";
$process = proc_open('cat; echo problem >&2; exit 6', [['pipe', 'r'], ['pipe', 'w'], ['pipe', 'w']], $pipes);
fwrite($pipes[0], 'through proc_open');
fclose($pipes[0]);
echo stream_get_contents($pipes[1]), ' ', trim(stream_get_contents($pipes[2])), ' ', proc_close($process), "\n";
$pid = pcntl_fork();
if ($pid === 0) {
    pcntl_exec('/bin/sh', ['-c', 'exit 7']);
}
pcntl_waitpid($pid, $status);
echo 'pcntl ', pcntl_wexitstatus($status), "\n";

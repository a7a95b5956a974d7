<?php // SPDX-License-Identifier: Apache-2.0
// ?how=exec|shell_exec|popen|proc_open|pcntl_exec&show=fds|env: what a program sees that a script starts.
$command = ($_GET['show'] ?? 'fds') === 'env' ? 'env' : 'ls -l /proc/self/fd';
switch ($_GET['how'] ?? 'exec') {
    case 'exec':
        exec($command, $lines);
        echo implode("\n", $lines);
        break;
    case 'shell_exec':
        echo shell_exec($command);
        break;
    case 'popen':
        $pipe = popen($command, 'r');
        echo stream_get_contents($pipe);
        pclose($pipe);
        break;
    case 'proc_open':
        // Standard input and error are left as they are: the program inherits them.
        $process = proc_open($command, [1 => ['pipe', 'w']], $pipes);
        echo stream_get_contents($pipes[1]);
        proc_close($process);
        break;
    case 'pcntl_exec':
        $out = tempnam(sys_get_temp_dir(), 'started');
        $pid = pcntl_fork();
        if ($pid === 0) {
            pcntl_exec('/bin/sh', ['-c', "$command > $out"]);
        }
        pcntl_waitpid($pid, $status);
        readfile($out);
        unlink($out);
        break;
}

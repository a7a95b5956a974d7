<?php // SPDX-License-Identifier: Apache-2.0
// ?how=: takes for ever, in one of the ways that scripts do. &file=: what its shutdown function leaves behind.
// &log=: what it logs before.
if ($file = $_GET['file'] ?? '') {
    register_shutdown_function(function () use ($file) {
        echo 'output of a shutdown function';
        file_put_contents($file, 'ran');
    });
}
if ($log = $_GET['log'] ?? '') {
    error_log($log);
}
switch ($_GET['how'] ?? 'loop') {
    case 'sleep': // which a signal cuts short
        for (;;) {
            sleep(10);
        }
    case 'read': // from somebody who says nothing
        [$ours, $theirs] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        fread($ours, 1);
        break;
    case 'program':
        shell_exec('sleep 60');
        break;
    case 'output':
        while (ob_get_level()) {
            ob_end_clean();
        }
        for ($line = 0;; ++$line) {
            echo "line $line\n";
            flush();
            usleep(1000);
        }
    case 'block':
        pcntl_sigprocmask(SIG_BLOCK, range(1, 31));
        pcntl_sigprocmask(SIG_BLOCK, range(34, 64));
}
for (;;) {
}

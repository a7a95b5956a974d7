<?php // SPDX-License-Identifier: Apache-2.0
// ?file=F&ms=N&wait=0|1: forks; the copy lives N ms, writes its pid to F and ends the way every script ends.
echo "before fork\n";
$pid = pcntl_fork();
if ($pid === 0) {
    usleep((int) ($_GET['ms'] ?? 0) * 1000);
    file_put_contents($_GET['file'], getmypid() . "\n", FILE_APPEND);
    echo "written by the copy\n";
    exit(9);
}
if ($_GET['wait'] ?? 1) {
    pcntl_waitpid($pid, $status);
    echo 'copy ended with ', pcntl_wexitstatus($status), "\n";
} else {
    echo "copy left alone\n";
}

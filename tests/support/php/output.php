<?php // SPDX-License-Identifier: Apache-2.0
// Writes to the process's own standard error: ?text=T as it is; ?lines=N lines of ?size=BYTES each, numbered, each in
// two writes if ?halves=1; ?size=BYTES alone: one line. Then answers with its pid, or with ?kill=1 dies instead.
$pid = getmypid();
$error = fopen('php://stderr', 'w');
if (isset($_GET['nonblocking'])) {
    stream_set_blocking($error, false);
}
if (isset($_GET['text'])) {
    fwrite($error, $_GET['text']);
}
$size = (int) ($_GET['size'] ?? 20);
$count = (int) ($_GET['lines'] ?? (isset($_GET['size']) ? 1 : 0));
for ($number = 0; $number < $count; ++$number) {
    $line = str_pad("$pid:$number:", $size, "$pid ") . "\n";
    if (isset($_GET['halves'])) {
        fwrite($error, substr($line, 0, $size >> 1));
        fwrite($error, substr($line, $size >> 1));
    } else {
        fwrite($error, $line);
    }
}
if (isset($_GET['kill'])) {
    exec("kill -9 $pid");
}
if (isset($_GET['wait'])) {
    while (file_exists($_GET['wait'])) {
        usleep(1000);
    }
    echo @fwrite($error, "after the wait\n") === false ? "nobody reads\n" : "written\n";
}
echo $pid;

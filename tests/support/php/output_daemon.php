<?php // SPDX-License-Identifier: Apache-2.0
// Leaves a program behind that has standard error, and says there what is in the file ?file=PATH until that is gone.
$file = escapeshellarg($_GET['file']);
$loop = 'last=; while [ -e "$0" ]; do now=$(cat "$0"); [ "$now" = "$last" ] || echo "daemon: $now" >&2; last=$now; sleep 0.02; done';
proc_close(proc_open('setsid sh -c ' . escapeshellarg($loop) . " $file </dev/null >/dev/null &", [], $pipes));
echo getmypid();

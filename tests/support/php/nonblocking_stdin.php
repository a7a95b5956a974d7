<?php // SPDX-License-Identifier: Apache-2.0
// The flag lives in the open file that all processes share, which here may be the listener.
$input = fopen('php://stdin', 'r');
echo $input && stream_set_blocking($input, false) ? "set\n" : "not set\n";
exec('true');

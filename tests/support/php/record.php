<?php // SPDX-License-Identifier: Apache-2.0
// ?file=F&id=I: leaves a line in F, written at once and at its end (O_APPEND), and says so: I, bytes of the body, pid.
$file = fopen($_GET['file'], 'a');
fwrite($file, $_GET['id'] . "\n");
fclose($file);
echo $_GET['id'], ' ', strlen(file_get_contents('php://input')), ' ', getmypid();

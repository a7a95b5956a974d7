<?php // SPDX-License-Identifier: Apache-2.0
// ?ms=N: leaves a program behind that outlives the request.
$seconds = ((int) ($_GET['ms'] ?? 1000)) / 1000;
exec("setsid sleep $seconds >/dev/null 2>&1 & echo \$!", $lines);
echo $lines[0];

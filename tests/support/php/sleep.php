<?php // SPDX-License-Identifier: Apache-2.0
// ?ms=N: takes N milliseconds without using the processor.
$milliseconds = (int) ($_GET['ms'] ?? 100);
usleep($milliseconds * 1000);
echo "slept $milliseconds\n";

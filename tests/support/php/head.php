<?php // SPDX-License-Identifier: Apache-2.0
// Good for HEAD and GET alike.
header('X-Method: ' . $_SERVER['REQUEST_METHOD']);
header('Content-Type: text/plain');
echo "a body that HEAD must not carry\n";

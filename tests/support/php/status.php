<?php // SPDX-License-Identifier: Apache-2.0
// ?code=N: an answer with this HTTP status.
http_response_code((int) ($_GET['code'] ?? 200));
echo "status\n";

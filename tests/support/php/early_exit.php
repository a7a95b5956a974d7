<?php // SPDX-License-Identifier: Apache-2.0
// ?code=N: ends at once with this status and without a body.
exit((int) ($_GET['code'] ?? 0));

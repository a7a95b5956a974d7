<?php // SPDX-License-Identifier: Apache-2.0
// Gives the body back as it came.
header('Content-Type: application/octet-stream');
readfile('php://input');

<?php // SPDX-License-Identifier: Apache-2.0
header('Content-Type: application/json');
echo json_encode(['getenv' => getenv(), 'server' => $_SERVER], JSON_PARTIAL_OUTPUT_ON_ERROR);

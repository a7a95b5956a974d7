<?php // SPDX-License-Identifier: Apache-2.0
// Everything that a script can know about its request and its surroundings, without what differs each time.
$server = $_SERVER;
unset($server['REQUEST_TIME'], $server['REQUEST_TIME_FLOAT']);
ksort($server);
$environment = getenv();
ksort($environment);
$shown = ['server' => $server, 'environment' => $environment, 'cookies' => $_COOKIE, 'get' => $_GET, 'post' => $_POST];
if (function_exists('litespeed_request_headers')) {
    $shown['headers'] = litespeed_request_headers();
}
header('Content-Type: application/json');
echo json_encode($shown, JSON_PRETTY_PRINT | JSON_PARTIAL_OUTPUT_ON_ERROR);

<?php // SPDX-License-Identifier: Apache-2.0
// Lists what a multipart form carried: fields, then files with length and hash.
foreach ($_POST as $name => $value) {
    echo "field $name $value\n";
}
foreach ($_FILES as $name => $file) {
    echo "file $name {$file['name']} {$file['error']} {$file['size']} ", hash_file('sha256', $file['tmp_name']), "\n";
}

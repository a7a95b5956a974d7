<?php // SPDX-License-Identifier: Apache-2.0
// Never looks at its body.
echo "body ignored\n";

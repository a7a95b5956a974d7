# SPDX-License-Identifier: Apache-2.0
"""Marks that say with which children a test runs; without one, with php-cgi."""
import pytest

both = pytest.mark.parametrize("start", ["start_php_cgi", "start_lsphp"], indirect=True, ids=["php-cgi", "lsphp"])
lsphp = pytest.mark.parametrize("start", ["start_lsphp"], indirect=True, ids=["lsphp"])

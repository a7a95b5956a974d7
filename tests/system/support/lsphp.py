# SPDX-License-Identifier: Apache-2.0
"""The lsphp that the tests use: CEDE_LSPHP, or what scripts/build-lsphp has left in its cache."""
import glob
import os
import re
import shutil
from dataclasses import dataclass

from .server import reachable_by_all

# Debian's, and of the same PHP API as the lsphp that scripts/build-lsphp makes.
_POSIX = "/usr/lib/php/20220829/posix.so"


@dataclass
class Lsphp:
    binary: str
    # Settings that load the extensions that Debian's php-cgi loads, as far as the scripts use them.
    ini: dict


def _cache():
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.environ.get("CEDE_CACHE") or os.path.join(home, "cede")


def built_lsphp():
    """Path of the binary, or None."""
    given = os.environ.get("CEDE_LSPHP")
    if given:
        assert os.access(given, os.X_OK), f"CEDE_LSPHP is {given}, which can not be executed"
        return given
    found = [path for path in glob.glob(os.path.join(_cache(), "lsphp-8.2.*")) if os.path.isfile(path)]
    versions = {tuple(map(int, re.findall(r"\d+", os.path.basename(path)))): path for path in found}
    return versions[max(versions)] if versions else None


def prepare(folder):
    """The binary where every user can execute it: a copy in `folder` if need be. None if there is none."""
    binary = built_lsphp()
    if binary is None:
        return None
    opcache = os.path.join(f"{binary}.d", "opcache.so")
    if not reachable_by_all(os.path.abspath(binary)):
        copy = os.path.join(folder, "lsphp")
        shutil.copy2(binary, copy)
        if os.path.exists(opcache):
            opcache = shutil.copy2(opcache, os.path.join(folder, "opcache.so"))
        binary = copy
    ini = {}
    if os.path.exists(opcache):
        ini["zend_extension"] = opcache
        if os.path.exists(_POSIX):
            ini["extension"] = _POSIX
    return Lsphp(binary, ini)

# SPDX-License-Identifier: Apache-2.0
"""Running cede to its end, and judging what it says."""
import os
import re
import subprocess

import pytest

from .process import clean_environment
from .server import IDENTITY, PHP_CGI

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root changes users and owners")

# A message without one of these words hardly says what to do.
REMEDY = re.compile(
    r"\b(add|check|choose|correct|create|did you mean|give|goes|install|keep|leave|must|pass|pick|put|remove|run|"
    r"see|set|start|stop|try|use|write)\b",
    re.IGNORECASE,
)


def good_command(address="127.0.0.1:21200", children=1):
    return ["--listen", address, "--children", str(children), *IDENTITY, "--", PHP_CGI]


def run_to_end(binary, arguments, timeout=20, environment=None, **options):
    """(exit status, standard output, standard error)"""
    done = subprocess.run(
        [binary, *map(str, arguments)],
        env=environment or clean_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        **options,
    )
    return done.returncode, done.stdout, done.stderr


def says(outcome, status, *words):
    """The exit status, every one of `words`, and a remedy; all in one line."""
    code, out, error = outcome
    assert code == status, error
    assert out == ""
    lines = [line for line in error.splitlines() if all(word in line for word in words)]
    assert len(lines) == 1, f"one line with {words}:\n{error}"
    assert REMEDY.search(lines[0]), f"no remedy in: {lines[0]}"
    assert error.count("error:") == 1, f"one clear error, not:\n{error}"
    assert len(set(error.splitlines())) == len(error.splitlines()), f"a line is there twice:\n{error}"

# SPDX-License-Identifier: Apache-2.0
"""Sending a case of the conformance lists to a server, and two servers compared."""
import contextlib
import os
import tempfile

import pytest

from .process import Processes
from .waiting import parallel, stays


@contextlib.contextmanager
def own_starter(starter_type, session_folder, *arguments):
    """A starter for servers that several tests share, which has processes and a folder of its own."""
    folder = tempfile.mkdtemp(prefix="shared-", dir=session_folder)
    os.chmod(folder, 0o777)
    processes = Processes(folder, shared=True)
    try:
        yield starter_type(processes, folder, *arguments)
    finally:
        processes.clean_up()
    assert not processes.sanitizer_reports()


@contextlib.contextmanager
def nobody_else_notices(cede):
    """Afterwards, cede's children are the same, free, and a bystander has noticed nothing."""
    before = sorted(cede.children)
    with cede.connect() as bystander:
        assert cede.ask(bystander, "hello.php").text == "hello\n"
        yield
        assert bystander.silent
        assert cede.ask(bystander, "hello.php").text == "hello\n"
    pids = parallel([lambda: int(cede.get("pid.php", "ms=20").text)] * 2)
    assert set(pids) <= set(before)
    assert sorted(cede.children) == before, "the same children live"


def cases(generate):
    """The parameters; the scripts' real folder is known only when the tests run."""
    return [pytest.param(at, id=case.name) for at, case in enumerate(generate("/{}".format))]


def exchange(server, case):
    """Sends the case's bytes; all that came back, without what PHP leaves to chance."""
    protocol = server.connection_type.protocol
    with server.connect() as connection:
        connection.send(case.data)
        came, ended = connection.read_bytes_until(lambda data: protocol.answers_in(data) >= case.answers)
        assert protocol.answers_in(came) == case.answers, f"{case.name}: {came[:200]!r}"
        if case.then == "closed":
            came = connection.read_to_end()
        elif case.then == "waits":
            stays(lambda: connection.silent, "neither an answer nor an end", 0.03)
        else:
            assert not ended
            connection.clear()
            assert server.ask(connection, "hello.php").text == "hello\n", "the connection is of further use"
    return protocol.without_noise(came)


def compare(cede, plain, generate, at):
    """The same bytes from both."""
    case = list(generate(cede.script))[at]
    ours, theirs = exchange(cede, case), exchange(plain, case)
    assert ours == theirs

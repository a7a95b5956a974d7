# SPDX-License-Identifier: Apache-2.0
"""The same bytes in, the same bytes out as plain php-cgi; and no input does more than end its own connection."""
import os
import socket
import struct
import tempfile

import pytest

from support import fastcgi, procfs
from support.conformance import bad_cases, good_cases
from support.fastcgi import PARAMS, STDIN, begin, pair, record, stream
from support.process import Processes
from support.server import Starter
from support.waiting import eventually, parallel, stays


@pytest.fixture(scope="module")
def servers(session_folder, scripts, binaries):
    """cede with two children, and plain php-cgi; for all tests of this file."""
    folder = tempfile.mkdtemp(prefix="conformance-", dir=session_folder)
    os.chmod(folder, 0o777)
    processes = Processes(folder)
    start = Starter(processes, folder, scripts, binaries)
    cede = start.cede(children=2)
    cede.folder = folder
    yield cede, start.plain_php_cgi()
    processes.clean_up()
    assert not processes.sanitizer_reports()


@pytest.fixture
def both(servers, request):
    """The two servers; afterwards, cede's children are the same, free, and a bystander has noticed nothing."""
    cede, plain = servers
    request.node.folder = cede.folder
    before = sorted(cede.children)
    with cede.connect() as bystander:
        assert cede.ask(bystander, "hello.php").text == "hello\n"
        yield cede, plain
        assert bystander.silent
        assert cede.ask(bystander, "hello.php").text == "hello\n"
    pids = parallel([lambda: int(cede.get("pid.php", "ms=20").text)] * 2)
    assert set(pids) <= set(before)
    assert sorted(cede.children) == before, "the same children live"


def cases(generate):
    """The parameters; the scripts' real folder is known only when the tests run."""
    return [pytest.param(at, id=case.name) for at, case in enumerate(generate("/{}".format))]


def ends(data):
    records, _ = fastcgi.split_records(data)
    return sum(one.type in (fastcgi.END_REQUEST, fastcgi.GET_VALUES_RESULT) for one in records)


def exchange(server, case):
    """Sends the case's bytes; all that came back, without what php-cgi leaves to chance."""
    with server.connect() as connection:
        connection.send(case.data)
        came, ended = connection.read_bytes_until(lambda data: ends(data) >= case.answers)
        assert ends(came) == case.answers, f"{case.name}: {came[:200]!r}"
        if case.then == "closed":
            came = connection.read_to_end()
        elif case.then == "waits":
            stays(lambda: connection.silent, "neither an answer nor an end", 0.03)
        else:
            assert not ended
            connection.clear()
            assert server.ask(connection, "hello.php").text == "hello\n", "the connection is of further use"
    return fastcgi.without_noise(came)


def compare(both, generate, at):
    cede, plain = both
    case = list(generate(cede.script))[at]
    assert exchange(cede, case) == exchange(plain, case)


@pytest.mark.parametrize("at", cases(good_cases))
def test_a_good_request_gets_the_same_bytes_as_from_php_cgi(both, at):
    compare(both, good_cases, at)


@pytest.mark.parametrize("at", cases(bad_cases))
def test_bad_input_is_treated_as_by_php_cgi_and_harms_nobody(both, at):
    compare(both, bad_cases, at)


def small_request(script, keep, body=b"body"):
    """As few bytes as a request can have."""
    pairs = {"SCRIPT_FILENAME": script, "REQUEST_METHOD": "POST", "CONTENT_LENGTH": str(len(body))}
    content = b"".join(pair(name, value) for name, value in pairs.items())
    return begin(keep) + stream(PARAMS, content) + stream(STDIN, body)


def test_a_request_cut_at_any_byte_is_served_on_a_kept_connection(both):
    cede, _ = both
    data = small_request(cede.script("echo.php"), keep=True)
    with cede.connect() as connection:
        for cut in range(1, len(data)):
            connection.send_in_pieces(data, [cut])
            assert connection.read_response().body == b"body", f"cut at {cut}"


def test_a_request_cut_at_any_byte_is_served_on_a_new_connection(both):
    cede, _ = both
    data = small_request(cede.script("echo.php"), keep=False)
    for cut in range(1, len(data)):
        with cede.connect() as connection:
            connection.send_in_pieces(data, [cut])
            assert connection.read_response().body == b"body", f"cut at {cut}"
            assert connection.read_to_end() == b""


def test_two_pipelined_requests_cut_at_any_byte_are_both_served(both):
    cede, _ = both
    one = small_request(cede.script("echo.php"), keep=True, body=b"one")
    data = one + small_request(cede.script("echo.php"), keep=True, body=b"two")
    with cede.connect() as connection:
        for cut in range(1, len(data)):
            connection.send_in_pieces(data, [cut])
            assert [connection.read_response().body for _ in range(2)] == [b"one", b"two"], f"cut at {cut}"


def test_a_request_byte_by_byte_is_served(both):
    cede, _ = both
    data = small_request(cede.script("echo.php"), keep=True)
    with cede.connect() as connection:
        for _ in range(3):
            connection.send_in_pieces(data, range(1, len(data)), pause=0.0002)
            assert connection.read_response().body == b"body"


@pytest.mark.parametrize("reset", [False, True], ids=["orderly", "by-reset"])
def test_a_client_may_leave_at_any_byte(both, reset):
    cede, _ = both
    data = small_request(cede.script("echo.php"), keep=True)
    for cut in range(len(data)):
        connection = cede.connect()
        connection.send(data[:cut])
        if reset:
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    assert cede.get("hello.php").text == "hello\n"


def test_every_header_byte_can_be_anything(both):
    cede, _ = both
    good = small_request(cede.script("hello.php"), keep=True)
    for at in range(8):
        for value in (0, 1, 2, 3, 0x7F, 0x80, 0xFF):
            with cede.connect() as connection:
                connection.send(good[:at] + bytes([value]) + good[at + 1 :])
    assert cede.get("hello.php").text == "hello\n"


def test_promised_bodies_that_never_come_leave_children_when_their_clients_do(both):
    cede, _ = both
    waiting = []
    for _ in range(2):
        connection = cede.connect()
        connection.send(
            begin(keep=True)
            + fastcgi.params(fastcgi.parameters(cede.script("echo.php"), method="POST", content_length="1073741824"))
            + record(STDIN, b"only this")
        )
        waiting.append(connection)
    eventually(lambda: {cede.holder(connection) for connection in waiting} == set(cede.children), "both are taken")
    for connection in waiting:
        connection.close()
    assert cede.get("hello.php").text == "hello\n"


def test_large_parameters_do_not_stay_in_memory(both):
    cede, _ = both
    before = {pid: procfs.resident_bytes(pid) for pid in [cede.pid, *cede.children]}
    for _ in range(20):
        with cede.connect() as connection:
            connection.send(begin(keep=True) + stream(PARAMS, b"\0\xff\xff\xff\xff" + b"x" * 60_000, end=False))
            connection.read_to_end()
    for pid, bytes_before in before.items():
        assert procfs.resident_bytes(pid) < bytes_before + 8 * 1024 * 1024

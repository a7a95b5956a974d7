# SPDX-License-Identifier: Apache-2.0
"""The same bytes in, the same bytes out as plain php-cgi; and no input does more than end its own connection."""
import os
import socket
import struct

import pytest

from support import fastcgi, procfs
from support.conformance import bad_cases, good_cases
from support.exchange import cases, compare, nobody_else_notices, own_starter
from support.fastcgi import PARAMS, STDIN, begin, pair, record, stream
from support.server import Starter
from support.waiting import eventually


@pytest.fixture(scope="module")
def servers(session_folder, scripts, binaries):
    """cede with two children, and plain php-cgi; for all tests of this file."""
    with own_starter(Starter, session_folder, scripts, binaries) as start:
        yield start.cede(children=2), start.plain()


@pytest.fixture
def both(servers, request):
    cede, plain = servers
    request.node.folder = os.path.dirname(cede.process.log_path)
    with nobody_else_notices(cede):
        yield cede, plain


@pytest.mark.parametrize("at", cases(good_cases))
def test_a_good_request_gets_the_same_bytes_as_from_php_cgi(both, at):
    compare(*both, good_cases, at)


@pytest.mark.parametrize("at", cases(bad_cases))
def test_bad_input_is_treated_as_by_php_cgi_and_harms_nobody(both, at):
    compare(*both, bad_cases, at)


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
    eventually(lambda: all(cede.parked(connection) for connection in waiting), "the supervisor waits for them")
    for connection in waiting:
        connection.close()
    assert cede.get("hello.php").text == "hello\n"


def test_large_parameters_do_not_stay_in_memory(both):
    cede, _ = both
    before = {pid: procfs.resident_bytes(pid) for pid in [cede.pid, *cede.children]}
    for _ in range(20):
        with cede.connect() as connection:
            connection.send(begin(keep=True) + stream(PARAMS, b"\0\xff\xff\xff\xff" + b"x" * 60_000) + stream(STDIN, b""))
            connection.read_to_end()
    for pid, bytes_before in before.items():
        assert procfs.resident_bytes(pid) < bytes_before + 8 * 1024 * 1024

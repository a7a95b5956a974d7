# SPDX-License-Identifier: Apache-2.0
"""No input does more than end its own connection: the same children live, other clients notice nothing, and the log has
a line a second at most."""
import re
import socket
import struct
import time

import pytest

from support import fastcgi, kinds, lsapi, procfs
from support.exchange import cases, compare, exchange
from support.lsapi_conformance import bad_cases, stricter_cases
from support.waiting import Background, eventually, parallel, stays


@pytest.mark.parametrize("at", cases(bad_cases))
def test_bad_input_is_treated_as_by_lsphp_and_harms_nobody(cede_and_lsphp, at):
    compare(*cede_and_lsphp, bad_cases, at)


@pytest.mark.parametrize("at", cases(stricter_cases))
def test_bad_input_that_lsphp_believes_is_refused_and_harms_nobody(cede_and_lsphp, at):
    cede, _ = cede_and_lsphp
    assert exchange(cede, list(stricter_cases(cede.script))[at]) == b""


@pytest.mark.parametrize("at", cases(bad_cases)[::7])
def test_bad_input_behind_a_good_request_leaves_its_answer_whole(cede_and_lsphp, at):
    cede, _ = cede_and_lsphp
    bad = list(bad_cases(cede.script))[at].data
    with cede.connect() as connection:
        connection.send(cede.request("bytes.php", "bytes=100000"))
        assert len(connection.read_response().body) == 100_000
        connection.send(bad)
        assert connection.read_to_end() == b""
    with cede.connect() as connection:
        connection.send(cede.request("sleep.php", "ms=20") + bad)
        assert connection.read_response().text == "slept 20\n"
        assert connection.read_to_end() == b""


def small_request(script, body=b"body"):
    """As few bytes as a request can have."""
    env = [("SCRIPT_FILENAME", script), ("QUERY_STRING", ""), ("SCRIPT_NAME", "/e"), ("REQUEST_METHOD", "POST")]
    return lsapi.begin(env, http=(b"\0\0\0\0", {}, []), body_length=len(body)) + body


def test_a_request_cut_at_any_byte_is_served_on_a_kept_connection(cede_and_lsphp):
    """lsphp itself garbles a first piece of fewer than 8 bytes."""
    cede, _ = cede_and_lsphp
    data = small_request(cede.script("echo.php"))
    with cede.connect() as connection:
        for cut in range(1, len(data)):
            connection.send_in_pieces(data, [cut], pause=0.0005)
            assert connection.read_response().body == b"body", f"cut at {cut}"


def test_a_request_cut_at_any_byte_is_served_on_a_new_connection(cede_and_lsphp):
    cede, _ = cede_and_lsphp
    data = small_request(cede.script("echo.php"))
    for cut in range(1, len(data)):
        with cede.connect() as connection:
            connection.send_in_pieces(data, [cut], pause=0.0005)
            assert connection.read_response().body == b"body", f"cut at {cut}"


def test_a_request_byte_by_byte_is_served(cede_and_lsphp):
    cede, _ = cede_and_lsphp
    data = small_request(cede.script("echo.php"))
    with cede.connect() as connection:
        for _ in range(3):
            connection.send_in_pieces(data, range(1, len(data)), pause=0.0002)
            assert connection.read_response().body == b"body"


@pytest.mark.parametrize("reset", [False, True], ids=["orderly", "by-reset"])
def test_a_client_may_leave_at_any_byte(cede_and_lsphp, reset):
    cede, _ = cede_and_lsphp
    data = small_request(cede.script("echo.php"))
    for cut in range(len(data)):
        connection = cede.connect()
        connection.send(data[:cut])
        leave(connection, reset)
    assert cede.get("hello.php").text == "hello\n"


def leave(connection, reset):
    if reset:
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def test_every_byte_of_the_fixed_header_can_be_anything(cede_and_lsphp):
    cede, _ = cede_and_lsphp
    good = small_request(cede.script("hello.php"))
    for at in range(lsapi.FIXED_SIZE):
        for value in (0, 1, 2, 7, 0x7F, 0x80, 0xFF):
            with cede.connect() as connection:
                connection.send(good[:at] + bytes([value]) + good[at + 1 :])
    assert cede.get("hello.php").text == "hello\n"


def test_random_bytes_anywhere_in_a_request_harm_nobody(cede_and_lsphp):
    """Every place of a whole packet in turn, with a few values each."""
    cede, _ = cede_and_lsphp
    block = lsapi.http_block("GET", "/", [("Host", "h"), ("X-Own", "o"), ("Cookie", "c=1")])
    special = [lsapi.php_value("precision", "9")]
    good = lsapi.begin(lsapi.environment(cede.script("hello.php")), special, http=block)
    for at in range(0, len(good)):
        with cede.connect() as connection:
            connection.send(good[:at] + bytes([(good[at] + 1 + at * 37) % 256]) + good[at + 1 :])
            if at % 16 == 0:
                assert cede.get("hello.php").text == "hello\n"


# --- bodies -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [0, 1, 5000, 99_999])
def test_a_body_that_ends_early_is_what_the_script_gets_if_half_closed_connections_are_served(start_lsphp, sent):
    """The client closes its sending side in the middle: no error for lsphp."""
    answers = []
    for server in (start_lsphp.cede(children=1, options=["--abandoned", "run"]), start_lsphp.plain()):
        with server.connect() as connection:
            connection.send(server.request("body.php", body=b"b" * 100_000)[: sent - 100_000 or None])
            connection.socket.shutdown(socket.SHUT_WR)
            answers.append(connection.read_to_end())
    assert answers[0] == answers[1]
    assert f"POST {sent} ".encode() in answers[0]


@pytest.mark.parametrize("reset", [False, True], ids=["orderly", "by-reset"])
def test_promised_bodies_that_never_come_leave_children_when_their_clients_do(cede_and_lsphp, reset):
    cede, _ = cede_and_lsphp
    waiting = []
    for _ in range(2):
        connection = cede.connect()
        connection.send(cede.request("echo.php", body=b"only this", body_length=1 << 30, content_length=str(1 << 30)))
        waiting.append(connection)
    eventually(lambda: all(cede.parked(connection) for connection in waiting), "the supervisor waits for them")
    for connection in waiting:
        leave(connection, reset)
    assert cede.get("hello.php").text == "hello\n"


def test_a_longer_body_than_promised_is_the_next_request(cede_and_lsphp):
    cede, _ = cede_and_lsphp
    with cede.connect() as connection:
        connection.send(cede.request("body.php", body=b"x" * 1000, body_length=500))
        assert connection.read_response().text.startswith("POST 500 ")
        assert connection.read_to_end() == b"", "which is a bad one"


# --- requests ahead of their time -------------------------------------------------------------------


@pytest.mark.parametrize("script, query", [("hello.php", ""), ("sleep.php", "ms=30"), ("bytes.php", "bytes=500000")])
def test_requests_sent_before_the_answer_before_are_answered_in_turn(cede_and_lsphp, script, query):
    """lsphp itself loses those that it reads together with the first."""
    cede, _ = cede_and_lsphp
    one, echo = cede.request(script, query), cede.request("echo.php", body=b"second" * 3000)
    with cede.connect() as connection:
        for data in (one + echo + one, one + echo + echo + one + one):
            connection.send(data)
            bodies = [connection.read_response().body for _ in range(data.count(one) + data.count(echo))]
            assert bodies.count(b"second" * 3000) == data.count(echo)
            assert bodies[0] == bodies[-1] != b"second" * 3000
        assert connection.silent


def test_a_second_request_while_the_first_one_runs_is_answered_in_turn(cede_and_lsphp):
    cede, _ = cede_and_lsphp
    with cede.connect() as connection:
        for cut in (1, 7, 8, 44, 300, None):
            data = cede.request("echo.php", body=b"next")
            connection.send(cede.request("sleep.php", "ms=40") + data[:cut])
            time.sleep(0.01)
            if cut:
                connection.send(data[cut:])
            assert connection.read_response().text == "slept 40\n"
            assert connection.read_response().text == "next"


def test_two_pipelined_requests_cut_at_any_byte_are_both_served(cede_and_lsphp):
    cede, _ = cede_and_lsphp
    data = small_request(cede.script("echo.php"), b"one") + small_request(cede.script("echo.php"), b"two")
    with cede.connect() as connection:
        for cut in range(1, len(data)):
            connection.send_in_pieces(data, [cut], pause=0.0003)
            assert [connection.read_response().body for _ in range(2)] == [b"one", b"two"], f"cut at {cut}"


# --- ABORT_REQUEST ----------------------------------------------------------------------------------


@pytest.mark.parametrize("reset", [False, True], ids=["orderly", "by-reset"])
@pytest.mark.parametrize(
    "script, query", [("sleep.php", "ms=200"), ("flush.php", "pieces=30&ms=10"), ("bytes.php", "bytes=9000000")]
)
def test_a_client_that_aborts_at_any_moment_frees_its_child(cede_and_lsphp, script, query, reset):
    cede, _ = cede_and_lsphp
    data = cede.request(script, query, body=b"b" * 2000)
    # In the head, between head and body, in the body, behind it, and while the answer is on its way.
    for cut in (0, 1, 8, 100, len(data) - 2000, len(data) - 1, len(data), len(data)):
        connection = cede.connect()
        connection.send(data[:cut])
        if cut == len(data):
            assert connection.read_record().type == lsapi.REQ_RECEIVED
        connection.send(lsapi.ABORT)
        leave(connection, reset)
    assert cede.get("hello.php").text == "hello\n"
    assert not re.search(r"(?i)error", cede.process.log)


def test_an_abort_between_two_requests_is_nothing_at_all(cede_and_lsphp):
    cede, _ = cede_and_lsphp
    before = refused(cede)
    with cede.connect() as connection:
        connection.send(lsapi.ABORT)
        assert cede.ask(connection, "hello.php").text == "hello\n"
        for _ in range(5):
            connection.send(lsapi.ABORT)
            stays(lambda: connection.silent, "nothing is said about it", 0.02)
            connection.send(lsapi.ABORT * 3 + cede.request("pid.php"))
            assert int(connection.read_response().text) in cede.children
    assert refused(cede) == before


def test_an_abort_while_the_request_runs_ends_nothing_but_the_connection(cede_and_lsphp):
    """OpenLiteSpeed closes right behind it; what does not close gets its answer."""
    cede, _ = cede_and_lsphp
    with cede.connect() as connection:
        connection.send(cede.request("sleep.php", "ms=50"))
        time.sleep(0.01)
        connection.send(lsapi.ABORT)
        assert connection.read_response().text == "slept 50\n"
        assert cede.ask(connection, "hello.php").text == "hello\n"


def test_an_abort_as_a_part_of_a_body_is_a_part_of_the_body(cede_and_lsphp):
    cede, _ = cede_and_lsphp
    body = lsapi.ABORT * 500 + b"x" + lsapi.ABORT
    with cede.connect() as connection:
        assert cede.ask(connection, "echo.php", body=body).body == body


def test_an_abort_on_a_parked_connection_is_nothing_either(cede_and_lsphp):
    cede, _ = cede_and_lsphp
    connections = [cede.connect() for _ in range(6)]
    for connection in connections:
        assert cede.ask(connection, "hello.php").text == "hello\n"
    eventually(lambda: [cede.parked(c) for c in connections].count(True) >= 4, "some are parked")
    for connection in connections:
        connection.send(lsapi.ABORT)
    for connection in connections[:3]:
        assert cede.ask(connection, "hello.php").text == "hello\n"
    for connection in connections:
        connection.close()


# --- other protocols --------------------------------------------------------------------------------


@kinds.both
def test_another_protocol_gets_no_answer_and_the_log_says_who_spoke_what(start):
    pool = start.cede(children=1)
    before = pool.children
    for speak, ours in ((lsapi, fastcgi), (fastcgi, lsapi)):
        if speak is pool.connection_type.protocol:
            continue
        with pool.connect() as connection:
            connection.send(speak.request(pool.script("hello.php"), keep=True))
            assert connection.read_to_end() == b""
        (line,) = eventually(lambda: refused(pool), "a line in the log")
        words = {lsapi: "lsapi", fastcgi: "fastcgi"}
        assert re.search(f"speaks {words[speak]}.*these children {words[ours]}", line)
    assert pool.get("hello.php").text == "hello\n"
    assert pool.children == before


# --- what it costs ----------------------------------------------------------------------------------


def refused(pool):
    return re.findall(r"^.*\brefused\b.*$", pool.process.log, re.MULTILINE)


@kinds.lsphp
def test_the_log_has_one_line_a_second_for_any_number_of_bad_requests(start):
    pool = start.cede(children=2)
    bad = pool.request("hello.php", env_count=9000)
    begun = time.monotonic()
    while time.monotonic() - begun < 2.2:
        with pool.connect() as connection:
            connection.send(bad)
            assert connection.read_to_end() == b""
    lines = refused(pool)
    assert 2 <= len(lines) <= 4, lines
    assert all("more name-value pairs than allowed" in line for line in lines), "with the reason"
    # The later ones count those that had no line of their own.
    assert max(int(number) for number in re.findall(r"\b(\d+)\b", " ".join(lines[1:]))) > 10
    said = [line for line in pool.process.log.splitlines() if not re.search(r"\bcede: (info|notice): ", line)]
    assert said == lines, "nobody else complains"


@kinds.lsphp
def test_bad_requests_do_not_fill_memory_or_descriptors(start):
    pool = start.cede(children=2)
    pids = [pool.pid, *pool.children]

    def storm(count):
        for at in range(count):
            with pool.connect() as connection:
                if at % 2:
                    connection.send(pool.request("hello.php", unknown_headers=4000, extra={"X": "v" * 50_000}))
                else:
                    connection.send(b"\xff" * 60_000)
                connection.read_to_end()

    storm(50)
    before = {pid: procfs.resident_bytes(pid) for pid in pids}
    numbers = {pid: len(procfs.descriptors(pid)) for pid in pids}
    storm(300)
    for pid in pids:
        assert procfs.resident_bytes(pid) < before[pid] + 2 * 1024 * 1024
        eventually(lambda p=pid: len(procfs.descriptors(p)) <= numbers[p], "no descriptor is left open")
    assert sorted(pool.children) == sorted(pids[1:])


@kinds.lsphp
@pytest.mark.parametrize("how", ["park", "close"])
def test_clients_of_both_kinds_at_once_leave_the_good_ones_alone(start, how):
    pool = start.cede(children=3, options=["--give-up", how])
    stop = []

    def bad_client():
        bad = [case.data for case in bad_cases(pool.script)]
        count = 0
        while not stop:
            with pool.connect() as connection:
                connection.send(bad[count % len(bad)])
                assert connection.read_to_end() == b""
            count += 1
        return count

    before = sorted(pool.children)
    others = [Background(bad_client) for _ in range(3)]
    for _ in range(150):
        with pool.connect() as connection:
            for _ in range(3):
                assert pool.ask(connection, "hello.php").text == "hello\n"
    stop.append(True)
    assert min(one.result() for one in others) > 0
    assert sorted(pool.children) == before
    assert sorted(set(parallel([lambda: int(pool.get("pid.php", "ms=50").text)] * 3))) == before, "and are free"

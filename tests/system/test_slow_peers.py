# SPDX-License-Identifier: Apache-2.0
"""Clients that are slow while a script runs for them, and what scripts learn of their request's wait."""
import json
import os
import signal
import time

import pytest

from support import fastcgi, kinds
from support.control import Control
from support.waiting import Background, eventually

BODY = b"body" * 20000


def begun_upload(pool, connection):
    """Enough of a body for a child, without its end; what is left of it."""
    data = pool.request("echo.php", method="POST", body=BODY)
    connection.send(data[:50000])
    return data[50000:]


@kinds.both
def test_a_body_that_stands_still_is_answered_and_another_child_takes_the_place(start):
    pool = start.cede(children=1, options=["--body-timeout", "300ms"])
    first = pool.children
    with pool.connect() as connection:
        begun_upload(pool, connection)
        assert connection.read_response().status == 408
        assert connection.read_to_end() == b""
    pool.wait_for_children(1, without=first)
    assert pool.get("hello.php").text == "hello\n"
    eventually(lambda: "--body-timeout" in pool.process.log, "a line in the log")


@kinds.both
def test_a_body_that_goes_on_is_never_too_long(start):
    pool = start.cede(children=1, options=["--body-timeout", "500ms"])
    with pool.connect() as connection:
        rest = begun_upload(pool, connection)
        begin = time.monotonic()
        while time.monotonic() < begin + 1.5:  # three times the limit
            connection.send(rest[:100])
            rest = rest[100:]
            time.sleep(0.1)
        connection.send(rest)
        assert connection.read_response().body == BODY


@kinds.both
def test_a_body_below_the_rate_is_ended_when_others_wait(start):
    pool = start.cede(children=1, options=["--body-timeout", "400ms", "--body-rate", "1M"])
    with pool.connect() as connection:
        rest = begun_upload(pool, connection)
        waiting = Background(pool.get, "hello.php")
        while not waiting.done and rest:
            try:
                connection.send(rest[:10])
            except OSError:
                break
            rest = rest[10:]
            time.sleep(0.02)
        assert connection.read_response().status == 408
        assert waiting.result().text == "hello\n"


@kinds.both
def test_a_client_that_does_not_read_loses_its_answer_and_not_the_child(start):
    pool = start.cede(children=1, options=["--write-timeout", "300ms"])
    first = pool.children
    with pool.connect() as connection:
        connection.send(pool.request("bytes.php", "bytes=30000000"))
        assert pool.get("hello.php").text == "hello\n"
    assert pool.children == first
    eventually(lambda: "--write-timeout" in pool.process.log, "a line in the log")


@kinds.both
def test_a_client_that_reads_slowly_gets_all_of_its_answer(start):
    pool = start.cede(children=1, options=["--write-timeout", "5s"])
    with pool.connect() as connection:
        connection.send(pool.request("bytes.php", "bytes=8000000"))
        time.sleep(0.5)  # the child waits for room meanwhile
        assert len(connection.read_response().body) == 8000000


@kinds.both
def test_a_new_connection_that_stays_silent_is_closed(start):
    pool = start.cede(children=2, options=["--first-byte-timeout", "300ms"])
    silent = [pool.connect() for _ in range(6)]
    for connection in silent:
        assert connection.read_to_end() in (b"", b"LS\x08\x00\x08\x00\x00\x00")  # LSAPI says that it closes
    with pool.connect() as connection:
        assert pool.ask(connection, "hello.php").text == "hello\n"
        time.sleep(0.7)  # longer than the limit, which is for the first request only
        assert pool.ask(connection, "hello.php").text == "hello\n"


@kinds.both
@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_scripts_learn_how_long_their_request_has_waited(start, kind):
    pool = start.cede(children=1, listen=[start.new_address(kind)], options=["--pass-queue-time"])
    busy = Background(pool.get, "sleep.php", "ms=700")
    control = Control(pool, start.binary)
    eventually(lambda: control.status["children"]["by_state"]["busy"] == 1, "the child is busy")
    forged = {"CEDE_QUEUE_USEC": "5"}
    late = Background(pool.get, "env.php", extra=forged)
    busy.result()
    seen = json.loads(late.result().text)
    assert 100_000 < int(seen["server"]["CEDE_QUEUE_USEC"]) < 5_000_000
    with pool.connect() as connection:
        for _ in range(2):
            seen = json.loads(pool.ask(connection, "env.php", extra=forged).text)
        assert int(seen["server"]["CEDE_QUEUE_USEC"]) < 50_000  # a child was there


@kinds.both
def test_what_the_web_server_says_counts_from_there(start):
    pool = start.cede(children=1, options=["--pass-queue-time", "--queue-start", "REQUEST_START", "--max-wait", "10s"])
    now = time.time()
    seen = json.loads(pool.get("env.php", extra={"REQUEST_START": f"{now - 2:.3f}"}).text)
    assert 2_000_000 <= int(seen["server"]["CEDE_QUEUE_USEC"]) < 9_000_000
    late = pool.get("env.php", extra={"REQUEST_START": f"t={int((now - 20) * 1000)}"})
    assert late.status == 503
    assert late.headers["retry-after"] == "10"


@pytest.mark.parametrize("start", ["start_php_cgi"], indirect=True)
def test_a_part_of_a_request_behind_a_question_holds_no_child(start):
    pool = start.cede(children=1)
    data = pool.request("hello.php")
    with pool.connect() as connection:
        connection.send(fastcgi.get_values("FCGI_MPXS_CONNS") + data[:40])
        assert pool.get("hello.php").text == "hello\n"
        connection.send(data[40:])
        assert connection.read_to_end().count(b"hello\n") == 1


@kinds.both
def test_a_part_of_a_request_survives_the_death_of_all_children(start):
    pool = start.cede(children=2)
    data = pool.request("echo.php", body=b"x" * 5000)
    parts = [pool.connect() for _ in range(4)]
    for connection, size in zip(parts, (1, 30, len(data) - 4000, len(data) - 1000)):
        connection.send(data[:size])
        eventually(lambda: pool.parked(connection), "the supervisor has it")
    victims = pool.children
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    pool.wait_for_children(2, without=victims)
    for connection, size in zip(parts, (1, 30, len(data) - 4000, len(data) - 1000)):
        connection.send(data[size:])
        assert connection.read_response().body == b"x" * 5000
        connection.close()


@pytest.mark.parametrize("start", ["start_php_cgi"], indirect=True)
def test_a_request_whose_end_comes_late_or_never_is_answered_and_its_connection_kept(start):
    pool = start.cede(children=1, options=["--read-timeout", "500ms"])
    data = pool.request("hello.php", keep=True)
    end = fastcgi.record(fastcgi.STDIN, b"")
    assert data.endswith(end)
    with pool.connect() as connection:
        for _ in range(3):
            connection.send(data[: -len(end)])
            assert connection.read_response().text == "hello\n"
            connection.send(end)
            time.sleep(0.8)  # longer than the limit for a head, which the end of a body is not
        assert pool.ask(connection, "hello.php").text == "hello\n"
    assert "--read-timeout" not in pool.process.log
    with pool.connect() as connection:
        connection.send(data[: -len(end)])
        assert connection.read_response().text == "hello\n"

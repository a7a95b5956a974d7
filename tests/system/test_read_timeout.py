# SPDX-License-Identifier: Apache-2.0
"""The head of a request that does not arrive: --read-timeout."""
import time

from support import kinds
from support.clients import close_all
from support.control import Control
from support.waiting import eventually

pytestmark = kinds.both


def test_half_heads_hold_no_children(start):
    pool = start.cede(children=2, options=["--read-timeout", "500ms"])
    first = pool.children
    halves = [pool.connect() for _ in range(8)]
    for connection in halves:
        connection.send(pool.request("hello.php")[:40])
    assert pool.get("hello.php").text == "hello\n"
    for connection in halves:
        assert connection.read_to_end() == b""
    assert pool.children == first
    eventually(lambda: "(--read-timeout)" in pool.process.log, "a line in the log")
    assert pool.process.log.count("--read-timeout") < 8
    control = Control(pool, start.binary)
    eventually(lambda: control.status["totals"]["timed_out"] == 8, "all are counted")
    close_all(halves)


def test_a_silent_connection_and_a_slow_body_have_all_the_time(start):
    pool = start.cede(children=1, options=["--read-timeout", "200ms"])
    with pool.connect() as connection:
        time.sleep(0.6)  # longer than the limit, which is what must not matter
        data = pool.request("echo.php", method="POST", body=b"body" * 10)
        at = data.rindex(b"body")
        connection.send(data[:at])
        time.sleep(0.6)
        connection.send(data[at:])
        assert connection.read_response().body == b"body" * 10
    assert "--read-timeout" not in pool.process.log


def test_a_head_in_small_pieces_is_served_when_it_comes_in_time(start):
    pool = start.cede(children=1, options=["--read-timeout", "10s"])
    with pool.connect() as connection:
        for _ in range(2):
            data = pool.request("hello.php", keep=True)
            connection.send_in_pieces(data, range(1, len(data), 10), pause=0.0005)
            assert connection.read_response().text == "hello\n"

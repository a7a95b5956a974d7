# SPDX-License-Identifier: Apache-2.0
"""Idle connections may be closed in place of being parked: after whole answers only, and never over a request."""
import time

import pytest

from support import fastcgi
from support.clients import kept_connections
from support.connection import Closed
from support.waiting import eventually, parallel


def test_closing_gives_way_only_after_whole_answers(start, folder):
    pool = start.cede(children=2, options=["--give-up", "close"])
    ran = f"{folder}/ran"
    end = time.monotonic() + 1.5

    def client(number):
        """A client that opens a new connection when the old one is closed between two requests."""
        answered, reconnects, connection = 0, 0, pool.connect()
        while time.monotonic() < end:
            query = f"file={ran}&id={number}-{answered}-{reconnects}&ms=3"
            try:
                assert pool.ask(connection, "tick.php", query).text == f"{number}-{answered}-{reconnects}"
                answered += 1
            except (Closed, BrokenPipeError, ConnectionResetError) as error:
                assert not isinstance(error, Closed) or error.without_answer, "an answer was cut off"
                connection.close()
                connection, reconnects = pool.connect(), reconnects + 1
        connection.close()
        return answered, reconnects

    results = parallel([lambda n=n: client(n) for n in range(6)])
    assert min(answered for answered, _ in results) > 0
    assert sum(reconnects for _, reconnects in results) > 0, "connections were closed to make room"
    with open(ran) as file:
        runs = file.read().split()
    assert len(runs) == len(set(runs)) == sum(answered for answered, _ in results), "each run had its answer"


def test_closing_never_hits_a_connection_with_an_unread_request(start):
    pool = start.cede(children=1, options=["--give-up", "close"])
    for _ in range(10):
        with pool.connect() as connection:
            one = fastcgi.request(pool.script("flush.php"), "pieces=2&ms=10", keep=True)
            connection.send(one * 3)  # two of them are unread when the first answer ends
            assert b"piece 0" in connection.read_record().content
            with pool.connect() as other:
                other.send(fastcgi.request(pool.script("hello.php"), keep=True))
                answers = [connection.read_response().stdout for _ in range(3)]
                assert all(answer.endswith(b"piece 1 ..\n") for answer in answers)
                assert other.read_response().text == "hello\n"


def test_closing_loses_no_request_of_clients_that_come_one_after_the_other(start):
    pool = start.cede(children=1, options=["--give-up", "close"])
    for _ in range(1500):
        assert pool.get("hello.php", keep=True).text == "hello\n"


def test_closing_spares_connections_that_had_no_answer_yet(start):
    """Their first request may be on its way, and a web server does not expect to lose it on a new connection."""
    pool = start.cede(children=1, options=["--give-up", "close"])
    fresh = [pool.connect() for _ in range(3)]
    assert pool.get("hello.php").text == "hello\n"
    assert all(connection.silent for connection in fresh)
    assert [pool.ask(connection, "hello.php").text for connection in fresh] == ["hello\n"] * 3


def test_closing_frees_the_child_for_a_new_connection(start):
    pool = start.cede(children=2, options=["--give-up", "close"])
    silent = kept_connections(pool, 2)
    assert pool.get("hello.php").text == "hello\n"
    eventually(lambda: [c.closed for c in silent].count(True) == 1, "the longest idle one was closed")
    assert silent[0].closed and silent[1].silent


@pytest.mark.parametrize("limit", ["2", "50%"])
def test_the_keepalive_limit_closes_right_behind_an_answer(start, limit):
    pool = start.cede(children=4, options=["--keepalive-limit", limit])
    connections = kept_connections(pool, 4)
    eventually(lambda: [c.closed for c in connections].count(True) == 2, "two are kept, two closed")
    kept = [connection for connection in connections if not connection.closed]
    assert connections[0] in kept
    assert [pool.ask(connection, "hello.php").text for connection in kept] == ["hello\n"] * 2


def test_a_keepalive_limit_of_zero_keeps_nothing(start):
    pool = start.cede(children=2, options=["--keepalive-limit", "0"])
    with pool.connect() as connection:
        assert pool.ask(connection, "hello.php").text == "hello\n"
        assert connection.read_to_end() == b""


def test_f25_clients_that_do_not_close_after_their_answer_hold_nobody(start):
    pool = start.cede(children=2)
    lingering = [pool.connect() for _ in range(2)]
    for connection in lingering:
        assert pool.ask(connection, "hello.php", keep=False).text == "hello\n"
    assert pool.get("hello.php").text == "hello\n"
    for connection in lingering:
        assert connection.read_to_end() == b"", "without KEEP_CONN the server closes"

# SPDX-License-Identifier: Apache-2.0
"""Giving connections up by closing: the peer is told by CONN_CLOSE and closes first, so that no request is lost."""
import time

import pytest

from support import kinds, procfs
from support.clients import close_all, kept_connections
from support.openlitespeed import Worker, at_once, closed_loop, nothing_odd, workers
from support.waiting import eventually, parallel, stays

pytestmark = kinds.lsphp


# How long a peer has to close after CONN_CLOSE: about a second.
SHORTEST, LONGEST = 0.5, 4.0


def asked_to_close(start, kind="tcp", children=1):
    """(pool, connection): the connection has an answer behind it, and another one needed its child."""
    pool = start.cede(children=children, listen=[start.new_address(kind)], options=["--give-up", "close"])
    (first, *rest) = kept_connections(pool, children)
    assert pool.get("hello.php").text == "hello\n"
    eventually(lambda: first.close_announced, "CONN_CLOSE has come")
    close_all(rest)
    return pool, first


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_a_close_is_announced_and_leaves_the_peer_time_to_close_first(start, kind):
    pool, first = asked_to_close(start, kind)
    announced = time.monotonic()
    assert not first.closed, "the announcement comes before the end"
    stays(lambda: not first.closed, "the connection is open", SHORTEST)
    eventually(lambda: first.closed, "the end comes although the peer does not close", LONGEST)
    assert time.monotonic() - announced < LONGEST
    assert pool.get("hello.php").text == "hello\n"


def test_a_peer_that_closes_after_the_announcement_is_waited_for_no_longer(start):
    pool = start.cede(children=1, options=["--give-up", "close"])
    before = len(procfs.descriptors(pool.pid))
    for _ in range(20):
        (first,) = kept_connections(pool, 1)
        assert pool.get("hello.php").text == "hello\n"
        eventually(lambda c=first: c.close_announced, "CONN_CLOSE has come")
        first.close()
    eventually(lambda: len(procfs.descriptors(pool.pid)) <= before, "the supervisor has closed its end", 0.4)


@pytest.mark.parametrize("kind", ["tcp", "unix"])
@pytest.mark.parametrize("size", [0, 100, 200_000])
def test_a_request_that_crosses_the_announcement_runs_once_and_is_answered(start, folder, kind, size):
    pool, first = asked_to_close(start, kind)
    ran = f"{folder}/ran"
    first.send(pool.request("record.php", f"file={ran}&id=crossing", body=b"b" * size))
    answer = first.read_response()
    assert answer.close_announced and answer.text.startswith(f"crossing {size} ")
    with open(ran) as file:
        assert file.read() == "crossing\n"
    assert pool.get("hello.php").text == "hello\n"


def test_a_request_that_comes_in_pieces_across_the_announcement_is_answered(start):
    pool, first = asked_to_close(start)
    data = pool.request("echo.php", body=b"x" * 1000)
    first.send_in_pieces(data, (3, 8, 100, len(data) - 10), pause=0.05)
    assert first.read_response().body == b"x" * 1000


def test_closing_never_hits_a_connection_with_an_unread_request(start):
    pool = start.cede(children=1, options=["--give-up", "close"])
    for _ in range(10):
        with pool.connect() as connection:
            # Two of them are unread when the first answer ends.
            connection.send(pool.request("flush.php", "pieces=2&ms=10") * 3)
            while b"piece 0" not in connection.read_record().content:
                pass
            with pool.connect() as other:
                other.send(pool.request("hello.php"))
                answers = [connection.read_response().text for _ in range(3)]
                assert all(answer.endswith("piece 1 ..\n") for answer in answers)
                assert other.read_response().text == "hello\n"


def test_closing_spares_connections_that_had_no_answer_yet(start):
    """OpenLiteSpeed counts a fresh connection that ends as a failure."""
    pool = start.cede(children=1, options=["--give-up", "close"])
    fresh = [pool.connect() for _ in range(3)]
    assert pool.get("hello.php").text == "hello\n"
    stays(lambda: all(connection.silent for connection in fresh), "nothing is said to them", 0.2)
    answers = []
    for connection in fresh:
        connection.send(pool.request("hello.php"))
    for connection in fresh:
        answers.append(connection.read_response().text)
    assert answers == ["hello\n"] * 3


def test_closing_gives_way_only_after_whole_answers(start, folder):
    pool = start.cede(children=2, options=["--give-up", "close"])
    ran = f"{folder}/ran"
    end = time.monotonic() + 1.5
    marks = []

    def client(number):
        with Worker(pool.address, 1) as worker:
            def request(at):
                marks.append(f"{number}-{at}")
                return pool.request("tick.php", f"file={ran}&id={number}-{at}&ms=3")

            def answered(at, job):
                assert job.failure is None and job.answer.text == f"{number}-{at}"

            closed_loop(worker, request, answered, lambda _: time.monotonic() < end)
            assert nothing_odd(worker)
            return worker.counted["closes announced"]

    closes = parallel([lambda n=n: client(n) for n in range(6)])
    assert sum(closes) > 0, "connections were closed to make room"
    with open(ran) as file:
        assert sorted(file.read().split()) == sorted(marks), "each request ran once"


@pytest.mark.parametrize("limit", ["2", "50%"])
def test_the_keepalive_limit_announces_the_close_right_behind_an_answer(start, limit):
    pool = start.cede(children=4, options=["--keepalive-limit", limit])
    connections = kept_connections(pool, 4)
    eventually(lambda: [c.close_announced or c.closed for c in connections].count(True) == 2, "two are asked to close")
    kept = [connection for connection in connections if connection.silent]
    assert connections[0] in kept and len(kept) == 2
    assert [pool.ask(connection, "hello.php").text for connection in kept] == ["hello\n"] * 2
    eventually(lambda: [c.closed for c in connections].count(True) == 2, "two are closed", LONGEST)


def test_a_keepalive_limit_of_zero_keeps_nothing_and_loses_nothing(start):
    pool = start.cede(children=2, options=["--keepalive-limit", "0"])
    with workers(pool, 3) as everyone:
        for worker in everyone:
            for _ in range(20):
                at_once(worker, pool, 2, "hello.php")
            worker.run_for(0.05)
            assert worker.idle == 0 and worker.counted["closes announced"] == worker.counted["connections"]
        assert all(nothing_odd(worker) for worker in everyone)


def test_the_longest_parked_is_asked_to_close_before_it_is_closed(start):
    pool = start.cede(children=1, options=["--max-parked", "3"])
    connections = kept_connections(pool, 6)
    eventually(lambda: connections[1].close_announced, "the second connection is asked to close")
    connections[1].send(pool.request("hello.php"))
    assert connections[1].read_response().text == "hello\n", "what it sent all the same is answered"
    close_all(connections)

# SPDX-License-Identifier: Apache-2.0
"""No request waits while a child is idle or free. A client's time limit (10 s) tells a stall from a wait."""
import time

import pytest

from support import kinds, procfs
from support.clients import close_all, kept_connections
from support.ports import has_ipv6
from support.waiting import Background, eventually, parallel, stays

pytestmark = kinds.both


def addresses_of(start, kind):
    if kind == "tcp6" and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    return [start.new_address(kind)]


@pytest.mark.parametrize("kind", ["tcp", "unix", "tcp6"])
def test_f01_silent_kept_connections_do_not_block_a_new_one(start, kind):
    pool = start.cede(children=2, listen=addresses_of(start, kind))
    silent = kept_connections(pool, 2)
    assert pool.get("hello.php").text == "hello\n"
    assert all(connection.silent for connection in silent), "both stay open"
    assert [pool.ask(connection, "hello.php").text for connection in silent] == ["hello\n"] * 2


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_f03_more_clients_than_children_all_get_their_first_answer(start, kind):
    pool = start.cede(children=4, listen=addresses_of(start, kind))
    connections = [pool.connect() for _ in range(8)]
    for _ in range(2):
        answers = parallel([lambda c=c: pool.ask(c, "sleep.php", "ms=20").text for c in connections])
        assert answers == ["slept 20\n"] * 8


def test_f07_a_new_client_is_served_beside_busy_kept_connections(start):
    pool = start.cede(children=4)
    stop = []

    def closed_loop(connection):
        served = 0
        while not stop:
            assert pool.ask(connection, "sleep.php", "ms=10").text == "slept 10\n"
            served += 1
        return served

    connections = [pool.connect() for _ in range(6)]
    loops = [Background(closed_loop, connection) for connection in connections]
    for _ in range(10):
        assert pool.get("hello.php").text == "hello\n"
    stop.append(True)
    assert min(loop.result() for loop in loops) > 0
    assert all(connection.silent for connection in connections), "nobody's connection was closed"


def test_f08_connections_behind_a_busy_child_are_served_by_the_other_one(start):
    pool = start.cede(children=2)
    busy = pool.connect()
    running = Background(pool.ask, busy, "sleep.php", "ms=500")
    eventually(lambda: pool.holder(busy), "a child took the request")
    kept = kept_connections(pool, 4)
    for _ in range(25):
        for connection in kept:
            assert pool.ask(connection, "hello.php").text == "hello\n"
    assert running.result().text == "slept 500\n"


def test_f10_work_after_the_page_holds_its_own_connection_and_nobody_else(start):
    pool = start.cede(children=2)
    with pool.connect() as connection:
        connection.send(pool.request("shutdown_work.php", "ms=400", keep=True))
        while b"page\n" not in connection.read_record().content:
            pass
        connection.send(pool.request("pid.php", keep=True))
        assert pool.get("hello.php").text == "hello\n"
        assert connection.silent, "the other client was served while the first script still worked"
        assert connection.read_response().body == b""
        assert int(connection.read_response().text) in pool.children


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_f63_connections_that_never_send_a_byte_do_not_hold_a_child(start, kind):
    pool = start.cede(children=2, listen=addresses_of(start, kind))
    silent = [pool.connect() for _ in range(5)]
    assert pool.get("hello.php").text == "hello\n"
    assert all(connection.silent for connection in silent)
    assert [pool.ask(connection, "hello.php").text for connection in silent] == ["hello\n"] * 5


@pytest.mark.parametrize("children, clients", [(1, 5), (4, 12)])
def test_more_clients_than_children_get_equal_shares(start, children, clients):
    pool = start.cede(children=children)
    end = time.monotonic() + 1.5

    def closed_loop():
        served = 0
        with pool.connect() as connection:
            while time.monotonic() < end:
                assert pool.ask(connection, "sleep.php", "ms=5").text == "slept 5\n"
                served += 1
        return served

    shares = parallel([closed_loop] * clients)
    assert min(shares) >= 0.5 * sum(shares) / clients, shares


def test_a_parked_connection_stays_open_and_goes_on_with_another_child(start):
    pool = start.cede(children=2)
    with pool.connect() as first:
        served_by = int(pool.ask(first, "pid.php").text)
        eventually(lambda: pool.holder(first) == served_by, "the child keeps the connection while nobody waits")
        second, third = pool.connect(), pool.connect()
        running = [Background(pool.ask, connection, "pid.php", "ms=400") for connection in (second, third)]
        eventually(lambda: pool.parked(first), "the first connection is parked")
        assert first.silent
        pids = {int(one.result().text) for one in running}
        assert pids == set(pool.children), "both children were needed"
        # The child that the first connection began with is taken: another one goes on with it.
        blocker = next(c for c in (second, third) if pool.holder(c) == served_by)
        busy = Background(pool.ask, blocker, "pid.php", "ms=400")
        time.sleep(0.05)
        assert int(pool.ask(first, "pid.php").text) != served_by
        assert int(busy.result().text) == served_by
        close_all([second, third])


def test_requests_on_parked_connections_arrive_whole(start):
    pool = start.cede(children=1)
    connections = [pool.connect() for _ in range(6)]
    for size in (0, 1, 8192, 65535, 200_000):
        body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        for connection in connections:
            answer = pool.ask(connection, "echo.php", method="POST", body=body)
            assert answer.body == body


def test_a_parked_connection_is_closed_at_once_when_its_peer_leaves(start):
    pool = start.cede(children=2)
    before = len(procfs.descriptors(pool.pid))
    connections = kept_connections(pool, 52)
    eventually(lambda: len(procfs.descriptors(pool.pid)) >= before + 50, "50 connections are parked")
    close_all(connections)
    eventually(lambda: len(procfs.descriptors(pool.pid)) <= before, "the supervisor closed all of them", 5)
    assert pool.get("hello.php").text == "hello\n"


def test_nobody_gives_up_while_nobody_waits(start):
    pool = start.cede(children=4)
    connections = kept_connections(pool, 4)
    held_by = [eventually(lambda c=c: pool.holder(c), "a child holds it") for c in connections]
    assert len(set(held_by)) == 4
    for _ in range(20):
        for connection, pid in zip(connections, held_by):
            assert int(pool.ask(connection, "pid.php").text) == pid
    assert [pool.holder(connection) for connection in connections] == held_by


def test_after_a_rush_connections_stay_with_their_children_again(start):
    pool = start.cede(children=2)
    rush = [pool.connect() for _ in range(8)]
    for _ in range(3):
        parallel([lambda c=c: pool.ask(c, "sleep.php", "ms=10") for c in rush])
    close_all(rush)
    with pool.connect() as connection:

        def stays_with_a_child():
            pids = {int(pool.ask(connection, "pid.php").text) for _ in range(20)}
            time.sleep(0.01)
            return len(pids) == 1 and pool.holder(connection) in pids

        eventually(stays_with_a_child, "the connection is not given up any more", 5)


def test_above_max_parked_the_longest_parked_is_closed(start):
    pool = start.cede(children=1, options=["--max-parked", "3"])
    connections = kept_connections(pool, 6)
    eventually(lambda: connections[1].closed, "the second connection is closed")
    closed = [connection.closed for connection in connections]
    assert closed == sorted(closed, reverse=True), "the longest parked go first"
    # Three are parked, and the last one may still be with its child.
    assert 3 <= closed.count(False) <= 4
    assert all(connection.silent for connection in connections[closed.count(True) :])
    assert pool.ask(connections[-1], "hello.php").text == "hello\n"


def test_two_thousand_parked_connections_are_all_served_again(start):
    pool = start.cede(children=10, nofile=(1024, 8192))
    connections = kept_connections(pool, 2000)
    assert all(connection.silent for connection in connections)
    assert pool.get("hello.php").text == "hello\n"
    for connection in reversed(connections):
        assert pool.ask(connection, "hello.php").text == "hello\n"
    many = pool.request("hello.php", keep=True)
    for connection in connections:
        connection.send(many)  # all at once: they wait for each other, and none is forgotten
    for connection in connections:
        assert connection.read_response().text == "hello\n"
    close_all(connections)


def test_silent_connections_of_one_listener_do_not_block_another(start):
    pool = start.cede(children=2, listen=[start.new_address("tcp"), start.new_address("unix"), start.new_address()])
    tcp, unix, second = pool.addresses
    for occupied, other in ((tcp, unix), (unix, second), (second, tcp)):
        silent = kept_connections(pool, 2, address=occupied)
        assert pool.get("hello.php", address=other).text == "hello\n"
        assert [pool.ask(connection, "hello.php").text for connection in silent] == ["hello\n"] * 2
        close_all(silent)


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_the_listen_queue_and_parked_requests_both_make_progress(start, kind):
    pool = start.cede(children=2, listen=addresses_of(start, kind))
    end = time.monotonic() + 1.5

    def on_a_kept_connection():
        served = 0
        with pool.connect() as connection:
            while time.monotonic() < end:
                assert pool.ask(connection, "sleep.php", "ms=5").text == "slept 5\n"
                served += 1
        return served

    def on_new_connections():
        served = 0
        while time.monotonic() < end:
            assert pool.get("sleep.php", "ms=5").text == "slept 5\n"
            served += 1
        return served

    served = parallel([on_a_kept_connection] * 4 + [on_new_connections] * 4)
    kept, new = sum(served[:4]), sum(served[4:])
    assert kept < 4 * new and new < 4 * kept, f"{kept} on kept connections, {new} on new ones"


def test_a_request_in_pieces_is_served_under_pressure(start):
    pool = start.cede(children=2)
    data = pool.request("echo.php", body=b"x" * 1000, keep=True)
    with pool.connect() as slow:
        for cut in (1, 7, 8, 12, 16, 24, 100, len(data) - 1) * 8:
            slow.send(data[:cut])
            kept = kept_connections(pool, 3)
            slow.send(data[cut:])
            assert slow.read_response().body == b"x" * 1000
            close_all(kept)


def test_a_burst_of_forty_from_eight_keepalive_pools_is_served_by_ten_children(start):
    pool = start.cede(children=10)
    pools = [[pool.connect() for _ in range(5)] for _ in range(8)]
    everyone = [connection for one in pools for connection in one]
    for _ in range(2):
        parallel([lambda c=c: pool.ask(c, "hello.php") for c in everyone])
        answers = parallel([lambda c=c: pool.ask(c, "sleep.php", "ms=200").text for c in everyone])
        assert answers == ["slept 200\n"] * 40
    close_all(everyone)


def test_the_supervisor_sleeps_while_children_are_enough(start):
    pool = start.cede(children=4)
    connections = kept_connections(pool, 3)
    before = procfs.voluntary_switches(pool.pid)
    for _ in range(500):
        for connection in connections:
            assert pool.ask(connection, "hello.php").text == "hello\n"
    assert procfs.voluntary_switches(pool.pid) - before < 150, "woken far less often than once per request"


def test_nobody_spins_while_everybody_is_silent(start):
    pool = start.cede(children=2)
    connections = kept_connections(pool, 6)
    everyone = [pool.pid, *pool.children]
    time.sleep(0.1)
    before = [procfs.cpu_ticks(pid) for pid in everyone]
    stays(lambda: all(connection.silent for connection in connections), "everybody is silent", 0.5)
    assert [procfs.cpu_ticks(pid) - ticks for pid, ticks in zip(everyone, before)] == pytest.approx([0, 0, 0], abs=2)

# SPDX-License-Identifier: Apache-2.0
"""What is peculiar to LSAPI about giving connections up (test_give_up.py has what is not): the pools of OpenLiteSpeed's
workers, litespeed_finish_request(), and children that end at their quota."""
import os
import re
import socket
import time

import pytest

from support import kinds, lsapi, procfs
from support.clients import close_all, kept_connections
from support.openlitespeed import Worker, at_once, closed_loop, nothing_odd, workers
from support.waiting import Background, eventually, parallel

pytestmark = kinds.lsphp


@pytest.mark.parametrize("children", [1, 2, 4])
@pytest.mark.parametrize("how", ["park", "close"])
def test_idle_connections_of_many_workers_never_stall_another_one(start, how, children):
    pool = start.cede(children=children, options=["--give-up", how])
    with workers(pool, 6, size=3) as everyone:
        for worker in everyone:  # 18 connections, all idle afterwards
            at_once(worker, pool, 3, "hello.php")
        for _ in range(5):
            for worker in everyone:
                at_once(worker, pool, 1, "hello.php")
                at_once(worker, pool, 3, "sleep.php", "ms=5")
        assert all(nothing_odd(worker) for worker in everyone)
        if how == "park":
            assert [worker.idle for worker in everyone] == [3] * 6, "nobody's connection was closed"


@pytest.mark.parametrize("how", ["park", "close"])
def test_f11_requests_beyond_the_children_wait_one_service_time_at_most(start, how):
    pool = start.cede(children=10, options=["--give-up", how])
    end = time.monotonic() + 2
    took = []

    def client(worker):
        data = pool.request("sleep.php", "ms=20")

        def again(job):
            took.append(job.took)
            if time.monotonic() < end:
                worker.submit(data, again)

        for _ in range(20):
            worker.submit(data, again)
        worker.run()

    with workers(pool, 1, size=16) as (worker,):
        client(worker)
        assert nothing_odd(worker)
    # 20 clients, 16 connections, 10 children of 20 ms: a request waits for two others, and for this machine.
    assert sorted(took)[len(took) // 2] < 0.1
    assert max(took) < 1
    assert not re.search(r"(?i)limit|deadlock", pool.process.log)


def test_f12_four_pools_share_one_group_of_children(start):
    pool = start.cede(children=8)
    with workers(pool, 4) as everyone:
        for worker in everyone:
            at_once(worker, pool, 8, "sleep.php", "ms=10")  # 32 connections over 8 children
        for _ in range(3):
            loads = zip(everyone, (1, 1, 2, 2))
            took = parallel([lambda w=w, n=n: at_once(w, pool, n, "sleep.php", "ms=100") for w, n in loads])
            assert max(max(each) for each in took) < 0.5, "six at once on eight children: nobody waits for a turn"
        assert all(nothing_odd(worker) for worker in everyone)
    assert len(procfs.children(pool.pid)) == 9


@pytest.mark.parametrize("how", ["park", "close"])
def test_f13_silent_visitors_hold_nobody_and_their_connections_are_used_again(start, how):
    pool = start.cede(children=20, options=["--give-up", how])
    visitors = []
    for number in range(120):
        connection = pool.connect()
        for _ in range(3):
            begun = time.monotonic()
            assert pool.ask(connection, "hello.php").text == "hello\n"
            assert time.monotonic() - begun < 2
        visitors.append(connection)
        if number == 19:
            pids = {pool.holder(visitor) for visitor in visitors}
            assert pids == set(pool.children), "while there is one for each, each keeps its child"
    if how == "park":
        assert all(visitor.silent for visitor in visitors)
    else:
        eventually(lambda: [v.close_announced or v.closed for v in visitors].count(True) >= 100, "most shall close")
    close_all(visitors)


def test_a_burst_of_forty_over_eight_pools_is_served_in_four_turns(start):
    pool = start.cede(children=10, listen=[start.new_address("unix")])
    with workers(pool, 8) as everyone:
        for worker in everyone:
            at_once(worker, pool, 10, "hello.php")
        begun = time.monotonic()
        parallel([lambda w=w: at_once(w, pool, 5, "sleep.php", "ms=300") for w in everyone])
        assert 1.2 <= time.monotonic() - begun < 2.4
        assert all(nothing_odd(worker) for worker in everyone)


@pytest.mark.parametrize("order", [lsapi.LITTLE, lsapi.BIG], ids=["little", "big"])
def test_parked_connections_answer_requests_of_every_form(start, order):
    pool = start.cede(children=1)
    connections = kept_connections(pool, 4)
    for size in (0, 1, 8000, 65536, 300_000):
        for connection in connections:
            body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
            eventually(lambda c=connection: pool.parked(c) or pool.holder(c), "somebody has it")
            for announced in (size, lsapi.BODY_AS_IN_HEADER):
                answer = pool.ask(connection, "echo.php", method="POST", body=body, order=order, body_length=announced)
                assert answer.body == body


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_a_peer_that_closes_its_sending_side_behind_a_request_is_answered(start, kind):
    pool = start.cede(children=1, listen=[start.new_address(kind)], options=["--abandoned", "run"])
    for connection in kept_connections(pool, 4):  # three are parked, and one is with the child
        connection.send(pool.request("hello.php"))
        connection.socket.shutdown(socket.SHUT_WR)
        assert connection.read_response().text == "hello\n"
        assert connection.ends_without_more()


def test_a_request_whose_client_left_while_it_waited_does_not_run(start, folder):
    """On a Unix socket, where it can be known. OpenLiteSpeed asks for an end in this way, and closes."""
    pool = start.cede(children=1, listen=[start.new_address("unix")])
    ran = f"{folder}/ran"
    parked = kept_connections(pool, 3)
    running = Background(pool.get, "sleep.php", "ms=200")
    eventually(lambda: _runs_something(pool), "the child is busy")
    for number, connection in enumerate([*parked, pool.connect(), pool.connect()]):
        connection.send(pool.request("record.php", f"file={ran}&id={number}") + lsapi.ABORT)
        connection.close()
    assert running.result().text == "slept 200\n"
    assert pool.get("hello.php").text == "hello\n"
    assert not os.path.exists(ran)


def _runs_something(pool):
    return any(":" in procfs.title(pid) for pid in pool.children)


# --- litespeed_finish_request -----------------------------------------------------------------------


@pytest.mark.parametrize("how", ["park", "close"])
def test_work_behind_litespeed_finish_request_holds_its_child_and_nothing_else(start, folder, how):
    pool = start.cede(children=2, options=["--give-up", how])
    ran = f"{folder}/ran"
    with pool.connect() as connection:
        begun = time.monotonic()
        connection.send(pool.request("finish_early.php", f"file={ran}&id=late&ms=600"))
        assert connection.read_response().text == "early\n"
        assert time.monotonic() - begun < 0.4, "the answer does not wait for the script"
        working = pool.wait_for_children(2)
        served_by = {int(pool.get("pid.php").text) for _ in range(10)}
        assert len(served_by) == 1 and served_by < set(working), "the other child serves, this one is busy"
        # A web server closes now; what it sent before it read CONN_CLOSE is answered all the same.
        connection.send(pool.request("hello.php"))
        assert connection.read_response().text == "hello\n"
        assert not os.path.exists(ran), "while the script still works"
    (busy,) = set(working) - served_by
    eventually(lambda: os.path.exists(ran), "the script has worked on", 5)
    with open(ran) as file:
        assert file.read().split() == ["late", str(busy)]
    assert set(parallel([lambda: int(pool.get("pid.php", "ms=100").text)] * 2)) == set(working)


def test_requests_wait_for_the_only_child_while_it_works_behind_its_answer(start, folder):
    pool = start.cede(children=1)
    ran = f"{folder}/ran"
    with Worker(pool.address) as worker:
        for number in range(4):
            worker.submit(pool.request("finish_early.php", f"file={ran}&id={number}&ms=100"))
        worker.run(10)
        assert nothing_odd(worker)
        assert worker.idle == 0, "each connection was announced to end"
    eventually(lambda: len(_lines(ran)) == 4, "all four have worked on", 5)
    assert sorted(line.split()[0] for line in _lines(ran)) == ["0", "1", "2", "3"]


def _lines(path):
    try:
        with open(path) as file:
            return file.read().splitlines()
    except FileNotFoundError:
        return []


# --- the quota --------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["park", "close"])
def test_children_end_at_their_quota_and_no_client_notices(start, how):
    pool = start.cede(children=2, options=["--max-requests", "5", "--give-up", how])
    pids = []
    with pool.connect() as connection:
        for _ in range(52):
            pids.append(int(pool.ask(connection, "pid.php").text))
        assert connection.silent or how == "close" and not connection.closed, "the connection outlives its children"
    served = [pids.count(pid) for pid in dict.fromkeys(pids)]
    assert max(served) == 5 and len(served) >= 10, served
    eventually(lambda: not [pid for pid in set(pids[:40]) if procfs.alive(pid)], "they have ended")
    pool.wait_for_children(2)
    told = [line for line in pool.process.log.splitlines() if "to wait" not in line and "wait no more" not in line]
    assert not re.search(r"(?i)warning|error", "\n".join(told)), "nothing went wrong"


def ended(pool):
    """How many children have ended."""
    return len(re.findall(r"\bchild=\d+ .* ended with exit status 0", pool.process.log))


def test_f15_the_last_answer_before_the_quota_is_whole_and_what_follows_is_served(start):
    pool = start.cede(children=1, options=["--max-requests", "10"])
    for _ in range(5):
        with pool.connect() as connection:
            data = pool.request("bytes.php", "bytes=200000")
            for at in range(12):
                connection.send(data * 2 if at == 8 else data if at != 9 else b"")
                assert len(connection.read_response().body) == 200_000
    assert ended(pool) >= 5


def test_many_workers_lose_nothing_while_children_end_at_their_quota(start, folder):
    pool = start.cede(children=3, options=["--max-requests", "7"])
    ran = f"{folder}/ran"

    def client(number):
        with Worker(pool.address, 3) as worker:
            def answered(at, job):
                assert job.failure is None and job.answer.text.startswith(f"{number}-{at} ")

            closed_loop(worker, lambda at: pool.request("record.php", f"file={ran}&id={number}-{at}"), answered,
                        lambda at: at < 75, width=3)
            return nothing_odd(worker)

    assert all(parallel([lambda n=n: client(n) for n in range(4)], timeout=60))
    runs = _lines(ran)
    assert len(runs) == len(set(runs)) == 300
    assert ended(pool) >= 300 // 7 - 3


def test_a_running_request_is_no_excuse_for_silent_clients_to_stall(start):
    """Both children busy, then both free again: whoever waited is served in the order of arrival."""
    pool = start.cede(children=2)
    kept = kept_connections(pool, 4)
    busy = [pool.connect() for _ in range(2)]
    running = [Background(pool.ask, connection, "sleep.php", "ms=300") for connection in busy]
    eventually(lambda: all(pool.holder(connection) for connection in busy), "both children are busy")
    waiting = [Background(pool.ask, connection, "sleep.php", "ms=10") for connection in kept]
    assert [one.result().text for one in running] == ["slept 300\n"] * 2
    assert [one.result().text for one in waiting] == ["slept 10\n"] * 4

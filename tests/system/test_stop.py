# SPDX-License-Identifier: Apache-2.0
"""Stopping: at once or gracefully, never by halves, and no signal poisons the pool."""
import contextlib
import os
import signal
import time

import pytest

from support import kinds, procfs
from support.connection import Closed, LsapiConnection
from support.ports import can_listen
from support.server import STAND_IN
from support.waiting import eventually, parallel

pytestmark = [kinds.both, pytest.mark.skipif(bool(STAND_IN), reason="plain PHP stops in its own way")]

FAST = 5.0  # seconds; what would be waited for takes 20 s and more


def everyone(pool):
    return [pool.pid, *procfs.descendants(pool.pid)]


def nothing_left(pids, timeout=FAST):
    eventually(lambda: not [pid for pid in pids if procfs.alive(pid)], "no process is left", timeout)


def send_request(pool, script, query="", keep=False):
    connection = pool.connect()
    connection.send(pool.request(script, query, keep=keep))
    return connection


def all_states(pool):
    """Connections in every state for a pool of 4 children: running, reading, kept idle, parked, queued behind."""
    connections = [pool.connect() for _ in range(6)]
    for connection in connections:
        pool.ask(connection, "hello.php")
    running = [send_request(pool, "sleep.php", "ms=20000") for _ in range(2)]
    reading = pool.connect()
    reading.send(pool.request("hello.php")[:20])
    for connection in running:
        eventually(lambda c=connection: pool.holder(c), "the request runs")
    return connections + running + [reading]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_term_and_int_stop_at_once_whatever_children_do(start, number):
    pool = start.cede(children=4)
    connections = all_states(pool)
    pids = everyone(pool)
    pool.process.send(number)
    assert pool.process.wait(FAST) == 0
    nothing_left(pids)
    for connection in connections:
        connection.read_to_end()
    assert can_listen(pool.address[1])


def test_an_idle_pool_stops_at_once_and_its_socket_files_are_gone(start):
    pool = start.cede(children=3, listen=[start.new_address("unix"), start.new_address("unix")])
    pids = everyone(pool)
    assert pool.get("hello.php").text == "hello\n"
    assert pool.process.stop(signal.SIGTERM, FAST) == 0
    nothing_left(pids)
    assert not [path for path in pool.addresses if os.path.exists(path)]


def test_a_socket_file_that_is_not_ours_any_more_stays(start):
    pool = start.cede(children=1, listen=[start.new_address("unix")])
    os.unlink(pool.address)
    successor = start.cede(children=1, listen=pool.addresses)
    assert pool.process.stop(signal.SIGTERM, FAST) == 0
    assert successor.get("hello.php").text == "hello\n"


def test_an_endless_script_does_not_delay_the_stop(start):
    pool = start.cede(children=2)
    connection = send_request(pool, "loop.php")
    eventually(lambda: pool.holder(connection), "it runs")
    pids = everyone(pool)
    assert pool.process.stop(signal.SIGTERM, FAST) == 0
    nothing_left(pids)


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_quit_lets_running_and_queued_requests_finish(start, kind):
    pool = start.cede(children=2, listen=[start.new_address(kind)])
    pids = everyone(pool)
    connections = [send_request(pool, "sleep.php", "ms=200", keep=at % 2) for at in range(8)]
    pool.process.send(signal.SIGQUIT)
    assert [connection.read_response().text for connection in connections] == ["slept 200\n"] * 8
    for connection in connections:
        assert connection.ends_without_more(), "a kept connection ends after its answer"
    assert pool.process.wait(FAST) == 0
    nothing_left(pids)
    if kind == "unix":
        assert not os.path.exists(pool.address)


def test_quit_serves_requests_that_wait_on_parked_connections(start):
    pool = start.cede(children=1)
    kept = [pool.connect() for _ in range(4)]
    for connection in kept:
        pool.ask(connection, "hello.php")
    running = send_request(pool, "sleep.php", "ms=200", keep=True)
    eventually(lambda: pool.holder(running), "it runs")
    for connection in kept[:3]:
        connection.send(pool.request("hello.php", keep=True))
    pool.process.send(signal.SIGQUIT)
    assert running.read_response().text == "slept 200\n"
    assert [connection.read_response().text for connection in kept[:3]] == ["hello\n"] * 3
    assert kept[3].ends_without_more()
    assert pool.process.wait(FAST) == 0


def test_quit_with_nothing_to_do_ends_at_once_although_connections_are_kept(start):
    pool = start.cede(children=2)
    pids = everyone(pool)
    kept = [pool.connect() for _ in range(6)]
    for connection in kept[:5]:
        pool.ask(connection, "hello.php")
    pool.process.send(signal.SIGQUIT)
    assert pool.process.wait(FAST) == 0
    nothing_left(pids)
    for connection in kept:
        assert connection.ends_without_more()
    assert can_listen(pool.address[1])


def test_a_large_answer_is_sent_whole_before_the_graceful_stop(start):
    pool = start.cede(children=1)
    connection = send_request(pool, "bytes.php", "bytes=20000000")
    eventually(lambda: pool.holder(connection), "it runs")
    pool.process.send(signal.SIGQUIT)
    time.sleep(0.1)  # the client is slow to read
    assert len(connection.read_response().body) == 20_000_000
    assert pool.process.wait(FAST) == 0


def test_the_stop_timeout_bounds_a_graceful_stop(start):
    pool = start.cede(children=2, options=["--stop-timeout", "1s"])
    connection = send_request(pool, "sleep.php", "ms=20000")
    eventually(lambda: pool.holder(connection), "it runs")
    pids = everyone(pool)
    begun = time.monotonic()
    pool.process.send(signal.SIGQUIT)
    pool.process.wait(FAST)
    assert time.monotonic() - begun > 0.9, "it was given its time"
    nothing_left(pids)
    with pytest.raises(Closed):
        connection.read_response()


@pytest.mark.parametrize("second", [signal.SIGQUIT, signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_a_graceful_stop_at_once(start, second):
    pool = start.cede(children=2)
    connection = send_request(pool, "sleep.php", "ms=20000")
    eventually(lambda: pool.holder(connection), "it runs")
    pids = everyone(pool)
    pool.process.send(signal.SIGQUIT)
    eventually(lambda: len(pool.children) == 1, "the graceful stop has begun: the free child has ended")
    pool.process.send(second)
    pool.process.wait(FAST)
    nothing_left(pids)


def test_a_stop_while_children_are_still_starting_leaves_nothing(start):
    for delay in (0, 0.02, 0.05, 0.08, 0.12):
        pool = start.cede(children=4, wait=False)
        time.sleep(delay)
        pids = everyone(pool)
        pool.process.send(signal.SIGTERM)
        pool.process.wait(FAST)
        nothing_left(pids)
        assert procfs.descendants(os.getpid()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2])
def test_a_signal_to_the_zygote_does_not_poison_children_forked_later(start, number):
    pool = start.cede(children=2)
    os.kill(pool.zygote, number)
    first = pool.children
    for pid in first:
        os.kill(pid, signal.SIGKILL)
    now = pool.wait_for_children(2, without=first)
    for _ in range(10):
        with pool.connect() as one, pool.connect() as two:
            for _ in range(3):
                pids = parallel([lambda c=c: int(pool.ask(c, "pid.php", "ms=5").text) for c in (one, two)])
                assert set(pids) <= set(now)
    assert pool.children == now, "nobody ended after one request"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP])
@pytest.mark.parametrize("state", ["free", "idle", "busy"])
def test_a_signal_to_a_child_costs_at_most_that_child(start, number, state):
    pool = start.cede(children=2)
    with pool.connect() as connection:
        victim = pool.children[0]
        if state == "idle":
            victim = int(pool.ask(connection, "pid.php").text)
        elif state == "busy":
            connection.send(pool.request("sleep.php", "ms=200", keep=True))
            victim = eventually(lambda: pool.holder(connection), "it runs")
        os.kill(victim, number)
        lost = 0
        for _ in range(10):
            try:
                assert pool.get("hello.php").text == "hello\n"
            except Closed as error:
                # It came to a child that was about to end and did not run: a web server sends it again.
                assert error.without_answer
                lost += 1
        assert lost <= (pool.connection_type is LsapiConnection)
        # A polite signal lets the script end, of php-cgi; lsphp's does not get its answer out any more.
        polite = number in (signal.SIGTERM, signal.SIGUSR1) and pool.connection_type is not LsapiConnection
        if state == "busy" and polite:
            assert connection.read_response().text == "slept 200\n"

        def ended():
            """Now, or after one more request: two at once reach both children."""
            return not procfs.alive(victim) or not parallel([lambda: pool.get("pid.php", "ms=20")] * 2)

        if state != "idle" or not polite:
            eventually(ended, "the victim has ended")

    def both_work():
        pids = set(parallel([lambda: int(pool.get("pid.php", "ms=100").text)] * 2))
        return pids == set(pool.children) and len(pids) == 2

    eventually(both_work, "two children work at the same time")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_a_signal_to_the_whole_process_group_leaves_nothing(start, number):
    pool = start.cede(children=3)
    kept = [pool.connect() for _ in range(5)]
    for connection in kept:
        pool.ask(connection, "hello.php")
    running = send_request(pool, "sleep.php", "ms=300")
    eventually(lambda: pool.holder(running), "it runs")
    pids = everyone(pool)
    os.killpg(pool.pid, number)
    assert pool.process.wait(FAST) == 0
    nothing_left(pids)
    assert can_listen(pool.address[1])


def test_term_to_every_single_process_leaves_nothing(start):
    """What systemd does with KillMode=control-group, its default."""
    pool = start.cede(children=3)
    kept = pool.connect()
    pool.ask(kept, "hello.php")
    running = send_request(pool, "sleep.php", "ms=20000")
    eventually(lambda: pool.holder(running), "it runs")
    pids = everyone(pool)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # the supervisor, first, may be done before the last is told
            os.kill(pid, signal.SIGTERM)
    pool.process.wait(FAST)
    nothing_left(pids)


def test_signals_without_a_meaning_do_not_stop_the_supervisor(start):
    pool = start.cede(children=2)
    for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGURG, signal.SIGWINCH):
        pool.process.send(number)
    for _ in range(5):
        assert pool.get("hello.php").text == "hello\n"
    assert pool.process.running


def test_a_stopped_and_continued_supervisor_goes_on(start):
    pool = start.cede(children=1)
    pool.process.send(signal.SIGSTOP)
    eventually(lambda: procfs.stat(pool.pid)[0] == "T", "it is stopped")
    assert pool.get("hello.php").text == "hello\n", "children need no supervisor while one of them is free"
    os.kill(pool.children[0], signal.SIGKILL)
    waiting = send_request(pool, "hello.php")
    pool.process.send(signal.SIGCONT)
    assert waiting.read_response().text == "hello\n"

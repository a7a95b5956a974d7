# SPDX-License-Identifier: Apache-2.0
"""What the supervisor does for those who wait while all children are busy: refusals, pings, order, and who has gone."""
import os
import signal
import time

import pytest

from support import kinds
from support.clients import close_all
from support.control import Control
from support.waiting import Background, eventually

pytestmark = kinds.both

SLACK = 0.5  # seconds: for a busy machine; without the manager's part a wait would last until a child is free


def occupy(pool, start, milliseconds):
    """All children busy for that long: (the requests, the control socket)."""
    count = len(pool.children)
    running = [Background(pool.get, "sleep.php", f"ms={milliseconds}") for _ in range(count)]
    control = Control(pool, start.binary)
    eventually(lambda: control.status["children"]["by_state"]["busy"] == count, "all children are busy")
    return running, control


def lines(path):
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return file.read().split()


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_a_request_is_refused_when_it_has_waited_long_enough_and_its_connection_lives_on(start, folder, kind):
    pool = start.cede(children=2, options=["--max-wait", "500ms"], listen=[start.new_address(kind)])
    running, _ = occupy(pool, start, 2500)
    path = os.path.join(folder, "ran")
    with pool.connect() as connection:
        begin = time.monotonic()
        response = pool.ask(connection, "record.php", f"file={path}&id=late")
        took = time.monotonic() - begin
        assert response.status == 503
        assert response.headers["retry-after"] == "1"
        assert 0.35 < took < 0.5 + SLACK
        for one in running:
            assert one.result().status == 200
        response = pool.ask(connection, "record.php", f"file={path}&id=next")
        assert response.text.startswith("next ")
    assert lines(path) == ["next"]


def test_a_ping_is_answered_while_all_children_are_busy_and_while_they_are_not(start):
    pool = start.cede(children=2, options=["--ping-path", "/ping"])
    with pool.connect() as kept:
        assert pool.ask(kept, "ping").text == "pong"
        running, _ = occupy(pool, start, 2000)
        begin = time.monotonic()
        for _ in range(3):
            response = pool.get("ping")
            assert response.text == "pong"
            assert response.headers["content-type"].startswith("text/plain")
            assert pool.ask(kept, "ping").text == "pong"
        assert time.monotonic() < begin + 2 * SLACK
        assert not any(one.done for one in running)
        for one in running:
            assert one.result().text == "slept 2000\n"


def test_a_ping_on_a_kept_connection_is_the_first_that_waits(start):
    pool = start.cede(children=1, options=["--ping-path", "/ping", "--max-wait", "500ms"])
    with pool.connect() as kept:
        assert pool.ask(kept, "hello.php").text == "hello\n"
        running, _ = occupy(pool, start, 2000)
        begin = time.monotonic()
        assert pool.ask(kept, "ping").text == "pong"
        assert time.monotonic() < begin + SLACK
        assert not running[0].done
        running[0].result()


def test_a_client_that_leaves_while_it_waits_is_never_run(start, folder):
    pool = start.cede(children=1)
    running, control = occupy(pool, start, 1500)
    path = os.path.join(folder, "ran")
    waiting = [pool.connect() for _ in range(40)]
    for number, connection in enumerate(waiting):
        connection.send(pool.request("record.php", f"file={path}&id={number}"))
    eventually(lambda: control.status["totals"].get("pulled", 0) > 0, "the supervisor has some of them")
    for connection in waiting[:-1]:
        connection.close()
    running[0].result()
    assert waiting[-1].read_response().text.startswith("39 ")
    waiting[-1].close()
    assert lines(path) == ["39"]


def test_half_a_head_whose_client_goes_is_gone_at_once(start):
    pool = start.cede(children=2)
    halves = [pool.connect() for _ in range(30)]
    for connection in halves:
        connection.send(pool.request("hello.php")[:40])

    def held():
        return len(os.listdir(f"/proc/{pool.pid}/fd"))

    with pool.connect() as connection:
        assert pool.ask(connection, "hello.php").text == "hello\n"
        before = held()
        close_all(halves)
        eventually(lambda: held() <= before - 25, "their descriptors are closed")
        assert pool.ask(connection, "hello.php").text == "hello\n"


def test_two_hundred_half_read_heads_do_not_delay_a_good_request(start):
    pool = start.cede(children=2)
    halves = [pool.connect() for _ in range(200)]
    data = pool.request("hello.php")
    for connection in halves:
        connection.send(data[:40])
    for _ in range(20):
        begin = time.monotonic()
        assert pool.get("hello.php").text == "hello\n"
        assert time.monotonic() < begin + SLACK
    for connection in halves:
        connection.send(data[40:])
    for connection in halves:
        assert connection.read_response().text == "hello\n"
    close_all(halves)


def test_with_lifo_the_newest_is_served_once_some_have_waited_too_long(start, folder):
    pool = start.cede(children=1, options=["--max-wait", "800ms", "--overload", "lifo"])
    running, _ = occupy(pool, start, 1200)
    path = os.path.join(folder, "ran")
    early = [pool.connect() for _ in range(4)]
    for number, connection in enumerate(early):
        connection.send(pool.request("record.php", f"file={path}&id=early{number}"))
    for connection in early:
        assert connection.read_response().status == 503
    # These wait for less than that, and the first of them is served last.
    late = [pool.connect() for _ in range(4)]
    for number, connection in enumerate(late):
        connection.send(pool.request("record.php", f"file={path}&id=late{number}"))
        time.sleep(0.03)  # so that it is known who is the newest
    for connection in late:
        assert connection.read_response().status == 200
    running[0].result()
    close_all(early + late)
    ran = lines(path)
    assert sorted(ran) == ["late0", "late1", "late2", "late3"]
    assert ran[-1] == "late0"


def test_what_waits_is_served_in_a_graceful_stop(start, folder):
    pool = start.cede(children=1)
    running, control = occupy(pool, start, 1200)
    path = os.path.join(folder, "ran")
    waiting = [pool.connect() for _ in range(20)]
    for number, connection in enumerate(waiting):
        connection.send(pool.request("record.php", f"file={path}&id={number}"))
    eventually(lambda: control.status["totals"].get("pulled", 0) == 20, "the supervisor has them")
    os.kill(pool.pid, signal.SIGQUIT)
    running[0].result()
    for number, connection in enumerate(waiting):
        assert connection.read_response().text.startswith(f"{number} ")
    close_all(waiting)
    assert sorted(lines(path), key=int) == [str(number) for number in range(20)]
    assert pool.process.wait() == 0


@pytest.mark.parametrize("overload", ["lifo", "reject"])
def test_an_order_without_a_limit_is_an_error(start, overload):
    pool = start.cede(children=1, options=["--overload", overload], wait=False)
    assert pool.process.wait() == 2
    assert "--max-wait" in pool.process.log

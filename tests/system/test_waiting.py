# SPDX-License-Identifier: Apache-2.0
"""What is told of those who wait, how many may, and the children that are kept for new connections."""
import contextlib
import os
import re
import signal
import socket
import time

import pytest

from support import kinds
from support.clients import close_all, kept_connections
from support.control import Control
from support.server import STAND_IN
from support.waiting import Background, eventually, parallel, stays

pytestmark = [kinds.both, pytest.mark.skipif(bool(STAND_IN), reason="plain PHP tells nothing")]


def controlled(start, **options):
    pool = start.cede(**options)
    return pool, Control(pool, start.binary)


def lines(pool, text):
    return re.findall(rf"^.*{text}.*$", pool.process.log, re.MULTILINE)


# --- saturation -------------------------------------------------------------------------------------


def overload(pool, milliseconds, requests):
    for answer in parallel([lambda: pool.get("sleep.php", f"ms={milliseconds}") for _ in range(requests)]):
        assert answer.text == f"slept {milliseconds}\n"


def test_saturation_is_told_when_it_begins_and_when_it_ends_with_what_it_was(start):
    pool, control = controlled(start, children=2)
    assert control.status["saturation"] == {"now": False, "total_s": 0, "times": 0, "requests": 0, "moments": 0}
    load = Background(overload, pool, 1000, 6)  # three rounds: two of them wait for one second or two
    eventually(lambda: control.status["saturation"]["now"], "saturation is seen")
    pool.process.wait_for_log("warning: requests have to wait, .*: all 2 children are busy")
    load.result()
    pool.process.wait_for_log("warning: requests wait no more, after .* s: 4 requests had to")
    told = control.status["saturation"]
    assert not told["now"] and told["times"] == 1 and told["requests"] == 4
    assert 1.8 <= told["total_s"] <= 2.5
    assert "saturated    1 time, for" in control.command("status")[1]


def test_times_in_quick_succession_are_summed_up(start):
    pool, control = controlled(start, children=1)
    for number in range(3):
        overload(pool, 200, 2)
        eventually(lambda: control.status["saturation"]["times"] == number + 1 and
                   not control.status["saturation"]["now"], "one time more")
    assert len(lines(pool, "requests have to wait")) == 1
    pool.process.wait_for_log("requests had to wait 2 more times in the last .* s: 2 requests")
    assert len(lines(pool, "requests wait no more")) == 1


def test_nothing_is_told_where_idle_children_serve_whoever_comes(start):
    pool, control = controlled(start, children=4)
    kept = kept_connections(pool, 8)
    for _ in range(50):
        for connection in kept[:3]:
            assert pool.ask(connection, "hello.php").text == "hello\n"
        assert pool.get("hello.php").text == "hello\n"
    close_all(kept)
    assert not lines(pool, "have to wait")
    assert control.status["saturation"]["times"] == 0


def test_the_reason_is_told_where_children_are_on_their_way(start):
    pool, control = controlled(start, children=6, options=["--pm", "ondemand", "--start-timeout", "10s"])
    overload(pool, 300, 6)
    assert control.status["children"]["total"] == 6
    overload(pool, 500, 12)
    pool.process.wait_for_log("requests wait no more|had to wait .* more")
    pool.process.wait_for_log("there may be no more|had to wait .* more")


def test_what_was_counted_stays_when_another_program_takes_over(start):
    pool, control = controlled(start, children=1)
    overload(pool, 200, 3)
    eventually(lambda: not control.status["saturation"]["now"], "it is over")
    before = control.status
    code, out, error = control.command("upgrade")
    assert code == 0, error
    after = control.status
    assert after["saturation"] == before["saturation"] and before["saturation"]["times"] == 1
    assert after["waits"]["count"] >= before["waits"]["count"]
    assert after["waits"]["longest_s"] == before["waits"]["longest_s"]


# --- waits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_the_histogram_has_all_requests_and_how_long_they_waited(start, kind):
    pool, control = controlled(start, children=1, listen=[start.new_address(kind)])
    for _ in range(5):
        pool.get("hello.php")
    overload(pool, 300, 3)  # the second waits for 0.3 s, the third for 0.6
    eventually(lambda: control.status["waits"]["count"] == 8, "all are counted")
    waits = control.status["waits"]
    assert [bucket["le"] for bucket in waits["buckets"]] == [
        0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, "+Inf"]
    counts = {bucket["le"]: bucket["count"] for bucket in waits["buckets"]}
    assert list(counts.values()) == sorted(counts.values())
    assert counts["+Inf"] == waits["count"] and counts[0.2] == 6
    assert 0.5 <= waits["longest_s"] <= 1.0
    assert 0.8 <= waits["sum_s"] <= 1.5
    text = control.command("status")[1]
    assert "  waited       " in text and "1 up to 1s" in text


def test_the_last_second_is_told(start):
    pool, control = controlled(start, children=1)
    load = Background(lambda: [overload(pool, 50, 4) for _ in range(12)])
    told = eventually(lambda: (control.status["last_second"] or {}).get("waited_share", 0) > 0.5 and
                      control.status["last_second"], "a second in which most waited", 10)
    assert 5 < told["requests"] < 25
    assert 0.01 < told["mean_wait_s"] <= told["longest_wait_s"] <= 0.5
    load.result()
    eventually(lambda: control.status["last_second"]["requests"] == 0, "a second without any", 10)


# --- the backlog ------------------------------------------------------------------------------------


def test_the_backlog_follows_the_rate_of_service(start):
    pool, control = controlled(start, children=4,
                               options=["--backlog", "auto", "--max-wait", "4s"])
    assert control.status["listeners"][0]["backlog"] == 511
    stop = []

    def clients(milliseconds):
        while not stop:
            pool.get("sleep.php", f"ms={milliseconds}")

    for milliseconds in (20, 80):
        running = [Background(clients, milliseconds) for _ in range(6)]
        wanted = 4 * 4 * 1000 / milliseconds
        begin = time.monotonic()
        # The rate as it is on this machine, by what was served.
        time.sleep(2)
        first = control.status["totals"]["requests"]
        time.sleep(3)
        rate = (control.status["totals"]["requests"] - first) / 3
        eventually(lambda: abs(control.status["listeners"][0]["backlog"] / (4 * rate) - 1) < 0.25,
                   f"about {4 * rate:.0f}, at the most {wanted:.0f}", 3)
        assert time.monotonic() - begin < 9
        stop.append(True)
        for one in running:
            one.result()
        stop.clear()
    assert control.status["capacity"] > 0


def test_a_backlog_is_never_smaller_than_the_pool(start):
    pool, control = controlled(start, children=20, options=["--backlog", "auto", "--max-wait", "100ms"])
    for _ in range(5):
        pool.get("sleep.php", "ms=300")
    eventually(lambda: control.status["listeners"][0]["backlog"] in range(20, 30), "what 20 children can have", 10)
    assert control.status["listeners"][0]["backlog_asked"] == control.status["listeners"][0]["backlog"]


def refused_by_the_kernel(address):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as client:
        try:
            client.connect(address)
        except BlockingIOError:
            return True
        return False


def test_a_full_queue_is_counted_and_told_with_what_helps(start):
    address = start.new_address("unix")
    pool, control = controlled(start, children=1, listen=[address], options=["--backlog", "4"])
    load = [Background(pool.get, "sleep.php", "ms=2500")]
    eventually(lambda: control.status["children"]["by_state"]["busy"] == 1, "the child is busy")
    waiting = []

    def fill():
        while not refused_by_the_kernel(address) and len(waiting) < 200:
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            waiting.append(client)
            try:
                client.connect(address)
                client.send(pool.request("hello.php"))
            except BlockingIOError:
                return True
        return control.status["listeners"][0]["times_full"] > 0

    eventually(fill, "the queue is full", 2)
    eventually(lambda: control.status["listeners"][0]["times_full"] > 0, "which is counted", 5)
    pool.process.wait_for_log(r"warning: .*\.sock: its queue is full, .*EAGAIN.*--children.*--backlog")
    for one in load:
        one.result()
    close_all(waiting)
    eventually(lambda: control.status["waiting"]["queued"] == 0, "all is served", 10)
    assert control.status["listeners"][0]["full_s"] > 0
    assert "was full" in control.command("status")[1]


# --- the reserve ------------------------------------------------------------------------------------


@contextlib.contextmanager
def all_but_the_reserve_busy(pool, control, milliseconds):
    """Of three children, by requests on parked connections, of which two more wait."""
    kept = kept_connections(pool, 10)
    eventually(lambda: control.status["connections"]["parked"] >= 8 and
               control.status["children"]["by_state"]["free"] >= 1, "the reserved child has parked what it had")
    slow = [Background(pool.ask, connection, "sleep.php", f"ms={milliseconds}") for connection in kept[:4]]

    def so():
        now = control.status
        states = now["children"]["by_state"]
        return states["busy"] == 2 and states["free"] == 1 and now["waiting"]["handed"] == 2

    eventually(so, "all but one are busy, and two requests wait")
    yield
    assert not any(one.done for one in slow)
    for one in slow:
        assert one.result().text == f"slept {milliseconds}\n"
    close_all(kept)


def test_a_new_connection_is_served_while_parked_ones_have_all_other_children(start):
    pool, control = controlled(start, children=3, options=["--probe-reserve", "1"])
    with all_but_the_reserve_busy(pool, control, 3000):
        for _ in range(10):
            assert pool.get("hello.php").text == "hello\n"


def test_another_child_is_reserved_when_that_one_ends_and_after_a_reload(start):
    pool, control = controlled(start, children=3, options=["--probe-reserve", "1"])

    def reserved():
        with all_but_the_reserve_busy(pool, control, 2000):
            pids = {int(pool.get("pid.php").text) for _ in range(3)}
        assert len(pids) == 1
        return pids.pop()

    first = reserved()
    os.kill(first, signal.SIGKILL)
    pool.wait_for_children(3, without=[first])
    second = reserved()
    assert second != first
    code, _, error = control.command("reload")
    assert code == 0, error
    assert reserved() not in (first, second)


def test_a_pool_on_demand_keeps_its_reserve(start):
    pool = start.cede(children=4, options=["--pm", "ondemand", "--probe-reserve", "1", "--idle-timeout", "500ms"])
    assert len(pool.wait_for_children(1)) == 1
    overload(pool, 300, 4)
    eventually(lambda: len(pool.children) == 1, "the others have gone", 30)
    stays(lambda: len(pool.children) == 1, "one stays")


def test_a_reserve_of_all_children_is_refused(start):
    pool = start.cede(children=2, options=["--probe-reserve", "2"], wait=False)
    assert pool.process.wait() == 2
    assert "--probe-reserve: give less than 2" in pool.process.log

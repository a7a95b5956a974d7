# SPDX-License-Identifier: Apache-2.0
"""The figures of the queue in the size of a test: who has left, who is slow, who waits too long, who only asks how
things are. scripts/bench --queue measures them in full."""
import json
import os
import socket
import subprocess
import time

import pytest

from support import kinds
from support.clients import close_all, kept_connections
from support.control import Control
from support.server import BUILD, as_argument
from support.waiting import Background, eventually

SOON = 2.0  # seconds; far more than anything takes that waits for nobody, far less than the stalls here


def stall(pool, start, milliseconds):
    """All children busy for that long: (what waits for their answers, when they will be free)."""
    count = len(pool.children)
    stalls = [Background(pool.get, "sleep.php", f"ms={milliseconds}") for _ in range(count)]
    begin = time.monotonic()
    control = Control(pool, start.binary)
    eventually(lambda: control.status["children"]["by_state"]["busy"] == count, "all children are busy")
    return stalls, begin + milliseconds / 1000


def ran(path):
    """Which requests for record.php have run."""
    with open(path) as file:
        return file.read().split()


@kinds.both
@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_no_script_runs_for_a_client_that_has_left(start, folder, kind):
    pool = start.cede(children=2, listen=[start.new_address(kind)])
    path = os.path.join(folder, "ran")
    stalls, free_at = stall(pool, start, 3000)
    gone = [pool.connect() for _ in range(60)]
    for number, connection in enumerate(gone):
        connection.send(pool.request("record.php", f"file={path}&id=gone{number}"))
    close_all(gone)
    good = [Background(pool.get, "record.php", f"file={path}&id=good{number}") for number in range(5)]
    for one in stalls + good:
        one.result()
    assert time.monotonic() < free_at + SOON
    ids = ran(path)
    assert sorted(one for one in ids if one.startswith("good")) == [f"good{number}" for number in range(5)]
    # Not even those that were taken before the stall: there were none.
    assert [one for one in ids if one.startswith("gone")] == []


@pytest.mark.parametrize("mode", ["drop", "run"])
def test_a_client_that_has_only_closed_its_own_side_is_served_if_wanted(start, folder, mode):
    pool = start.cede(children=1, options=["--abandoned", mode])
    path = os.path.join(folder, "ran")
    stalls, _ = stall(pool, start, 800)
    with pool.connect() as connection:
        connection.send(pool.request("record.php", f"file={path}&id=half"))
        connection.socket.shutdown(socket.SHUT_WR)
        if mode == "run":
            assert connection.read_response().text.startswith("half ")
        else:
            assert connection.read_to_end() == b""
            assert not os.path.exists(path)
    stalls[0].result()


@kinds.both
def test_heads_that_arrive_byte_by_byte_hold_no_child(start):
    pool = start.cede(children=2)
    data = pool.request("hello.php")
    slow = [pool.connect() for _ in range(20)]
    over = []

    def send_slowly():
        at = 0
        while at < 60 or not over:
            for connection in slow:
                connection.send(data[at : at + 1])
            at += 1
            time.sleep(0.02)  # the pace is what is tested
            if at == len(data) - 1:
                break
        return at

    sending = Background(send_slowly)
    for _ in range(30):
        begin = time.monotonic()
        assert pool.get("hello.php").text == "hello\n"
        assert time.monotonic() < begin + SOON
    over.append(True)
    at = sending.result()
    for connection in slow:
        connection.send(data[at:])
    for connection in slow:
        assert connection.read_response().text == "hello\n"
    close_all(slow)


@kinds.both
def test_bodies_that_trickle_hold_no_child(start):
    pool = start.cede(children=2)
    body = b"body" * 500
    data = pool.request("echo.php", method="POST", body=body)
    slow = [pool.connect() for _ in range(6)]
    at = data.rindex(b"body")
    for connection in slow:
        connection.send(data[: at - 1000])
    for cut in range(at - 1000, at, 100):
        for connection in slow:
            connection.send(data[cut : cut + 100])
        begin = time.monotonic()
        assert pool.get("hello.php").text == "hello\n"
        assert time.monotonic() < begin + SOON
    for connection in slow:
        connection.send(data[at:])
    for connection in slow:
        assert connection.read_response().body == body
    close_all(slow)


@kinds.both
def test_a_health_check_on_a_new_connection_is_answered_beside_idle_ones(start):
    pool = start.cede(children=3)
    kept = kept_connections(pool, 9)
    for _ in range(20):
        begin = time.monotonic()
        assert pool.get("hello.php").text == "hello\n"
        assert time.monotonic() < begin + SOON
    for connection in kept:
        assert pool.ask(connection, "hello.php").text == "hello\n"
    close_all(kept)


@kinds.both
def test_who_waits_too_long_is_refused_in_time_and_the_others_are_served(start):
    limit, work = 0.6, 0.25
    pool = start.cede(children=2, options=["--max-wait", "600ms"])

    def ask():
        begin = time.monotonic()
        response = pool.get("sleep.php", "ms=250")
        return response, time.monotonic() - begin

    answers = [one.result() for one in [Background(ask) for _ in range(16)]]
    served = [took for response, took in answers if response.status == 200]
    refused = [(response, took) for response, took in answers if response.status == 503]
    assert len(served) + len(refused) == 16
    # Two children, and three requests each that begin within the limit; one more or less by chance.
    assert 4 <= len(served) <= 8
    assert max(served) < limit + work + SOON / 4
    for response, took in refused:
        assert int(response.headers["retry-after"]) >= 1
        assert took < limit + SOON / 4
        if hasattr(response, "protocol_status"):
            assert response.protocol_status == 2  # FCGI_OVERLOADED
    assert pool.get("hello.php").text == "hello\n"


@pytest.mark.parametrize("options", [(), ("--max-wait", "5s", "--overload", "lifo")], ids=["plain", "lifo"])
def test_groups_of_clients_that_come_one_after_another_are_all_served_on_kept_connections(start, options):
    pool = start.cede(children=6, options=options)
    command = [os.path.join(BUILD, "tests", "bench", "cede-load"), "groups", "--address", as_argument(pool.address),
               "--script", pool.script("sleep.php"), "--groups", "3", "--clients", "6", "--stagger", "1",
               "--duration", "5", "--table", "off"]
    result = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=60).stdout)
    assert result["never_served"] == 0
    assert result["failures"] == 0
    assert result["slowest_first_answer_ms"] < SOON * 1000
    assert result["steady_kept_percent"] >= 90

# SPDX-License-Identifier: Apache-2.0
"""What comes in at the control socket, by whom, and what a status is worth: right, whole, and never late."""
import json
import os
import re
import signal
import socket

import subprocess
import time

import pytest

from support import procfs
from support.clients import close_all, kept_connections
from support.command import needs_root
from support.control import Control, parse, rest, runtime_environment
from support.server import STAND_IN, USER
from support.waiting import Background, eventually, parallel

pytestmark = pytest.mark.skipif(bool(STAND_IN), reason="plain php-cgi has no control socket")
# The whole answer, measured at the client, on a machine that does other things as well.
PROMPT = 0.25
AS_USER = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]


def consistent(status):
    """F78: the sums are those of the parts, and no more children than allowed."""
    children, processes = status["children"], status["processes"]
    assert sum(children["by_state"].values()) == children["total"] == len(processes) <= children["limit"]
    for state, count in children["by_state"].items():
        assert count == sum(child["state"] == state for child in processes)
    assert len({child["slot"] for child in processes}) == len(processes)
    return status


def requests_served(control):
    return consistent(control.status)["totals"]["requests"]


# --- who may ------------------------------------------------------------------------------------------


@needs_root
def test_another_user_can_not_connect(controlled):
    pool, control = controlled
    done = subprocess.run([*AS_USER, control.binary, "stop", "--control", control.path], capture_output=True, text=True)
    assert done.returncode == 1
    assert "only root and the user that cede runs as may use it" in done.stderr
    assert pool.process.running


@needs_root
def test_another_user_is_refused_even_if_the_mode_lets_him_in(controlled):
    pool, control = controlled
    os.chmod(control.path, 0o666)
    for word in ("status", "stop"):
        done = subprocess.run(
            [*AS_USER, control.binary, word, "--control", control.path], capture_output=True, text=True
        )
        assert done.returncode == 1
        assert "only root and the user that cede runs as may use this socket" in done.stderr
        assert done.stdout == ""
    pool.process.wait_for_log(r"warning: control socket: user \d+ may not use it")
    assert control.status["state"] == "serving"


@needs_root
def test_other_users_do_not_take_the_place_of_those_who_may(controlled):
    _, control = controlled
    os.chmod(control.path, 0o666)
    mine = control.connect()  # first: it would be the first to make room
    # Forty connections of his that ask nothing, held open.
    hog = (
        "import socket, sys\n"
        "held = [socket.socket(socket.AF_UNIX) for _ in range(40)]\n"
        "for one in held: one.connect(sys.argv[1])\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [*AS_USER, "/usr/bin/python3", "-c", hog, control.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as held:
        assert held.stdout.readline() == "held\n"
        for _ in range(10):
            assert control.status["state"] == "serving"
        mine.sendall(b"GET /status HTTP/1.1\r\nHost: x\r\n\r\n")
        assert parse(rest(mine))[0] == 200
        held.stdin.close()


def test_children_and_scripts_have_nothing_of_it(controlled):
    pool, control = controlled
    inode = re.search(r"^\S+(?: \S+){5} +(\d+) " + re.escape(control.path), open("/proc/net/unix").read(), re.MULTILINE)
    clients = [control.connect() for _ in range(3)]
    eventually(lambda: len([one for one in held_sockets(pool.pid)]) > 3, "cede has accepted")
    os.kill(pool.children[0], signal.SIGKILL)  # another is forked while clients are connected
    pool.wait_for_children(2)
    supervisors = held_sockets(pool.pid)
    assert inode.group(1) in supervisors
    unix = {line.split()[6] for line in open("/proc/net/unix") if line.rstrip().endswith(control.path)}
    for pid in procfs.descendants(pool.pid):
        assert not unix & held_sockets(pid), f"process {pid} has a control connection"
    found = json.loads(pool.get("fds.php").text)
    assert not [target for target in found.values() if target and target.strip("socket:[]") in unix]
    close_all(clients)


def held_sockets(pid):
    return {
        target[len("socket:["):-1] for target in procfs.descriptors(pid).values() if target.startswith("socket:[")
    }


# --- what comes in ------------------------------------------------------------------------------------


def test_garbage_is_refused_and_changes_nothing(controlled):
    pool, control = controlled
    for sent, expected in [
        (b"\x01\x01\x00\x01\x00\x08\x00\x00\r\n\r\n", 400),
        (b"GET /status\r\n\r\n", 400),
        (b"GET /status HTTP/1.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", 413),
        (b"POST /stop HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n" + b"x" * 100_000, 413),
        (b"POST /stop HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nnull", 422),
        (b"POST /children HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n\r\n{\"children\": 0}", 422),
        (b"GET /stop HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"GET /metrics/nothing HTTP/1.1\r\nHost: x\r\n\r\n", 404),
    ]:
        with control.connect() as client:
            try:
                client.sendall(sent)
            except (BrokenPipeError, ConnectionResetError):
                pass  # it was answered before all was sent
            code, body = parse(rest(client))
            assert (code, body["ok"]) == (expected, False), sent[:60]
            assert body["message"]
    assert control.status["state"] == "serving"
    assert pool.get("hello.php").text == "hello\n"


def test_a_request_that_does_not_arrive_is_given_up_after_10_seconds(controlled):
    _, control = controlled
    silent, half = control.connect(20), control.connect(20)
    half.sendall(b"POST /stop HTTP/1.1\r\nHost: x\r\n")
    begun = time.monotonic()
    assert control.status["state"] == "serving", "others are answered meanwhile"
    assert parse(rest(half))[0] == 408
    assert parse(rest(silent))[0] == 408
    assert 8 < time.monotonic() - begun < 15


def test_many_silent_connections_keep_nobody_out(controlled):
    _, control = controlled
    silent = [control.connect() for _ in range(20)]
    begun = time.monotonic()
    assert control.command("status")[0] == 0
    assert time.monotonic() - begun < 5
    close_all(silent)
    for _ in range(100):
        control.connect().close()
    assert control.status["state"] == "serving"


def test_whoever_leaves_while_he_waits_is_nothing(controlled):
    pool, control = controlled
    running = pool.connect()
    running.send(pool.request("sleep.php", "ms=1000", keep=False))
    eventually(lambda: control.status["children"]["by_state"]["busy"] == 1, "the request runs")
    for _ in range(20):
        client = control.connect()
        client.sendall(b"POST /stop HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        eventually(lambda: control.status["state"] == "draining", "it was understood")
        client.close()
    assert b"slept 1000" in running.read_to_end()
    assert pool.process.wait() == 0


def test_no_client_costs_a_descriptor_for_good(controlled):
    pool, control = controlled
    control.status
    before = len(procfs.descriptors(pool.pid))
    for _ in range(50):
        assert control.http("GET", "/status")[0] == 200
        assert control.http("POST", "/nothing")[0] == 404
        control.connect().close()
    eventually(lambda: len(procfs.descriptors(pool.pid)) <= before, "as many descriptors as before")


# --- what a status is worth -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_f77_f126_f129_status_is_prompt_and_right_when_all_children_are_busy(start_in, start, kind):
    pool, control = start_in(children=4, listen=[start.new_address(kind)])
    clients = [pool.connect() for _ in range(4)]
    for client in clients:
        client.send(pool.request("sleep.php", "ms=2500", keep=False))
    eventually(lambda: control.status["children"]["by_state"]["busy"] == 4, "all children are busy")
    waiting = [pool.connect() for _ in range(20)]
    for client in waiting:
        client.send(pool.request("hello.php", keep=False))
    slowest = 0
    for _ in range(10):
        begun = time.monotonic()
        status = consistent(control.status)
        slowest = max(slowest, time.monotonic() - begun)
        assert status["children"]["by_state"]["busy"] == 4
        told = status["waiting"]
        assert status["listeners"][0]["queue"] == told["queued"]
        # Those who have stood there for long wait with the supervisor.
        assert (told["queued"] + told["handed"], told["mark"]) == (20, "pressure")
    assert slowest < PROMPT
    assert all(client.read_response().text == "hello\n" for client in waiting)
    assert "(at the most 20 new)" in control.command("status")[1]


def test_f04_a_kept_connection_is_not_taken_for_a_request(start_in):
    pool, control = start_in(children=4)
    kept = kept_connections(pool, 10)

    def kept_by_both():
        status = consistent(control.status)
        return status if status["children"]["by_state"]["idle"] + status["connections"]["parked"] == 10 else None

    # A child may give up more than was asked for, when it ends an answer while somebody waits.
    status = eventually(kept_by_both, "all ten are kept, by children or parked")
    assert status["connections"]["parked"] >= 6
    assert all(status["children"]["by_state"][state] == 0 for state in ("busy", "reading", "finishing"))
    totals = status["totals"]
    assert (totals["requests"], totals["accepted"]) == (10, 10)
    assert totals["give_ups_asked"] <= totals["parked"] == status["connections"]["parked"]
    assert [pool.ask(connection, "hello.php").text for connection in kept] == ["hello\n"] * 10
    close_all(kept)
    eventually(lambda: control.status["connections"]["parked"] == 0, "all have gone")
    totals = control.status["totals"]
    assert totals["requests"] == 20
    assert totals["accepted"] == 10, "and nobody had to come again"


def test_counts_are_exact_although_children_come_and_go(start_in):
    pool, control = start_in(children=4, options=["--max-requests", "7", "--recycle-jitter", "0%"])
    sent = 0
    before = 0
    for _ in range(6):
        answers = parallel([lambda: pool.get("hello.php").text for _ in range(25)])
        assert answers == ["hello\n"] * 25
        sent += 25
        now = requests_served(control)
        assert before <= now <= sent
        before = now
    eventually(lambda: requests_served(control) == sent, "all requests are counted")
    status = control.status
    assert status["totals"]["children_ended"] >= sent // 7 - 4
    assert status["totals"]["children_started"] == status["totals"]["children_ended"] + status["children"]["total"]
    assert status["totals"]["children_killed"] == 0


def test_f78_sums_hold_in_every_look_while_children_are_killed(start_in):
    pool, control = start_in(children=8)
    stop = []

    def load():
        while not stop:
            try:
                pool.get("hello.php")
            except Exception:  # its child was killed
                pass

    loads = [Background(load) for _ in range(4)]
    before = {}
    killed = set()
    try:
        for turn in range(150):
            status = consistent(control.status)
            assert all(status["totals"][name] >= count for name, count in before.items()), "no count goes back"
            before = status["totals"]
            victims = [pid for pid in pool.children if pid not in killed]
            if turn % 5 == 0 and victims:
                os.kill(victims[turn % len(victims)], signal.SIGKILL)
                killed.add(victims[turn % len(victims)])
    finally:
        stop.append(True)
        for one in loads:
            one.result()
    eventually(lambda: control.status["totals"]["children_killed"] == len(killed), "every kill is counted")
    eventually(lambda: control.status["children"]["by_state"]["free"] == 8, "the pool is whole")
    assert consistent(control.status)["totals"]["children_started"] == 8 + len(killed)


def own_slot(pid):
    """Where a child has its page of the scoreboard, the only shared memory that it may write and that has no name
    in a file system."""
    for line in open(f"/proc/{pid}/maps"):
        found = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw-s [0-9a-f]+ \S+ \d+ +/memfd:cede", line)
        if found:
            return int(found.group(1), 16), int(found.group(2), 16)
    return None


@needs_root
@pytest.mark.parametrize("garbage", [b"\xff", b"\x00", b"\x80\x7f\x55\xaa"], ids=["ff", "00", "noise"])
def test_f72_a_child_that_scribbles_over_its_slot_spoils_no_count(start_in, garbage):
    pool, control = start_in(children=2)
    for _ in range(20):
        assert pool.get("hello.php").text == "hello\n"
    eventually(lambda: requests_served(control) == 20, "all are counted")
    before = 20
    victim = pool.children[0]
    begin, end = own_slot(victim)
    os.kill(victim, signal.SIGSTOP)
    with open(f"/proc/{victim}/mem", "r+b", buffering=0) as memory:
        memory.seek(begin)
        memory.write(garbage * ((end - begin) // len(garbage)))
    status = consistent(control.status)
    assert status["totals"]["requests"] == before
    assert max(status["totals"].values()) < 1000
    os.kill(victim, signal.SIGKILL)
    pool.wait_for_children(2, without=[victim])
    for _ in range(5):
        assert pool.get("hello.php").text == "hello\n"
    eventually(lambda: requests_served(control) == before + 5, "and counting goes on")


def test_a_status_is_answered_while_the_pool_starts(start, place):
    pool = start.cede(
        children=1, wait=False, settings={"auto_prepend_file": ""}, environment=runtime_environment(place)
    )
    control = Control(pool, start.binary)
    status = control.status
    assert status["state"] in ("starting", "serving")
    consistent(status)
    pool.wait_until_ready()

# SPDX-License-Identifier: Apache-2.0
"""Executed as OpenLiteSpeed executes lsphp: what the web server gives, what it watches, and how it stops it."""
import os
import re
import signal
import socket
import time

import pytest

from support import kinds, procfs
from support.clients import close_all, kept_connections
from support.command import needs_root
from support.connection import LsapiConnection
from support.detached import AT_ONCE, WebServer, cede_as_path, environment, nothing_left
from support.openlitespeed import Worker, closed_loop
from support.server import STAND_IN
from support.waiting import Background, eventually, parallel, stays

pytestmark = [kinds.lsphp, pytest.mark.skipif(bool(STAND_IN), reason="plain lsphp has another contract")]


def identity_of(path):
    found = os.stat(path)
    return found.st_ino, found.st_mtime_ns, found.st_mode, found.st_uid


def test_the_process_that_was_executed_serves_and_the_socket_file_stays_as_it_was(start, web):
    before = identity_of(web.address)
    app = web.execute(cede_as_path(start))
    assert app.get("hello.php").text == "hello\n"
    assert os.path.samefile(f"/proc/{app.pid}/exe", start.binary), "still the pid that the web server wrote down"
    assert os.getsid(app.pid) == os.getpgid(app.pid) == app.pid
    app.wait_until_ready()
    assert len(app.wait_for_children(10)) == 10, "as many as PHP_LSAPI_CHILDREN says"
    for pid in app.children:
        assert procfs.stat(pid)[1] == app.pid
    kept = kept_connections(app, 30)
    close_all(kept)
    assert identity_of(web.address) == before
    assert app.process.stop(signal.SIGTERM, AT_ONCE) == 0
    assert identity_of(web.address) == before, "it is the web server's to remove"


def test_a_burst_of_forty_over_eight_workers_is_served_in_four_turns(start, web):
    app = web.execute(cede_as_path(start))
    everyone = [Worker(app.address, 10) for _ in range(8)]
    for worker in everyone:  # 80 connections for 10 children
        for _ in range(10):
            worker.submit(app.request("hello.php"))
        worker.run(20)
    for _ in range(2):
        jobs = [worker.submit(app.request("sleep.php", "ms=700")) for worker in everyone for _ in range(5)]
        begun = time.monotonic()
        parallel([worker.run for worker in everyone])
        took = time.monotonic() - begun
        assert [job.answer and job.answer.text for job in jobs] == ["slept 700\n"] * 40
        assert 2.8 <= took < 3.6
    for worker in everyone:
        assert set(worker.counted) == {"connections"}, worker.counted


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_requests_are_served_from_the_first_on_over_both_kinds_of_listener(start, kind):
    web = WebServer(start, kind)
    waiting = [LsapiConnection(web.address) for _ in range(5)]
    for connection in waiting:
        connection.send(connection.protocol.request(f"{start.scripts}/hello.php"))
    app = web.execute(cede_as_path(start))
    assert [connection.read_response().text for connection in waiting] == ["hello\n"] * 5
    assert set(parallel([lambda: int(app.get("pid.php", "ms=200").text)] * 10)) == set(app.children)


def all_states(app):
    """Connections in every state: running, parked or idle, reading, with a body outstanding."""
    connections = kept_connections(app, 20)
    for name, query, cut in (("sleep.php", "ms=20000", None), ("loop.php", "", None), ("hello.php", "", 20)):
        connection = app.connect()
        connection.send(app.request(name, query)[:cut])
        connections.append(connection)
    connections.append(app.connect())
    connections[-1].send(app.request("echo.php", body=b"b" * 5000)[:-1000])
    eventually(lambda: len(_busy(app)) == 2, "two scripts run")
    return connections


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGTERM, signal.SIGUSR1], [signal.SIGINT]], ids=str)
@pytest.mark.parametrize("state", ["starting", "idle", "busy"])
def test_a_stop_leaves_nothing_behind_within_a_second(start, web, state, signals):
    app = web.execute(cede_as_path(start))
    if state != "starting":
        app.wait_until_ready()
        assert app.get("hello.php").text == "hello\n"
    connections = all_states(app) if state == "busy" else []
    pids = app.processes
    begun = time.monotonic()
    for number in signals:
        app.process.send(number)
    status = app.process.wait(AT_ONCE)
    nothing_left(pids, AT_ONCE)
    assert time.monotonic() - begun < AT_ONCE
    # Before it had a handler for it, the signal itself may have ended it.
    assert status == 0 or state == "starting" and status == -signals[0]
    for connection in connections[:20]:
        assert connection.ends_without_more()


def test_usr1_alone_stops_nobody(start, web):
    """Only the two together mean a stop; children would end with the first (fact sheet of lsphp, 2.4)."""
    app = web.execute(cede_as_path(start)).wait_until_ready()
    before = app.wait_for_children(10)
    app.process.send(signal.SIGUSR1)
    for _ in range(20):
        assert app.get("hello.php").text == "hello\n"
    assert app.process.running and app.children == before


def test_a_killed_supervisor_leaves_no_child_behind(start, web):
    app = web.execute(cede_as_path(start))
    kept = kept_connections(app, 20)
    running = Background(app.get, "sleep.php", "ms=600")
    eventually(lambda: "busy" if _busy(app) else None, "a request runs")
    pids = app.processes
    app.process.send(signal.SIGKILL)
    app.process.wait()
    assert running.result().text == "slept 600\n", "what runs is finished"
    nothing_left(pids, 3)
    for connection in kept:
        assert connection.ends_without_more()
    successor = web.execute(cede_as_path(start))
    assert successor.get("hello.php").text == "hello\n", "the listener is as good as before"


def _busy(app):
    return [pid for pid in procfs.children(app.pid) if re.search(r"^lsphp[^:]*:", procfs.title(pid))]


def test_the_next_application_serves_what_waited_on_the_listener(start, web):
    app = web.execute(cede_as_path(start))
    assert app.get("hello.php").text == "hello\n"
    assert app.process.stop(signal.SIGTERM, AT_ONCE) == 0
    waiting = [app.connect() for _ in range(5)]
    for connection in waiting:
        connection.send(app.request("hello.php"))
    web.execute(cede_as_path(start))
    assert [connection.read_response().text for connection in waiting] == ["hello\n"] * 5


def test_a_graceful_change_of_applications_loses_nothing_and_runs_nothing_twice(start, web, folder):
    """SIGQUIT to the one, then the next on the same listener, while four workers never pause."""
    ran, stop, marks = f"{folder}/ran", [], []
    first = web.execute(cede_as_path(start)).wait_until_ready()

    def client(number):
        with Worker(web.address, 5) as worker:
            def request(at):
                marks.append(f"{number}-{at}")
                return first.request("tick.php", f"file={ran}&id={number}-{at}&ms=5")

            def answered(at, job):
                assert job.failure is None and job.answer.text == f"{number}-{at}"

            closed_loop(worker, request, answered, lambda _: not stop, width=4)
            return worker.counted

    clients = [Background(client, number) for number in range(4)]
    eventually(lambda: len(marks) > 300, "they are at work")
    first.process.send(signal.SIGQUIT)
    assert first.process.wait(10) == 0
    web.execute(cede_as_path(start)).wait_until_ready()
    before = len(marks)
    eventually(lambda: len(marks) > before + 300, "they are at work again")
    stop.append(True)
    for one in clients:
        counted = one.result()
        assert not counted["requests sent again, acknowledged"] and not counted["packets nobody asked for"]
    with open(ran) as file:
        assert sorted(file.read().split()) == sorted(marks)


def test_two_instances_share_a_listener(start, web):
    given = environment({"PHP_LSAPI_CHILDREN": "2"})
    apps = [web.execute(cede_as_path(start), given).wait_until_ready() for _ in range(2)]
    children = {pid for app in apps for pid in app.wait_for_children(2)}
    kept = kept_connections(apps[0], 12)
    served = set()
    deadline = time.monotonic() + 10
    while served != children and time.monotonic() < deadline:
        served |= set(parallel([lambda: int(apps[0].get("pid.php", "ms=50").text)] * 4))
    assert served == children, "both instances take part"
    assert [apps[0].ask(connection, "hello.php").text for connection in kept] == ["hello\n"] * 12


def test_nothing_is_written_to_the_socket_on_descriptor_1(start, web):
    app = web.execute(cede_as_path(start), keep_descriptor_1=True)
    assert app.get("stdout.php", "text=marmalade").text == "said\n"
    assert app.get("started_program.php", "how=proc_open").status == 200
    app.process.wait_for_log("out marmalade")
    app.process.wait_for_log("program marmalade")
    os.kill(app.wait_for_children(10)[0], signal.SIGKILL)
    app.process.send(signal.SIGHUP)
    assert app.get("hello.php").text == "hello\n"
    assert app.process.stop() == 0
    assert app.said_on_descriptor_1 == b""


# --- the parent -------------------------------------------------------------------------------------

# Starts the program as its child, with its own descriptors, and stays: what lscgid is to an application.
PARENT = "import subprocess, sys; subprocess.Popen(sys.argv[1:], restore_signals=False).wait()"


def execute_below_a_parent(web, arguments, given):
    """(the parent's process, the application's pid)"""
    app = web.execute(["/usr/bin/python3", "-c", PARENT, *arguments], given)
    return app, eventually(lambda: procfs.children(app.pid), "the application is started")[0]


@pytest.mark.parametrize("state", ["idle", "busy"])
def test_the_death_of_its_parent_ends_it_unless_it_was_told_not_to_look(start, web, state):
    """Not detached, an application ends with lscgid, and so with the web server."""
    app, pid = execute_below_a_parent(web, cede_as_path(start), environment(detached=False))
    kept = kept_connections(app, 12)
    running = Background(app.get, "sleep.php", "ms=500") if state == "busy" else None
    if running:
        eventually(lambda: [one for one in procfs.children(pid) if ":" in procfs.title(one)], "a request runs")
    pids = [pid, *procfs.descendants(pid)]
    app.process.send(signal.SIGKILL)
    nothing_left(pids, 4)
    if running:
        assert running.result().text == "slept 500\n"
    for connection in kept:
        assert connection.ends_without_more()


def test_a_detached_one_outlives_its_parent(start, web):
    app, pid = execute_below_a_parent(web, cede_as_path(start), environment())
    assert app.get("hello.php").text == "hello\n"
    app.wait_until_ready()
    before = procfs.children(pid)
    app.process.send(signal.SIGKILL)
    app.process.wait()
    stays(lambda: procfs.alive(pid), "it lives on", 1.5)
    assert app.get("hello.php").text == "hello\n"
    assert procfs.children(pid) == before, "and so do its children, who watch it and not the web server"
    os.kill(pid, signal.SIGTERM)
    nothing_left([pid, *before], AT_ONCE)


# --- without a listener -----------------------------------------------------------------------------


def test_a_connection_in_place_of_a_listener_is_served_and_the_log_says_what_to_set(start, web):
    """Without any of the variables for children, the web server starts a process for each connection."""
    ours, theirs = socket.socketpair()
    app = web.execute(cede_as_path(start), environment({}), stdin=theirs)
    theirs.close()
    client = LsapiConnection(web.address)
    client.socket.close()
    client.socket = ours
    ours.settimeout(10)
    for _ in range(3):
        assert client.request(app.script("hello.php")).text == "hello\n"
    app.process.wait_for_log("PHP_LSAPI_CHILDREN=")
    ours.close()
    app.process.wait(3)


@needs_root
def test_a_connection_in_place_of_a_listener_is_an_error_for_root(start, web):
    ours, theirs = socket.socketpair()
    app = web.execute(cede_as_path(start), environment({}), stdin=theirs, user=None, group=None)
    theirs.close()
    assert app.process.wait(5) == 1
    assert re.search(r"error: .*PHP_LSAPI_CHILDREN=", app.process.log)
    ours.close()

# SPDX-License-Identifier: Apache-2.0
"""Children that are executed each by itself: --spawn exec."""
import collections
import json
import os
import re
import signal
import subprocess

import pytest

from support import kinds, procfs
from support.clients import close_all, kept_connections
from support.control import Control
from support.process import clean_environment
from support.server import REPOSITORY, STAND_IN
from support.waiting import eventually, parallel

pytestmark = [kinds.both, pytest.mark.skipif(bool(STAND_IN), reason="plain PHP has nothing like it")]

EXEC = ["--spawn", "exec"]


@pytest.fixture
def early_thread(folder):
    """A library that starts a thread in each PHP that it is preloaded into."""
    library = os.path.join(folder, "early_thread.so")
    source = os.path.join(REPOSITORY, "tests", "support", "early_thread.c")
    subprocess.run(["gcc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-pthread", "-o", library, source], check=True)
    os.chmod(library, 0o755)
    return clean_environment(LD_PRELOAD=library)


def threads(pid):
    return len(os.listdir(f"/proc/{pid}/task"))


def test_each_child_is_a_process_of_its_own_and_there_is_no_other(start):
    pool = start.cede(children=3, options=EXEC)
    pool.wait_for_children(3)
    eventually(lambda: sorted(procfs.children(pool.pid)) == sorted(pool.children), "the scout has gone")
    pids = {int(pool.get("pid.php").text) for _ in range(40)}
    assert pids <= set(pool.children)
    with pool.connect() as connection:
        for _ in range(5):
            assert pool.ask(connection, "hello.php").text == "hello\n"


def test_a_thread_of_an_extension_is_there_in_every_child(start, early_thread):
    pool = start.cede(children=2, options=EXEC, environment=early_thread)
    assert [threads(pid) for pid in pool.wait_for_children(2)] == [2, 2]
    assert pool.get("hello.php").text == "hello\n"
    assert "warning" not in pool.process.log


def test_with_a_zygote_such_a_thread_is_missing_and_the_log_names_the_remedy(start, early_thread):
    pool = start.cede(children=1, environment=early_thread)
    assert threads(pool.children[0]) == 1
    assert re.search(r"warning: zygote .* runs 2 threads.*--spawn exec", pool.process.log)


def test_a_killed_child_is_replaced_and_parked_connections_live_on(start):
    pool = start.cede(children=2, options=EXEC)
    connections = kept_connections(pool, 6)
    first = set(pool.children)
    for pid in first:
        os.kill(pid, signal.SIGKILL)
    pool.wait_for_children(2, without=first)
    served = 0
    for connection in connections:
        if not connection.closed:
            assert pool.ask(connection, "hello.php").text == "hello\n"
            served += 1
    assert served >= 4  # all but those that the two held
    close_all(connections)


def test_recycling_is_exact(start):
    pool = start.cede(children=2, options=[*EXEC, "--max-requests", "20"])
    pids = parallel([lambda: [pool.get("pid.php").text for _ in range(60)] for _ in range(2)], 60)
    served = collections.Counter(pid for some in pids for pid in some)
    assert sum(served.values()) == 120
    assert max(served.values()) <= 20
    pool.wait_for_children(2)


def test_the_pool_grows_by_who_waits_and_starts_few_at_once(start):
    options = ["--pm", "dynamic", "--min-spare", "1", "--max-spare", "2", "--start-servers", "1"]
    pool = start.cede(children=6, options=[*EXEC, *options])
    assert len(pool.children) == 1
    answers = parallel([lambda: pool.get("sleep.php", "ms=1500").text for _ in range(6)], 30)
    assert answers == ["slept 1500\n"] * 6
    assert len(pool.newest) == 6


def test_children_see_no_trace_of_the_agent(start):
    pool = start.cede(children=1, options=EXEC)
    assert "CEDE" not in pool.get("env.php").text
    assert "LD_PRELOAD" not in pool.get("env.php").text


def test_each_child_has_an_opcache_that_works(start, folder):
    pool = start.cede(children=2, options=EXEC)
    path = f"{folder}/compiled.php"
    with open(path, "w") as file:
        file.write("<?php\nfunction compiled() { return 1; }\n")
    os.utime(path, (1_700_000_000, 1_700_000_000))  # opcache leaves files alone that are newer than two seconds
    with pool.connect() as connection:
        first, second, third = (
            json.loads(pool.ask(connection, "opcache.php", f"file={path}&include={include}").text)
            for include in (0, 1, 0)
        )
    assert first["enabled"]
    assert [first["cached"], second["cached"], third["cached"]] == [False, True, True]


def test_a_stop_leaves_nothing_behind(start):
    for number in (signal.SIGTERM, signal.SIGQUIT):
        pool = start.cede(children=3, options=EXEC)
        pids = procfs.descendants(pool.pid)
        assert pool.process.stop(number, 5) == 0
        eventually(lambda: not [pid for pid in pids if procfs.alive(pid)], "no process is left")


def test_a_program_that_is_no_php_for_web_servers_is_refused(start):
    pool = start.cede(children=1, options=EXEC, php=["--no-such-option"], wait=False)
    assert pool.process.wait(15) == 1
    assert "before it asked for a connection" in pool.process.log


def test_children_that_end_at_their_start_are_tried_again_in_growing_intervals(start, folder):
    """The program works for the scout, and then no more until it is repaired."""
    broken = os.path.join(folder, "broken")
    program = os.path.join(folder, "php-wrapper")
    with open(program, "w") as file:
        file.write(f'#!/bin/sh\n[ ! -e {broken} ] || exit 3\nexec {start.child} "$@"\n')
    os.chmod(program, 0o755)
    start.child = program
    pool = start.cede(children=2, options=EXEC)
    first = set(pool.children)
    open(broken, "w").close()
    for pid in first:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: len(re.findall("ended with exit status 3", pool.process.log)) >= 3, "several attempts")
    assert len(re.findall("ended with exit status 3", pool.process.log)) < 20
    os.unlink(broken)
    pool.wait_for_children(2, without=first)
    assert pool.get("hello.php").text == "hello\n"


def test_a_wrapper_that_waits_for_php_is_refused_with_the_remedy(start, folder):
    program = os.path.join(folder, "php-wrapper")
    with open(program, "w") as file:
        file.write(f'#!/bin/sh\n{start.child} "$@"\nexit 0\n')
    os.chmod(program, 0o755)
    start.child = program
    pool = start.cede(children=1, options=EXEC, wait=False)
    assert pool.process.wait(15) == 1
    assert "put exec in front" in pool.process.log
    eventually(lambda: not procfs.descendants(pool.pid), "nobody is left")


@pytest.mark.parametrize("command", ["reload", "upgrade"])
def test_executed_children_are_replaced_as_others_are(start, command):
    pool = start.cede(children=3, options=EXEC)
    control = Control(pool, start.binary)
    connections = kept_connections(pool, 6)
    before = set(pool.wait_for_children(3))
    code, _, error = control.command(command)
    assert code == 0, error
    pool.wait_for_children(3, without=before)
    for connection in connections:
        assert pool.ask(connection, "hello.php").text == "hello\n"
    close_all(connections)
    eventually(lambda: sorted(procfs.children(pool.pid)) == sorted(pool.children), "nobody else is left")
    # The next generation after that knows how to be executed, too.
    os.kill(pool.children[0], signal.SIGKILL)
    pool.wait_for_children(3)

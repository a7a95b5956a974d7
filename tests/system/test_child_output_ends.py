# SPDX-License-Identifier: Apache-2.0
"""Children's output where processes begin and end: last words, what a script has left behind, PHP's own start; and
without any of it (--child-output inherit)."""
import os
import re
import signal
from urllib.parse import quote

import pytest

from support import kinds, procfs
from support.connection import Closed
from support.process import clean_environment
from support.server import STAND_IN
from support.waiting import eventually, parallel

pytestmark = pytest.mark.skipif(bool(STAND_IN), reason="plain PHP has its standard error to itself")


def pipes(pid):
    return [target for target in procfs.descriptors(pid).values() if target.startswith("pipe:")]


def reading_ends(pid):
    """Of a supervisor: of its pipes, those of which it has one end. It has another one to itself."""
    found = pipes(pid)
    return [target for target in found if found.count(target) == 1]


# --- the end of a child -------------------------------------------------------------------------------


@kinds.both
def test_the_last_words_of_a_child_that_is_killed_stand_before_its_end(start):
    pool = start.cede(children=2)
    for number in range(5):
        with pytest.raises(Closed):
            pool.get("output.php", f"text=round%20{number}%0A&lines=3&kill=1")
        eventually(lambda: pool.process.log.count("was killed by signal 9") == number + 1, "its end")
        pool.wait_for_children(2)
    log = pool.process.log
    ends = re.findall(r"(child=\d+ gen=\d+ pid=(\d+)) was killed", log)
    for number, (who, pid) in enumerate(ends):
        before = log[: log.index(f"{who} was killed")]
        assert f"{who} output: round {number}\n" in before
        assert f"{who} output: {pid}:2:" in before


@kinds.both
def test_nothing_is_missing_of_children_that_write_and_end_at_once(start):
    pool = start.cede(children=4, options=["--max-requests", "1"])
    pids = [pid for _ in range(25) for pid in parallel([lambda: int(pool.get("output.php", "lines=3").text)] * 4)]
    assert len(set(pids)) == 100
    eventually(lambda: all(f"pid={pid} ended with exit status 0" in pool.process.log for pid in pids), "all have ended")
    log = pool.process.log
    for pid in pids:
        assert re.findall(rf"pid={pid} output: {pid}:(\d):|pid={pid} (ended)", log) == [
            ("0", ""), ("1", ""), ("2", ""), ("", "ended")]


@kinds.both
def test_pipes_go_with_their_processes(start):
    pool = start.cede(children=3)
    zygote = pool.zygote
    before = len(procfs.descriptors(pool.pid)), len(reading_ends(pool.pid))
    assert before[1] == 4, "one for each child and the zygote"
    for _ in range(5):
        now = pool.children
        for pid in now:
            os.kill(pid, signal.SIGKILL)
        pool.wait_for_children(3, without=now)
    os.kill(zygote, signal.SIGKILL)
    eventually(lambda: pool.process.log.count("ready after") == 2, "another zygote")
    victim = pool.children[0]
    os.kill(victim, signal.SIGKILL)
    pool.wait_for_children(3, without=[victim])
    eventually(lambda: (len(procfs.descriptors(pool.pid)), len(reading_ends(pool.pid))) == before, "nothing is left over")
    # A child has the writing end of its own pipe, twice, and none of another.
    found = {pid: set(pipes(pid)) for pid in [*pool.children, pool.zygote]}
    assert all(len(one) == 1 for one in found.values()) and len(set.union(*found.values())) == 4


@kinds.both
def test_what_a_script_has_left_behind_goes_on_under_the_name_of_its_child(start, folder):
    gate = f"{folder}/gate"
    with open(gate, "w") as file:
        file.write("begun")
    pool = start.cede(children=1)
    open_before = len(procfs.descriptors(pool.pid))
    pid = int(pool.get("output_daemon.php", "file=" + quote(gate)).text)
    pool.process.wait_for_log(rf"child=0 gen=1 pid={pid} output: daemon: begun$")
    os.kill(pid, signal.SIGKILL)
    now, = pool.wait_for_children(1, without=[pid])
    assert int(pool.get("output.php", "text=meanwhile%0A").text) == now
    pool.process.wait_for_log(rf"child=0 gen=1 pid={now} output: meanwhile$")
    with open(gate, "w") as file:
        file.write("still there")
    pool.process.wait_for_log(rf"child=0 gen=1 pid={pid} output: daemon: still there$")
    os.unlink(gate)
    eventually(lambda: len(procfs.descriptors(pool.pid)) == open_before, "with it, its pipe is gone")


@kinds.both
def test_a_stop_does_not_wait_for_what_a_script_has_left_behind(start, folder):
    gate = f"{folder}/gate"
    open(gate, "w").close()
    pool = start.cede(children=1)
    pool.get("output_daemon.php", "file=" + quote(gate))
    assert pool.process.stop(signal.SIGQUIT, timeout=5) == 0
    os.unlink(gate)


# --- PHP's own start ----------------------------------------------------------------------------------


def start_behind(start, script, wait=True, **options):
    """cede with a shell script that executes PHP at its end."""
    path = os.path.join(start.folder, "wrapper")
    with open(path, "w") as file:
        file.write(f"#!/bin/sh\n{script}\n")
    os.chmod(path, 0o755)
    child = start.child
    try:
        start.child = path
        return start.cede(children=1, wait=wait, **options)
    finally:
        start.child = child


@kinds.both
def test_a_start_that_says_much_is_not_held_up(start):
    total = 25000
    pool = start_behind(start, f'yes "a warning of the start, one of many" | head -n {total} >&2\n'
                               f'exec {start.child} "$@"')
    assert pool.get("hello.php").text == "hello\n"
    written = dropped = 0

    def accounted():
        nonlocal written, dropped
        log = pool.process.log
        written = len(re.findall("cede: notice: zygote gen=1 pid=.* output: a warning of the start, one of many$", log,
                                 re.MULTILINE))
        dropped = sum(map(int, re.findall(r"zygote gen=1 pid=\d+ wrote more than .*: (\d+) lines of its output", log)))
        return written + dropped == total

    eventually(accounted, "every line is there or counted")
    assert written >= 4000 and dropped >= 10000


def test_the_last_words_of_a_start_that_fails_stand_before_its_error(start):
    pool = start_behind(start, "echo no such extension >&2; printf 'and no end' >&2; exit 1", wait=False)
    assert pool.process.wait() == 1
    assert re.search(r"zygote gen=1 pid=(\d+) output: no such extension\n"
                     r".*zygote gen=1 pid=\1 output: and no end\n.*cede: error: .* exit status 1", pool.process.log)


def test_what_a_wrapper_has_redirected_stays_so(start, folder):
    pool = start_behind(start, f'exec {start.child} "$@" 2>>{folder}/php.txt')
    pool.get("output.php", "text=to%20the%20file%0A")
    with open(f"{folder}/php.txt") as file:
        assert "to the file\n" in file.read()
    assert "to the file" not in pool.process.log


def test_a_reload_may_change_what_becomes_of_output(start, folder):
    path = f"{folder}/cede.conf"
    with open(path, "w") as file:
        file.write("child-output = inherit\n")
    pool = start.cede(children=2, options=["--config", path])
    pool.get("output.php", "text=raw%0A")
    pool.process.wait_for_log("^raw$")
    with open(path, "w") as file:
        file.write("child-output-line = 256\n")
    pool.process.send(signal.SIGHUP)
    pool.process.wait_for_log("reloaded as generation 2")
    pid = int(pool.get("output.php", "size=300").text)
    pool.process.wait_for_log(rf"child=\d+ gen=2 pid={pid} output: {pid}:0:.* \[44 more bytes were left out\]$")


# --- raw ----------------------------------------------------------------------------------------------


@kinds.both
def test_inherited_output_is_raw(start):
    pool = start.cede(children=2, options=["--child-output", "inherit"])
    text = 'first\n\x1b[1m{"level": "mine"}\x00\nchild=9 gen=1 pid=1 output: x\nno end'
    pool.get("output.php", "text=" + quote(text, safe=""))
    pid = int(pool.get("output.php", "size=100000").text)
    eventually(lambda: len(pool.process.log) > 100000, "all has arrived")
    log = pool.process.log
    assert f"{text}{pid}:0:" in log and re.search(rf"{pid}:0:[\d ]{{99980,}}\n", log)
    assert not reading_ends(pool.pid)
    assert log.count("output: ") == 1
    for pid in [*pool.children, pool.zygote]:
        assert procfs.descriptors(pid)[2] == procfs.descriptors(pool.pid)[2] == pool.process.log_path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a pipe away")
def test_standard_error_can_be_opened_by_its_name(start):
    pool = start.cede(children=1, settings={"error_log": "/dev/stderr"}, environment=clean_environment())
    assert b"logged plum" not in pool.get("stderr.php", "text=plum").stderr, "not to the web server"
    pool.process.wait_for_log(r"output: \[.*\] logged plum$")

# SPDX-License-Identifier: Apache-2.0
"""One generation of children takes the place of another: SIGHUP, SIGUSR2, `cede reload`, `cede children`."""
import json
import os
import re
import signal
import subprocess

import pytest

from support import kinds, procfs
from support.clients import clients_that_go_on, close_all, kept_connections
from support.connection import Closed
from support.control import Control
from support.process import clean_environment
from support.server import STAND_IN, USER
from support.waiting import Background, eventually, parallel, stays

pytestmark = [kinds.both, pytest.mark.skipif(bool(STAND_IN), reason="plain php-cgi has no reload")]


class Settings:
    """A file for --config."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "cede.conf")
        self.write()

    def write(self, **settings):
        lines = [f"{name.replace('_', '-')} = {value}\n" for name, value in settings.items()]
        with open(self.path, "w") as file:
            file.writelines(lines)


@pytest.fixture
def settings(folder):
    return Settings(folder)


@pytest.fixture
def start_controlled(start):
    def started(**options):
        pool = start.cede(**options)
        return pool, Control(pool, start.binary)

    return started


def generations(pool):
    return [int(number) for number in re.findall(r"^.*reloaded as generation (\d+)", pool.process.log, re.MULTILINE)]


def wait_for_generation(pool, number):
    eventually(lambda: number in generations(pool), f"generation {number} runs", 15)


def fails(outcome, *words):
    code, out, error = outcome
    assert code == 1, outcome
    assert all(word in out + error for word in words), outcome


# --- what it does -----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR2], ids=["HUP", "USR2"])
def test_a_signal_replaces_zygote_and_children_and_no_connection_notices(start, number):
    pool = start.cede(children=3)
    connections = kept_connections(pool, 6)
    children, zygote = set(pool.children), pool.zygote
    pool.process.send(number)
    wait_for_generation(pool, 2)
    pool.wait_for_children(3, without=children)
    eventually(lambda: not any(map(procfs.alive, [*children, zygote])), "the old generation is gone")
    for connection in connections:
        assert pool.ask(connection, "hello.php").text == "hello\n"
    close_all(connections)
    assert "warning" not in pool.process.log and "error" not in pool.process.log


def test_no_request_fails_and_none_waits_while_generations_change(start_controlled):
    pool, control = start_controlled(children=4)
    with clients_that_go_on(pool, 8) as served:
        for generation in range(2, 7):
            code, out, error = control.command("reload")
            assert code == 0, error
            assert f"generation {generation}" in out
    assert all(served)
    pool.wait_for_children(4)
    assert control.status["generation"] == 6


def test_a_running_request_ends_while_the_next_generation_serves_already(start_controlled):
    pool, control = start_controlled(children=2)
    slow = [Background(pool.get, "sleep.php", "ms=2500") for _ in range(2)]
    eventually(lambda: control.status["children"]["by_state"]["busy"] == 2, "both are busy")
    code, out, _ = control.command("reload")
    assert code == 0 and "of which 2 still have a request" in out
    assert not any(one.done for one in slow)
    # As many as before serve at once.
    assert parallel([lambda: pool.get("hello.php").text for _ in range(4)]) == ["hello\n"] * 4
    assert not any(one.done for one in slow)
    assert [one.result().text for one in slow] == ["slept 2500\n"] * 2
    pool.wait_for_children(2)


def test_a_request_of_before_is_ended_after_the_reload_timeout(start_controlled):
    pool, control = start_controlled(children=1, options=["--reload-timeout", "500ms"])
    slow = Background(pool.get, "sleep.php", "ms=20000")
    eventually(lambda: control.status["children"]["by_state"]["busy"] == 1, "it is busy")
    old = pool.children[0]
    assert control.command("reload")[0] == 0
    assert pool.get("hello.php").text == "hello\n"
    eventually(lambda: not procfs.alive(old), "it is ended")
    assert "--reload-timeout" in pool.process.log
    with pytest.raises(Closed):
        slow.result()


def test_f109_a_pool_in_which_nothing_ends_any_more_is_replaced_as_a_whole(start):
    pool = start.cede(children=2, options=["--stall-timeout", "1500ms"])
    stuck = [Background(pool.get, "sleep.php", "ms=60000") for _ in range(2)]
    pool.wait_for_children(2)
    old, zygote = set(pool.children), pool.zygote
    eventually(lambda: "connections wait, and no request was begun or ended" in pool.process.log or
               pool.get("hello.php").text == "hello\n", "somebody waits", 20)
    assert "--stall-timeout" in pool.process.log
    assert pool.get("hello.php").text == "hello\n"
    eventually(lambda: not any(map(procfs.alive, [*old, zygote])), "all of before are gone")
    for one in stuck:
        with pytest.raises(Closed):
            one.result()
    pool.wait_for_children(2, without=old)


def test_two_reloads_at_once_are_both_answered(start_controlled):
    pool, control = start_controlled(children=2)
    outcomes = parallel([lambda: control.command("reload") for _ in range(4)])
    assert [code for code, _, _ in outcomes] == [0] * 4
    pool.wait_for_children(2)
    assert pool.get("hello.php").text == "hello\n"
    # What was asked for while one was under way is done once.
    assert control.status["generation"] <= 5


@pytest.mark.parametrize("mode", ["dynamic", "ondemand"])
def test_pools_that_grow_and_shrink_are_reloaded_too(start_controlled, mode):
    pool, control = start_controlled(children=4, options=["--pm", mode])
    assert pool.get("hello.php").text == "hello\n"
    old = set(pool.children)
    assert old
    assert control.command("reload")[0] == 0
    eventually(lambda: not old & set(pool.children), "no child of before is left")
    assert pool.get("hello.php").text == "hello\n"


def test_a_hangup_before_it_is_ready_is_done_afterwards(start):
    pool = start.cede(children=2, wait=False)
    pool.process.wait_for_log("listening on")
    pool.process.send(signal.SIGHUP)
    wait_for_generation(pool, 2)
    assert pool.get("hello.php").text == "hello\n"


# --- what it changes --------------------------------------------------------------------------------


def test_the_environment_of_scripts_changes(start_controlled, settings):
    settings.write(env="TEST_VALUE=before")
    pool, control = start_controlled(children=2, options=["--config", settings.path])
    with pool.connect() as connection:
        assert json.loads(pool.ask(connection, "env.php").text)["getenv"]["TEST_VALUE"] == "before"
        settings.write(env="TEST_VALUE=after")
        assert control.command("reload")[0] == 0
        assert json.loads(pool.ask(connection, "env.php").text)["getenv"]["TEST_VALUE"] == "after"


def test_what_needs_a_restart_is_named_and_keeps_its_value(start_controlled, settings):
    pool, control = start_controlled(children=1, options=["--config", settings.path])
    settings.write(listen_mode="0600", request_timeout="7s")
    code, out, _ = control.command("reload")
    assert code == 0 and "--listen-mode" in out and "restart" in out
    assert "--listen-mode" in control.command("reload")[1]  # as long as it is so


def test_options_of_cede_itself_change(start_controlled, settings):
    pool, control = start_controlled(children=1, options=["--config", settings.path])
    settings.write(max_idle="400ms")
    assert control.command("reload")[0] == 0
    eventually(lambda: "is to end: --max-idle" in pool.process.log, "the new option works")


def test_children_n_changes_their_number_until_the_next_reload(start_controlled):
    pool, control = start_controlled(children=2)
    assert control.command("children", "5")[0] == 0
    pool.wait_for_children(5)
    assert control.command("children", "1")[0] == 0
    pool.wait_for_children(1)
    assert pool.get("hello.php").text == "hello\n"
    assert control.command("reload")[0] == 0
    pool.wait_for_children(2)


def test_more_children_than_there_is_room_for_are_refused(start_controlled):
    pool, control = start_controlled(children=1)
    fails(control.command("children", "5000"), "restart")
    assert len(pool.children) == 1


# --- what goes wrong --------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong, words", [
    ({"no_such_option": "1"}, ["cede.conf:1", "no-such-option"]),
    ({"env": "TEST_VALUE"}, ["cede.conf:1", "env"]),
    ({"user": "nobody-has-this-name"}, ["nobody-has-this-name"]),
    ({"log": "/no/such/folder/log"}, ["/no/such/folder"]),
    ({"agent": "/no/such/agent.so"}, ["/no/such/agent.so"]),
], ids=["unknown option", "bad value", "unknown user", "log without folder", "no agent"])
def test_a_bad_configuration_is_refused_with_its_place_and_nothing_changes(start_controlled, settings, wrong, words):
    # A user on the command line would go before one in the file.
    identity = ["--user", USER] if os.geteuid() == 0 and "user" not in wrong else []
    if "user" in wrong:
        settings.write(user=USER)
    pool, control = start_controlled(children=2, options=["--config", settings.path], identity=identity)
    before, zygote = set(pool.wait_for_children(2)), pool.zygote
    settings.write(**wrong)
    fails(control.command("reload"), "generation 1 goes on", *words)
    assert set(pool.children) == before and pool.zygote == zygote
    assert pool.get("hello.php").text == "hello\n"
    settings.write(**({"user": USER} if "user" in wrong else {}))
    assert control.command("reload")[0] == 0


def test_a_program_that_does_not_start_is_told_and_the_running_one_goes_on(start, start_controlled, folder):
    real, start.child = start.child, os.path.join(folder, "program")

    def point_to(target):
        if os.path.lexists(start.child):
            os.remove(start.child)
        os.symlink(target, start.child)

    point_to(real)
    pool, control = start_controlled(children=2)
    before = set(pool.wait_for_children(2))
    for target, word in [("/bin/true", "ended with exit status 0"), ("/no/such/program", "No such file")]:
        point_to(target)
        fails(control.command("reload"), "generation 1 goes on", word)
        assert set(pool.children) == before
        assert pool.get("hello.php").text == "hello\n"
    point_to(real)
    assert control.command("reload")[0] == 0


def test_a_generation_whose_first_child_dies_does_not_replace_anybody(start_controlled, settings, folder):
    library = os.path.join(folder, "dies.so")
    source = os.path.join(folder, "dies.c")
    with open(source, "w") as file:
        file.write('#include <pthread.h>\n#include <stdlib.h>\n#include <unistd.h>\n'
                   'static void die(void) { if (getenv("TEST_DIE")) { _exit(7); } }\n'
                   '__attribute__((constructor)) static void start(void) { pthread_atfork(0, 0, die); }\n')
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    pool, control = start_controlled(children=2, options=["--config", settings.path],
                                     environment=clean_environment(LD_PRELOAD=library))
    before = set(pool.wait_for_children(2))
    settings.write(env="TEST_DIE=1")
    fails(control.command("reload"), "generation 1 goes on", "first child", "exit status 7")
    assert set(pool.children) == before
    assert pool.get("hello.php").text == "hello\n"


def test_a_child_that_dies_while_it_is_replaced_is_made_up_for(start_controlled):
    pool, control = start_controlled(children=4)
    reloads = Background(lambda: [control.command("reload")[0] for _ in range(5)])
    killed = 0
    while not reloads.done:
        for pid in pool.children[:1]:
            try:
                os.kill(pid, signal.SIGKILL)
                killed += 1
            except ProcessLookupError:
                pass
        stays(lambda: True, seconds=0.05)
    assert killed and reloads.result() == [0] * 5
    pool.wait_for_children(4)
    stays(lambda: len(pool.children) == 4, "four children", 0.3)


def test_a_zygote_that_is_killed_in_the_middle_ends_the_reload_only(start_controlled):
    pool, control = start_controlled(children=2)
    first = pool.zygote

    def next_zygote():
        found = re.findall(r"zygote gen=2 pid=(\d+) started", pool.process.log)
        return int(found[0]) if found else None

    pool.process.send(signal.SIGHUP)
    os.kill(eventually(next_zygote, "the next zygote"), signal.SIGKILL)
    eventually(lambda: "generation 1 goes on" in pool.process.log or generations(pool), "an outcome")
    assert pool.get("hello.php").text == "hello\n"
    if not generations(pool):
        assert pool.zygote == first
    assert control.command("reload")[0] == 0


def test_a_stop_in_the_middle_of_a_reload_ends_everything(start):
    pool = start.cede(children=4)
    pool.process.send(signal.SIGHUP)
    pool.process.wait_for_log("zygote gen=2 pid=.* started")
    assert pool.process.stop(signal.SIGQUIT) == 0
    assert "stopped" in pool.process.log
    assert not pool.children

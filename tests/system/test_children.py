# SPDX-License-Identifier: Apache-2.0
"""Children are what php-cgi always was: their number, rights, cache, surroundings, deaths."""
import json
import os
import pwd
import re
import signal

import pytest

from support import fastcgi, kinds, procfs
from support.connection import Closed
from support.ports import can_listen
from support.server import USER
from support.waiting import Background, eventually, parallel

WAYS_TO_START_A_PROGRAM = ["exec", "shell_exec", "popen", "proc_open", "pcntl_exec"]


def serves(pool, count=4):
    """Some requests in a row, each on a new connection, are all answered."""
    assert [pool.get("hello.php").text for _ in range(count)] == ["hello\n"] * count
    return True


def parameter_names(pool, script):
    return {name for name, _ in fastcgi.parameters(pool.script(script))}


@kinds.both
def test_there_are_as_many_children_as_asked_for(start):
    pool = start.cede(children=5)
    children = pool.wait_for_children(5)
    for pid in children:
        assert procfs.stat(pid)[1] == pool.pid, "a direct child of the supervisor"
        assert re.search(rf"child=\d+ gen=\d+ pid={pid}\b.*\bready_us=\d+", pool.process.log)
    assert sorted(procfs.children(pool.pid)) == sorted([*children, pool.zygote])
    assert len(pool.newest) == 5


@kinds.both
def test_all_children_work_at_the_same_time(start):
    pool = start.cede(children=5)
    pids = parallel([lambda: int(pool.get("pid.php", "ms=200").text)] * 5)
    assert set(pids) == set(pool.children)


@kinds.both
@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes the user")
def test_no_process_that_runs_php_has_more_rights_than_the_user(start):
    pool = start.cede(children=2)
    user = pwd.getpwnam(USER)
    for pid in [*pool.children, pool.zygote]:
        status = procfs.status(pid)
        assert status["Uid"].split() == [str(user.pw_uid)] * 4
        assert status["Gid"].split() == [str(user.pw_gid)] * 4
        assert set(status["Groups"].split()) <= {str(user.pw_gid)}
        assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0


@kinds.both
def test_what_one_child_compiled_is_in_the_cache_of_the_others(start, folder):
    pool = start.cede(children=2)
    path = f"{folder}/compiled.php"
    with open(path, "w") as file:
        file.write("<?php\nfunction compiled() { return 1; }\n")
    os.utime(path, (1_700_000_000, 1_700_000_000))  # opcache leaves files alone that are newer than two seconds

    def ask_another_than(busy_for, include):
        with pool.connect() as busy:
            running = Background(pool.ask, busy, "pid.php", f"ms={busy_for}")
            eventually(lambda: pool.holder(busy), "one child is busy")
            answer = json.loads(pool.get("opcache.php", f"file={path}&include={include}").text)
            return answer, int(running.result().text)

    seen = []
    for include in (0, 1, 0, 0):
        answer, other = ask_another_than(150, include)
        assert answer["enabled"] and answer["pid"] != other
        seen.append((answer["pid"], answer["cached"]))
        if include == 0 and answer["cached"]:
            os.kill(answer["pid"], signal.SIGKILL)  # the next one is a child forked after the compilation
            pool.wait_for_children(2, without=[answer["pid"]])
    assert [cached for _, cached in seen] == [False, True, True, True]
    assert len({pid for pid, _ in seen[1:]}) > 1


def test_scripts_see_the_environment_and_nothing_of_cede(start):
    pool = start.cede(children=1)
    seen = json.loads(pool.get("env.php").text)
    for names in (set(seen["getenv"]), set(seen["server"])):
        strange = [name for name in names if re.match(r"LD_|CEDE|LISTEN_|NOTIFY_SOCKET|PHP_FCGI", name)]
        assert not strange
    usual = {"PATH", "LANG", "HOME", "USER", "LOGNAME", "SHELL", "PWD"}
    assert set(seen["getenv"]) <= parameter_names(pool, "env.php") | usual | {"FCGI_ROLE"}


@pytest.mark.parametrize("how", WAYS_TO_START_A_PROGRAM)
def test_programs_started_by_scripts_see_no_trace_of_cede(start, how):
    pool = start.cede(children=2)
    environment = pool.get("started_program.php", f"how={how}&show=env").text
    assert "PATH=" in environment
    assert not re.search(r"^(LD_|CEDE|LISTEN_|PHP_FCGI)|libcede", environment, re.MULTILINE)


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("how", WAYS_TO_START_A_PROGRAM)
def test_programs_started_by_scripts_inherit_neither_listener_nor_connection(start, how, keep):
    pool = start.cede(children=2)
    with pool.connect() as connection:
        listing = pool.ask(connection, "started_program.php", f"how={how}", keep=keep).text
    links = dict(re.findall(r" (\d+) -> (.*)$", listing, re.MULTILINE))
    assert {"0", "1", "2"} <= set(links), listing
    for number, target in links.items():
        # PHP itself leaves the script's file open, as it does without cede.
        allowed = [r"/dev/null|pipe:|/proc/\d+/fd|/tmp/started", pool.process.log_path, pool.scripts]
        assert re.match("|".join(allowed), target), f"descriptor {number} is {target}"


def test_every_way_to_start_a_program_works(start):
    pool = start.cede(children=1)
    expected = (
        "from exec 3\nfrom shell_exec\nfrom system\nfrom system 4\npopen 5\nthrough proc_open problem 6\npcntl 7\n"
    )
    with pool.connect() as connection:
        for _ in range(3):
            assert pool.ask(connection, "programs.php").text == expected


@pytest.mark.parametrize("wait", [1, 0])
def test_a_forked_copy_that_ends_writes_nothing_and_accepts_nothing(start, folder, wait):
    pool = start.cede(children=1)
    mark = f"{folder}/copies"
    expected = "before fork\n" + ("copy ended with 9\n" if wait else "copy left alone\n")
    with pool.connect() as connection:
        for count in range(1, 4):
            assert pool.ask(connection, "fork.php", f"file={mark}&ms=50&wait={wait}").text == expected
            for _ in range(3):
                assert pool.ask(connection, "hello.php").text == "hello\n"
            copies = eventually(lambda: _lines(mark, count), "the copy ran")
            eventually(lambda: not any(procfs.alive(int(pid)) for pid in copies), "the copy is gone")
        assert connection.silent
    serves(pool)
    assert sorted(procfs.children(pool.pid)) == sorted([*pool.children, pool.zygote])


def _lines(path, count):
    try:
        with open(path) as file:
            found = file.read().split()
    except FileNotFoundError:
        return None
    return found if len(found) == count else None


def test_a_program_left_behind_by_a_script_keeps_neither_port_nor_connection(start):
    pool = start.cede(children=1)
    with pool.connect() as connection:
        left_behind = int(pool.ask(connection, "daemon.php", "ms=20000", keep=False).text)
        assert connection.read_to_end() == b"", "the connection ends although the program lives"
    assert procfs.alive(left_behind)
    assert pool.process.stop() == 0
    assert procfs.alive(left_behind)
    assert can_listen(pool.address[1])


@kinds.both
def test_a_script_that_makes_its_standard_input_nonblocking_stops_nobody(start):
    pool = start.cede(children=2)
    before = pool.children
    for _ in range(4):
        pool.get("nonblocking_stdin.php")
    serves(pool)
    assert pool.children == before, "nobody had to be replaced"


def test_signal_handlers_of_scripts_work_in_each_request(start):
    pool = start.cede(children=1)
    with pool.connect() as connection:
        pids = set()
        for _ in range(5):
            assert pool.ask(connection, "signal.php").text == "handled 1"
            pids.add(pool.ask(connection, "pid.php").text)
        assert len(pids) == 1, "and the child lives on"


@kinds.both
def test_what_scripts_write_to_standard_error_arrives_in_the_log(start):
    pool = start.cede(children=1)
    answer = pool.get("stderr.php", "text=marmalade")
    assert answer.text == "complained\n"
    assert b"logged marmalade" in answer.stderr
    pool.process.wait_for_log("raw marmalade")


@kinds.both
def test_an_endless_script_is_ended_by_its_own_time_limit_and_its_child_lives(start):
    pool = start.cede(children=1, settings={"max_execution_time": 1})
    before = pool.children
    answer = pool.get("loop.php")
    assert b"Maximum execution time" in answer.body + answer.stderr
    serves(pool)
    assert pool.children == before


def test_php_gets_its_arguments(start):
    pool = start.cede(children=1, php=["-d", "max_execution_time=1234", "-d", "memory_limit=99M"])
    assert serves(pool)
    with open(f"/proc/{pool.children[0]}/cmdline") as file:
        assert "max_execution_time=1234" in file.read().split("\0")


@kinds.both
def test_more_requests_than_php_takes_by_default_are_served_on_one_connection(start):
    pool = start.cede(children=1)
    with pool.connect() as connection:
        for _ in range(1200):
            assert pool.ask(connection, "hello.php").text == "hello\n"


def hold_in_state(pool, state):
    """(connection or None, pid): a child in this state."""
    if state == "free":
        return None, pool.children[0]
    connection = pool.connect()
    if state == "idle":
        pool.ask(connection, "hello.php")
    elif state == "reading a body":
        connection.send(pool.request("echo.php", body=b"x" * 50000, keep=True)[:-2000])
    elif state == "busy":
        connection.send(pool.request("sleep.php", "ms=20000", keep=True))
    elif state == "writing":
        connection.send(pool.request("bytes.php", "bytes=30000000", keep=True))
        connection.read_record()
    return connection, eventually(lambda: pool.holder(connection), f"a child is {state}")


@kinds.both
@pytest.mark.parametrize("state", ["free", "idle", "reading a body", "busy", "writing"])
def test_a_killed_child_is_replaced_and_nobody_else_notices(start, state):
    pool = start.cede(children=3)
    with pool.connect() as other:
        running = Background(pool.ask, other, "sleep.php", "ms=300")
        busy_with_it = eventually(lambda: pool.holder(other), "another child is busy")
        connection, victim = hold_in_state(pool, state)
        if victim == busy_with_it:
            victim = next(pid for pid in pool.children if pid != busy_with_it)
        number = next(number for number, pid in pool.newest.items() if pid == victim)
        os.kill(victim, signal.SIGKILL)
        pool.wait_for_children(3, without=[victim])
        assert pool.newest[number] != victim, "the replacement has the same number"
        if connection:
            connection.read_to_end()
            connection.close()
        assert running.result().text == "slept 300\n"
    assert busy_with_it in pool.children
    serves(pool)
    assert re.search(rf"child={number} gen=1 pid={victim}\b.*(?:signal 9|SIGKILL|killed)", pool.process.log, re.I)


@kinds.both
def test_parked_connections_survive_the_death_of_all_children(start):
    pool = start.cede(children=2)
    connections = [pool.connect() for _ in range(8)]
    for connection in connections:
        pool.ask(connection, "hello.php")
    victims = pool.children
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    pool.wait_for_children(2, without=victims)
    outcomes = []
    for connection in connections:
        try:
            outcomes.append(pool.ask(connection, "hello.php").text)
        except (Closed, OSError):
            outcomes.append(None)
    assert outcomes.count("hello\n") >= 6, "only the two that the children held are lost"
    serves(pool)


@kinds.both
def test_a_child_that_dies_in_the_middle_of_an_answer_ends_that_connection_only(start):
    pool = start.cede(children=2)
    for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT):
        with pool.connect() as connection:
            with pytest.raises(Closed) as error:
                pool.ask(connection, "crash.php", f"signal={int(number)}")
            assert b"before\n" in b"".join(one.content for one in error.value.records)
        serves(pool)
    pool.wait_for_children(2)


def test_a_child_that_asks_to_end_is_replaced_after_its_answer(start):
    pool = start.cede(children=2)
    for _ in range(3):
        before = pool.wait_for_children(2)
        ended = int(pool.get("terminate.php", keep=True).text)
        assert ended in before
        pool.wait_for_children(2, without=[ended])
        serves(pool)


@kinds.both
def test_the_zygote_is_replaced_and_the_pool_gets_complete_again(start):
    pool = start.cede(children=3)
    zygote, first = pool.zygote, pool.children
    os.kill(zygote, signal.SIGKILL)
    serves(pool)
    victim = first[0]
    os.kill(victim, signal.SIGKILL)
    pool.wait_for_children(3, without=[victim])
    eventually(lambda: pool.zygote not in (None, zygote), "there is another zygote")
    assert set(parallel([lambda: int(pool.get("pid.php", "ms=100").text)] * 3)) == set(pool.children)


@kinds.both
def test_the_zygote_and_all_children_killed_at_once_come_back(start):
    pool = start.cede(children=3)
    everyone = [pool.zygote, *pool.children]
    for pid in everyone:
        os.kill(pid, signal.SIGKILL)
    with pool.connect() as early:  # waits in the listen queue until there is a child again
        assert pool.ask(early, "hello.php").text == "hello\n"
    pool.wait_for_children(3, without=everyone)
    serves(pool)


@kinds.both
def test_a_killed_supervisor_leaves_running_requests_to_finish_and_nothing_else(start):
    pool = start.cede(children=4)
    busy = [pool.connect() for _ in range(2)]
    for connection in busy:
        connection.send(pool.request("sleep.php", "ms=400", keep=True))
    eventually(lambda: len({pool.holder(connection) for connection in busy} - {None}) == 2, "two children are busy")
    idle = [pool.connect() for _ in range(5)]
    for connection in idle:
        pool.ask(connection, "hello.php")
    processes = procfs.children(pool.pid)
    os.kill(pool.pid, signal.SIGKILL)
    pool.process.wait()
    assert [connection.read_response().text for connection in busy] == ["slept 400\n"] * 2
    for connection in busy + idle:
        assert connection.ends_without_more()
        connection.close()
    eventually(lambda: not [pid for pid in processes if procfs.alive(pid)], "no process is left", 5)
    assert can_listen(pool.address[1])


@kinds.both
def test_cede_starts_over_the_socket_file_of_a_killed_supervisor(start):
    pool = start.cede(children=2, listen=[start.new_address("unix")])
    processes = procfs.children(pool.pid)
    os.kill(pool.pid, signal.SIGKILL)
    pool.process.wait()
    eventually(lambda: not [pid for pid in processes if procfs.alive(pid)], "no process is left", 5)
    assert os.path.exists(pool.address)
    serves(start.cede(children=2, listen=pool.addresses))


@kinds.both
def test_descriptors_of_children_do_not_add_up(start):
    pool = start.cede(children=2)

    def total():
        return sum(len(procfs.descriptors(pid)) for pid in [pool.pid, pool.zygote, *pool.children])

    serves(pool)
    before = eventually(lambda: total(), "descriptors")
    for _ in range(5):
        victim = pool.children[0]
        os.kill(victim, signal.SIGKILL)
        pool.wait_for_children(2, without=[victim])
        for _ in range(20):
            with pool.connect() as connection:
                pool.ask(connection, "hello.php")
    eventually(lambda: total() <= before, "as many descriptors as before")


@kinds.both
def test_an_unlucky_child_slot_backs_off_but_others_serve(start):
    """A child killed again and again is replaced each time, and the machine is not burdened by it."""
    pool = start.cede(children=2)
    for _ in range(4):
        victim = max(pool.wait_for_children(2))
        os.kill(victim, signal.SIGKILL)
        serves(pool, 2)
        eventually(lambda: not procfs.alive(victim), "the victim is gone")
    pool.wait_for_children(2)

# SPDX-License-Identifier: Apache-2.0
"""The same bytes in, the same bytes out as lsphp by itself; and what scripts see of their process is the same, too."""
import json
import os
import re
import shutil

import pytest

from support import kinds, lsapi, procfs
from support.detached import cede_as_path
from support.exchange import cases, compare
from support.lsapi_conformance import good_cases
from support.process import clean_environment
from support.waiting import Background, eventually

WAYS_TO_START_A_PROGRAM = ["exec", "shell_exec", "popen", "proc_open"]


@pytest.mark.parametrize("at", cases(good_cases))
def test_a_good_request_gets_the_same_bytes_as_from_lsphp(cede_and_lsphp, at):
    compare(*cede_and_lsphp, good_cases, at)


@pytest.mark.parametrize("cuts", [range(8, 3000, 97), [8], [44], [700, 701, 1000, 2500]], ids=str)
def test_a_request_in_pieces_gets_the_same_bytes(cede_and_lsphp, cuts):
    answers = []
    for server in cede_and_lsphp:
        with server.connect() as connection:
            connection.send_in_pieces(server.request("body.php", body=b"trickle" * 400), cuts)
            answers.append(connection.read_bytes_until(lambda data: lsapi.answers_in(data) == 1)[0])
    assert answers[0] == answers[1]
    assert b"POST 2800 " in answers[0]


def test_two_hundred_requests_on_one_connection_get_the_same_bytes(cede_and_lsphp):
    """No request leaves anything behind for the next one: headers, settings, bodies, cookies."""
    answers = []
    for server in cede_and_lsphp:
        came = []
        with server.connect() as connection:
            for at in range(200):
                options = {
                    "special_env": [lsapi.php_value("precision", str(at % 17))] if at % 3 else [],
                    "headers": [(f"X-{at % 5}", "v" * at), ("Cookie", f"c{at}={at}")][: at % 3],
                    "order": lsapi.BIG if at % 4 == 0 else lsapi.LITTLE,
                    "body": b"a=1&b=2" * (at % 50) * (at % 2),
                }
                connection.send(server.request("request.php", f"at={at}", **options))
                came.append(connection.read_response().records)
                connection.send(server.request("settings.php", "names=precision"))
                came.append(connection.read_response().records)
        answers.append(came)
    assert answers[0] == answers[1]


def test_the_script_goes_on_behind_litespeed_finish_request(cede_and_lsphp, folder):
    answers, ran = [], f"{folder}/ran"
    for name, server in zip(("cede", "lsphp"), cede_and_lsphp):
        connection = server.connect()
        connection.send(server.request("finish_early.php", f"file={ran}&id={name}&ms=300"))
        answers.append(connection.read_response().records)
        eventually(lambda c=connection: c.close_announced or c.closed, "CONN_CLOSE follows")
        assert not os.path.exists(ran), "the answer is complete before the script is"
        connection.close()
        line = eventually(lambda: _content(ran), "the script has worked on", 5)
        assert line.split() == [name, str(_served_by(server, line))]
        os.unlink(ran)
    assert answers[0] == answers[1]


def _content(path):
    try:
        with open(path) as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _served_by(server, line):
    pid = int(line.split()[1])
    assert pid in server.children, "and its process lives on"
    return pid


def test_the_title_shows_the_script_while_it_runs_and_nothing_afterwards(cede_and_lsphp, lsphp):
    titles = []
    for server in cede_and_lsphp:
        with server.connect() as connection:
            running = Background(server.ask, connection, "sleep.php", "ms=300")
            pid = eventually(lambda s=server, c=connection: s.holder(c), "a child runs it")
            shown = eventually(lambda p=pid: procfs.title(p) if ":" in procfs.title(p) else None, "it has a title")
            titles.append(shown)
            running.result()
            eventually(lambda p=pid: ":" not in procfs.title(p), "the title is gone")
    name = os.path.basename(lsphp.binary)
    assert titles[0] == titles[1] == f"{name}:{cede_and_lsphp[0].script('sleep.php')[-45:]}"


@kinds.lsphp
def test_titles_are_not_written_over_the_environment(start, web, folder):
    """lsphp writes up to 47 bytes behind its own name, where its arguments, here none, and its environment are."""
    deep = os.path.join(folder, "a" * 60, "request.php")
    os.mkdir(os.path.dirname(deep), 0o755)
    shutil.copy(os.path.join(start.scripts, "request.php"), deep)
    given = {"A_FIRST": "first", **clean_environment(PHP_LSAPI_CHILDREN="2"), "Z_LAST": "last"}
    app = web.execute(cede_as_path(start), given)
    del given["PHP_LSAPI_CHILDREN"]
    for _ in range(3):
        with app.connect() as connection:
            seen = json.loads(connection.request(deep).text)
        assert {name: seen["environment"].get(name) for name in given} == given
        assert {name: seen["server"].get(name) for name in given} == given


@kinds.lsphp
def test_scripts_see_the_environment_and_nothing_of_cede(start):
    names = "CEDE LSAPI LSPHP PHP_LSAPI LD_ LISTEN_ NOTIFY_SOCKET"
    given = clean_environment(
        PHP_LSAPI_CHILDREN="4", LSAPI_AVOID_FORK="200M", LSAPI_PADDING="x" * 62, LSAPI_MAX_IDLE="100", OURS="kept"
    )
    pool = start.cede(children=1, environment=given)
    seen = json.loads(pool.get("request.php", extra={"LSAPI_OF_THE_REQUEST": "stays"}).text)
    strange = re.compile("|".join(names.split()))
    for where in ("environment", "server"):
        found = [name for name in seen[where] if strange.match(name)]
        assert found == (["LSAPI_OF_THE_REQUEST"] if where == "server" else []), where
    assert seen["environment"]["OURS"] == "kept"
    assert set(seen["environment"]) <= {"OURS", "PATH", "LANG", "HOME", "USER", "LOGNAME", "SHELL", "PWD"}


@kinds.lsphp
@pytest.mark.parametrize("how", WAYS_TO_START_A_PROGRAM)
def test_programs_started_by_scripts_see_no_trace_of_cede(start, how):
    pool = start.cede(children=2)
    environment = pool.get("started_program.php", f"how={how}&show=env").text
    assert "PATH=" in environment
    assert not re.search(r"^(LD_|CEDE|LISTEN_|LSAPI_|PHP_LSAPI)|libcede", environment, re.MULTILINE)


@kinds.lsphp
@pytest.mark.parametrize("how", WAYS_TO_START_A_PROGRAM)
def test_programs_started_by_scripts_inherit_neither_listener_nor_connection(start, how):
    pool = start.cede(children=2)
    with pool.connect() as connection:
        listing = pool.ask(connection, "started_program.php", f"how={how}").text
    links = dict(re.findall(r" (\d+) -> (.*)$", listing, re.MULTILINE))
    assert {"0", "1", "2"} <= set(links), listing
    for number, target in links.items():
        # lsphp itself leaves the script's file and /dev/null open, as it does without cede.
        allowed = [r"/dev/null|pipe:|/proc/\d+/fd", pool.process.log_path, pool.scripts]
        assert re.match("|".join(allowed), target), f"descriptor {number} is {target}"


@kinds.lsphp
def test_a_program_left_behind_by_a_script_keeps_neither_port_nor_connection(start):
    pool = start.cede(children=1, options=["--keepalive-limit", "0"])
    with pool.connect() as connection:
        left_behind = int(pool.ask(connection, "daemon.php", "ms=20000").text)
        eventually(lambda: connection.closed, "the connection ends although the program lives", 5)
    assert procfs.alive(left_behind)
    assert pool.process.stop() == 0
    assert procfs.alive(left_behind)

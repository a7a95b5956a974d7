# SPDX-License-Identifier: Apache-2.0
"""The variables that administrators set for lsphp: each is honoured, or named with the reason why it has no meaning."""
import os
import re
import resource
import signal
import time

import pytest

from support import kinds
from support.clients import kept_connections
from support.detached import cede_as_path, environment, nothing_left
from support.server import REPOSITORY, STAND_IN
from support.waiting import Background, parallel, stays

pytestmark = [kinds.lsphp, pytest.mark.skipif(bool(STAND_IN), reason="plain lsphp reads them by itself")]


@pytest.mark.parametrize("name", ["PHP_LSAPI_CHILDREN", "LSAPI_CHILDREN", "PHP_FCGI_CHILDREN"])
def test_the_number_of_children_comes_from_the_environment(start, web, name):
    app = web.execute(cede_as_path(start), environment({name: "3"})).wait_until_ready()
    assert len(app.wait_for_children(3)) == 3
    assert set(parallel([lambda: int(app.get("pid.php", "ms=200").text)] * 3)) == set(app.children)


@pytest.mark.parametrize("name", ["PHP_LSAPI_MAX_REQUESTS", "LSAPI_MAX_REQS"])
def test_children_end_after_as_many_requests_as_the_environment_says(start, web, name):
    app = web.execute(cede_as_path(start), environment({"PHP_LSAPI_CHILDREN": "1", name: "4"})).wait_until_ready()
    with app.connect() as connection:
        pids = [app.ask(connection, "pid.php").text for _ in range(20)]
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [4] * 5


def test_a_request_that_runs_too_long_is_ended_and_no_other(start, web):
    given = environment({"PHP_LSAPI_CHILDREN": "3", "LSAPI_MAX_PROCESS_TIME": "1"})
    app = web.execute(cede_as_path(start), given).wait_until_ready()
    before = app.wait_for_children(3)
    begun = time.monotonic()
    endless = Background(app.get, "loop.php")
    while not endless.done:
        assert app.get("sleep.php", "ms=300").text == "slept 300\n"
        assert time.monotonic() - begun < 10
    assert endless.result().status == 504
    assert 1 <= time.monotonic() - begun < 8
    assert "LSAPI_MAX_PROCESS_TIME" in app.process.log
    now = app.wait_for_children(3)
    assert len(set(before) & set(now)) == 2, "one child was replaced"


def test_the_stderr_log_gets_what_scripts_complain_about(start, web, folder):
    path = f"{folder}/complaints.txt"
    app = web.execute(cede_as_path(start), {**environment(), "LSAPI_STDERR_LOG": path})
    for number in range(4):
        answer = app.get("stderr.php", f"text=plum{number}")
        assert answer.text == "complained\n" and answer.stderr == b"", "not to the web server"
    with open(path) as file:
        found = file.read()
    for number in range(4):
        assert f"raw plum{number}\n" in found and f"logged plum{number}" in found
    assert "plum" not in app.process.log


def test_slow_requests_are_reported(start, web):
    app = web.execute(cede_as_path(start), {**environment(), "LSAPI_SLOW_REQ_MSECS": "100"})
    assert app.get("sleep.php", "ms=10").text == "slept 10\n"
    assert app.get("sleep.php", "ms=150&mark=it").text == "slept 150\n"
    app.process.wait_for_log(r"Slow PHP script: 1\d\d ms")
    app.process.wait_for_log(r"Query String: ms=150&mark=it")
    assert app.process.log.count("Slow PHP script") == 1


@pytest.mark.parametrize("allowed", [True, False])
def test_core_dumps_are_off_unless_allowed(start, web, allowed):
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    if hard == 0:
        pytest.skip("core dumps are off for this whole machine")
    more = {"LSAPI_ALLOW_CORE_DUMP": "1"} if allowed else {}
    app = web.execute(["/usr/bin/prlimit", "--core=1000000", *cede_as_path(start)], {**environment(), **more})
    pid = int(app.get("pid.php").text)
    with open(f"/proc/{pid}/limits") as file:
        (soft,) = re.findall(r"^Max core file size +(\S+)", file.read(), re.MULTILINE)
    assert soft == ("1000000" if allowed else "0")


def test_children_do_not_end_when_idle_for_long_or_without_their_web_server(start, web):
    """The variables that make lsphp end by itself, or not end with its parent, mean nothing to cede's children."""
    more = {"LSAPI_MAX_IDLE": "1", "LSAPI_PGRP_MAX_IDLE": "1", "LSAPI_MAX_BUSY_WORKER": "1", "LSAPI_ACCEPT_NOTIFY": "1"}
    app = web.execute(cede_as_path(start), {**environment({"PHP_LSAPI_CHILDREN": "2", **more})}).wait_until_ready()
    before = app.wait_for_children(2)
    (kept,) = kept_connections(app, 1)
    stays(lambda: app.children == before, "they live on", 3)
    assert [one.type for one in app.ask(kept, "hello.php").records][0] == kept.protocol.REQ_RECEIVED
    pids = app.processes
    app.process.send(signal.SIGKILL)
    nothing_left(pids, 3)


def test_variables_without_a_meaning_are_named_in_the_log(start, web):
    vain = ["LSAPI_AVOID_FORK", "LSAPI_EXTRA_CHILDREN", "LSAPI_MAX_IDLE_CHILDREN", "LSAPI_KEEP_LISTEN", "LSAPI_CRIU"]
    app = web.execute(cede_as_path(start), {**environment(), **{name: "1" for name in vain}}).wait_until_ready()
    (line,) = re.findall(r"^.*without effect.*$", app.process.log, re.MULTILINE)
    assert set(vain) <= set(re.findall(r"\w+", line))
    assert "PHP_LSAPI_CHILDREN" not in line and "LSAPI_PPID_NO_CHECK" not in line


# Every variable that lsphp 8.2 reads.
VARIABLES = """
PHP_LSAPI_CHILDREN LSAPI_CHILDREN LSAPI_EXTRA_CHILDREN LSAPI_MAX_IDLE_CHILDREN LSAPI_AVOID_FORK PHP_LSAPI_MAX_REQUESTS
LSAPI_MAX_REQS LSAPI_MAX_IDLE LSAPI_PGRP_MAX_IDLE LSAPI_MAX_PROCESS_TIME LSAPI_PPID_NO_CHECK LSAPI_MAX_BUSY_WORKER
LSAPI_KEEP_LISTEN LSAPI_ACCEPT_NOTIFY LSAPI_STDERR_LOG LSAPI_SLOW_REQ_MSECS LSAPI_ALLOW_CORE_DUMP LSAPI_DUMP_DEBUG_INFO
LSAPI_CLEAN_SHUTDOWN LSAPI_DISABLE_CPAN_BEHAV LSPHP_ENABLE_USER_INI LSPHPRC LSAPI_SECRET LSAPI_DEFAULT_UID
LSAPI_DEFAULT_GID LSAPI_LVE_ENABLE LVE_ENABLE LSAPI_INITIAL_START LSAPI_BACKEND_INITIAL_START LSAPI_CRIU
LSAPI_CRIU_USE_SHM LSAPI_SIGNALS LSAPI_CRIU_SYNC_FD LSAPI_CRIU_IMAGE_PATH LSAPI_UNIQE LSAPI_PADDING
""".split()


@pytest.mark.parametrize("name", VARIABLES)
def test_each_variable_of_lsphp_is_in_the_document(start, name):
    with open(os.path.join(REPOSITORY, "docs", "moving-from-lsphp.md")) as file:
        assert re.search(rf"\b{name}\b", file.read())

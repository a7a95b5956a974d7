# SPDX-License-Identifier: Apache-2.0
"""Requests that run for too long: who hears what, and how the pool goes on. --request-timeout."""
import os

import pytest

from support import kinds, procfs
from support.connection import Closed
from support.server import STAND_IN
from support.waiting import eventually, parallel

pytestmark = pytest.mark.skipif(bool(STAND_IN), reason="plain PHP has nothing like it")

LIMIT = ["--request-timeout", "1s"]
WAYS = ["loop", "sleep", "read", "program"]


def is_told(response):
    return response.status == 504 and "took too long" in response.text


@kinds.both
@pytest.mark.parametrize("how", WAYS)
def test_a_request_that_runs_for_too_long_gets_an_answer_and_its_child_is_replaced(start, how):
    pool = start.cede(children=2, options=LIMIT)
    first = set(pool.children)
    with pool.connect() as connection:
        assert pool.ask(connection, "hello.php").text == "hello\n"
        assert is_told(pool.ask(connection, "overlong.php", f"how={how}"))
        assert connection.ends_without_more()
    assert pool.get("hello.php").text == "hello\n"
    eventually(lambda: len(set(pool.children) - first) == 1 and len(pool.children) == 2, "one new child")
    assert "request runs longer than 1 s" in pool.process.log


@kinds.both
def test_an_answer_that_has_begun_is_cut_off_and_does_not_look_complete(start):
    pool = start.cede(children=1, options=LIMIT)
    with pool.connect() as connection, pytest.raises(Closed) as cut:
        pool.ask(connection, "overlong.php", "how=output")
    assert b"line 10\n" in b"".join(record.content for record in cut.value.records)
    assert b"took too long" not in b"".join(record.content for record in cut.value.records)
    assert pool.get("hello.php").text == "hello\n"


@kinds.both
def test_a_request_that_has_only_logged_gets_its_answer(start):
    pool = start.cede(children=1, options=LIMIT)
    assert is_told(pool.get("overlong.php", "how=sleep&log=a-line"))


@kinds.both
def test_after_a_burst_of_endless_requests_service_is_normal_again(start):
    pool = start.cede(children=4, options=LIMIT)
    answers = parallel([lambda: pool.get("overlong.php", "how=loop") for _ in range(8)], 30)
    assert all(map(is_told, answers))
    assert pool.get("hello.php").text == "hello\n"
    pool.wait_for_children(4)


def test_a_child_that_blocks_all_signals_is_killed(start):
    pool = start.cede(children=1, options=LIMIT)
    first = pool.children[0]
    with pool.connect(timeout=20) as connection, pytest.raises(Closed):
        pool.ask(connection, "overlong.php", "how=block")
    eventually(lambda: not procfs.alive(first), "the child has ended")
    assert "still runs its request, killing it" in pool.process.log
    assert pool.get("hello.php").text == "hello\n"


@kinds.lsphp
@pytest.mark.parametrize("how", ["loop", "sleep"])
def test_lsphp_runs_the_shutdown_functions_behind_the_answer(start, folder, how):
    pool = start.cede(children=1, options=LIMIT)
    first = pool.children[0]
    mark = os.path.join(folder, "mark")
    assert is_told(pool.get("overlong.php", f"how={how}&file={mark}"))
    eventually(lambda: os.path.exists(mark), "the shutdown function ran")
    eventually(lambda: not procfs.alive(first), "the child has ended")
    assert "killing it" not in pool.process.log
    assert pool.get("hello.php").text == "hello\n"


@kinds.both
def test_a_body_that_nobody_reads_does_not_cost_the_answer(start):
    pool = start.cede(children=1, options=LIMIT)
    with pool.connect() as connection:
        connection.send(pool.request("overlong.php", "how=loop", method="POST", body=b"x" * 20_000_000)[:400_000])
        assert is_told(connection.read_response())


def test_nginx_says_504_and_not_502(nginx):
    nginx.start(children=2, options=LIMIT)
    for how in WAYS:
        answer = nginx.fetch(f"/overlong.php?how={how}")
        assert answer.status == 504
        assert "took too long" in answer.text
    assert nginx.fetch("/hello.php").text == "hello\n"


@kinds.both
def test_the_time_of_one_request_is_not_that_of_the_next(start):
    pool = start.cede(children=1, options=LIMIT)
    first = pool.children
    with pool.connect() as connection:
        for _ in range(8):
            assert pool.ask(connection, "sleep.php", "ms=400").text == "slept 400\n"
    assert pool.children == first


@kinds.both
def test_a_request_behind_one_whose_client_left_has_its_own_time(start):
    pool = start.cede(children=1, listen=[start.new_address("unix")], options=["--request-timeout", "2s"])
    first = pool.children
    with pool.connect() as leaves:
        leaves.send(pool.request("sleep.php", "ms=1800"))
    assert pool.get("sleep.php", "ms=1800").text == "slept 1800\n"
    assert pool.children == first

# SPDX-License-Identifier: Apache-2.0
"""How many children there are: --pm, and php-fpm's numbers."""
import pytest

from support import kinds
from support.clients import close_all, kept_connections
from support.waiting import eventually, parallel, stays

pytestmark = kinds.both


def ondemand(start, most, *options):
    return start.cede(children=most, options=["--pm", "ondemand", *options])


def dynamic(start, most, *options):
    return start.cede(children=most, options=["--pm", "dynamic", *options])


def test_a_pool_on_demand_has_no_child_until_somebody_asks(start):
    pool = ondemand(start, 4)
    stays(lambda: not pool.children, "no child")
    assert pool.get("hello.php").text == "hello\n"
    assert len(pool.children) == 1


def test_on_demand_each_waiter_gets_a_child_and_no_more(start):
    pool = ondemand(start, 10)
    pids = parallel([lambda: pool.get("pid.php", "ms=500").text for _ in range(6)])
    assert len(set(pids)) == 6
    assert len(pool.children) == 6


def test_on_demand_never_more_than_allowed_and_all_are_served(start):
    pool = ondemand(start, 3)
    pids = parallel([lambda: pool.get("pid.php", "ms=100").text for _ in range(12)])
    assert len(set(pids)) <= 3


def test_children_that_are_not_needed_go_and_their_connections_stay(start):
    pool = ondemand(start, 5, "--idle-timeout", "500ms")
    parallel([lambda: pool.get("sleep.php", "ms=300") for _ in range(5)])
    connections = kept_connections(pool, 2)
    eventually(lambda: not pool.children, "all children gone", 30)
    for connection in connections:
        assert pool.parked(connection)
        assert pool.ask(connection, "hello.php").text == "hello\n"
    close_all(connections)


def test_idle_connected_children_serve_new_clients_and_none_is_started_for_them(start):
    pool = ondemand(start, 4)
    connections = kept_connections(pool, 3)
    before = len(pool.children)
    assert pool.get("hello.php").text == "hello\n"
    assert len(pool.children) == before
    close_all(connections)


def test_a_dynamic_pool_keeps_spare_children(start):
    pool = dynamic(start, 10, "--min-spare", "2", "--max-spare", "4", "--start-servers", "3",
                   "--idle-timeout", "500ms")
    assert len(pool.children) == 3
    parallel([lambda: pool.get("sleep.php", "ms=400") for _ in range(8)])
    assert len(pool.children) >= 8
    eventually(lambda: len(pool.children) == 4, "as many as --max-spare", 30)
    stays(lambda: len(pool.children) >= 2, "not fewer than --min-spare", 0.3)


def test_max_children_is_another_name_for_children(start, command):
    status, _, errors = command("check", "--listen", "127.0.0.1:1", "--children", "2", "--max-children", "3",
                                "--", start.child)
    assert status == 2
    assert "twice" in errors
    pool = start.cede(children=2, options=["--pm", "static"])
    assert len(pool.children) == 2


@pytest.mark.parametrize("options, named", [
    (["--min-spare", "2"], "--min-spare"),
    (["--pm", "ondemand", "--start-servers", "1"], "--start-servers"),
    (["--pm", "static", "--idle-timeout", "5s"], "--idle-timeout"),
    (["--pm", "dynamic", "--min-spare", "9"], "--min-spare"),
    (["--pm", "dynamic", "--min-spare", "3", "--max-spare", "2"], "--max-spare"),
    (["--pm", "dynamic", "--min-spare", "2", "--max-spare", "3", "--start-servers", "5"], "--start-servers"),
    (["--pm", "sometimes"], "--pm"),
])
def test_numbers_that_do_not_fit_together_are_refused_by_name(start, command, options, named):
    status, _, errors = command("check", "--listen", "127.0.0.1:1", "--children", "5", *options, "--", start.child)
    assert status == 2
    assert named in errors

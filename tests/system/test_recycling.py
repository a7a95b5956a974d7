# SPDX-License-Identifier: Apache-2.0
"""Children that are replaced although they work: --max-requests, --max-age, --max-rss, --max-idle."""
import collections

from support import kinds
from support.clients import close_all, kept_connections
from support.control import Control
from support.waiting import eventually, parallel

pytestmark = kinds.both


def test_no_child_serves_more_than_its_quota_and_no_request_fails(start):
    quota, clients, requests = 50, 8, 150
    pool = start.cede(children=4, options=["--max-requests", str(quota)])

    def client(number):
        pids = []
        kept = pool.connect()
        for _ in range(requests):
            pids.append(pool.ask(kept, "pid.php").text if number % 2 == 0 else pool.get("pid.php").text)
        kept.close()
        return pids

    served = collections.Counter(pid for pids in parallel([lambda n=n: client(n) for n in range(clients)], 90)
                                 for pid in pids)
    assert sum(served.values()) == clients * requests
    assert max(served.values()) <= quota
    # By chance some end earlier, so that not all are replaced together.
    assert len({count for count in served.values() if count > quota / 2}) > 1
    pool.wait_for_children(4)


def test_requests_whose_clients_leave_count_for_the_quota(start):
    pool = start.cede(children=1, listen=[start.new_address("unix")],
                      options=["--max-requests", "2", "--recycle-jitter", "0%"])
    control = Control(pool, start.binary)
    first = pool.children[0]
    for number in (1, 2):
        with pool.connect() as leaves:
            leaves.send(pool.request("sleep.php", "ms=50"))
            eventually(lambda: control.status["totals"]["begun"] == number, "it has begun")
    assert pool.get("pid.php").text != str(first)


def test_children_are_replaced_by_age_one_after_another(start):
    pool = start.cede(children=3, options=["--max-age", "1s"])
    first = set(pool.children)
    connections = kept_connections(pool, 3)
    pool.wait_for_children(3, without=first)
    assert "--max-age" in pool.process.log
    for connection in connections:
        assert pool.ask(connection, "hello.php").text == "hello\n"
    close_all(connections)


def test_a_child_that_has_grown_too_large_is_replaced_and_its_answer_is_whole(start):
    pool = start.cede(children=1, options=["--max-rss", "1M"])
    with pool.connect() as connection:
        assert pool.ask(connection, "hello.php").text == "hello\n"
        first = pool.children[0]
        eventually(lambda: pool.children and pool.children[0] != first, "another child", 15)
        assert pool.ask(connection, "hello.php").text == "hello\n"
    assert "--max-rss" in pool.process.log


def test_a_child_without_requests_is_replaced_after_a_while(start):
    pool = start.cede(children=1, options=["--max-idle", "500ms"])
    first = pool.children[0]
    eventually(lambda: pool.children and pool.children[0] != first, "another child", 15)
    assert "--max-idle" in pool.process.log


def test_a_running_request_is_not_cut_short_by_its_childs_age(start):
    pool = start.cede(children=1, options=["--max-age", "1s"])
    assert pool.get("sleep.php", "ms=3000").text == "slept 3000\n"
    eventually(lambda: "is to end: --max-age" in pool.process.log, "its turn")

# SPDX-License-Identifier: Apache-2.0
"""What must hold for long, and under everything at once. Short here; scripts/soak runs it in full length."""
import collections
import os
import re
import time

import pytest

from support import kinds, procfs
from support.connection import Closed
from support.control import Control
from support.server import PHP_CGI, STAND_IN
from support.soak import (
    Paced,
    cpu_seconds,
    descriptor_count,
    kill_at_random,
    load,
    report,
    rss_kib,
    size,
)
from support.waiting import Background, eventually, parallel
from support.web import Nginx

pytestmark = pytest.mark.skipif(bool(STAND_IN), reason="plain php-cgi would not live through it")


class NoRetries(Nginx):
    """nginx that never sends a request twice."""

    def configuration(self, workers):
        return super().configuration(workers).replace("fastcgi_keep_conn on;",
                                                      "fastcgi_keep_conn on; fastcgi_next_upstream off;")


def marks_in(path):
    with open(path) as file:
        return file.read().split()


def test_requests_at_a_rate_while_it_is_reloaded_and_upgraded(start, folder):
    requests, rate = size(10_000, 1500), 200
    reloads, upgrades = size(50, 8), size(5, 2)
    nginx = NoRetries(start).start(children=4, workers=2)
    control = Control(nginx.pool, start.binary)
    ran = os.path.join(folder, "ran")
    paced = Paced(nginx.port, f"/record.php?file={ran}&id=", requests, rate)
    commands = ["reload"] * reloads
    for number in range(upgrades):
        commands.insert((number + 1) * len(commands) // (upgrades + 1), "upgrade")
    begin = time.monotonic()
    for number, command in enumerate(commands):
        time.sleep(max(0.0, begin + (number + 0.5) * requests / rate / len(commands) - time.monotonic()))
        code, _, error = control.command(command, timeout=60)
        assert code == 0, error
    paced.wait()
    runs = marks_in(ran)
    twice = len(runs) - len(set(runs))
    report("reload and upgrade", requests=requests, rate=rate, reloads=reloads, upgrades=upgrades,
           failed=len(paced.failed), run_twice=twice, slowest_s=round(paced.slowest, 3))
    assert not paced.failed and twice == 0 and len(runs) == requests
    totals = control.status["totals"]
    assert totals["upgrades"] == upgrades and totals["reloads"] == reloads + upgrades


@kinds.both
def test_children_that_are_killed_at_random_cost_their_own_requests_only(start, folder):
    kills, children = size(1000, 100), 16
    pool = start.cede(children=children)
    control = Control(pool, start.binary)
    stop, good, lost = [], collections.Counter(), []

    def client(number):
        connection, at = None, 0
        while not stop:
            connection = connection or pool.connect()
            at += 1
            try:
                assert pool.ask(connection, "record.php", f"file={folder}/ran-{number}&id={at}").text.startswith(f"{at} ")
                good[number] += 1
            except (OSError, Closed) as error:
                lost.append(error)
                connection.close()
                connection = None

    clients = [Background(client, number) for number in range(24)]
    killed = kill_at_random(pool, kills, 0.01)
    assert killed == kills
    begin = time.monotonic()
    eventually(lambda: len(pool.children) == children, "the pool is full again", 10)
    full_after = time.monotonic() - begin
    stop.append(True)
    for one in clients:
        one.result()
    # A request that was answered is in the file once; one that was lost, at the most once.
    for number in range(24):
        runs = marks_in(f"{folder}/ran-{number}")
        assert len(runs) == len(set(runs)) and len(runs) >= good[number]
    status = eventually(lambda: (lambda now: now if now["totals"]["children_ended"] >= killed else None)(control.status),
                        "all are counted")
    report("killed children", killed=killed, good=sum(good.values()), lost=len(lost),
           full_after_s=round(full_after, 3))
    assert len(lost) <= killed
    assert status["totals"]["children_killed"] == killed
    assert status["children"]["total"] == children
    assert pool.get("hello.php").text == "hello\n"
    eventually(lambda: len(procfs.descendants(pool.pid, zombies=True)) == children + 1, "no zombie and no orphan")


def test_a_program_that_crashes_in_a_loop_costs_next_to_nothing(start, folder):
    seconds = size(60, 8)
    real, start.child = start.child, os.path.join(folder, "program")
    os.symlink(real, start.child)
    pool = start.cede(children=4)
    os.remove(start.child)
    os.symlink("/bin/false", start.child)
    lines = len(pool.process.log.splitlines())
    for pid in [pool.zygote, *pool.children]:
        os.kill(pid, 9)
    before = cpu_seconds(pool.pid)
    time.sleep(seconds)
    share = (cpu_seconds(pool.pid) - before) / seconds
    # As at the default level; the lines about the children that we have killed are none of the loop's.
    said = [line for line in pool.process.log.splitlines()[lines:] if " info: " not in line and "child=" not in line]
    os.remove(start.child)
    os.symlink(real, start.child)
    begin = time.monotonic()
    pool.wait_for_children(4)
    healthy_after = time.monotonic() - begin
    assert pool.get("hello.php").text == "hello\n"
    report("crash loop", seconds=seconds, cpu=round(share, 5), lines=len(said), healthy_after_s=round(healthy_after, 2))
    assert share < 0.05
    assert len(said) < 20


@kinds.both
def test_no_child_serves_more_than_its_quota_however_connections_come(start):
    quota, requests, clients = 100, size(30_000, 4000), 20
    pool = start.cede(children=5, options=["--max-requests", str(quota)])

    def client(number):
        pids, kept = [], pool.connect()
        for _ in range(requests // clients):
            pids.append(pool.ask(kept, "pid.php").text if number % 2 else pool.get("pid.php").text)
        kept.close()
        return pids

    served = collections.Counter(pid for pids in parallel([lambda n=n: client(n) for n in range(clients)], 300)
                                 for pid in pids)
    report("quota", requests=sum(served.values()), children=len(served), most=max(served.values()))
    assert sum(served.values()) == requests and max(served.values()) <= quota


def test_a_burst_on_a_small_dynamic_pool_starts_children_for_all_of_it(start):
    pool = start.cede(children=100, options=["--pm", "dynamic", "--start-servers", "5", "--min-spare", "5",
                                             "--max-spare", "10"])
    pool.wait_for_children(5)
    begin = time.monotonic()
    burst = [Background(pool.get, "sleep.php", "ms=3000") for _ in range(100)]
    eventually(lambda: len(pool.children) == 100, "100 children", 10, interval=0.02)
    started = time.monotonic() - begin
    stamps = [stamp for stamp in re.findall(r"T\d\d:(\d\d):(\d\d\.\d+)Z cede: info: child=\d+ .* ready ",
                                            pool.process.log)]
    seconds = [int(minute) * 60 + float(second) for minute, second in stamps][5:]
    assert [one.result(60).text for one in burst] == ["slept 3000\n"] * 100
    report("burst", children_ready_within_s=round((max(seconds) - min(seconds)) % 3600, 3),
           seen_after_s=round(started, 3))


@kinds.both
def test_nothing_grows_with_the_number_of_requests(start):
    requests, every = size(1_000_000, 20_000), size(10.0, 1.0)
    protocol = "lsapi" if start.child != PHP_CGI else "fastcgi"
    pool = start.cede(children=4, options=["--max-requests", "2000"])
    control = Control(pool, start.binary)

    def run(count):
        running = load(pool, "hello.php", "--clients", 8, "--requests", count, "--duration", 3600, protocol=protocol)
        due = time.monotonic() + every
        while not running.done:
            time.sleep(0.05)
            if time.monotonic() > due:
                assert control.command("reload", timeout=60)[0] == 0
                due += every
        return running.result(3600)

    def settled():
        eventually(lambda: len(procfs.descendants(pool.pid)) == 5, "the former generation is gone", 15)
        return rss_kib(pool.pid), descriptor_count(pool.pid)

    run(requests // 10)  # what is allocated once
    before = settled()
    outcome = run(requests)
    after = settled()
    report("leak", requests=requests, rss_kib=[before[0], after[0]], descriptors=[before[1], after[1]],
           failed=outcome.get("failed", outcome.get("errors")))
    assert after[1] <= before[1] + 2
    assert after[0] <= before[0] + 2048

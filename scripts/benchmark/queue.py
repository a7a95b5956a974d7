# SPDX-License-Identifier: Apache-2.0
"""The queue: clients that have left, more work than there is room for, slow heads, health checks, log rotation."""
import os
import signal
import subprocess
import time

from .cases import CHILDREN, Case
from .fastcgi import CedePhpCgi, FastcgiSettings, PhpFpm
from .figures import Goal, all_equal, all_of, median, ratio
from .processes import BenchError, wait_for
from .suite import Suite

MAX_WAIT = 0.5  # seconds, of the case `overload`
WORK = 0.05  # seconds that work.php takes
CAPACITY = CHILDREN / WORK  # requests a second
GROUP = 150  # clients of a group, and children of that case


def _errors(result):
    return sum(result["errors"].values())


def _settled_marks(load):
    """How often mark.php has run, once that has not changed for a second."""
    seen, since = load.marks(), time.monotonic()
    while time.monotonic() - since < 1:
        time.sleep(0.05)
        if load.marks() != seen:
            seen, since = load.marks(), time.monotonic()
    return seen


def _leavers(server, load, quick):
    load.clear_marks()
    result = load.run("leavers", server, other_script=load.page("stall"), leaving_script=load.page("mark"),
                      clients=2000, requests=100, children=CHILDREN, patience=30)
    if not result["stalled_meanwhile"] or result["leavers"]["not_connected"]:
        raise BenchError(f"the children were not stalled, or not all could connect: {result['leavers']}")
    return {"scripts_for_the_gone": _settled_marks(load), "left": result["leavers"]["left"], "ok": result["ok"],
            "requests": result["requests"], "behind_stall_ms": result["behind_stall_ms"]}


def _probe(server, load, quick):
    result = load.run("probe", server, idle=256, every=1, duration=10 if quick else 180, patience=3)
    return {"ok": result["ok"], "requests": result["requests"], "p50_ms": result["p50_ms"],
            "p99_ms": result["p99_ms"], "max_ms": result["max_ms"], "idle_open": result["idle_open"]}


def _groups(server, load, quick):
    # A child's first request costs many times the others: memory that it shares no longer.
    load.run("burst", server, page="page", clients=2 * GROUP, pools=1, keep_alive="off")
    result = load.run("groups", server, page="page", clients=GROUP, groups=3, stagger=1,
                      duration=8 if quick else 20, table="off")
    figures = {"kept_percent": result["kept_percent"], "steady_kept_percent": result["steady_kept_percent"],
               "never_served": result["never_served"], "errors": result["failures"]}
    for number, group in enumerate(result["groups"], 1):
        figures[f"first_answer_{number}_ms"] = group["first_answer_ms"] if group["ok"] else None
    firsts = [figures[f"first_answer_{number}_ms"] for number in (1, 2, 3)]
    figures["slowest_first_ms"] = None if None in firsts else max(firsts)
    # Who waits for a kept connection instead of a second: one figure for each of the first seconds.
    for number, group in enumerate(result["groups"], 1):
        figures[f"kept_by_second_{number}"] = " ".join(f"{each['kept_percent']:.0f}" for each in group["seconds"])
    return figures


def _overload(server, load, quick):
    result = load.run("overload", server, page="work", rate=3 * CAPACITY, duration=6 if quick else 30,
                      keep_alive="off", patience=10)
    refused = result["refused"]
    figures = {"ok": result["ok"], "requests": result["requests"], "refused": refused["count"],
               "not_answered": result["not_answered"], "goodput": result["rate"] / CAPACITY}
    for key in ("p50", "p99", "max"):
        if result[f"{key}_ms"] is not None:
            figures[f"waited_{key}_ms"] = max(result[f"{key}_ms"] - WORK * 1000, 0)
        if refused["count"]:
            figures[f"refused_behind_{key}_ms"] = max(refused[f"{key}_ms"] - MAX_WAIT * 1000, 0)
    return figures


def _slow(server, load, quick):
    result = load.run("slow", server, rate=200, duration=5 if quick else 20, slow=1000, patience=5)
    without, slow = result["without"], result["slow"]
    return {"ok": result["ok"], "requests": result["requests"], "errors": _errors(result),
            "p50_ms": result["p50_ms"], "p99_ms": result["p99_ms"], "p50_without_ms": without["p50_ms"],
            "p99_without_ms": without["p99_ms"], "slow_connected": slow["fewest_connected"]}


def _depth(server):
    """Connections in the listen queue."""
    port = server.endpoint.bind_to[1]
    with open("/proc/net/tcp") as table:
        for line in table:
            words = line.split()
            if words[3] == "0A" and words[1].endswith(f":{port:04X}"):
                return int(words[4].partition(":")[2], 16)
    raise BenchError(f"nobody listens on port {port}")


def _granted_backlog(server):
    """What listen(2) was given, as far as the kernel allows it."""
    port = server.endpoint.bind_to[1]
    out = subprocess.run(["ss", "-Hltn", f"sport = :{port}"], capture_output=True, text=True, check=True).stdout
    return int(out.split()[2])


def _backlog(server, load, quick):
    """The limit of the listen queue 5 s after the rate of service has doubled, over what it should be."""
    figures = {}
    for name, page in (("slow", "work"), ("fast", "half-work")):
        result = load.run("closed", server, page=page, clients=4 * CHILDREN, duration=7, keep_alive="off")
        wanted = result["rate"] * MAX_WAIT
        figures |= {f"rate_{name}": result["rate"], f"backlog_{name}": _granted_backlog(server),
                    f"backlog_off_{name}": abs(_granted_backlog(server) / wanted - 1)}
    figures["backlog_off"] = max(figures["backlog_off_slow"], figures["backlog_off_fast"])
    return figures


def _signals(server, load, quick):
    """The deepest queue, looked at each 10 ms, around a log rotation and a reload at half the capacity."""
    process = load.start("rate", server, page="work", rate=CAPACITY / 2, duration=8, keep_alive="off", patience=5)
    begin = time.monotonic()
    due = {2.0: signal.SIGUSR1, 4.0: signal.SIGUSR2 if server.name == "php-fpm" else signal.SIGHUP}
    deepest = {"before": 0, signal.SIGUSR1: 0, "reload": 0}
    phase = "before"
    while process.poll() is None:
        at = time.monotonic() - begin
        for when in [each for each in due if each <= at]:
            phase = signal.SIGUSR1 if due[when] == signal.SIGUSR1 else "reload"
            os.kill(server.pid, due.pop(when))
        deepest[phase] = max(deepest[phase], _depth(server))
        time.sleep(0.01)
    result = load.result(process)
    return {"ok": result["ok"], "requests": result["requests"], "p99_ms": result["p99_ms"],
            "max_ms": result["max_ms"], "deepest_before": deepest["before"],
            "deepest_reopen": deepest[signal.SIGUSR1], "deepest_reload": deepest["reload"]}


def _recycle(server, load, quick):
    """As _signals, while each child is replaced several times."""
    process = load.start("rate", server, page="work", rate=CAPACITY / 2, duration=4 if quick else 10,
                         keep_alive="off", patience=5)
    deepest = 0
    while process.poll() is None:
        deepest = max(deepest, _depth(server))
        time.sleep(0.01)
    result = load.result(process)
    return {"ok": result["ok"], "requests": result["requests"], "p99_ms": result["p99_ms"],
            "max_ms": result["max_ms"], "deepest": deepest}


BOTH = (CedePhpCgi, PhpFpm)
CEDE = (CedePhpCgi,)
CASES = [
    Case("leavers", "2,000 clients that leave after 100 ms while the children are stalled for 5 s, then 100 requests",
         _leavers, BOTH, most_rounds=3),
    Case("probe", "a health check each second on a new connection beside 256 idle ones of 256 children", _probe, BOTH,
         most_rounds=1, children=256),
    Case("groups", "three groups of 150 clients over 150 children, 1 s apart, pages of 100 ms", _groups, BOTH,
         most_rounds=3, children=GROUP),
    Case("groups-close", "the same with --keepalive-limit 75% --give-up close", _groups, CEDE, most_rounds=3,
         children=GROUP, options=("--keepalive-limit", "75%", "--give-up", "close")),
    Case("overload", f"three times the capacity, --max-wait {MAX_WAIT * 1000:.0f}ms", _overload, BOTH, most_rounds=1,
         options=("--max-wait", f"{MAX_WAIT * 1000:.0f}ms")),
    Case("slow", "1,000 clients that send one byte a second beside 200 requests/s", _slow, BOTH, most_rounds=3),
    Case("backlog", f"--backlog auto with --max-wait {MAX_WAIT * 1000:.0f}ms, 7 s behind a change of the rate",
         _backlog, CEDE, most_rounds=3,
         options=("--backlog", "auto", "--max-wait", f"{MAX_WAIT * 1000:.0f}ms")),
    Case("signals", "the listen queue around a log rotation and a reload, at half the capacity", _signals, BOTH,
         most_rounds=3),
    Case("recycle", "the listen queue while children are replaced each 20 requests, at half the capacity", _recycle,
         CEDE, most_rounds=3, options=("--max-requests", "20")),
]


def _served_all(case):
    return all_equal(case, "cede", "ok", "requests")


def _largest(case, *keys):
    def value(results):
        found = [each for key in keys for each in results.values(case, "cede", key)]
        return max(found) if found else None

    return value


GOALS = [
    Goal("scripts run for clients that have left", "", 10, 0, _largest("leavers", "scripts_for_the_gone")),
    Goal("good requests behind them, all served, behind the stall's end", "s", 1, 0.2,
         median("leavers", "cede", "behind_stall_ms", 0.001), condition=_served_all("leavers")),
    Goal("health check beside idle connections, 99th centile", "ms", 5, 2, median("probe", "cede", "p99_ms"),
         condition=_served_all("probe")),
    Goal("slowest first answer of a group of 150", "ms", 250, 150, median("groups", "cede", "slowest_first_ms"),
         condition=all_equal("groups", "cede", "never_served")),
    Goal("requests on kept connections, park", "%", 90, 99, median("groups", "cede", "steady_kept_percent"),
         at_least=True),
    Goal("distance from 75 % with --keepalive-limit 75% --give-up close", "%", 2, 1,
         lambda results: _distance(results.median("groups-close", "cede", "steady_kept_percent"), 75)),
    Goal("three times the capacity: longest wait of an answered request", "ms", 600, 550,
         _largest("overload", "waited_max_ms")),
    Goal("refusals behind --max-wait, 99th centile", "ms", 20, 10,
         median("overload", "cede", "refused_behind_p99_ms"), condition=all_equal("overload", "cede", "not_answered")),
    Goal("goodput over the capacity", "x", 0.9, 0.97, median("overload", "cede", "goodput"), at_least=True),
    Goal("beside 1,000 slow clients, 99th centile over that without", "x", 1.5, 1.1,
         ratio(("slow", "cede", "p99_ms"), ("slow", "cede", "p99_without_ms")),
         condition=all_of(_served_all("slow"), all_equal("slow", "cede", "errors"))),
    Goal("--backlog auto, off from rate x max-wait", "x", 0.2, 0.1, median("backlog", "cede", "backlog_off")),
    Goal("deepest queue behind a log rotation, a reload, a mass recycle", "", 5, 2,
         lambda results: _most(_largest("signals", "deepest_reopen", "deepest_reload")(results),
                               _largest("recycle", "deepest")(results))),
]


def _distance(value, wanted):
    return None if value is None else abs(value - wanted)


def _most(*values):
    return None if None in values else max(values)


class QueueSettings(FastcgiSettings):
    def __init__(self, options, folder):
        super().__init__(options, folder)
        limit = "/proc/sys/net/core/somaxconn"
        with open(limit) as allowed:
            if int(allowed.read()) < 2100:
                raise BenchError(f"{limit} is below 2100, so that a queue of 2,000 can not stand; sysctl -w "
                                 "net.core.somaxconn=4096")


SUITE = Suite(
    protocol="fastcgi", stem="benchmarks-queue", title="Benchmarks: the queue", sockets=("tcp",),
    intro="the servers take turns and each case begins with a fresh server of 10 static children, unless its title says "
          "otherwise, on loopback TCP. The load generator shares the cores.",
    settings=QueueSettings, cases=CASES, goals=GOALS, colours={"cede": "#1f6f8b", "php-fpm": "#c98a3d"})

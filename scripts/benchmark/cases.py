# SPDX-License-Identifier: Apache-2.0
"""The cases. Each runs once on a freshly started server and returns a flat dict of figures."""
import os
import re
import signal
import statistics
import subprocess
import sys
import time

from .processes import BenchError, status_field, wait_for

CHILDREN = 10
STALL_PATIENCE = 3  # seconds; the connections that wait for ever would cost the full patience


class Case:
    """A name, the servers that take part, how many rounds are enough, and `measure(server, load, quick)`. `options`:
    further ones of cede."""

    def __init__(self, name, title, measure, servers, most_rounds=99, children=CHILDREN, in_quick=True,
                 log_everything=False, options=()):
        self.name = name
        self.title = title
        self.measure = measure
        self.servers = servers
        self.most_rounds = most_rounds
        self.children = children
        self.in_quick = in_quick
        self.log_everything = log_everything
        self.options = options


def _closed(clients, keep_alive):
    def measure(server, load, quick):
        result = load.run("closed", server, clients=clients, keep_alive=keep_alive, pools=8,
                          duration=1.5 if quick else 5, warmup=0.5, patience=STALL_PATIENCE)
        return _pick(result, "rate", "p50_ms", "p99_ms", "p999_ms", "max_ms", "slowest_share", "never_served",
                     "clients", "retries", "reconnects", errors=sum(result["errors"].values()))

    return measure


def _burst(server, load, quick):
    result = load.run("burst", server, page="slow", clients=40, pools=8, patience=STALL_PATIENCE + 2)
    return _pick(result, "ok", "requests", "last_answer_ms", "retries", "resent",
                 errors=sum(result["errors"].values()))


def _bursts(server, load, quick):
    sizes = {"bursts": 1, "every": 4, "duration": 6} if quick else {"bursts": 5, "every": 20, "duration": 120}
    result = load.run("bursts", server, page="slow", other_script=load.page("trivial"), clients=40, rate=5,
                      patience=10, **sizes)
    steady = result["steady"]
    return _pick(result, "ok", "requests", "max_ms", "p50_ms", "retries", "resent", steady_ok=steady["ok"],
                 steady_requests=steady["requests"], steady_p50_ms=steady["p50_ms"], steady_p99_ms=steady["p99_ms"],
                 steady_max_ms=steady["max_ms"], slowest_ms=_larger(result["max_ms"], steady["max_ms"]))


def _new_connection(server, load, quick):
    result = load.run("new-connection", server, other_script=load.page("pin"), children=CHILDREN,
                      rounds=50 if quick else 300, patience=STALL_PATIENCE)
    return _pick(result, "ok", "rounds", "p50_ms", "p90_ms", "p99_ms", "max_ms", "retries")


def _idle(server, load, quick):
    duration = 1.5 if quick else 5
    common = {"clients": 40, "pools": 8, "duration": duration, "warmup": 0.5, "patience": STALL_PATIENCE}
    memory_before = status_field(server.pid, "VmRSS")
    without = load.run("closed", server, **common)
    result, memory = load.run_watching_memory("idle", server, idle=10000, **common)
    return _pick(result, "rate", "p50_ms", "p999_ms", "never_served", "idle_open", "idle_still_open", "retries",
                 rate_without=without["rate"], idle_wanted=10000,
                 served_afterwards=result["afterwards"]["ok"], retries_afterwards=result["afterwards"]["retries"],
                 rss_start_kb=memory_before, rss_idle_kb=memory)


def _fork(server, load, quick):
    """kill -9 of the youngest child, several times; the time to a replacement by the log, and as seen from outside."""
    kills = 3 if quick else 10
    seen = []
    logged = len(server.read_log())
    for _ in range(kills):
        before = set(server.workers())
        victim = server.workers()[-1]
        begin = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: set(server.workers()) - before, 15, f"{server.name}: a replacement of child {victim}")
        seen.append((time.monotonic() - begin) * 1000)
    figures = {"replaced_ms": statistics.median(seen), "replaced_max_ms": max(seen)}
    if server.logs_ready:
        pattern = re.compile(r"\bready_us=(\d+)")
        try:
            wait_for(lambda: len(pattern.findall(server.read_log()[logged:])) >= kills, 2, "ready_us=")
            ready = [int(each) / 1000 for each in pattern.findall(server.read_log()[logged:])]
            figures |= {"ready_ms": statistics.median(ready), "ready_max_ms": max(ready)}
        except BenchError:
            print(f"bench: no ready_us= of {kills} children in the log of {server.name}; fork to ready is left out",
                  file=sys.stderr)
    return figures


def _wakeups(server, load, quick):
    requests = 100000
    load.run("closed", server, clients=CHILDREN, requests=2000)
    before = status_field(server.pid, "voluntary_ctxt_switches")
    result = load.run("closed", server, clients=CHILDREN, requests=requests)
    switches = status_field(server.pid, "voluntary_ctxt_switches") - before
    return {"requests": result["requests"], "switches": switches, "per_1000": switches * 1000 / result["requests"]}


def _count_syscalls(pid, run):
    """Calls by name of one process while `run()` goes on."""
    tracer = subprocess.Popen(["strace", "-c", "-f", "-U", "calls,name", "-p", str(pid)], stderr=subprocess.PIPE,
                              stdout=subprocess.DEVNULL, text=True)
    try:
        wait_for(lambda: status_field(pid, "TracerPid") == tracer.pid or tracer.poll() is not None, 5,
                 f"the attaching of strace to {pid}")
        run()
    finally:
        if tracer.poll() is None:
            tracer.send_signal(signal.SIGINT)
        _, summary = tracer.communicate(timeout=10)
    calls = {name: int(count) for count, name in re.findall(r"^\s*(\d+)\s+(\w+)\s*$", summary, re.MULTILINE)}
    if "total" not in calls:
        raise BenchError(f"strace gave no counts: {summary.strip()[-300:]}; it needs CAP_SYS_PTRACE")
    return calls


def _syscalls(server, load, quick):
    requests = 300 if quick else 1000
    figures = {}
    for keep_alive in ("on", "off"):
        load.run("closed", server, clients=1, keep_alive=keep_alive, requests=20)
        calls = _count_syscalls(server.workers()[-1], lambda: load.run("closed", server, clients=1,
                                                                       keep_alive=keep_alive, requests=requests))
        figures[f"calls_{keep_alive}"] = calls.pop("total") / requests
        often = sorted(((count / requests, name) for name, count in calls.items() if count * 10 > requests),
                       reverse=True)
        figures[f"names_{keep_alive}"] = ", ".join(f"{name} {count:.2g}" for count, name in often)
    return figures


def _larger(*values):
    return max((value for value in values if value is not None), default=None)


def _pick(result, *keys, **more):
    return {key: result[key] for key in keys} | more


def cases(subject, rivals, rivals_with_spares, single):
    """The cases for `subject` and the servers it is compared with. `rivals_with_spares` are those that replace a
    killed child before anybody needs it, `single` is a server whose only process serves."""
    every = (subject, *rivals)
    return [
        *(Case(f"clients-{clients}-{keep}", f"{clients} client{'s' if clients > 1 else ''}, "
               + ("keep-alive" if keep == "on" else "a connection per request"), _closed(clients, keep), every)
          for keep in ("on", "off") for clients in (1, 10, 40, 400)),
        Case("burst", "burst of 40 requests of 0.7 s", _burst, every),
        Case("bursts", "five bursts of 40, 20 s apart, over 5 requests/s", _bursts, every, most_rounds=1,
             in_quick=False),
        Case("new-connection", "a new connection while all children are idle-connected", _new_connection, every,
             most_rounds=3),
        Case("idle", "10,000 idle connections beside 40 clients", _idle, every, most_rounds=3),
        Case("fork", "a further child", _fork, (subject, *rivals_with_spares), most_rounds=3, log_everything=True),
        Case("wakeups", "wake-ups of the supervisor", _wakeups, (subject,), most_rounds=3),
        Case("syscalls", "system calls per request of a child", _syscalls, (subject, single), most_rounds=1,
             children=1),
    ]

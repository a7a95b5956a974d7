# SPDX-License-Identifier: Apache-2.0
"""What the soaks share: how long they go on, load at a rate, and the figures that they print."""
import http.client
import json
import os
import random
import subprocess
import threading
import time

from . import procfs
from .http import fetch
from .server import BUILD, as_argument
from .waiting import Background

# CEDE_SOAK=full: the numbers of scripts/soak; else a tenth or less of them.
FULL = os.environ.get("CEDE_SOAK") == "full"
LOAD = os.path.join(BUILD, "tests", "bench", "cede-load")


def size(full, short):
    return full if FULL else short


def report(name, **figures):
    """For scripts/soak, which shows what tests print."""
    print("\n" + json.dumps({"soak": name, **figures}), flush=True)


class Paced:
    """Requests by HTTP, `rate` in a second, each with a mark of its own, from clients that keep their connections.
    None is sent again. `failed` has those without a good answer."""

    def __init__(self, port, target, count, rate, clients=16):
        self.failed, self.slowest = [], 0.0
        self._port, self._target, self._rate, self._clients, self._count = port, target, rate, clients, count
        self._lock = threading.Lock()
        begin = time.monotonic() + 0.1
        self._running = [Background(self._run, number, begin) for number in range(clients)]

    @property
    def done(self):
        return all(one.done for one in self._running)

    def wait(self):
        for one in self._running:
            one.result(120 + self._count / self._rate)

    def _run(self, client, begin):
        connection = None
        for number in range(client, self._count, self._clients):
            due = begin + number / self._rate
            time.sleep(max(0.0, due - time.monotonic()))
            connection = connection or http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
            error, mark = None, f"r{number}"
            try:
                answer = fetch(self._port, self._target + mark, connection=connection)
                if answer.status != 200 or mark not in answer.text:
                    error = f"{mark}: {answer.status} {answer.text[:60]!r}"
            except (OSError, http.client.HTTPException) as problem:
                error = f"{mark}: {problem!r}"
                connection = None
            with self._lock:
                self.slowest = max(self.slowest, time.monotonic() - due)
                if error:
                    self.failed.append(error)


def load(pool, script, *options, protocol="fastcgi"):
    """A load generator in the background: .result() is its JSON."""
    command = [LOAD, "closed", "--address", as_argument(pool.address), "--script", pool.script(script), "--protocol",
               protocol, *map(str, options)]

    def run():
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return Background(run)


def cpu_seconds(pid):
    """Of the process itself, user and system (proc(5), stat)."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_kib(pid):
    return int(procfs.status(pid)["VmRSS"].split()[0])


def descriptor_count(pid):
    return len(procfs.descriptors(pid))


def kill_at_random(pool, count, every):
    """SIGKILL for a random child, another one each time, `count` times. How many were killed."""
    killed = set()
    while len(killed) < count:
        victims = [pid for pid in pool.children if pid not in killed]
        if victims:
            victim = random.choice(victims)
            try:
                os.kill(victim, 9)
                killed.add(victim)
            except ProcessLookupError:
                pass
        time.sleep(every)
    return len(killed)

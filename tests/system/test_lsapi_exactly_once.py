# SPDX-License-Identifier: Apache-2.0
"""100,000 numbered requests through the pools of OpenLiteSpeed workers while children keep giving connections up: what
the scripts recorded is what the clients sent and got."""
import multiprocessing
import os
import random

import pytest

from support import kinds
from support.openlitespeed import Worker
from support.server import STAND_IN

pytestmark = [kinds.lsphp, pytest.mark.skipif(bool(STAND_IN), reason="plain lsphp stalls here")]


WORKERS = 8
POOL = 5
LIMIT = 150.0


class Client:
    """The requests of one worker, at random: how many at once changes all the time, and so do pauses and bodies."""

    def __init__(self, worker, number, requests, request):
        self._worker = worker
        self._requests = requests
        self._number = number
        self._request = request
        self._random = random.Random(number)
        self._begun = 0
        self._wanted = 1
        self._running = 0
        self._served_by = {}
        # The last worker opens a connection for each request, so that others are idle when somebody waits.
        self._keeps = number != WORKERS - 1
        self.answered = []
        self.wrong = []
        self.moves = 0

    def go_on(self):
        if self._random.random() < 0.02:
            self._wanted = self._random.randint(1, POOL)
        while self._running < self._wanted and self._begun < self._requests:
            self._running += 1
            mark = f"{self._number}-{self._begun}"
            self._begun += 1
            if self._random.random() < 0.3:
                self._worker.after(self._random.random() * 0.003, lambda m=mark: self._submit(m))
            else:
                self._submit(mark)

    def _submit(self, mark):
        size = self._random.randrange(20_000) if self._random.random() < 0.1 else 0
        expected = f"{mark} {size}"
        self._worker.submit(self._request(mark, b"b" * size), lambda job: self._done(job, mark, expected))

    def _done(self, job, mark, expected):
        self._running -= 1
        text = job.failure or job.answer.text
        said, _, pid = text.rpartition(" ")
        if said == expected:
            self.answered.append(mark)
            self.moves += self._served_by.get(job.connection, pid) != pid
            self._served_by[job.connection] = pid
        else:
            self.wrong.append((expected, text[:200]))
        if not self._keeps:
            self._worker.close_idle()
        self.go_on()


def run_worker(pool, number, requests, ran, sender):
    def request(mark, body):
        return pool.request("record.php", f"file={ran}&id={mark}", body=body)

    os.nice(5)  # on few cores, PHP goes first
    with Worker(pool.address, POOL if number != WORKERS - 1 else 1) as worker:
        client = Client(worker, number, requests, request)
        client.go_on()
        worker.run(LIMIT)
        sender.send((client.answered, client.wrong, client.moves, worker.counted))
        sender.close()


def run_all(pool, requests, ran):
    """What each worker, a process of its own, has to say about its `requests`."""
    started = []
    context = multiprocessing.get_context("fork")
    for number in range(WORKERS):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=run_worker, args=(pool, number, requests, ran, sender))
        process.start()
        sender.close()
        started.append((process, receiver))
    results = [receiver.recv() for _, receiver in started]  # EOFError if a worker failed
    for process, _ in started:
        process.join()
    return results


@pytest.mark.parametrize(
    "how, kind, total", [("park", "unix", 40_000), ("close", "unix", 40_000), ("close", "tcp", 20_000)]
)
def test_requests_run_once_each_and_are_answered_once_each(start, folder, how, kind, total):
    pool = start.cede(children=4, listen=[start.new_address(kind)], options=["--give-up", how])
    ran, requests = f"{folder}/ran", total // WORKERS
    results = run_all(pool, requests, ran)
    counted = sum((counted for *_, counted in results), start=type(results[0][3])())
    assert not [wrong for _, wrongs, *_ in results for wrong in wrongs]
    assert not counted["packets nobody asked for"]
    assert not counted["requests sent again, acknowledged"], "a connection ended in the middle of its request"
    sent = sorted(f"{number}-{at}" for number in range(WORKERS) for at in range(requests))
    assert sorted(mark for answered, *_ in results for mark in answered) == sent
    with open(ran) as file:
        assert sorted(file.read().split()) == sent
    # Else nothing was tested: connections did change hands, thousands of times.
    if how == "park":
        assert sum(moves for *_, moves, _ in results) > total // 10
        assert counted["idle connections lost"] == counted["closes announced"] == 0
    else:
        assert counted["closes announced"] > total // 10
        assert counted["closes that crossed a request"] > 0
    # A connection that is seen off waits for its peer, so no request meets a closed one.
    assert counted["requests sent again"] == 0

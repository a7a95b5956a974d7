# SPDX-License-Identifier: Apache-2.0
"""What is done to a pool that works, a new log file, a reload, the replacement of all children, makes nobody wait: a
queue is no longer than that of the same load by itself. (Where all workers are started anew for a rotated log, each
rotation is a queue.)"""
import os
import signal
import time

import pytest

from support import kinds
from support.control import Control
from support.queues import INTERVAL, Load, Sampler
from support.server import STAND_IN
from support.waiting import eventually

pytestmark = [kinds.both, pytest.mark.skipif(bool(STAND_IN), reason="plain PHP has no upkeep")]

CHILDREN = 8
CLIENTS = 12  # of which three, on average, have a request: the pool could serve twice as many and more
SECONDS = 3
# So many in the queue would be half of all clients: a pool without a child for some time.
MANY = 6
# On a machine that has much else to do the children themselves may be slow for a moment.
LONGEST_RUN = 0.1 / INTERVAL


def measured(pool, seconds, upkeep=None):
    """The load, and each half second of it the upkeep: (queue, load)."""
    with Sampler(pool.address) as queue, Load(pool, CLIENTS, ms=10, pause=0.04) as load:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.5)
            if upkeep:
                upkeep()
    assert not load.failed, load.failed[:5]
    assert len(load.waited) > CLIENTS * seconds
    return queue, load


def no_queue_more(calm, busy):
    (quiet, alone), (queue, load) = calm, busy
    print(f"depth: {quiet.mean:.3f} on average, {max(quiet.depths)} at the most; with the upkeep "
          f"{queue.mean:.3f} and {max(queue.depths)}; slowest: {max(alone.waited):.3f} s and {max(load.waited):.3f} s")
    assert queue.longest_run(MANY) <= LONGEST_RUN
    assert queue.mean <= quiet.mean + 0.5
    assert max(load.waited) <= max(alone.waited) + 0.5


def test_a_new_log_file_makes_no_queue(start, folder):
    path = f"{folder}/out.log"
    pool = start.cede(children=CHILDREN, options=["--log", path], wait=False)
    eventually(lambda: os.path.exists(path), "a log")
    pool.process.log_path = path
    pool.wait_until_ready()
    calm = measured(pool, SECONDS)
    rotated = []

    def rotate():
        rotated.append(f"{path}.{len(rotated)}")
        os.rename(path, rotated[-1])
        pool.process.send(signal.SIGUSR1)
        eventually(lambda: os.path.exists(path), "the new log")

    busy = measured(pool, SECONDS, rotate)
    assert len(rotated) >= 3
    no_queue_more(calm, busy)


def test_a_reload_makes_no_queue(start):
    pool = start.cede(children=CHILDREN)
    calm = measured(pool, SECONDS)
    before = pool.children
    busy = measured(pool, SECONDS, lambda: pool.process.send(signal.SIGHUP))
    pool.process.wait_for_log("reloaded as generation 2")
    assert not set(before) & set(pool.wait_for_children(CHILDREN, without=before))
    no_queue_more(calm, busy)


# By age no more than an eighth of the children go at a time, and that each second.
@pytest.mark.parametrize("rule, least", [(["--max-requests", "20"], 2 * CHILDREN), (["--max-age", "1s"], CHILDREN + 2)],
                         ids=["requests", "age"])
def test_children_that_are_all_due_at_once_make_no_queue(start, rule, least):
    calm = measured(start.cede(children=CHILDREN), SECONDS)
    pool = start.cede(children=CHILDREN, options=[*rule, "--recycle-jitter", "0%"])
    busy = measured(pool, 2 * SECONDS)
    started = Control(pool, start.binary).status["totals"]["children_started"]
    assert started >= least
    no_queue_more(calm, busy)

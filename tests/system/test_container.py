# SPDX-License-Identifier: Apache-2.0
"""cede as containers and hardened units run it: as process 1, without capabilities, on a read-only file system."""
import os
import signal

import pytest

from support import procfs
from support.command import needs_root
from support.namespaces import OWN_MOUNTS, OWN_PROCESSES, needs, only_child, start_behind, with_mounts, zombies
from support.server import STAND_IN, USER
from support.waiting import eventually

pytestmark = [
    pytest.mark.skipif(bool(STAND_IN), reason="plain php-cgi is not made for it"),
    needs_root,
]
# opcache makes a lock file.
WRITES_NOTHING = ["-d", "opcache.enable=0"]
WITHOUT_CAPABILITIES = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--bounding-set=-all",
                        "--no-new-privs"]


def start_as_process_1(start, **options):
    pool = start_behind(start, OWN_PROCESSES, **options)
    cede = only_child(pool.process)
    assert procfs.status(cede)["NSpid"].split()[-1] == "1"
    return pool, cede


@needs(*OWN_PROCESSES)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT], ids=lambda one: one.name)
def test_process_1_serves_and_ends_when_it_is_told(start, number):
    pool, cede = start_as_process_1(start)
    assert pool.get("hello.php").text == "hello\n"
    os.kill(cede, number)
    assert pool.process.wait() == 0
    assert "stopped" in pool.process.log


@needs(*OWN_PROCESSES)
def test_process_1_reaps_strangers(start):
    pool, cede = start_as_process_1(start, children=2)
    for _ in range(5):
        assert pool.get("daemon.php", "ms=1").text
    # They end one after the other, as children of process 1.
    children = set(procfs.children(cede))
    eventually(lambda: len(procfs.children(cede)) == 3 and not zombies(cede), "strangers have been reaped")
    assert len(children) >= 3
    assert pool.get("hello.php").text == "hello\n"
    assert len(procfs.children(cede)) == 3, "the zygote and two children"


@needs(*OWN_PROCESSES)
def test_process_1_replaces_a_child_that_was_killed(start):
    pool, cede = start_as_process_1(start)
    before = procfs.children(cede)
    os.kill(before[-1], signal.SIGKILL)
    eventually(lambda: len(procfs.children(cede)) == 2 and before[-1] not in procfs.children(cede), "another child")
    assert pool.get("hello.php").text == "hello\n"


@needs(*WITHOUT_CAPABILITIES)
def test_a_plain_user_without_any_capability_runs_a_pool(start):
    pool = start_behind(start, WITHOUT_CAPABILITIES, identity=[], children=2)
    for pid in (pool.pid, *pool.children):
        assert procfs.status(pid)["CapBnd"].strip("0") == ""
        assert procfs.status(pid)["NoNewPrivs"] == "1"
    assert pool.get("hello.php").text == "hello\n"
    first = pool.children[0]
    os.kill(first, signal.SIGKILL)
    pool.wait_for_children(2, without=[first])
    assert pool.process.stop(signal.SIGQUIT) == 0


@needs("setpriv", "--bounding-set=-kill")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT], ids=lambda one: one.name)
def test_root_that_may_not_signal_its_children_says_so_and_still_stops(start, number):
    pool = start_behind(start, ["setpriv", "--bounding-set=-kill"])
    assert "CAP_KILL" in pool.process.log
    assert pool.get("hello.php").text == "hello\n"
    assert pool.process.stop(number) == 0


def test_root_with_all_it_needs_says_nothing_of_capabilities(start):
    pool = start.cede(children=1)
    assert "CAP_" not in pool.process.log


@needs(*OWN_MOUNTS)
def test_a_read_only_file_system_is_enough(start, folder):
    prefix = with_mounts(f"mount -o remount,ro,bind /\n! touch {folder}/probe 2>/dev/null")
    pool = start_behind(start, prefix, children=2, php=WRITES_NOTHING)
    assert not os.path.exists(os.path.join(folder, "probe"))
    with pool.connect() as connection:
        for _ in range(20):
            assert pool.ask(connection, "hello.php").text == "hello\n"
    assert pool.process.stop(signal.SIGQUIT) == 0


@needs(*OWN_PROCESSES)
def test_process_1_without_capabilities_on_a_read_only_file_system(start):
    prefix = [*OWN_PROCESSES, "sh", "-ec", 'mount -o remount,ro,bind /; exec "$@"', "sh", *WITHOUT_CAPABILITIES]
    pool = start_behind(start, prefix, identity=[], children=2, php=WRITES_NOTHING)
    cede = only_child(pool.process)
    assert procfs.status(cede)["NSpid"].split()[-1] == "1"
    assert procfs.status(cede)["CapBnd"].strip("0") == ""
    assert pool.get("hello.php").text == "hello\n"
    os.kill(cede, signal.SIGTERM)
    assert pool.process.wait() == 0

# SPDX-License-Identifier: Apache-2.0
"""`cede upgrade`: another program goes on in the same process."""
import os
import shutil
import signal
import stat
import subprocess

import pytest

from support import kinds, procfs
from support.clients import clients_that_go_on, close_all, kept_connections
from support.control import Control
from support.server import STAND_IN
from support.waiting import Background, eventually

pytestmark = [kinds.both, pytest.mark.skipif(bool(STAND_IN), reason="plain php-cgi has no upgrade")]


class Installed:
    """A copy of cede in a folder of its own, which can be replaced while it runs."""

    def __init__(self, starter, folder):
        self.real = starter.binary
        self.place = os.path.join(folder, "installed")
        os.mkdir(self.place)
        os.chmod(self.place, 0o755)
        shutil.copy2(os.path.join(os.path.dirname(self.real), "libcede-agent.so"), self.place)
        self.path = os.path.join(self.place, "cede")
        shutil.copy2(self.real, self.path)

    def replace(self, text, mode=0o755):
        """By a file with this content, in one step, as a package manager does."""
        new = self.path + ".new"
        with open(new, "w") as file:
            file.write(text)
        os.chmod(new, mode)
        os.rename(new, self.path)

    def replace_by_real(self):
        shutil.copy2(self.real, self.path + ".new")
        os.rename(self.path + ".new", self.path)


@pytest.fixture
def installed_cede(start, folder):
    return Installed(start, folder)


@pytest.fixture
def start_installed(start, installed_cede, monkeypatch):
    def started(**options):
        monkeypatch.setattr(type(start), "binary", property(lambda _: installed_cede.path))
        pool = start.cede(**options)
        return pool, Control(pool, installed_cede.real)

    return started


def fails(outcome, *words):
    code, out, error = outcome
    assert code == 1, outcome
    assert all(word in out + error for word in ["goes on", *words]), outcome


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def pipes(pid):
    return sum(target.startswith("pipe:") for target in procfs.descriptors(pid).values())


# --- what it keeps ----------------------------------------------------------------------------------


def test_the_process_stays_and_so_do_connections_and_counts(start_installed, installed_cede):
    pool, control = start_installed(children=2)
    connections = kept_connections(pool, 8)
    eventually(lambda: control.status["connections"]["parked"] >= 6, "most are parked")
    eventually(lambda: control.status["totals"]["requests"] == 8, "all are counted")
    installed_cede.replace_by_real()
    code, out, error = control.command("upgrade")
    assert (code, error) == (0, ""), error
    assert "upgraded from version" in out and "reloaded as generation 2" in out
    status = control.status
    assert status["pid"] == pool.pid and pool.process.running
    assert status["totals"]["requests"] == 8 and status["totals"]["upgrades"] == 1
    assert status["connections"]["parked"] >= 6
    for connection in connections:
        assert pool.ask(connection, "hello.php").text == "hello\n"
    eventually(lambda: control.status["totals"]["requests"] == 16, "all are counted")
    close_all(connections)


def test_what_children_write_goes_on_under_their_names(start_installed, installed_cede, folder):
    gate = os.path.join(folder, "gate")
    open(gate, "w").close()
    pool, control = start_installed(children=1)
    pid, = pool.children
    old = Background(pool.get, "output.php", f"text=half%20of&wait={gate}")
    eventually(lambda: control.status["children"]["by_state"]["busy"] == 1, "it is busy")
    open_before = pipes(pool.pid)
    assert control.command("upgrade")[0] == 0
    os.unlink(gate)
    assert old.result().text == f"written\n{pid}"
    pool.process.wait_for_log(rf"child=0 gen=1 pid={pid} output: half of")
    pool.process.wait_for_log(rf"child=0 gen=1 pid={pid} output: .*after the wait$")
    new, = pool.wait_for_children(1, without=[pid])
    assert int(pool.get("output.php", "text=I%20am%20new%0A").text) == new
    pool.process.wait_for_log(rf"child=\d+ gen=2 pid={new} output: I am new$")
    eventually(lambda: pipes(pool.pid) == open_before, "no pipe is left over")


def test_a_running_request_is_not_noticed_by_anybody(start_installed):
    pool, control = start_installed(children=2)
    slow = Background(pool.get, "sleep.php", "ms=2000")
    eventually(lambda: control.status["children"]["by_state"]["busy"] == 1, "it is busy")
    assert control.command("upgrade")[0] == 0
    assert not slow.done
    assert pool.get("hello.php").text == "hello\n"
    assert slow.result().text == "slept 2000\n"
    pool.wait_for_children(2)


def test_no_request_fails_while_it_is_upgraded_again_and_again(start_installed):
    pool, control = start_installed(children=3)
    with clients_that_go_on(pool, 6) as answers:
        for _ in range(5):
            code, _, error = control.command("upgrade")
            assert code == 0, error
    served = sum(answers)
    # A child counts its request behind the answer.
    eventually(lambda: control.status["totals"]["requests"] == served, f"{served} requests are counted")
    assert control.status["totals"]["upgrades"] == 5 and control.status["generation"] == 6


def test_no_descriptor_is_left_over(start_installed):
    pool, control = start_installed(children=2)
    connections = kept_connections(pool, 4)
    assert control.command("upgrade")[0] == 0
    pool.wait_for_children(2)
    eventually(lambda: len(procfs.children(pool.pid)) == 3, "the former generation is gone")
    before = descriptors(pool.pid)
    for _ in range(3):
        assert control.command("upgrade")[0] == 0
    eventually(lambda: descriptors(pool.pid) <= before, "as many as before")
    close_all(connections)


def test_a_signal_that_comes_in_between_is_not_lost(start_installed):
    pool, control = start_installed(children=2)
    for _ in range(5):
        upgrade = Background(control.command, "upgrade")
        victim = pool.children[0]
        os.kill(victim, signal.SIGKILL)
        upgrade.result()
        eventually(lambda: not procfs.alive(victim), "it was reaped")
        pool.wait_for_children(2)
    upgrade = Background(control.command, "upgrade")
    pool.process.wait_for_log("takes over")
    assert pool.process.stop(signal.SIGQUIT) == 0
    upgrade.result()


def test_a_socket_file_is_kept_and_removed_at_the_end(start_installed, start):
    address = start.new_address("unix")
    pool, control = start_installed(children=1, listen=[address])
    inode = os.stat(address).st_ino
    assert control.command("upgrade")[0] == 0
    assert os.stat(address).st_ino == inode and stat.S_ISSOCK(os.stat(address).st_mode)
    assert pool.get("hello.php").text == "hello\n"
    assert control.command("stop")[0] == 0
    assert pool.process.wait() == 0
    assert not os.path.exists(address) and not os.path.exists(control.path)


def test_two_upgrades_at_once_one_is_refused(start_installed):
    pool, control = start_installed(children=1)
    both = [Background(control.command, "upgrade") for _ in range(2)]
    codes = sorted(one.result()[0] for one in both)
    assert codes in ([0, 0], [0, 1])  # one behind the other is fine
    assert pool.get("hello.php").text == "hello\n"


# --- what goes wrong --------------------------------------------------------------------------------


@pytest.mark.parametrize("text, mode, word", [
    ("#!/bin/sh\necho 'this one is broken' >&2\nexit 3\n", 0o755, "this one is broken"),
    ("#!/bin/sh\nkill -9 $$\n", 0o755, "signal 9"),
    ("no program at all\n", 0o755, "Exec format error"),
    ("#!/bin/sh\nexit 0\n", 0o644, "Permission denied"),
], ids=["says no", "dies", "no program", "not executable"])
def test_a_program_that_can_not_take_over_is_not_executed(start_installed, installed_cede, text, mode, word):
    pool, control = start_installed(children=2)
    before = set(pool.wait_for_children(2))
    installed_cede.replace(text, mode)
    fails(control.command("upgrade"), word)
    assert set(pool.children) == before
    assert pool.get("hello.php").text == "hello\n"
    installed_cede.replace_by_real()
    assert control.command("upgrade")[0] == 0


def test_a_program_that_is_gone_is_told(start_installed, installed_cede):
    pool, control = start_installed(children=1)
    os.remove(installed_cede.path)
    fails(control.command("upgrade"), "No such file")
    assert pool.get("hello.php").text == "hello\n"


def test_what_turns_out_only_then_leads_back_to_the_program_of_before(start_installed, installed_cede, folder):
    """The new program finds no epoll; it says so, and the old one goes on with everything."""
    source, library = os.path.join(folder, "broken.c"), os.path.join(folder, "broken.so")
    with open(source, "w") as file:
        file.write('#include <errno.h>\n#include <stdlib.h>\n'
                   '__attribute__((constructor)) static void once(void) { unsetenv("LD_PRELOAD"); }\n'
                   'int epoll_create1(int flags) { (void)flags; errno = ENOMEM; return -1; }\n')
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    pool, control = start_installed(children=2)
    connections = kept_connections(pool, 6)
    before = set(pool.wait_for_children(2))
    real = installed_cede.path + ".real"
    shutil.copy2(installed_cede.real, real)
    installed_cede.replace(f"#!/bin/sh\n[ -z \"$CEDE_HANDOVER\" ] || export LD_PRELOAD={library}\nexec {real} \"$@\"\n")
    fails(control.command("upgrade"), "epoll_create1")
    assert pool.process.running and control.status["pid"] == pool.pid
    assert set(pool.children) == before
    for connection in connections:
        assert pool.ask(connection, "hello.php").text == "hello\n"
    eventually(lambda: control.status["totals"]["requests"] == 12, "all are counted")
    assert control.status["totals"]["upgrades"] == 0
    close_all(connections)


def test_what_needs_a_restart_is_named_behind_an_upgrade_as_well(start_installed, folder):
    settings = os.path.join(folder, "cede.conf")
    open(settings, "w").close()
    pool, control = start_installed(children=1, options=["--config", settings])
    with open(settings, "w") as file:
        file.write("listen-mode = 0600\n")
    assert control.command("upgrade")[0] == 0
    assert "--listen-mode" in pool.process.log


def test_a_configuration_that_is_bad_by_now_stops_the_upgrade(start_installed, folder):
    settings = os.path.join(folder, "cede.conf")
    open(settings, "w").close()
    pool, control = start_installed(children=1, options=["--config", settings])
    with open(settings, "w") as file:
        file.write("no-such-option = 1\n")
    fails(control.command("upgrade"), "no-such-option", "cede.conf:1")
    assert pool.get("hello.php").text == "hello\n"


def test_a_stranger_file_in_the_environment_is_refused(start, command):
    with open("/dev/null") as null:
        os.set_inheritable(null.fileno(), True)
        code, _, error = command("--listen", "127.0.0.1:1", "--", start.child, pass_fds=[null.fileno()],
                                 environment={"CEDE_HANDOVER": str(null.fileno()), "PATH": "/usr/bin:/bin"})
    assert code == 1 and "unset CEDE_HANDOVER" in error

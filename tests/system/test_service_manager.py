# SPDX-License-Identifier: Apache-2.0
"""What a service manager hears: sd_notify(3), the watchdog, --ready-fd."""
import os
import signal
import socket

import pytest

from support.control import Control
from support.process import clean_environment
from support.server import STAND_IN
from support.waiting import eventually

pytestmark = pytest.mark.skipif(bool(STAND_IN), reason="plain php-cgi says nothing")


class Manager:
    def __init__(self, folder):
        self.path = os.path.join(folder, "notify")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._socket.setblocking(False)
        self.heard = []

    def environment(self, **more):
        return clean_environment(NOTIFY_SOCKET=self.path, **more)

    def _listen(self):
        try:
            while True:
                self.heard.append(dict(line.split("=", 1) for line in self._socket.recv(4096).decode().splitlines()))
        except BlockingIOError:
            return self.heard

    def wait_for(self, name, times=1):
        return eventually(lambda: (lambda found: found if len(found) >= times else None)(
            [message for message in self._listen() if name in message]), f"{name}, {times} times")

    @property
    def states(self):
        return [name for message in self._listen() for name in ("READY", "RELOADING", "STOPPING") if name in message]


@pytest.fixture
def manager(folder):
    return Manager(folder)


def test_ready_is_said_once_the_children_serve_and_stopping_at_the_end(start, manager):
    pool = start.cede(children=2, environment=manager.environment())
    assert "generation 1: 0 children busy" in manager.wait_for("READY")[0]["STATUS"]
    pool.process.stop(signal.SIGQUIT)
    manager.wait_for("STOPPING")
    assert manager.states == ["READY", "STOPPING"]


def test_a_reload_is_told_with_its_time_and_its_outcome(start, manager, folder):
    settings = os.path.join(folder, "cede.conf")
    open(settings, "w").close()
    pool = start.cede(children=2, environment=manager.environment(), options=["--config", settings])
    control = Control(pool, start.binary)
    assert control.command("reload")[0] == 0
    assert int(manager.wait_for("RELOADING")[0]["MONOTONIC_USEC"]) > 0
    manager.wait_for("READY", 2)
    with open(settings, "w") as file:
        file.write("no-such-option = 1\n")
    assert control.command("reload")[0] == 1
    assert "no-such-option" in manager.wait_for("READY", 3)[-1]["STATUS"]
    assert control.command("reload")[0] == 1
    assert manager.states == ["READY"] + ["RELOADING", "READY"] * 3


def test_an_upgrade_is_a_reload_to_the_service_manager(start, manager):
    pool = start.cede(children=1, environment=manager.environment())
    assert Control(pool, start.binary).command("upgrade")[0] == 0
    manager.wait_for("READY", 2)
    assert manager.states == ["READY", "RELOADING", "READY"]


def test_the_watchdog_is_fed(start, manager):
    start.cede(children=1, environment=manager.environment(WATCHDOG_USEC="400000"))
    manager.wait_for("WATCHDOG", 4)


def test_scripts_hear_nothing_of_the_service_manager(start, manager):
    pool = start.cede(children=1, environment=manager.environment(WATCHDOG_USEC="400000"))
    told = pool.get("env.php").text
    assert "NOTIFY_SOCKET" not in told and "WATCHDOG" not in told


def test_a_descriptor_gets_a_line_feed_when_children_serve(start):
    reader, writer = os.pipe()
    try:
        start.cede(children=1, options=["--ready-fd", writer], pass_fds=[writer])
    finally:
        os.close(writer)
    with os.fdopen(reader, "rb") as file:
        assert file.read() == b"\n"  # and its end: nobody else has it


def test_a_descriptor_that_is_not_open_is_refused(start, command):
    code, _, error = command("--listen", "127.0.0.1:1", "--ready-fd", "77", "--", start.child)
    assert code == 1 and "--ready-fd: descriptor 77 is not open" in error

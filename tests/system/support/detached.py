# SPDX-License-Identifier: Apache-2.0
"""Executing a program the way OpenLiteSpeed executes an LSAPI application (lscgid), detached or not: the listener as
descriptor 0, a socket that nobody reads as descriptor 1, the log as descriptor 2, and a short environment."""
import os
import socket

from . import procfs
from .server import GROUP, USER, Cede, listening
from .waiting import eventually

PADDING = "x" * 48
STOCK = {"PHP_LSAPI_CHILDREN": "10", "LSAPI_AVOID_FORK": "200M"}
DETACHED = {"LSAPI_PPID_NO_CHECK": "1", "LSAPI_PGRP_MAX_IDLE": "60", "LSAPI_KEEP_LISTEN": "2"}

# Seconds. OpenLiteSpeed kills 1 - 2 s after SIGTERM.
AT_ONCE = 1.0


def cede_as_path(starter, *options):
    return [starter.binary, "--log-level", "info", *options, "--", starter.child]


def nothing_left(pids, timeout):
    eventually(lambda: not [pid for pid in pids if procfs.alive(pid)], "no process is left", timeout)


def environment(configured=None, detached=True):
    """In the order in which it stands in memory; `configured`: the env lines of the extProcessor."""
    lines = STOCK if configured is None else configured
    return {"LSAPI_PADDING": PADDING, **lines, "PATH": "/bin:/usr/bin", **(DETACHED if detached else {})}


class Application(Cede):
    """What was executed. The listener stays open in the web server, as it does there."""

    def __init__(self, process, address, scripts, connection_type, listener, unread):
        super().__init__(process, [address], scripts, connection_type)
        self.listener = listener
        self.unread = unread

    @property
    def said_on_descriptor_1(self):
        """Whatever was written there; None if the web server closed it at once, as it always does."""
        if self.unread is None:
            return None
        self.unread.setblocking(False)
        try:
            return self.unread.recv(65536)
        except BlockingIOError:
            return b""

    @property
    def processes(self):
        return [self.pid, *procfs.descendants(self.pid)]


class WebServer:
    """One extProcessor: an address, with the listener that all its applications inherit, one after the other."""

    def __init__(self, starter, kind="unix"):
        self._starter = starter
        self.address = starter.new_address(kind)
        self.listener = listening(self.address, backlog=100)
        if kind == "unix":
            os.chmod(self.address, 0o666)

    def execute(self, arguments, given=None, stdin=None, keep_descriptor_1=False, **process):
        """`arguments`: as `path` of the extProcessor; `given`: the environment; `stdin`: in place of the listener."""
        ours, theirs = socket.socketpair()
        identity = {"user": USER, "group": GROUP, "extra_groups": []} if os.geteuid() == 0 else {}
        started = self._starter.processes.start(
            "application",
            arguments,
            environment=environment() if given is None else given,
            stdin=stdin or self.listener,
            stdout=theirs,
            cwd=os.path.dirname(str(arguments[0])),
            restore_signals=False,  # SIGPIPE arrives ignored, as Python has it
            **{**identity, **process},
        )
        theirs.close()
        if not keep_descriptor_1:
            ours.close()
            ours = None
        starter = self._starter
        return Application(started, self.address, starter.scripts, starter.connection_type, self.listener, ours)

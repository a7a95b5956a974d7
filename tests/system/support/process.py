# SPDX-License-Identifier: Apache-2.0
"""Starting, watching and stopping programs; nothing that a test started outlives it."""
import ctypes
import os
import re
import resource
import signal
import subprocess
import time

from . import procfs
from .waiting import eventually

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans():
    """Processes whose parent dies become children of this one, so that the clean-up finds them (prctl(2))."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def clean_environment(**extra):
    """What a service manager would give: nothing of the shell that runs the tests."""
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
    environment.update((name, os.environ[name]) for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS") if name in os.environ)
    environment.update(extra)
    return environment


class Process:
    """A program in a session of its own; standard error, and output unless it is given, go to `log`."""

    def __init__(self, arguments, log, environment=None, stdin=subprocess.DEVNULL, stdout=None, nofile=None, **popen):
        self.arguments = [str(argument) for argument in arguments]
        self.log_path = log
        limit = (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, nofile)) if nofile else None
        with open(log, "ab") as output:
            self._popen = subprocess.Popen(
                self.arguments,
                stdin=stdin,
                stdout=output if stdout is None else stdout,
                stderr=output,
                env=clean_environment() if environment is None else environment,
                start_new_session=True,
                preexec_fn=limit,
                **popen,
            )
        self.pid = self._popen.pid

    @property
    def log(self):
        with open(self.log_path, errors="replace") as file:
            return file.read()

    @property
    def running(self):
        return self._popen.poll() is None

    def wait_for_log(self, pattern, timeout=15.0):
        """Waits for a line that matches; fails at once if the program ends before."""

        def found():
            running = self.running
            match = re.search(pattern, self.log, re.MULTILINE)
            if not match and not running:
                raise AssertionError(f"{self.arguments[0]} ended with {self._popen.returncode}:\n{self.log}")
            return match

        return eventually(found, f"a line like {pattern!r} in {self.log_path}", timeout)

    def send(self, number):
        self._popen.send_signal(number)

    def wait(self, timeout=10.0):
        """The exit status, or the negative signal number."""
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.arguments[0]} still runs after {timeout} s:\n{self.log}") from None

    def stop(self, number=signal.SIGTERM, timeout=10.0):
        if self.running:
            self.send(number)
        return self.wait(timeout)


class Processes:
    """All programs of a test; or, `shared`, of several tests, none of which ends them."""

    _spared = []  # what is shared, while it is

    def __init__(self, folder, shared=False):
        self._folder = folder
        self._started = []
        self._shared = shared

    def start(self, name, arguments, **options):
        log = os.path.join(self._folder, f"{name}-{len(self._started)}.log")
        process = Process(arguments, log, **options)
        self._started.append(process)
        if self._shared:
            Processes._spared.append(process)
        return process

    def clean_up(self):
        """Ends everything: politely first (a sanitizer reports at exit), then by force."""
        Processes._spared = [process for process in Processes._spared if process not in self._started]
        for process in reversed(self._started):
            if process.running:
                process.send(signal.SIGTERM)
        deadline = time.monotonic() + 3
        while any(process.running for process in self._started) and time.monotonic() < deadline:
            time.sleep(0.005)
        eventually(self._kill_what_is_left, "everything that the test started is gone")

    def _kill_what_is_left(self):
        spared = {pid for one in Processes._spared for pid in [one.pid, *procfs.descendants(one.pid)]}
        left = [pid for pid in procfs.descendants(os.getpid()) if pid not in spared]
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for process in self._started:
            process.running  # reaps it
        self._reap_orphans()
        return not left

    def _reap_orphans(self):
        ours = {process.pid for process in self._started + Processes._spared}
        for pid in procfs.descendants(os.getpid(), zombies=True):
            if pid not in ours:
                try:
                    os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    pass

    def sanitizer_reports(self):
        pattern = re.compile(r"^.*(?:ERROR: \w+Sanitizer|runtime error:).*$", re.MULTILINE)
        return [line for process in self._started for line in pattern.findall(process.log)]

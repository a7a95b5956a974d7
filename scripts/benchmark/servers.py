# SPDX-License-Identifier: Apache-2.0
"""Starts and stops the servers that are compared."""
import os
import resource
import signal
import subprocess

from .endpoints import BACKLOG, Endpoints, is_listening
from .processes import BenchError, children, wait_for


def _raise_descriptor_limit():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Settings:
    """What all servers of a run share; those of each protocol add their programs and PHP settings."""

    opcache_hint = "enable opcache"

    def __init__(self, options, folder):
        self.cede = options.cede
        self.user = options.user
        self.folder = folder
        self.endpoints = Endpoints(options.socket, folder, options.port)
        self.ini = os.path.join(folder, "php.ini")
        self.environment = {"PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")}

    def switch_user(self):
        """In front of a command: as the user of the children, and not without us."""
        return ["setpriv", "--reuid", self.user, "--regid", self.user, "--clear-groups", "--pdeathsig", "TERM"]

    def describe(self):
        """Lines for the report: versions, settings."""
        raise NotImplementedError


class Server:
    """A running server. Use as a context manager; `children` is the size of its pool."""

    name = "server"
    logs_ready = False  # its log says how long a child took to be ready

    def __init__(self, settings, children=10, log_everything=False, options=()):
        self.settings = settings
        self.options = [str(word) for word in options]  # further ones of cede
        self.log_everything = log_everything
        self.pool_size = children
        self.endpoint = settings.endpoints.next()
        self.address = self.endpoint.address
        self.log = os.path.join(settings.folder, f"{self.name}-{self.endpoint.name}.log")
        self.process = None

    @property
    def pid(self):
        return self.process.pid

    def command(self):
        raise NotImplementedError

    def environment(self):
        return self.settings.environment

    def start(self, log):
        return self._spawn(log, subprocess.DEVNULL)

    def __enter__(self):
        with open(self.log, "ab") as log:
            self.process = self.start(log)
        try:
            wait_for(self._is_ready, 15, f"{self.name}: the start of {self.pool_size} children")
        except BenchError as error:
            self.stop()
            with open(self.log, errors="replace") as log:
                raise BenchError(f"{error}; its log {self.log} ends:\n{log.read()[-2000:]}") from None
        return self

    def __exit__(self, *_):
        self.stop()

    def workers(self):
        """The processes that serve requests, the oldest first."""
        return children(self.pid)

    def read_log(self):
        with open(self.log, errors="replace") as log:
            return log.read()

    def stop(self):
        if self.process is None:
            return
        workers = self.workers() if self.process.poll() is None else []
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for worker in workers:  # those that a master leaves behind, pinned by a connection
            try:
                os.kill(worker, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process = None

    def _spawn(self, log, stdin):
        # A session of its own, as from any service manager: the kernel's scheduler counts by session.
        return subprocess.Popen(self.command(), stdin=stdin, stdout=log, stderr=log, env=self.environment(),
                                cwd=self.settings.folder, preexec_fn=_raise_descriptor_limit,
                                start_new_session=True)

    def _is_ready(self):
        if self.process.poll() is not None:
            raise BenchError(f"{self.name} ended at once with status {self.process.returncode}")
        return len(self.workers()) >= self.pool_size and is_listening(self.endpoint)


class Cede(Server):
    """cede with the children that `php_command()` names."""

    name = "cede"
    logs_ready = True

    def php_command(self):
        raise NotImplementedError

    def command(self):
        log_level = ["--log-level", "info"] if self.log_everything else []
        backlog = [] if "--backlog" in self.options else ["--backlog", str(BACKLOG)]
        return [self.settings.cede, "--listen", self.address, "--children", str(self.pool_size), *backlog,
                "--user", self.settings.user, "--group", self.settings.user, *self.options, *log_level,
                "--", *self.php_command()]

    def workers(self):
        return children(self.pid)[1:]  # the zygote is the oldest

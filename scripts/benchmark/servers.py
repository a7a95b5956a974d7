# SPDX-License-Identifier: Apache-2.0
"""Starts and stops the servers that are compared, each with the same PHP settings."""
import os
import resource
import shutil
import signal
import socket
import subprocess

from .processes import BenchError, children, wait_for

BACKLOG = 4096


def _raise_descriptor_limit():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Settings:
    """Programs, folder, ports and PHP settings that all servers share."""

    def __init__(self, options, folder):
        self.cede = options.cede
        self.php_cgi = options.php_cgi
        self.php_fpm = options.php_fpm
        self.user = options.user
        self.folder = folder
        self._ports = (options.port, options.port + 100)
        self._next_port = options.port
        self.ini = os.path.join(folder, "php.ini")
        shutil.copyfile(os.path.join(options.php_ini, "php.ini"), self.ini)
        # php-cgi and php-fpm are built with scan folders of their own; one for both makes them equal.
        # php-cgi ends after 500 requests unless told otherwise, php-fpm does not.
        self.environment = {
            "PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
            "PHP_INI_SCAN_DIR": os.path.join(options.php_ini, "conf.d"),
            "PHP_FCGI_MAX_REQUESTS": "0",
        }

    def free_port(self):
        """A port that nobody listens on, another one at every call: no TIME_WAIT of an earlier case is in the way."""
        first, end = self._ports
        for _ in range(end - first):
            port = self._next_port
            self._next_port = first + (port + 1 - first) % (end - first)
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) != 0:
                    return port
        raise BenchError(f"no free port from {first} to {end - 1}; give another range with --port")


class Server:
    """A running server. Use as a context manager; `children` is the size of its pool."""

    name = "server"

    def __init__(self, settings, children=10, log_everything=False):
        self.settings = settings
        self.log_everything = log_everything
        self.pool_size = children
        self.port = settings.free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.log = os.path.join(settings.folder, f"{self.name}-{self.port}.log")
        self.process = None

    @property
    def pid(self):
        return self.process.pid

    def command(self):
        raise NotImplementedError

    def environment(self):
        return self.settings.environment

    def __enter__(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env=self.environment(), cwd=self.settings.folder,
                                            preexec_fn=_raise_descriptor_limit)
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

    def _is_ready(self):
        if self.process.poll() is not None:
            raise BenchError(f"{self.name} ended at once with status {self.process.returncode}")
        with socket.socket() as probe:
            return len(self.workers()) >= self.pool_size and probe.connect_ex(("127.0.0.1", self.port)) == 0


class Cede(Server):
    name = "cede"

    def command(self):
        log_level = ["--log-level", "info"] if self.log_everything else []
        return [self.settings.cede, "--listen", self.address, "--children", str(self.pool_size),
                "--backlog", str(BACKLOG), "--user", self.settings.user, "--group", self.settings.user,
                *log_level, "--", self.settings.php_cgi, "-c", self.settings.ini]

    def workers(self):
        return children(self.pid)[1:]  # the zygote is the oldest


class PhpFpm(Server):
    name = "php-fpm"

    def command(self):
        config = os.path.join(self.settings.folder, f"php-fpm-{self.port}.conf")
        with open(config, "w") as out:
            out.write(f"[global]\nerror_log = {self.log}\n[bench]\nlisten = {self.address}\n"
                      f"listen.backlog = {BACKLOG}\nuser = {self.settings.user}\ngroup = {self.settings.user}\n"
                      f"pm = static\npm.max_children = {self.pool_size}\n")
        return [self.settings.php_fpm, "-F", "-y", config, "-c", self.settings.ini]


class PhpCgi(Server):
    """Bare php-cgi. With one child there is no parent: the process itself serves."""

    name = "php-cgi"

    def command(self):
        switch_user = ["setpriv", "--reuid", self.settings.user, "--regid", self.settings.user, "--clear-groups"]
        return switch_user + [self.settings.php_cgi, "-b", self.address, "-c", self.settings.ini]

    def environment(self):
        environment = dict(super().environment(), PHP_FCGI_BACKLOG=str(BACKLOG))
        if self.pool_size > 1:
            environment["PHP_FCGI_CHILDREN"] = str(self.pool_size)
        return environment

    def workers(self):
        return children(self.pid) if self.pool_size > 1 else [self.pid]


SERVERS = {each.name: each for each in (Cede, PhpFpm, PhpCgi)}

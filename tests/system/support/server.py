# SPDX-License-Identifier: Apache-2.0
"""The servers under test: cede, and php-cgi or lsphp by themselves to compare with."""
import itertools
import os
import re
import shutil
import socket
import stat

import pytest

from . import procfs
from .connection import Connection, LsapiConnection
from .ports import free_port
from .process import clean_environment
from .waiting import eventually

PHP_CGI = "/usr/bin/php-cgi8.2"
PHP_CLI = "/usr/bin/php8.2"
REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
BUILD = os.environ.get("CEDE_BUILD", os.path.join(REPOSITORY, "build"))
# CEDE_TEST_SERVER=plain puts plain php-cgi and lsphp in cede's place, to see which tests catch the faults that cede
# ends.
STAND_IN = os.environ.get("CEDE_TEST_SERVER", "")
# The user that children run as; root is refused.
USER = GROUP = "www-data"
IDENTITY = ["--user", USER, "--group", GROUP] if os.geteuid() == 0 else []


def reachable_by_all(path):
    """Whether every user may enter all folders above `path`, and execute it."""
    while True:
        if not os.stat(path).st_mode & stat.S_IXOTH:
            return False
        if path == "/":
            return True
        path = os.path.dirname(path)


def cede_binary(folder):
    """The built program; a copy in `folder` if other users can't reach the build directory (a checkout in /root)."""
    if reachable_by_all(os.path.abspath(BUILD)):
        return os.path.join(BUILD, "cede")
    copy = os.path.join(folder, "cede")
    if not os.path.exists(copy):
        for name in ("libcede-agent.so", "cede"):
            shutil.copy2(os.path.join(BUILD, name), os.path.join(folder, name))
    return copy


def as_argument(address):
    """An address the way --listen takes it."""
    if isinstance(address, str):
        return address
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Pool:
    """A server that answers FastCGI, or LSAPI, on `addresses`; `scripts` is the folder with the PHP files."""

    def __init__(self, process, addresses, scripts, connection_type=Connection):
        self.process = process
        self.addresses = addresses
        self.address = addresses[0] if addresses else None
        self.scripts = scripts
        self.connection_type = connection_type

    def script(self, name):
        return os.path.join(self.scripts, name)

    def request(self, name, query="", **options):
        """A whole request in bytes."""
        return self.connection_type.protocol.request(self.script(name), query, **options)

    def connect(self, address=None, timeout=10.0):
        return self.connection_type(address or self.address, timeout)

    def get(self, name, query="", address=None, **options):
        """One request on a connection of its own."""
        with self.connect(address) as connection:
            return connection.request(self.script(name), query, **options)

    def ask(self, connection, name, query="", keep=True, **options):
        """One request on `connection`, which stays open unless keep=False."""
        return connection.request(self.script(name), query, keep=keep, **options)


class Cede(Pool):
    """A running cede. Children are known from its log, as an administrator knows them."""

    READY = r"^(?=.*\bready\b).*\bchildren=\d+"
    CHILD_READY = re.compile(r"^.*\bchild=(\d+) gen=(\d+) pid=(\d+)\b.*\bready\b.*$", re.MULTILINE)

    def wait_until_ready(self, timeout=15.0):
        self.process.wait_for_log(self.READY, timeout)
        return self

    @property
    def pid(self):
        return self.process.pid

    @property
    def newest(self):
        """{child number: pid of the last child with that number}"""
        return {int(number): int(pid) for number, _, pid in self.CHILD_READY.findall(self.process.log)}

    @property
    def children(self):
        """Pids of the living children."""
        return [pid for pid in self.newest.values() if procfs.alive(pid)]

    @property
    def zygote(self):
        """Pid of the process that children are forked from: the direct child that was never announced as a child."""
        announced = set(re.findall(r"\bchild=\d+ gen=\d+ pid=(\d+)", self.process.log))
        rest = [pid for pid in procfs.children(self.pid) if str(pid) not in announced]
        return rest[0] if len(rest) == 1 else None

    def wait_for_children(self, count, without=()):
        """Waits until `count` children live, none of them among `without`."""

        def complete():
            now = self.children
            return now if len(now) == count and not set(now) & set(without) else None

        return eventually(complete, f"{count} children, without {list(without)}", 15)

    def holder(self, connection):
        """Pid of the child that has this TCP connection, or None."""
        found = procfs.holders(connection, self.children)
        return found[0] if found else None

    def parked(self, connection):
        """Whether the supervisor, and no child, holds this TCP connection."""
        return procfs.holders(connection, [self.pid, *self.children]) == [self.pid]


class PlainPhp(Pool):
    """php-cgi or lsphp by itself, as the oracle for what comes out."""

    @property
    def pid(self):
        return self.process.pid

    @property
    def children(self):
        return procfs.children(self.pid) or [self.pid]

    def holder(self, connection):
        found = procfs.holders(connection, self.children)
        return found[0] if found else None


def listening(address, backlog=511):
    """A socket that listens there, as a web server makes it before it starts a program with it."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    one = socket.socket(family)
    if family != socket.AF_UNIX:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(address)
    one.listen(backlog)
    return one


class Starter:
    """Starts servers for one test, with php-cgi as the child."""

    child = PHP_CGI
    connection_type = Connection

    def __init__(self, processes, folder, scripts, binaries):
        self.processes = processes
        self.folder = folder
        self.scripts = scripts
        self.binaries = binaries

    @property
    def binary(self):
        return cede_binary(self.binaries)

    def new_address(self, kind="tcp"):
        if kind == "unix":
            return os.path.join(self.folder, f"s{free_port()}.sock")
        return ("::1" if kind == "tcp6" else "127.0.0.1", free_port())

    def php_arguments(self, settings):
        """The arguments that make PHP start with these settings ({name: value})."""
        return [word for name, value in settings.items() for word in ("-d", f"{name}={value}")]

    def cede(self, children=2, listen=None, options=(), php=(), settings=None, wait=True, identity=None,
             level="info", **process):
        """`listen`: addresses (default: one on TCP); `options`: further options of cede; `php`: arguments of
        the child; `settings`: of PHP; `identity`: --user and so on, instead of www-data."""
        addresses = [self.new_address()] if listen is None else listen
        php = [*self.php_arguments(settings or {}), *php]
        if STAND_IN:
            if options or identity or len(addresses) > 1 or not isinstance(addresses[0], tuple):
                pytest.skip("plain PHP has nothing like it")
            return self.plain(children, php, addresses[0])
        command = [self.binary, "run"]
        for address in addresses:
            command += ["--listen", as_argument(address)]
        command += ["--children", children, "--log-level", level, *options]
        command += IDENTITY if identity is None else identity
        command += ["--", self.child, *php]
        started = self.processes.start("cede", command, **process)
        pool = Cede(started, addresses, self.scripts, self.connection_type)
        return pool.wait_until_ready() if wait else pool

    def plain(self, children=1, php=(), address=None):
        """php-cgi on a port of its own; more than one child by its own means."""
        address = address or self.new_address()
        environment = clean_environment(PHP_FCGI_MAX_REQUESTS="0")
        if children > 1:
            environment["PHP_FCGI_CHILDREN"] = str(children)
        process = self._start_plain([PHP_CGI, "-b", as_argument(address), *php], environment)
        pool = PlainPhp(process, [address], self.scripts)
        eventually(lambda: self._answers(pool), "php-cgi answers", 15)
        return pool

    def _start_plain(self, command, environment, **options):
        identity = {"user": USER, "group": GROUP, "extra_groups": []} if os.geteuid() == 0 else {}
        name = os.path.basename(command[0])
        return self.processes.start(name, command, environment=environment, **identity, **options)

    @staticmethod
    def _answers(pool):
        try:
            return pool.get("hello.php").text == "hello\n"
        except OSError:
            return False


class LsphpStarter(Starter):
    """The same with lsphp, which takes its settings from a php.ini only."""

    connection_type = LsapiConnection
    # What a script's title is written over, as OpenLiteSpeed gives it.
    PADDING = {"LSAPI_PADDING": "x" * 62}

    def __init__(self, processes, folder, scripts, binaries, lsphp):
        super().__init__(processes, folder, scripts, binaries)
        self.child = lsphp.binary
        self._ini = lsphp.ini
        self._number = itertools.count()

    def php_arguments(self, settings):
        path = os.path.join(self.folder, f"php-{next(self._number)}.ini")
        with open(path, "w") as file:
            file.write("".join(f"{name}={value}\n" for name, value in {**self._ini, **settings}.items()))
        os.chmod(path, 0o644)
        return ["-c", path]

    def plain(self, children=1, php=(), address=None, environment=None):
        """lsphp as a web server starts it: the listener is its standard input."""
        address = address or self.new_address()
        more = {"PHP_LSAPI_CHILDREN": str(children), "LSAPI_AVOID_FORK": "1"} if children > 1 else {}
        given = {**self.PADDING, **clean_environment(**more, **(environment or {}))}
        with listening(address) as listener:
            process = self._start_plain([self.child, *(php or self.php_arguments({}))], given, stdin=listener)
        return PlainPhp(process, [address], self.scripts, self.connection_type)

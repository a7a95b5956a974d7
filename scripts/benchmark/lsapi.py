# SPDX-License-Identifier: Apache-2.0
"""cede with lsphp children, against the parent that lsphp has built in."""
import os
import shutil

from .cases import cases
from .endpoints import listener
from .figures import Goal, all_equal, all_of, fastest, median, ratio
from .processes import BenchError, children, is_alive, version
from .servers import Cede, Server, Settings
from .suite import Suite

# lsphp writes its process title over what lies behind its arguments in memory.
PADDING = {"LSAPI_PADDING": "x" * 80}


class LsapiSettings(Settings):
    opcache_hint = "give the opcache.so that belongs to this lsphp with --opcache"

    def __init__(self, options, folder):
        super().__init__(options, folder)
        # Copies, because the user of the children may not be allowed to enter where they lie.
        self.lsphp = self._copy(options.lsphp, "lsphp", "--lsphp")
        opcache = self._copy(options.opcache or options.lsphp + ".d/opcache.so", "opcache.so", "--opcache")
        with open(self.ini, "w") as out:
            out.write(f"zend_extension={opcache}\nopcache.enable=1\n")
        self.socket = options.socket

    def _copy(self, source, name, option):
        target = os.path.join(self.folder, name)
        try:
            shutil.copy(source, target)
        except OSError as error:
            raise BenchError(f"{option} {source}: {error.strerror}; scripts/build-lsphp makes one") from None
        os.chmod(target, 0o755)
        return target

    def describe(self):
        return [version([self.lsphp, "-v"]), version([self.cede, "--version"]),
                "php.ini of all three: opcache.so of this lsphp, opcache.enable=1; children run as " + self.user,
                f"listener of all three: a {'Unix socket' if self.socket == 'unix' else 'TCP socket on loopback'}, "
                "backlog 4096; for lsphp it is made by scripts/bench and handed over as descriptor 0",
                "lsphp: PHP_LSAPI_CHILDREN=10, LSAPI_PPID_NO_CHECK=1, all else at its default (so up to 13 children: "
                "LSAPI_EXTRA_CHILDREN is a third); lsphp-avoid-fork: LSAPI_AVOID_FORK=200M besides, as in the stock "
                "configuration of OpenLiteSpeed (so no extra children); system calls: one process without a parent"]


class CedeLsapi(Cede):
    name = "cede-lsapi"

    def php_command(self):
        return [self.settings.lsphp, "-c", self.settings.ini]


class Lsphp(Server):
    """Stock lsphp, started as OpenLiteSpeed does. With one child there is no parent: the process itself serves.
    Otherwise children are made when connections come."""

    name = "lsphp"
    more_environment = {}

    def command(self):
        return self.settings.switch_user() + [self.settings.lsphp, "-c", self.settings.ini]

    def environment(self):
        environment = PADDING | super().environment() | {"LSAPI_PPID_NO_CHECK": "1"}
        if self.pool_size > 1:
            environment |= {"PHP_LSAPI_CHILDREN": str(self.pool_size)} | self.more_environment
        return environment

    def start(self, log):
        with listener(self.endpoint) as stdin:
            return self._spawn(log, stdin)

    def workers(self):
        return children(self.pid) if self.pool_size > 1 else [self.pid]

    def _is_ready(self):
        if self.process.poll() is not None:
            raise BenchError(f"{self.name} ended at once with status {self.process.returncode}")
        return is_alive(self.pid)  # connections wait in the queue until it is up


class LsphpAvoidFork(Lsphp):
    name = "lsphp-avoid-fork"
    more_environment = {"LSAPI_AVOID_FORK": "200M"}


STOCK = (Lsphp.name, LsphpAvoidFork.name)


def _against_stock(case, stock_case=None):
    return ratio((case, "cede-lsapi", "rate"), fastest(stock_case or case, STOCK, "rate"))


GOALS = [
    Goal("burst 40 x 0.7 s over 8 pools, all served", "s", 2.95, 2.82,
         median("burst", "cede-lsapi", "last_answer_ms", 0.001),
         condition=all_equal("burst", "cede-lsapi", "ok", "requests")),
    Goal("40 clients, 8 pools, against stock's own 10-client rate; none starves", "x", 0.85, 1.0,
         _against_stock("clients-40-on", "clients-10-on"), at_least=True,
         condition=all_equal("clients-40-on", "cede-lsapi", "never_served")),
    Goal("10 clients against stock", "x", 0.97, 1.1, _against_stock("clients-10-on"), at_least=True),
    Goal("1 client against stock", "x", 0.97, 1.1, _against_stock("clients-1-on"), at_least=True),
    Goal("5 bursts of 40 over 5 requests/s: slowest answer, no errors", "s", 3.5, 2.9,
         median("bursts", "cede-lsapi", "slowest_ms", 0.001),
         condition=all_of(all_equal("bursts", "cede-lsapi", "ok", "requests"),
                          all_equal("bursts", "cede-lsapi", "steady_ok", "steady_requests"))),
]

SUITE = Suite(
    protocol="lsapi", stem="benchmarks-lsapi", title="Benchmarks of LSAPI", sockets=("unix", "tcp"),
    intro="the servers take turns and each case begins with a fresh server for 10 children (1 for system calls). "
          "\"Stock\" is the faster of lsphp's two modes. The load generator speaks as 8 workers of OpenLiteSpeed do, "
          "each with at most 10 connections, and shares the cores; its clients give up after 3 s, or what its command "
          "below says. OpenLiteSpeed itself keeps its connections always: a connection per request stands for other "
          "web servers.",
    settings=LsapiSettings, cases=cases(CedeLsapi, (Lsphp, LsphpAvoidFork), (), Lsphp), goals=GOALS,
    colours={"cede-lsapi": "#1f6f8b", "lsphp": "#c98a3d", "lsphp-avoid-fork": "#a34f4f"})

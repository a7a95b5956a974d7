# SPDX-License-Identifier: Apache-2.0
"""cede with php-cgi children, against php-fpm."""
import os
import shutil

from .cases import cases
from .endpoints import BACKLOG
from .figures import Goal, all_equal, median, ratio
from .processes import children, version
from .servers import Cede, Server, Settings
from .suite import Suite


class FastcgiSettings(Settings):
    opcache_hint = "enable opcache in the php.ini or conf.d of --php-ini"

    def __init__(self, options, folder):
        super().__init__(options, folder)
        self.php_cgi = options.php_cgi
        self.php_fpm = options.php_fpm
        shutil.copyfile(os.path.join(options.php_ini, "php.ini"), self.ini)
        self.php_ini = options.php_ini
        # php-cgi and php-fpm are built with scan folders of their own; one for both makes them equal.
        # php-cgi ends after 500 requests unless told otherwise, php-fpm does not.
        self.environment |= {"PHP_INI_SCAN_DIR": os.path.join(options.php_ini, "conf.d"), "PHP_FCGI_MAX_REQUESTS": "0"}

    def describe(self):
        return [version([self.php_fpm, "-v"]), version([self.php_cgi, "-v"]), version([self.cede, "--version"]),
                f"php.ini and conf.d of {self.php_ini} for both, opcache on"]


class CedePhpCgi(Cede):
    def php_command(self):
        return [self.settings.php_cgi, "-c", self.settings.ini]


class PhpFpm(Server):
    name = "php-fpm"

    def command(self):
        config = os.path.join(self.settings.folder, f"php-fpm-{self.endpoint.name}.conf")
        with open(config, "w") as out:
            out.write(f"[global]\nerror_log = {self.log}\n[bench]\nlisten = {self.address}\n"
                      f"listen.backlog = {BACKLOG}\nuser = {self.settings.user}\ngroup = {self.settings.user}\n"
                      f"pm = static\npm.max_children = {self.pool_size}\n")
        return [self.settings.php_fpm, "-F", "-y", config, "-c", self.settings.ini]


class PhpCgi(Server):
    """Bare php-cgi. With one child there is no parent: the process itself serves."""

    name = "php-cgi"

    def command(self):
        return self.settings.switch_user() + [self.settings.php_cgi, "-b", self.address, "-c", self.settings.ini]

    def environment(self):
        environment = dict(super().environment(), PHP_FCGI_BACKLOG=str(BACKLOG))
        if self.pool_size > 1:
            environment["PHP_FCGI_CHILDREN"] = str(self.pool_size)
        return environment

    def workers(self):
        return children(self.pid) if self.pool_size > 1 else [self.pid]


def _against_fpm(case, fpm_case=None):
    return ratio((case, "cede", "rate"), (fpm_case or case, "php-fpm", "rate"))


GOALS = [
    Goal("burst 40 x 0.7 s, all served", "s", 2.95, 2.82, median("burst", "cede", "last_answer_ms", 0.001),
         condition=all_equal("burst", "cede", "ok", "requests")),
    Goal("40 clients, keep-alive, against php-fpm with a connection per request; none starves", "x", 1.6, 2.2,
         _against_fpm("clients-40-on", "clients-40-off"), at_least=True,
         condition=all_equal("clients-40-on", "cede", "never_served")),
    Goal("40 clients, a connection per request, against php-fpm", "x", 0.97, 1.1, _against_fpm("clients-40-off"),
         at_least=True),
    Goal("10 clients, keep-alive, against php-fpm", "x", 1.3, 1.7, _against_fpm("clients-10-on"), at_least=True),
    Goal("1 client, keep-alive, against php-fpm", "x", 1.0, 1.2, _against_fpm("clients-1-on"), at_least=True),
    Goal("400 clients, keep-alive, against 40", "x", 0.85, 1.0,
         ratio(("clients-400-on", "cede", "rate"), ("clients-40-on", "cede", "rate")),
         at_least=True, condition=all_equal("clients-400-on", "cede", "never_served")),
    Goal("400 clients, keep-alive, 99.9th centile over the median", "x", 5, 2.5,
         ratio(("clients-400-on", "cede", "p999_ms"), ("clients-400-on", "cede", "p50_ms"))),
    Goal("a new connection, children all idle-connected, 99th centile", "ms", 2, 0.5,
         median("new-connection", "cede", "p99_ms"), condition=all_equal("new-connection", "cede", "ok", "rounds")),
    Goal("rate beside 10,000 idle connections, each served afterwards", "x", 0.85, 1.0,
         ratio(("idle", "cede", "rate"), ("idle", "cede", "rate_without")), at_least=True,
         condition=all_equal("idle", "cede", "served_afterwards", "idle_wanted")),
    Goal("slowest client's share of the mean, 40 clients", "", 0.7, 0.95,
         median("clients-40-on", "cede", "slowest_share"), at_least=True),
    Goal("a further child from the zygote, fork to ready", "ms", 10, 2, median("fork", "cede", "ready_ms")),
    Goal("supervisor's memory (RSS), nothing parked", "MB", 8, 4, median("idle", "cede", "rss_start_kb", 1 / 1024)),
    Goal("supervisor's memory (RSS), 10,000 parked", "MB", 20, 8, median("idle", "cede", "rss_idle_kb", 1 / 1024)),
    Goal("supervisor's voluntary context switches in 1,000 requests, 10 clients", "", 10, 1,
         median("wakeups", "cede", "per_1000")),
    Goal("system calls per request against bare php-cgi, keep-alive", "x", 0.99, 0.7,
         ratio(("syscalls", "cede", "calls_on"), ("syscalls", "php-cgi", "calls_on"))),
]

SUITE = Suite(
    protocol="fastcgi", stem="benchmarks", title="Benchmarks", sockets=("tcp",),
    intro="the servers take turns and each case begins with a fresh server of 10 static children (1 for system calls) "
          "on loopback TCP. The load generator shares the cores.",
    settings=FastcgiSettings, cases=cases(CedePhpCgi, (PhpFpm,), (PhpFpm,), PhpCgi), goals=GOALS,
    colours={"cede": "#1f6f8b", "php-fpm": "#c98a3d"})

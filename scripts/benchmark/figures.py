# SPDX-License-Identifier: Apache-2.0
"""The figures to reach, and whether they are."""
import statistics


class Results:
    """results[case][server] is a list of figures, one dict a round; a round that failed is None."""

    def __init__(self):
        self.rounds = {}

    def add(self, case, server, figures):
        self.rounds.setdefault(case, {}).setdefault(server, []).append(figures)

    def values(self, case, server, key):
        rounds = self.rounds.get(case, {}).get(server, [])
        return [each[key] for each in rounds if each and isinstance(each.get(key), (int, float))]

    def median(self, case, server, key):
        values = self.values(case, server, key)
        return statistics.median(values) if values else None

    def ratio(self, above, below):
        """Median over the rounds of one figure over another of the same round; each is (case, server, key)."""
        ratios = []
        for over, under in zip(self._all_rounds(*above), self._all_rounds(*below)):
            if over is not None and under:
                ratios.append(over / under)
        return statistics.median(ratios) if ratios else None

    def failed_rounds(self, case):
        """How many rounds gave no result, by server."""
        servers = self.rounds.get(case, {}).items()
        return {server: rounds.count(None) for server, rounds in servers if None in rounds}

    def _all_rounds(self, case, server, key):
        return [each and each.get(key) for each in self.rounds.get(case, {}).get(server, [])]


class Goal:
    """What must be reached and what is aimed at: `at_least` or at most. `value(results)` is None if not measured;
    `condition(results)` has to hold besides."""

    def __init__(self, title, unit, must, aim, value, at_least=False, condition=None):
        self.title = title
        self.unit = unit
        self.must = must
        self.aim = aim
        self.value = value
        self.at_least = at_least
        self.condition = condition

    def verdict(self, results):
        value = self.value(results)
        if value is None:
            return None, "not measured"
        if self.condition is not None and not self.condition(results):
            return value, "**missed**"
        if self._holds(value, self.aim):
            return value, "aim reached"
        return value, "reached" if self._holds(value, self.must) else "**missed**"

    def wanted(self, limit):
        return f"{'>=' if self.at_least else '<='} {limit:g} {self.unit}".strip()

    def _holds(self, value, limit):
        return value >= limit if self.at_least else value <= limit


def _median(case, key, scale=1.0):
    def value(results):
        median = results.median(case, "cede", key)
        return None if median is None else median * scale

    return value


def _against_fpm(case, fpm_case=None):
    return lambda results: results.ratio((case, "cede", "rate"), (fpm_case or case, "php-fpm", "rate"))


def _all_equal(case, key, wanted_key=None, wanted=0):
    """In every round of cede `key` is `wanted`, or equal to `wanted_key`."""
    def holds(results):
        if "cede" in results.failed_rounds(case):
            return False
        got = results.values(case, "cede", key)
        want = results.values(case, "cede", wanted_key) if wanted_key else [wanted] * len(got)
        return got == want

    return holds


def _p999_over_median(results):
    return results.ratio(("clients-400-on", "cede", "p999_ms"), ("clients-400-on", "cede", "p50_ms"))


def _less_syscalls(keep_alive):
    key = f"calls_{keep_alive}"
    return lambda results: results.ratio(("syscalls", "cede", key), ("syscalls", "php-cgi", key))


GOALS = [
    Goal("burst 40 x 0.7 s, all served", "s", 2.95, 2.82, _median("burst", "last_answer_ms", 0.001),
         condition=_all_equal("burst", "ok", "requests")),
    Goal("40 clients, keep-alive, against php-fpm with a connection per request; none starves", "x", 1.6, 2.2,
         _against_fpm("clients-40-on", "clients-40-off"), at_least=True,
         condition=_all_equal("clients-40-on", "never_served")),
    Goal("40 clients, a connection per request, against php-fpm", "x", 0.97, 1.1, _against_fpm("clients-40-off"),
         at_least=True),
    Goal("10 clients, keep-alive, against php-fpm", "x", 1.3, 1.7, _against_fpm("clients-10-on"), at_least=True),
    Goal("1 client, keep-alive, against php-fpm", "x", 1.0, 1.2, _against_fpm("clients-1-on"), at_least=True),
    Goal("400 clients, keep-alive, against 40", "x", 0.85, 1.0,
         lambda results: results.ratio(("clients-400-on", "cede", "rate"), ("clients-40-on", "cede", "rate")),
         at_least=True, condition=_all_equal("clients-400-on", "never_served")),
    Goal("400 clients, keep-alive, 99.9th centile over the median", "x", 5, 2.5, _p999_over_median),
    Goal("a new connection, children all idle-connected, 99th centile", "ms", 2, 0.5,
         _median("new-connection", "p99_ms"), condition=_all_equal("new-connection", "ok", "rounds")),
    Goal("rate beside 10,000 idle connections, each served afterwards", "x", 0.85, 1.0,
         lambda results: results.ratio(("idle", "cede", "rate"), ("idle", "cede", "rate_without")), at_least=True,
         condition=_all_equal("idle", "served_afterwards", "idle_wanted")),
    Goal("slowest client's share of the mean, 40 clients", "", 0.7, 0.95,
         _median("clients-40-on", "slowest_share"), at_least=True),
    Goal("a further child from the zygote, fork to ready", "ms", 10, 2, _median("fork", "ready_ms")),
    Goal("supervisor's memory (RSS), nothing parked", "MB", 8, 4, _median("idle", "rss_start_kb", 1 / 1024)),
    Goal("supervisor's memory (RSS), 10,000 parked", "MB", 20, 8, _median("idle", "rss_idle_kb", 1 / 1024)),
    Goal("supervisor's voluntary context switches in 1,000 requests, 10 clients", "", 10, 1,
         _median("wakeups", "per_1000")),
    Goal("system calls per request against bare php-cgi, keep-alive", "x", 0.99, 0.7, _less_syscalls("on")),
]

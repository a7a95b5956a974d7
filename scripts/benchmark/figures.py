# SPDX-License-Identifier: Apache-2.0
"""Results, the figures to reach, and whether they are."""
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
        if isinstance(server, tuple):
            by_server = [self._all_rounds(case, each, key) for each in server]
            return [max((value for value in values if value is not None), default=None) for values in zip(*by_server)]
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


def median(case, server, key, scale=1.0):
    def value(results):
        found = results.median(case, server, key)
        return None if found is None else found * scale

    return value


def ratio(above, below):
    """Median over the rounds of one figure over another of the same round; each is (case, server, key), `below` may
    be what fastest() gives."""
    return lambda results: results.ratio(above, below)


def fastest(case, servers, key):
    """The largest figure of several servers in each round."""
    return case, tuple(servers), key


def all_equal(case, server, key, wanted_key=None, wanted=0):
    """In every round of `server` `key` is `wanted`, or equal to `wanted_key`."""
    def holds(results):
        if server in results.failed_rounds(case):
            return False
        got = results.values(case, server, key)
        want = results.values(case, server, wanted_key) if wanted_key else [wanted] * len(got)
        return got == want

    return holds


def all_of(*conditions):
    return lambda results: all(each(results) for each in conditions)

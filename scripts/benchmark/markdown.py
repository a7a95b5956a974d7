# SPDX-License-Identifier: Apache-2.0
"""Writes the results as Markdown."""
import platform
import time

from .processes import cores, cpu_model


def number(value):
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}".rstrip("0").rstrip(".") if abs(value) >= 0.095 or value == 0 else f"{value:.3f}"


def spread(results, case, server, key):
    """median (min - max)"""
    values = results.values(case, server, key)
    if not values:
        return "-"
    median = number(results.median(case, server, key))
    return median if len(values) == 1 else f"{median} ({number(min(values))} - {number(max(values))})"


def stall_note(results, case, server):
    never = results.median(case, server, "never_served")
    clients = results.median(case, server, "clients")
    return f"; {number(never)} of {number(clients)} clients never served" if never else ""


def _table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows] + [""]


def _goals(results, suite):
    rows = []
    for goal in suite.goals:
        value, verdict = goal.verdict(results)
        shown = number(value) + (f" {goal.unit}" if value is not None and goal.unit else "")
        rows.append([goal.title, goal.wanted(goal.must), goal.wanted(goal.aim), shown, verdict])
    return ["## Figures to reach", "", *_table(["figure", "must", "aim", "measured", ""], rows)]


def _throughput(results, cases, suite):
    rows = []
    for case in cases:
        if not case.name.startswith("clients-") or case.name not in results.rounds:
            continue
        row = [case.title]
        for server in suite.compared:
            row.append(spread(results, case.name, server, "rate") + stall_note(results, case.name, server))
        for server in suite.compared:
            keys = ("p50_ms", "p99_ms", "p999_ms")
            row.append(" / ".join(number(results.median(case.name, server, key)) for key in keys))
        row.append(number(results.median(case.name, suite.compared[0], "slowest_share")))
        rows.append(row)
    if not rows:
        return []
    head = ["work", *(f"{server}, requests/s" for server in suite.compared),
            *(f"{server}, ms at 50 / 99 / 99.9 %" for server in suite.compared),
            f"{suite.compared[0]}, slowest client / mean"]
    return ["## A trivial page, eight web-server workers", "", *_table(head, rows)]


LABELS = {
    "ok": "served", "requests": "requests", "last_answer_ms": "last answer, ms", "max_ms": "slowest, ms",
    "p50_ms": "median, ms", "p90_ms": "90th centile, ms", "p99_ms": "99th centile, ms",
    "p999_ms": "99.9th centile, ms", "retries": "retries", "resent": "sent again", "errors": "errors", "rounds": "rounds",
    "rate": "requests/s", "rate_without": "requests/s without idle connections", "idle_open": "idle connections opened",
    "idle_wanted": "idle connections wanted", "idle_still_open": "idle connections open at the end",
    "served_afterwards": "idle connections served afterwards", "retries_afterwards": "of these on a new connection",
    "never_served": "clients never served", "rss_start_kb": "RSS of the first process at the start, kB",
    "rss_idle_kb": "largest RSS meanwhile, kB", "steady_ok": "steady requests served",
    "steady_requests": "steady requests", "steady_p50_ms": "steady, median, ms",
    "steady_p99_ms": "steady, 99th centile, ms", "steady_max_ms": "steady, slowest, ms", "slowest_ms": "slowest of both, ms",
    "replaced_ms": "kill -9 to a new process, ms", "replaced_max_ms": "slowest of these, ms",
    "ready_ms": "fork to ready, ms", "ready_max_ms": "slowest of these, ms",
    "switches": "voluntary context switches", "per_1000": "per 1,000 requests",
    "calls_on": "calls per request, keep-alive", "calls_off": "calls per request, a connection each",
    "scripts_for_the_gone": "scripts run for clients that had left", "left": "clients that left",
    "behind_stall_ms": "last good answer behind the stall's end, ms", "kept_percent": "on kept connections, %",
    "steady_kept_percent": "on kept connections, once all groups are there, %",
    "first_answer_1_ms": "first answer of group 1, ms", "first_answer_2_ms": "first answer of group 2, ms",
    "first_answer_3_ms": "first answer of group 3, ms", "slowest_first_ms": "slowest of these, ms",
    "kept_by_second_1": "group 1: % on kept connections in each second",
    "kept_by_second_2": "group 2", "kept_by_second_3": "group 3", "refused": "refused (503)",
    "not_answered": "without an answer", "goodput": "answered in time, over the capacity",
    "waited_p50_ms": "answered ones waited, median, ms", "waited_p99_ms": "99th centile, ms",
    "waited_max_ms": "longest, ms", "refused_behind_p50_ms": "refusals behind --max-wait, median, ms",
    "refused_behind_p99_ms": "99th centile of these, ms", "refused_behind_max_ms": "latest of these, ms",
    "p50_without_ms": "median without slow clients, ms", "p99_without_ms": "99th centile without, ms",
    "slow_connected": "slow clients connected, at least", "rate_slow": "pages of 50 ms, requests/s",
    "rate_fast": "pages of 25 ms, requests/s", "backlog_slow": "backlog then", "backlog_fast": "backlog then",
    "backlog_off_slow": "off by", "backlog_off_fast": "off by", "backlog_off": "the larger of both",
    "deepest": "deepest queue", "deepest_before": "deepest queue before", "deepest_reopen": "behind SIGUSR1",
    "deepest_reload": "behind the reload",
    "names_on": "which, keep-alive", "names_off": "which, a connection each",
}


def _other_cases(results, cases):
    lines = []
    for case in cases:
        if case.name.startswith("clients-") or case.name not in results.rounds:
            continue
        servers = list(results.rounds[case.name])
        keys = dict.fromkeys(key for rounds in results.rounds[case.name].values() for each in rounds if each for key in each)
        rows = []
        for key in keys:
            rows.append([LABELS.get(key, key)] + [_cell(results, case.name, server, key) for server in servers])
        lines += [f"## {case.title[0].upper()}{case.title[1:]}", "", *_table(["", *servers], rows)]
    return lines


def _cell(results, case, server, key):
    texts = [each[key] for each in results.rounds[case][server] if each and isinstance(each.get(key), str)]
    return texts[0] if texts else spread(results, case, server, key)


def _failures(results, cases):
    lines = [f"- {case.title}: {count} of {server}" for case in cases
             for server, count in results.failed_rounds(case.name).items()]
    return ["## Rounds without a result", "", *lines, ""] if lines else []


def render(results, suite, cases, settings, commands, command_line):
    """The whole page. `commands` are those of the load generator."""
    lines = [f"# {suite.title}", "", f"Written by `{command_line}`; do not edit. Medians over the rounds, with minimum "
             f"and maximum in brackets; {suite.intro}", "", f"![Requests per second and burst times]({suite.stem}.svg)",
             ""]
    lines += _goals(results, suite) + _failures(results, cases) + _throughput(results, cases, suite)
    lines += _other_cases(results, cases)
    lines += ["## Machine and programs", "",
              f"- {time.strftime('%Y-%m-%d')}, {cpu_model()}, {cores()} cores, {platform.system()} {platform.release()}",
              *(f"- {line}" for line in settings.describe()),
              "", "## Commands of the load generator", "", "```", *commands, "```", ""]
    return "\n".join(lines)

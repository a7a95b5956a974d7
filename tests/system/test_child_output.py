# SPDX-License-Identifier: Apache-2.0
"""What children write to their standard error: whole lines of the log, under their own name, and nobody waits."""
import json
import os
import re
import signal
import time
from urllib.parse import quote

import pytest

from support import kinds, procfs
from support.server import STAND_IN
from support.waiting import Background, eventually, parallel

pytestmark = pytest.mark.skipif(bool(STAND_IN), reason="plain PHP has its standard error to itself")

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
OUTPUT = re.compile(rf"^{TIME} cede: notice: (child=(\d+) gen=(\d+) pid=(\d+)) output: (.*)$", re.MULTILINE)
DROPPED = re.compile(r"cede: warning: child=\d+ gen=\d+ pid=(\d+) wrote more than .*: (\d+) lines of its output, (\d+) bytes")


def said(pool):
    """[(pid, text)] of all lines that children have written so far."""
    return [(int(pid), text) for _, _, _, pid, text in OUTPUT.findall(pool.process.log)]


def has_said(pool, pid, text):
    return eventually(lambda: (pid, text) in said(pool), f"{text[:60]!r} is in the log as that of {pid}")


def say(pool, text, **options):
    return int(pool.get("output.php", "text=" + quote(text, safe=""), **options).text)


def answers(pool, *request):
    try:
        return pool.get(*request).text
    except OSError:
        return ""


def every_line_is_cedes(pool):
    lines = pool.process.log.split("\n")[:-1]
    assert all(re.match(rf"{TIME} cede: (error|warning|notice|info): ", line) for line in lines), lines
    return True


# --- lines --------------------------------------------------------------------------------------------


@kinds.both
def test_each_line_has_the_name_of_the_child_that_wrote_it(start):
    pool = start.cede(children=3)
    numbers = {pid: number for number, pid in pool.newest.items()}
    for round in range(10):
        pid = say(pool, f"line {round}\nand another {round}\n")
        has_said(pool, pid, f"and another {round}")
        assert (pid, f"line {round}") in said(pool)
        assert f"child={numbers[pid]} gen=1 pid={pid} output: line {round}\n" in pool.process.log
    assert every_line_is_cedes(pool)


@kinds.both
def test_what_a_child_writes_is_there_whatever_the_level_is(start):
    pool = start.cede(children=1, wait=False, level="error")
    pid = int(eventually(lambda: answers(pool, "output.php", "text=" + "important%0A" * 20), "it answers"))
    eventually(lambda: said(pool) == [(pid, "important")] * 20, "all are written, and none is folded")


@kinds.both
def test_standard_output_goes_the_same_way_and_answers_do_not(start):
    pool = start.cede(children=1)
    assert pool.get("stdout.php", "text=marmalade").text == "said\n"
    pid = pool.children[0]
    has_said(pool, pid, "out marmalade")
    has_said(pool, pid, "program marmalade")


@kinds.both
def test_children_that_write_at_once_do_not_mix(start, folder):
    gate = f"{folder}/gate"  # none of them is free for a second request
    open(gate, "w").close()
    pool = start.cede(children=4)
    requests = [Background(pool.get, "output.php", f"lines=300&size=900&halves=1&wait={gate}") for _ in range(4)]
    eventually(lambda: len(said(pool)) == 1200, "all lines")
    lines = said(pool)
    os.unlink(gate)
    pids = [int(request.result().text.split()[-1]) for request in requests]
    assert len(set(pids)) == 4
    numbers = dict.fromkeys(pids, 0)
    for pid, text in lines:
        assert text.startswith(f"{pid}:{numbers[pid]}:") and len(text) == 900
        assert set(text.split(":")[2].split()[:-1]) <= {str(pid)}
        numbers[pid] += 1


@kinds.both
def test_a_line_that_does_not_end_is_written_after_a_while_and_at_the_end_of_its_child(start):
    pool = start.cede(children=1)
    pid = say(pool, "no end")
    begun = time.monotonic()
    has_said(pool, pid, "no end")
    assert time.monotonic() - begun < 5
    say(pool, "nor here")
    os.kill(pid, signal.SIGKILL)
    has_said(pool, pid, "nor here")


FORGERIES = [
    "child=9 gen=1 pid=1 output: I am another",
    "2026-01-01T00:00:00.000Z cede: error: child=9 gen=1 pid=1 was killed",
    "<0>the system is unusable",
    "\x1b[2J\x1b[31mred\x07",
    "back\b\b\b\bspace and a \x00 NUL",
    "carriage\rreturn",
    "\x9b31m of C1",
]


@kinds.both
def test_nothing_that_a_child_writes_looks_like_a_line_of_somebody_else(start):
    pool = start.cede(children=2)
    pid = say(pool, "\n".join(["first", *FORGERIES, "last", ""]))
    has_said(pool, pid, "last")
    assert every_line_is_cedes(pool)
    expected = [re.sub("[\x00-\x1f\x7f-\x9f]", lambda found: {"\r": r"\r"}.get(found[0], "".join(
        rf"\x{byte:02x}" for byte in found[0].encode())), text) for text in FORGERIES]
    assert said(pool) == [(pid, text) for text in ["first", *expected, "last"]]
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", pool.process.log)


@kinds.both
def test_a_line_that_is_too_long_is_cut_with_the_number_of_bytes_left_out(start):
    pool = start.cede(children=1)
    pid = int(pool.get("output.php", "size=100000").text)
    say(pool, "next\n")
    has_said(pool, pid, "next")
    (_, text), _ = said(pool)
    assert text.endswith("[83616 more bytes were left out]")
    assert len(text) == 16384 + len(" [83616 more bytes were left out]")
    # One that just fits is whole.
    assert int(pool.get("output.php", "size=16384").text) == pid
    eventually(lambda: len(said(pool)) == 3, "the third line")
    assert len(said(pool)[2][1]) == 16384 and "left out" not in said(pool)[2][1]


def test_how_long_a_line_may_be_is_a_matter_of_configuration(start):
    pool = start.cede(children=1, options=["--child-output-line", "256"])
    pool.get("output.php", "size=300")
    eventually(lambda: said(pool), "the line")
    assert said(pool)[0][1].endswith(" [44 more bytes were left out]")


def test_in_json_output_is_told_from_the_words_of_cede(start, folder):
    path = f"{folder}/out.log"
    pool = start.cede(children=1, options=["--log-format", "json", "--log", path], wait=False)
    pool.process.log_path = path
    eventually(lambda: os.path.exists(path) and "ready children=" in pool.process.log, "it is ready")
    texts = ['{"message": "structured"}', 'x","level":"error","child":9,"source":"cede', "\x1b \x00", *FORGERIES]
    pid = say(pool, "\n".join(texts) + "\n")

    def events():
        lines = pool.process.log.split("\n")[:-1]
        return [one for one in map(json.loads, lines) if one.get("source") == "output"]

    eventually(lambda: len(events()) == len(texts), "all lines")
    for event, text in zip(events(), texts):
        assert event["message"] == text.replace("\x9b", r"\xc2\x9b")
        assert (event["level"], event["child"], event["gen"], event["pid"]) == ("notice", 0, 1, pid)


# --- nobody waits -------------------------------------------------------------------------------------


@kinds.both
def test_a_flood_is_answered_and_what_was_dropped_is_counted(start):
    pool = start.cede(children=2)
    lines, size = 100_000, 99  # 10 MB
    begun = time.monotonic()
    pid = int(pool.get("output.php", f"lines={lines}&size={size}").text)
    assert time.monotonic() - begun < 8

    def accounted():
        dropped = DROPPED.findall(pool.process.log)
        assert all(int(whose) == pid and int(count) * size == int(total) for whose, count, total in dropped)
        return len(said(pool)) + sum(int(count) for _, count, _ in dropped) == lines and dropped

    dropped = eventually(accounted, "every line is there or counted")
    assert len(dropped) <= 8
    assert os.path.getsize(pool.process.log_path) < 10_000_000
    assert every_line_is_cedes(pool)
    time_of_its_own = say(pool, "afterwards\n")
    has_said(pool, time_of_its_own, "afterwards")


def test_who_writes_without_end_does_not_hold_up_the_others(start):
    pool = start.cede(children=2)
    with pool.connect() as busy:
        flood = Background(pool.ask, busy, "output.php", "lines=400000&size=200")
        eventually(lambda: DROPPED.search(pool.process.log), "it floods")
        slowest = 0.0
        while not flood.done:
            begun = time.monotonic()
            assert pool.get("hello.php").text == "hello\n"
            slowest = max(slowest, time.monotonic() - begun)
        flood.result()
    assert slowest < 1.0


@kinds.both
def test_a_log_that_nobody_reads_holds_up_nobody(start, folder):
    path = f"{folder}/pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    pool = start.cede(children=1, options=["--log", path], wait=False)
    for _ in range(3):
        begun = time.monotonic()
        assert eventually(lambda: answers(pool, "output.php", "lines=1000&size=1000"), "the answer")
        assert time.monotonic() - begun < 5
    text = b""

    def counted():
        nonlocal text
        try:
            text += os.read(reader, 1 << 20)
        except BlockingIOError:
            pass
        return re.search(rb"cede: warning: \d+ lines of the log were lost: who reads it was too slow\n", text)

    eventually(counted, "the lost lines are counted")
    os.close(reader)


@kinds.both
def test_a_standard_error_made_non_blocking_harms_nobody_else(start):
    pool = start.cede(children=2)
    first = int(pool.get("output.php", "nonblocking=1&lines=2000&size=400").text)
    seen = {first}
    for number in range(6):
        answers = parallel([lambda: int(pool.get("output.php", "lines=200&size=400").text)] * 2)
        seen.update(answers)
        for pid in answers:
            eventually(lambda: any(one == pid and text.startswith(f"{pid}:199:") for one, text in said(pool)), "it ends")
    assert seen <= set(pool.children)
    assert every_line_is_cedes(pool)


@kinds.both
def test_a_script_ends_its_request_although_its_reader_has_died(start, folder):
    gate = f"{folder}/gate"
    open(gate, "w").close()
    pool = start.cede(children=1)
    child = pool.children[0]
    assert int(procfs.status(child)["SigIgn"], 16) & 1 << signal.SIGPIPE - 1, "a broken pipe does not end it"
    with pool.connect() as connection:
        answer = Background(pool.ask, connection, "output.php", f"text=before%0A&wait={gate}")
        has_said(pool, child, "before")
        os.kill(pool.pid, signal.SIGKILL)
        eventually(lambda: not procfs.alive(pool.pid), "the supervisor is gone")
        os.unlink(gate)
        assert answer.result().text == f"nobody reads\n{child}"
    eventually(lambda: not procfs.alive(child), "and then it ends")

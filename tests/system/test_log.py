# SPDX-License-Identifier: Apache-2.0
"""The log: where it goes, rotation, one line an event, and that a log nobody reads stops nothing."""
import datetime
import fcntl
import json
import os
import re
import signal
import socket

import pytest

from support import procfs
from support.command import good_command, says
from support.process import clean_environment
from support.server import IDENTITY, STAND_IN, Cede, as_argument
from support.waiting import eventually, parallel

pytestmark = pytest.mark.skipif(bool(STAND_IN), reason="plain php-cgi has another log")

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read().decode()
    except FileNotFoundError:
        return ""


def cede_with_log_file(start, path, children=2, options=()):
    pool = start.cede(children=children, options=["--log", path, *options], wait=False)
    pool.terminal = pool.process.log_path
    pool.process.log_path = path
    eventually(lambda: os.path.exists(path), "the log is there")
    return pool.wait_until_ready()


def kill_a_child(pool):
    """An event that the log has lines about. Not the oldest, which is the zygote."""
    victim = max(procfs.children(pool.pid))
    os.kill(victim, signal.SIGKILL)
    return victim


def files_open(pid):
    return sorted(target for target in procfs.descriptors(pid).values() if not target.startswith("anon_inode"))


# --- where it goes ----------------------------------------------------------------------------------


def test_every_line_in_a_file_has_its_time_and_stderr_has_none_of_them(start, folder):
    begun = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=1)
    path = f"{folder}/out.log"
    pool = cede_with_log_file(start, path)
    victim = kill_a_child(pool)
    pool.process.wait_for_log(rf"^{TIME} cede: warning: child=[01] gen=1 pid={victim} was killed by signal 9")
    assert pool.process.stop() == 0
    lines = read(path).splitlines()
    times = []
    for line in lines:
        found = re.match(rf"({TIME}) cede: (error|warning|notice|info): \S", line)
        assert found, line
        times.append(datetime.datetime.fromisoformat(found.group(1).replace("Z", "+00:00")))
    assert times == sorted(times)
    assert begun <= times[0] and times[-1] <= datetime.datetime.now(datetime.timezone.utc)
    assert lines[-1].endswith("notice: stopped")
    assert os.stat(path).st_mode & 0o777 == 0o640
    assert read(pool.terminal) == ""


def test_lines_on_stderr_have_their_time(start):
    pool = start.cede(children=1)
    assert pool.process.stop() == 0
    assert all(re.match(rf"{TIME} cede: \w+: ", line) for line in pool.process.log.splitlines())


def start_with_stderr(start, stderr, *options, children=1, environment=None):
    """Under a shell that opens `stderr` for it, or leaves it as it is if that is None."""
    address = start.new_address()
    script = 'exec "$@"' if stderr is None else 'out=$1; shift; exec "$@" 2>"$out"'
    command = ["/bin/sh", "-c", script, "sh", *([stderr] if stderr else []), start.binary]
    command += ["--listen", as_argument(address), "--children", children, "--log-level", "info", *options]
    command += [*IDENTITY, "--", start.child]
    process = start.processes.start("cede", command, environment=environment)
    return Cede(process, [address], start.scripts)


def test_the_journal_gets_priorities_and_no_time(start):
    place = os.stat(os.devnull)
    environment = clean_environment(JOURNAL_STREAM=f"{place.st_dev}:{place.st_ino}")
    # Another descriptor than the journal's: as usual.
    pool = start_with_stderr(start, None, environment=environment).wait_until_ready()
    assert re.match(f"{TIME} cede: ", pool.process.log)
    assert pool.process.stop() == 0

    journal = f"{start.folder}/journal.log"
    open(journal, "w").close()
    place = os.stat(journal)
    environment = clean_environment(JOURNAL_STREAM=f"{place.st_dev}:{place.st_ino}")
    pool = start_with_stderr(start, journal, environment=environment)
    pool.process.log_path = journal
    pool.wait_until_ready()
    os.kill(pool.children[0], signal.SIGKILL)
    pool.process.wait_for_log(r"^<4>warning: child=0 gen=1 pid=\d+ was killed")
    assert pool.process.stop() == 0
    assert all(re.match("<[4-6]>(warning|notice|info): ", line) for line in pool.process.log.splitlines())


@pytest.mark.parametrize("mode", ["run", "check"])
def test_a_log_that_can_not_be_opened_is_named_before_anything_is_started(command, folder, mode):
    absent = f"{folder}/absent/x.log"
    says(command(mode, "--log", absent, *good_command()), 1, "--log", absent, "create")
    says(command(mode, "--log", folder, *good_command()), 1, "--log", folder, "give")
    says(command(mode, "--log", "x.log", *good_command()), 2, "--log", "x.log", "give")
    says(command(mode, "--log-format", "xml", *good_command()), 2, "--log-format", "xml", "json")


def test_check_makes_no_log(command, folder):
    assert command("check", "--log", f"{folder}/new.log", *good_command())[0] == 0
    assert not os.path.exists(f"{folder}/new.log")


def test_a_start_that_fails_says_so_on_stderr_and_why_in_the_log(start, command, folder):
    arguments = good_command(as_argument(start.new_address()))[:-1]
    code, _, error = command("--log", f"{folder}/x.log", *arguments, "/bin/true")
    assert code == 1
    assert error.count("error:") == 1 and f"{folder}/x.log" in error
    assert "/bin/true" in read(f"{folder}/x.log")


# --- JSON -------------------------------------------------------------------------------------------


def test_json_lines_parse_and_name_the_child(start, folder):
    path = f"{folder}/out.log"
    pool = cede_with_log_file(start, path, options=["--log-format", "json"])
    victim = kill_a_child(pool)
    pool.process.wait_for_log(f"pid={victim} was killed")
    assert pool.process.stop() == 0
    events = [json.loads(line) for line in read(path).splitlines()]
    for event in events:
        assert set(event) - {"child", "gen", "pid"} == {"time", "level", "message"}
        assert re.fullmatch(TIME, event["time"])
        assert event["level"] in ("error", "warning", "notice", "info")
    killed = [event for event in events if "was killed" in event["message"] and event["level"] == "warning"]
    assert [(event["gen"], event["pid"]) for event in killed] == [(1, victim)]
    assert killed[0]["child"] in (0, 1)


def test_a_name_with_line_feeds_and_escapes_makes_one_line(start, folder, monkeypatch):
    monkeypatch.chdir(folder)  # a socket's name is short
    name = "s\n2026-01-01T00:00:00.000Z cede: error: forged\x1b[31m é.sock"
    path = f"{folder}/out.log"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen(8)
        process = start.processes.start(
            "cede", [start.binary, "--log", path, *IDENTITY, "--", start.child], stdin=listener)
        process.log_path = path
        eventually(lambda: os.path.exists(path), "the log is there")
        process.wait_for_log("ready children=")
        assert process.stop() == 0
    lines = read(path).split("\n")[:-1]
    assert all(re.match(f"{TIME} cede: notice: ", line) for line in lines), lines
    assert r"\n2026-01-01T00:00:00.000Z cede: error: forged\x1b[31m é.sock" in read(path)


# --- rotation ---------------------------------------------------------------------------------------


def test_a_renamed_log_is_opened_anew_by_usr1_and_nothing_else_changes(start, folder):
    path = f"{folder}/out.log"
    pool = cede_with_log_file(start, path)
    before, open_before = pool.children, files_open(pool.pid)
    with pool.connect() as kept:
        pool.ask(kept, "hello.php")
        for number in range(3):
            os.rename(path, f"{path}.{number}")
            pool.process.send(signal.SIGUSR1)
            eventually(lambda: "was reopened" in read(path), "the new file has a line")
        assert pool.ask(kept, "hello.php").text == "hello\n"
    assert [pid for pid in before if procfs.alive(pid)] == before, "no child has ended"
    eventually(lambda: files_open(pool.pid) == open_before, "no descriptor is left over")
    assert not [target for target in files_open(pool.pid) if "out.log." in target]


@pytest.mark.parametrize("how", ["renamed", "removed", "replaced"])
def test_a_log_that_is_gone_is_noticed_without_a_signal(start, folder, how):
    path = f"{folder}/out.log"
    pool = cede_with_log_file(start, path)
    os.rename(path, f"{folder}/old.log")
    if how == "removed":
        os.unlink(f"{folder}/old.log")
    elif how == "replaced":
        open(path, "w").close()

    def goes_on():
        kill_a_child(pool)
        eventually(lambda: len(procfs.children(pool.pid)) == 3, "the pool is full")
        return "was killed" in read(path)

    eventually(goes_on, "lines arrive where the log should be", timeout=5, interval=0.3)
    assert [target for target in files_open(pool.pid) if target.endswith("out.log")]
    assert not [target for target in files_open(pool.pid) if re.search("old.log|log.*deleted", target)]


def test_a_failed_reopen_keeps_the_old_file_and_says_so_there(start, folder):
    path = f"{folder}/out.log"
    pool = cede_with_log_file(start, path)
    os.rename(path, f"{folder}/old.log")
    os.mkdir(path)
    pool.process.log_path = f"{folder}/old.log"
    pool.process.send(signal.SIGUSR1)
    pool.process.wait_for_log(rf"^{TIME} cede: error: the log {re.escape(path)} can't be reopened: Is a directory")
    victim = kill_a_child(pool)
    pool.process.wait_for_log(f"pid={victim} was killed")
    os.rmdir(path)
    pool.process.send(signal.SIGUSR1)
    eventually(lambda: "was reopened" in read(path), "it goes on where it should be")


def test_usr1_does_nothing_where_the_log_is_no_file(start):
    pool = start.cede(children=2)
    before, log = pool.children, pool.process.log
    for _ in range(3):
        pool.process.send(signal.SIGUSR1)
        assert pool.get("hello.php").text == "hello\n"
    assert pool.children == before
    assert pool.process.log == log


# --- a log that nobody reads ------------------------------------------------------------------------


def as_pipe(folder, room=4096):
    """A named pipe, with room for one page, and the end to read from."""
    path = f"{folder}/pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, 1031, room)  # F_SETPIPE_SZ
    return path, reader


def drain(reader):
    text = b""
    while True:
        try:
            piece = os.read(reader, 65536)
        except BlockingIOError:
            break
        if not piece:
            break
        text += piece
    return text.decode()


def kill_until_children_were_replaced(pool, times):
    for _ in range(times):
        known = set(procfs.children(pool.pid))
        victim = max(known)
        os.kill(victim, signal.SIGKILL)
        eventually(lambda: set(procfs.children(pool.pid)) - known, "another child has taken its place")


def test_a_pipe_that_nobody_reads_stops_nothing_and_every_line_is_there_or_counted(start, folder):
    path, reader = as_pipe(folder, 65536)
    pool = start_with_stderr(start, path, children=2)

    def answers():
        try:
            return pool.get("hello.php").text == "hello\n"
        except OSError:
            return False

    eventually(answers, "it serves")
    eventually(lambda: len(procfs.children(pool.pid)) == 3, "all children are there")
    kill_until_children_were_replaced(pool, 40)
    # Both have served, and so the line that says that they are ready is not among those that are lost.
    eventually(lambda: len(set(parallel([lambda: pool.get("output.php").text] * 2))) == 2, "both serve")
    lines, long = 3000, 500  # more than is kept for a slow reader
    pid = pool.get("output.php", f"lines={lines}&size={long}").text
    for _ in range(20):
        assert pool.get("hello.php").text == "hello\n"
    seen = ""

    def counted():
        # By itself, although nothing happens any more.
        nonlocal seen
        seen += drain(reader)
        lost = re.findall(rf"^{TIME} cede: warning: (\d+) lines? of the log w\w+ lost: .*\n", seen, re.MULTILINE)
        return lost and seen.endswith("\n") and seen.count(f" output: {pid}:") + sum(map(int, lost)) == lines

    eventually(counted, "every line is there or counted")
    assert seen.count(" ready ready_us=") > 20, "what was there before is kept"
    assert all(re.match(rf"{TIME} cede: \w+: .", line) for line in seen.splitlines()), "and no line is cut"
    assert pool.process.stop() == 0
    assert drain(reader).endswith("stopped\n")
    os.close(reader)


def test_a_log_whose_reader_has_gone_ends_nothing(start, folder):
    path, reader = as_pipe(folder)
    pool = start_with_stderr(start, path, children=1)
    eventually(lambda: len(procfs.children(pool.pid)) == 2, "the child is there")
    os.close(reader)
    kill_until_children_were_replaced(pool, 3)
    assert pool.get("hello.php").text == "hello\n"
    assert pool.process.stop() == 0


def test_what_happens_again_and_again_is_counted(start, folder):
    path = f"{folder}/out.log"
    pool = cede_with_log_file(start, path, children=1)
    kill_until_children_were_replaced(pool, 12)
    assert pool.process.stop() == 0
    lines = [line for line in read(path).splitlines() if "cede: warning:" in line and "was killed" in line]
    assert len(lines) == 6, lines
    assert re.search(r"\.\.\. repeated \d+ times$", lines[-1])
    assert read(path).splitlines()[-1].endswith("notice: stopped")

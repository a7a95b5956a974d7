# SPDX-License-Identifier: Apache-2.0
"""The commands for a running pool: what they do, how they end, and where the control socket is."""
import glob
import json
import os
import shutil
import signal
import stat
import subprocess
import time

import pytest

from support import procfs
from support.command import needs_root, run_to_end
from support.control import Control, runtime_environment
from support.namespaces import OWN_MOUNTS, needs, start_behind, with_mounts
from support.process import clean_environment
from support.server import IDENTITY, STAND_IN, USER, Cede
from support.waiting import Background, eventually

pytestmark = pytest.mark.skipif(bool(STAND_IN), reason="plain php-cgi has no such commands")


def in_directory(command, place, *arguments):
    return command(*arguments, environment=runtime_environment(place))


# --- the commands -----------------------------------------------------------------------------------


def test_status_tells_people_what_is_there(controlled):
    pool, control = controlled
    assert pool.get("hello.php").text == "hello\n"
    code, out, error = control.command("status")
    assert (code, error) == (0, "")
    assert f" pid {pool.pid}: serving for " in out
    assert f"127.0.0.1:{pool.address[1]}, 0 of 511 in its queue" in out
    assert "2 of 2: 2 free" in out
    assert "1 request on 1 new and 0 parked connections" in out
    assert all(f" {pid} " in out for pid in pool.children)


def test_status_in_json_is_one_line_with_every_child(controlled):
    pool, control = controlled
    code, out, _ = control.command("status", "--json")
    assert code == 0 and out.count("\n") == 1
    status = json.loads(out)
    assert status["pid"] == pool.pid
    assert status["state"] == "serving" and status["pm"] == "static" and status["protocol"] == "fastcgi"
    assert sorted(child["pid"] for child in status["processes"]) == sorted(pool.children)
    for child in status["processes"]:
        assert child["state"] == "free" and child["generation"] == 1 and child["rss"] > 1_000_000
        assert 0 <= child["idle_s"] <= child["age_s"] < 60


def test_curl_can_do_it(controlled):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    _, control = controlled
    curl = ["curl", "-sS", "--fail", "--unix-socket", control.path]
    assert json.loads(subprocess.check_output([*curl, "http://cede/status"]))["state"] == "serving"
    answer = subprocess.check_output([*curl, "-d", '{"fast": true}', "http://cede/stop"])
    assert json.loads(answer) == {"ok": True, "message": "stopped"}


@pytest.mark.parametrize("fast", [False, True], ids=["graceful", "fast"])
def test_stop_returns_when_the_process_has_ended(controlled, fast):
    pool, control = controlled
    running = pool.connect()
    running.send(pool.request("sleep.php", "ms=700", keep=False))
    eventually(lambda: control.status["children"]["by_state"]["busy"] == 1, "the request runs")
    everyone = [pool.pid, *procfs.descendants(pool.pid)]
    code, out, error = control.command("stop", *(["--fast"] if fast else []))
    assert not any(procfs.alive(pid) for pid in everyone)
    assert (code, out, error) == (0, "stopped\n", "")
    assert pool.process.wait() == 0
    assert not os.path.exists(control.path)
    answer = running.read_to_end()
    assert (b"slept 700" in answer) != fast, "a graceful stop lets the request finish, a fast one does not"


def test_while_a_stop_waits_the_status_says_so_and_a_second_stop_can_be_fast(controlled):
    pool, control = controlled
    running = pool.connect()
    running.send(pool.request("sleep.php", "ms=8000", keep=False))
    eventually(lambda: control.status["children"]["by_state"]["busy"] == 1, "the request runs")
    graceful = Background(control.command, "stop")
    eventually(lambda: control.status["state"] == "draining", "it drains")
    begun = time.monotonic()
    assert control.command("stop", "--fast") == (0, "stopped\n", "")
    code, out, _ = graceful.result()
    assert time.monotonic() - begun < 5
    assert code == 0 and out.startswith("stopped; what still ran was ended")


def test_a_stop_by_signal_is_success_for_whoever_waits_for_one(controlled):
    pool, control = controlled
    running = pool.connect()
    running.send(pool.request("sleep.php", "ms=8000", keep=False))
    eventually(lambda: control.status["children"]["by_state"]["busy"] == 1, "the request runs")
    waiting = Background(control.command, "stop")
    eventually(lambda: control.status["state"] == "draining", "it drains")
    os.kill(pool.pid, signal.SIGKILL)
    assert waiting.result()[:2] == (0, "stopped\n")


def test_reopen_opens_the_log_anew_or_says_why_not(start, place, folder):
    path = os.path.join(folder, "logs", "cede.log")
    os.mkdir(os.path.dirname(path))
    pool = start.cede(options=["--log", path], wait=False, environment=runtime_environment(place))
    terminal, pool.process.log_path = pool.process.log_path, path
    eventually(lambda: os.path.exists(path), "the log is there")
    control = Control(pool.wait_until_ready(), start.binary)
    os.rename(path, path + ".1")
    assert control.command("reopen") == (0, f"the log {path} was reopened\n", "")
    assert os.path.exists(path)
    shutil.rmtree(os.path.dirname(path))
    code, out, error = control.command("reopen")
    assert (code, out) == (1, "")
    assert "can't be reopened" in error
    pool.process.log_path = terminal


def test_what_can_not_be_understood_is_wrong_usage_and_reaches_nobody(controlled, command):
    pool, control = controlled
    for arguments in (["stop", "now"], ["children"], ["children", "0"], ["status", "--jsn"], ["reload", "--fast"]):
        code, out, error = control.command(*arguments)
        assert (code, out) == (2, ""), arguments
        assert "cede --help" in error
    assert command("staus")[0] == 2
    assert "did you mean 'cede status'" in command("staus")[2]
    assert pool.process.running


def test_a_stopped_process_is_no_reason_to_wait_for_ever(controlled):
    pool, control = controlled
    os.kill(pool.pid, signal.SIGSTOP)
    try:
        code, _, error = control.command("status", "--timeout", "300ms")
    finally:
        os.kill(pool.pid, signal.SIGCONT)
    assert code == 1 and "no answer within 300 ms" in error
    assert control.command("status")[0] == 0


# --- which pool -------------------------------------------------------------------------------------


def test_pools_of_one_title_have_a_socket_each_and_are_told_apart(start, command, place):
    pools = [
        start.cede(children=1, options=["--title", "www"], environment=runtime_environment(place)) for _ in range(2)
    ]
    controls = [Control(pool, start.binary) for pool in pools]
    assert [control.path for control in controls] == [f"{place}/www.sock", f"{place}/www.{pools[1].pid}.sock"]
    assert [control.status["pid"] for control in controls] == [pool.pid for pool in pools]
    code, out, error = in_directory(command, place, "stop", "--title", "www")
    assert (code, out) == (1, "")
    assert all(control.path in error for control in controls)
    code, out, _ = in_directory(command, place, "status", "--title", "www")
    assert code == 0
    assert all(f"{control.path}:\n" in out for control in controls)
    code, out, _ = in_directory(command, place, "status", "--json", "--title", "www")
    assert {json.loads(line)["pid"] for line in out.splitlines()} == {pool.pid for pool in pools}
    assert controls[1].command("stop")[0] == 0
    assert in_directory(command, place, "stop", "--title", "www")[0] == 0
    assert pools[0].process.wait() == 0
    code, _, error = in_directory(command, place, "status", "--title", "www")
    assert code == 1 and "no cede with the title 'www' answers" in error and "--control" in error


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_a_pool_is_found_by_its_address(start, command, place, kind):
    addresses = [start.new_address("tcp"), start.new_address(kind)]
    pools = [
        start.cede(children=1, listen=[address], environment=runtime_environment(place)) for address in addresses
    ]
    wanted = pools[1].process.arguments[pools[1].process.arguments.index("--listen") + 1]
    code, out, error = in_directory(command, place, "status", "--json", "--listen", wanted)
    assert code == 0, error
    assert json.loads(out)["pid"] == pools[1].pid


@needs_root
def test_the_only_pool_of_a_user_needs_no_name(start, place):
    """As a user of his own, who can't use what root has in /run/cede."""
    os.chown(place, *[__import__("pwd").getpwnam(USER)[index] for index in (2, 3)])
    environment = clean_environment(XDG_RUNTIME_DIR=place)
    as_user = {"user": USER, "group": USER, "extra_groups": []}
    pool = start.cede(children=1, identity=[], environment=environment, **as_user)
    control = Control(pool, start.binary)
    assert os.path.dirname(control.path) == f"{place}/cede"
    assert stat.S_IMODE(os.stat(f"{place}/cede").st_mode) == 0o700
    code, out, error = run_to_end(start.binary, ["status", "--json"], environment=environment, **as_user)
    assert code == 0, error
    assert json.loads(out)["pid"] == pool.pid
    assert control.command("status")[0] == 0, "root may command everybody's"
    assert run_to_end(start.binary, ["stop"], environment=environment, **as_user)[:2] == (0, "stopped\n")


# --- the socket -------------------------------------------------------------------------------------


def test_the_socket_is_the_owners_alone_and_gone_at_the_end(controlled):
    pool, control = controlled
    found = os.stat(control.path)
    assert stat.S_ISSOCK(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o600
    assert pool.process.stop() == 0
    assert not os.path.exists(control.path)


def test_a_socket_that_a_killed_cede_left_behind_is_replaced(start_in, start, place):
    address = start.new_address()
    first, control = start_in(children=1, listen=[address])
    first.process.stop(signal.SIGKILL)
    assert os.path.exists(control.path)
    code, _, error = control.command("status")
    assert code == 1 and "nobody answers" in error
    eventually(lambda: not procfs.descendants(first.pid) and not first.children, "its children are gone")
    second, again = start_in(children=1, listen=[address])
    assert again.path == control.path
    assert again.status["pid"] == second.pid
    assert os.listdir(place) == [os.path.basename(control.path)]


def test_a_path_of_ones_own_must_be_usable(start, place, command):
    pool = start.cede(children=1, options=["--control", f"{place}/own.sock"])
    assert Control(pool, start.binary).path == f"{place}/own.sock"
    taken = start.cede(children=1, options=["--control", f"{place}/own.sock"], wait=False)
    assert taken.process.wait() == 1
    assert "--control" in taken.process.log and "already serves this socket" in taken.process.log
    nowhere = start.cede(children=1, options=["--control", f"{place}/none/own.sock"], wait=False)
    assert nowhere.process.wait() == 1
    assert f"there is no directory {place}/none" in nowhere.process.log
    for bad in ("relative.sock", "/" + "x" * 108, f"{place}/"):
        assert command("run", "--control", bad, "--", "/bin/true")[0] == 2, bad
    assert Control(pool, start.binary).status["pid"] == pool.pid


def test_there_is_none_if_none_is_wanted(start, place):
    pool = start.cede(children=1, options=["--control", "none"], environment=runtime_environment(place))
    assert "control socket" not in pool.process.log
    assert os.listdir(place) == []
    assert pool.get("hello.php").text == "hello\n"


@needs_root
@needs(*OWN_MOUNTS)
def test_where_none_can_be_made_a_warning_says_so_and_the_pool_serves(start):
    read_only = with_mounts("mount -t tmpfs -o ro none /run")
    pool = start_behind(start, read_only, php=["-d", "opcache.enable=0"])
    warning = [line for line in pool.process.log.splitlines() if "no control socket" in line]
    assert len(warning) == 1 and " warning: " in warning[0]
    assert "/run/cede" in warning[0] and "--control PATH" in warning[0]
    assert pool.get("hello.php").text == "hello\n"


@needs_root
def test_nothing_of_others_is_used_as_a_directory(start, place, folder):
    """/run/cede or /tmp/cede-UID that somebody else has made, or that leads elsewhere."""
    user = __import__("pwd").getpwnam(USER)
    as_user = {"user": USER, "group": USER, "extra_groups": []}
    traps = {
        "link": lambda path: os.symlink(folder, path),
        "open": lambda path: (os.mkdir(path), os.chown(path, user.pw_uid, user.pw_gid), os.chmod(path, 0o777)),
        "foreign": lambda path: (os.mkdir(path), os.chmod(path, 0o755)),
    }
    for name, lay in traps.items():
        runtime = os.path.join(place, name)
        os.mkdir(runtime)
        lay(os.path.join(runtime, "cede"))
        os.chown(runtime, user.pw_uid, user.pw_gid)
        environment = clean_environment(XDG_RUNTIME_DIR=runtime)
        pool = start.cede(children=1, identity=[], environment=environment, **as_user)
        used = pool.process.wait_for_log(r"control socket (\S+)|no control socket").group(1)
        assert used is None or used.startswith(f"/tmp/cede-{user.pw_uid}/"), name
        assert glob.glob(f"{runtime}/cede/*") == [] or name == "link"
        assert pool.process.stop() == 0
    assert [one for one in os.listdir(folder) if one.endswith(".sock")] == []


# --- reload, upgrade, children ------------------------------------------------------------------------


def test_children_changes_the_number_and_returns_when_it_is_so(controlled):
    _, control = controlled
    for count in (4, 1):
        code, out, error = control.command("children", str(count))
        assert code == 0 and out, error
        status = control.status
        assert status["children"]["limit"] == status["children"]["wanted"] == count
        assert status["children"]["by_state"]["free"] == count


def test_f34_a_reload_that_fails_is_a_failure_and_the_status_has_the_reason(start, place, folder):
    """Also without --control in the file: the command line of the first start is what counts."""
    config = os.path.join(folder, "cede.conf")
    good = f"command = {start.child}\n"
    with open(config, "w") as file:
        file.write(good)
    address = start.new_address()
    words = [start.binary, "run", "--config", config, "--listen", f"{address[0]}:{address[1]}", *IDENTITY]
    words += ["--children", "2", "--control", f"{place}/own.sock"]
    pool = Cede(start.processes.start("cede", words), [address], start.scripts).wait_until_ready()
    control = Control(pool, start.binary)
    with open(config, "w") as file:
        file.write("command = /no/such/php-cgi\n")
    code, out, error = control.command("reload")
    assert (code, out) == (1, "") and "/no/such/php-cgi" in error
    reload = control.status["last_reload"]
    assert reload["ok"] is False and "/no/such/php-cgi" in reload["message"]
    assert abs(reload["at"] - time.time()) < 60
    assert f"last reload  {time.strftime('%Y-%m-', time.gmtime())}" in control.command("status")[1]
    assert pool.get("hello.php").text == "hello\n"
    with open(config, "w") as file:
        file.write(good)
    assert control.command("reload")[0] == 0
    assert control.status["last_reload"]["ok"] is True


def test_an_upgrade_keeps_the_socket_and_takes_back_no_count(controlled):
    pool, control = controlled
    kept = [pool.connect() for _ in range(4)]
    for connection in kept:
        assert pool.ask(connection, "hello.php").text == "hello\n"
    eventually(lambda: control.status["connections"]["parked"] >= 2, "some are parked")
    before = control.status
    code, out, error = control.command("upgrade")
    assert code == 0 and out, error
    after = control.status
    assert after["pid"] == before["pid"] and after["uptime_s"] >= before["uptime_s"]
    assert all(after["totals"][name] >= count for name, count in before["totals"].items())
    assert after["totals"]["requests"] == 4 and after["totals"]["upgrades"] == before["totals"]["upgrades"] + 1
    assert [pool.ask(connection, "hello.php").text for connection in kept] == ["hello\n"] * 4
    assert control.command("stop") == (0, "stopped\n", "")
    assert not os.path.exists(control.path)

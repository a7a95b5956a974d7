# SPDX-License-Identifier: Apache-2.0
"""Whom, where, how and with which variables children run, and how ps shows the supervisor."""
import json
import os
import subprocess

import pytest

from support import kinds, procfs
from support.command import needs_root, run_to_end, says
from support.namespaces import OWN_MOUNTS, Chroot, needs, start_behind
from support.process import clean_environment
from support.server import IDENTITY, PHP_CGI, STAND_IN, as_argument

pytestmark = pytest.mark.skipif(bool(STAND_IN), reason="plain php-cgi has no such options")

LISTEN = ("--listen", "127.0.0.1:21200")


def surroundings(pool, query=""):
    return json.loads(pool.get("surroundings.php", query).body)


def limits(pid):
    """{name: (soft, hard)} of /proc/PID/limits."""
    with open(f"/proc/{pid}/limits") as file:
        lines = [line.split("  ") for line in file.read().splitlines()[1:]]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    return {cell[0]: (cell[1], cell[2]) for cell in cells}


def nice_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[16])


@kinds.both
def test_children_run_with_the_configured_surroundings_and_the_supervisor_does_not(start, folder):
    inner = os.path.join(folder, "inner")
    os.mkdir(inner)
    before = limits(os.getpid())["Max core file size"]
    options = ["--chdir", inner, "--umask", "027", "--nice", "7", "--rlimit-nofile", "300", "--rlimit-core", "0"]
    pool = start.cede(children=1, options=options)
    child = pool.children[0]
    seen = surroundings(pool, f"file={folder}/made")
    assert seen["umask"] == 0o027
    assert (seen["limits"]["soft openfiles"], seen["limits"]["hard openfiles"]) == (300, 300)
    assert os.stat(os.path.join(folder, "made")).st_mode & 0o777 == 0o640
    for pid in (child, pool.zygote):
        assert os.readlink(f"/proc/{pid}/cwd") == inner
        assert limits(pid)["Max open files"] == ("300", "300")
        assert limits(pid)["Max core file size"] == ("0", "0")
        assert nice_of(pid) == (7 if pid == child else 7 - 10)  # docs/design/0011
    assert os.readlink(f"/proc/{pool.pid}/cwd") == os.getcwd()
    assert nice_of(pool.pid) == 0
    assert limits(pool.pid)["Max core file size"] == before


def test_without_options_children_have_what_cede_was_started_with(start):
    pool = start.cede(children=1, nofile=(777, 2000))
    assert limits(pool.children[0])["Max open files"] == ("777", "2000")
    assert nice_of(pool.children[0]) == 0
    assert os.readlink(f"/proc/{pool.children[0]}/cwd") == os.getcwd()


def test_the_options_work_in_a_file(start, folder):
    path = os.path.join(folder, "cede.conf")
    with open(path, "w") as file:
        file.write(
            "umask = 0077\nnice = 3\nrlimit-nofile = 512\nrlimit-core = 0\nchdir = /usr\n"
            "env = GREETING='hello world'\nenv = 'SEARCH=$PATH'\nclear-env = yes\ntitle = 'of the file'\n"
        )
    pool = start.cede(children=1, options=["--config", path, "--env", "GREETING=bye"])
    seen = surroundings(pool)
    assert seen["umask"] == 0o077
    assert nice_of(pool.children[0]) == 3
    assert seen["limits"]["soft openfiles"] == 512
    assert seen["getenv"]["GREETING"] == "bye", "the command line goes first"
    assert seen["getenv"]["SEARCH"] == clean_environment()["PATH"]
    assert os.readlink(f"/proc/{pool.children[0]}/cwd") == "/usr"
    assert title(pool.pid) == "cede: supervisor [of the file]"


# --- the environment ---


@kinds.both
def test_variables_are_added_to_what_cede_was_given(start):
    given = clean_environment(SECRET="x", HOME="/root")
    options = ["--env", "A=a b=c", "--env", "HOME=/srv", "--env", "LANGUAGE=$LANG", "--env", "NONE=$MISSING"]
    pool = start.cede(children=1, options=options, environment=given)
    seen = surroundings(pool)["getenv"]
    expected = {"A": "a b=c", "HOME": "/srv", "LANGUAGE": "C.UTF-8", "NONE": "", "SECRET": "x", "PATH": given["PATH"]}
    assert {name: seen.get(name) for name in expected} == expected


@kinds.both
def test_a_cleared_environment_has_what_was_set_and_nothing_else(start):
    given = clean_environment(SECRET="x", LISTEN_FDNAMES="y")
    pool = start.cede(children=1, options=["--clear-env", "--env", "A=1", "--env", "PATH=$PATH"], environment=given)
    with pool.connect() as connection:
        seen = json.loads(pool.ask(connection, "env.php").body)["getenv"]
    # What belongs to the request is not the process's.
    own = {name for name in seen if not name.startswith(("HTTP_", "SERVER_", "REQUEST_", "SCRIPT_", "REMOTE_"))}
    known = {"QUERY_STRING", "CONTENT_TYPE", "CONTENT_LENGTH", "DOCUMENT_URI", "DOCUMENT_ROOT", "GATEWAY_INTERFACE"}
    own -= known | {"REDIRECT_STATUS", "FCGI_ROLE", "ORIG_SCRIPT_NAME", "PATH_TRANSLATED"}
    assert own == {"A", "PATH"}
    with open(f"/proc/{pool.children[0]}/environ", "rb") as file:
        assert b"SECRET" not in file.read()


VARIABLES = {
    "no value": ("NAME", ["NAME=VALUE", "NAME=$NAME"]),
    "no name": ("=x", ["name"]),
    "a name with a blank": ("A B=x", ["'A B'"]),
    "the agent's": ("LD_PRELOAD=/x.so", ["LD_PRELOAD", "agent"]),
    "cede's own": ("CEDE_AGENT=1", ["CEDE_AGENT", "CEDE_"]),
    "of another option": ("PHP_FCGI_CHILDREN=5", ["--children"]),
    "of the service manager": ("NOTIFY_SOCKET=/run/x", ["NOTIFY_SOCKET"]),
}


@pytest.mark.parametrize("case", VARIABLES)
def test_a_variable_that_can_not_be_set_is_refused_with_the_reason(command, case):
    argument, words = VARIABLES[case]
    says(command("check", *LISTEN, "--env", argument, *IDENTITY, "--", PHP_CGI), 2, "--env", *words)


# --- what is refused before anything is started ---


REFUSED = {
    "a bad umask": (["--umask", "999"], 2, ["--umask", "999"]),
    "a bad priority": (["--nice", "40"], 2, ["--nice", "40"]),
    "too few files": (["--rlimit-nofile", "10"], 2, ["--rlimit-nofile", "10"]),
    "a bad size": (["--rlimit-core", "much"], 2, ["--rlimit-core", "much", "unlimited"]),
    "a relative directory": (["--chdir", "relative"], 2, ["--chdir", "relative", "whole path"]),
    "a relative root": (["--chroot", "relative"], 2, ["--chroot", "relative", "whole path"]),
    "no such directory": (["--chdir", "/absent"], 1, ["--chdir", "can't change the directory", "create"]),
    "a title with a tab": (["--title", "a\tb"], 2, ["--title", "control character"]),
}


@pytest.mark.parametrize("mode", ["run", "check"])
@pytest.mark.parametrize("case", REFUSED)
def test_what_can_not_be_is_refused_with_its_option(command, mode, case):
    options, status, words = REFUSED[case]
    says(command(mode, *LISTEN, *options, *IDENTITY, "--", PHP_CGI), status, *words)


@needs_root
def test_only_root_changes_the_root_directory(start):
    command = ["setpriv", "--reuid=www-data", "--regid=www-data", "--clear-groups", start.binary]
    arguments = [*command[1:], "check", *LISTEN, "--chroot", "/", "--", PHP_CGI]
    says(run_to_end(command[0], arguments), 1, "--chroot", "only root")


@needs_root
@pytest.mark.parametrize(
    "capability, options, words",
    [
        ("setuid", [], ["--user", "CAP_SETUID"]),
        ("setgid", [], ["--user", "CAP_SETGID"]),
        ("sys_chroot", ["--chroot", "/"], ["--chroot", "CAP_SYS_CHROOT"]),
        ("sys_nice", ["--nice", "-5"], ["--nice", "CAP_SYS_NICE"]),
    ],
)
def test_a_missing_capability_is_named(start, capability, options, words):
    arguments = [f"--bounding-set=-{capability}", start.binary, "check", *LISTEN, *options, *IDENTITY, "--", PHP_CGI]
    says(run_to_end("setpriv", arguments), 1, *words)


# --- another root directory ---


@needs_root
@needs(*OWN_MOUNTS)
def test_children_live_in_their_root_and_the_socket_stays_outside(start, folder, scripts):
    root = Chroot(folder, scripts)
    options = ["--chroot", root.path, "--chdir", "/inner", "--umask", "022"]
    pool = start_behind(start, root.prefix(), options, children=2)
    pool.scripts = "/scripts"
    seen = surroundings(pool)
    assert seen["cwd"] == "/scripts"
    assert "inner" in seen["root"] and "home" not in seen["root"]
    for pid in (*pool.children, pool.zygote):
        assert os.readlink(f"/proc/{pid}/root") == root.path
        assert os.readlink(f"/proc/{pid}/cwd") == f"{root.path}/inner"
        assert procfs.status(pid)["CapEff"].strip("0") == ""
        assert procfs.status(pid)["Uid"].split()[0] != "0"
    assert os.readlink(f"/proc/{pool.pid}/root") == "/"
    with pool.connect() as connection:
        for _ in range(20):
            assert pool.ask(connection, "hello.php").text == "hello\n"
    assert pool.process.stop() == 0


@needs_root
@needs(*OWN_MOUNTS)
def test_without_a_directory_children_start_in_their_root(start, folder, scripts):
    root = Chroot(folder, scripts)
    pool = start_behind(start, root.prefix(), ["--chroot", root.path])
    assert os.readlink(f"/proc/{pool.children[0]}/cwd") == root.path


@needs_root
@needs(*OWN_MOUNTS)
def test_a_root_without_proc_is_refused_before_the_start(start, folder, scripts):
    root = Chroot(folder, scripts, proc=False)
    prefix = root.prefix()
    arguments = [*prefix[1:], start.binary, "check", *LISTEN, "--chroot", root.path, *IDENTITY, "--", PHP_CGI]
    says(run_to_end(prefix[0], arguments), 1, "--chroot", "/proc", f"mount --bind /proc {root.path}/proc")


@needs_root
@needs(*OWN_MOUNTS)
def test_the_command_is_looked_up_inside_the_root(start, folder, scripts):
    root = Chroot(folder, scripts)
    prefix = root.prefix()
    arguments = [*prefix[1:], start.binary, "check", *LISTEN, "--chroot", root.path, *IDENTITY, "--"]
    outside = os.path.join(folder, "php-cgi")
    os.symlink(PHP_CGI, outside)
    says(run_to_end(prefix[0], [*arguments, outside]), 1, "command", f"inside '{root.path}'", outside)
    code, out, error = run_to_end(prefix[0], [*arguments, PHP_CGI])
    assert code == 0, error
    assert "valid" in out


# --- names of processes ---


def title(pid):
    with open(f"/proc/{pid}/cmdline") as file:
        return file.read().rstrip("\0")


def listed(pid):
    """What ps shows."""
    command = ["ps", "-o", "args=", "-p", str(pid)]
    environment = clean_environment(LC_ALL="C.UTF-8")
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=10).stdout.rstrip()


def short_name(pid):
    with open(f"/proc/{pid}/comm") as file:
        return file.read().rstrip("\n")


@kinds.both
def test_ps_tells_instances_apart_and_leaves_children_their_own_name(start):
    php = start.php_arguments({"memory_limit": "99M"})
    options = {"": [], "www": ["--title", "www"], "shop é": ["--title", "shop é"]}
    pools = {name: start.cede(children=1, php=php, options=given) for name, given in options.items()}
    for name, pool in pools.items():
        assert title(pool.pid) == "cede: supervisor" + (f" [{name}]" if name else "")
        assert short_name(pool.pid) == ("cede" + (f" [{name}]" if name else ""))
        assert listed(pool.pid) == title(pool.pid)
        assert title(pool.zygote) == "cede: zygote" + (f" [{name}]" if name else "")
        assert listed(pool.zygote) == title(pool.zygote)
        assert short_name(pool.zygote) == "cede-zygote"
        child = pool.children[0]
        assert short_name(child) == os.path.basename(start.child)[:15]
        # lsphp begins by writing its name over its command line.
        assert title(child).split("\0") in ([start.child, *php], [os.path.basename(start.child)])
        assert pool.get("hello.php").text == "hello\n"


def test_a_title_is_cut_to_its_room_and_harms_nothing(start):
    given = clean_environment(KEPT="yes", SECRET="x")
    long = "ü" * 3000
    pool = start.cede(children=1, options=["--title", long, "--env", "COPY=$KEPT"], environment=given)
    shown = title(pool.pid)
    assert shown.startswith("cede: supervisor [ü")
    # /proc shows a page at the most of a title that is longer than the arguments were.
    assert len(shown) > 1000
    assert short_name(pool.pid) == "cede [üüüü"
    assert title(pool.zygote) == "cede: zygote [" + "ü" * 31 + "]"
    seen = surroundings(pool)["getenv"]
    assert (seen["KEPT"], seen["COPY"], seen["SECRET"]) == ("yes", "yes", "x")
    assert pool.get("hello.php").text == "hello\n"


def test_children_that_are_started_later_have_it_all_as_well(start):
    pool = start.cede(children=1, options=["--umask", "0", "--nice", "2", "--clear-env", "--env", "A=1"])
    first = pool.children[0]
    os.kill(first, 9)
    pool.wait_for_children(1, without=[first])
    seen = surroundings(pool)
    assert (seen["umask"], nice_of(pool.children[0]), seen["getenv"]["A"]) == (0, 2, "1")


def test_several_listeners_and_a_low_limit_of_files_go_together(start):
    addresses = [start.new_address() for _ in range(8)]
    pool = start.cede(children=2, listen=addresses, options=["--rlimit-nofile", "256"])
    for address in addresses:
        assert pool.get("hello.php", address=address).text == "hello\n"
    assert as_argument(addresses[0]) in pool.process.log

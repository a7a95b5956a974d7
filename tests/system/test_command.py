# SPDX-License-Identifier: Apache-2.0
"""The command line: what it refuses and how it says so."""
import os
import pwd
import re
import subprocess

import pytest

from support import procfs
from support.command import good_command, needs_root, says
from support.ports import can_listen, free_port
from support.server import GROUP, IDENTITY, PHP_CGI, PHP_CLI, STAND_IN, USER, as_argument
from support.waiting import eventually

pytestmark = pytest.mark.skipif(bool(STAND_IN), reason="plain php-cgi has another command line")


USAGE = {
    "nothing at all": ([], ["command"]),
    "no command behind --": (["--listen", "127.0.0.1:21200", "--"], ["command"]),
    "an unknown option": (["--lisen", "x", "--", PHP_CGI], ["--lisen", "--listen"]),
    "an unknown word": (["walk", *good_command()], ["walk"]),
    "an option without its value": (["--listen"], ["--listen"]),
    "an address without a port": (["--listen", "127.0.0.1", "--", PHP_CGI], ["--listen", "127.0.0.1"]),
    "a port out of range": (["--listen", "127.0.0.1:99999", "--", PHP_CGI], ["--listen", "99999"]),
    "a bare port": (["--listen", "9000", "--", PHP_CGI], ["--listen", "9000"]),
    "a host name": (["--listen", "no.such.host:9000", "--", PHP_CGI], ["--listen", "no.such.host"]),
    "bad IPv6": (["--listen", "[::g]:9000", "--", PHP_CGI], ["--listen", "[::g]"]),
    "a socket path too long": (["--listen", "/tmp/" + "x" * 200, "--", PHP_CGI], ["--listen", "long"]),
    "no children": (["--children", "0", "--listen", "127.0.0.1:21200", "--", PHP_CGI], ["--children", "0"]),
    "children in words": (["--children", "ten", "--listen", "/tmp/s", "--", PHP_CGI], ["--children", "ten"]),
    "a bad mode": (["--listen-mode", "0999", *good_command()], ["--listen-mode", "0999"]),
    "a bad way to give up": (["--give-up", "maybe", *good_command()], ["--give-up", "maybe", "park"]),
    "a bad limit": (["--keepalive-limit", "150%", *good_command()], ["--keepalive-limit", "150%"]),
    "bad max-parked": (["--max-parked", "-1", *good_command()], ["--max-parked"]),
    "a bad time": (["--stop-timeout", "3 moons", *good_command()], ["--stop-timeout", "3 moons"]),
    "a bad backlog": (["--backlog", "many", *good_command()], ["--backlog", "many"]),
    "a bad log level": (["--log-level", "loud", *good_command()], ["--log-level", "loud"]),
    "an empty value": (["--listen", "", "--", PHP_CGI], ["--listen", "empty"]),
}


@pytest.mark.parametrize("mode", ["run", "check"])
@pytest.mark.parametrize("case", USAGE)
def test_wrong_usage_is_named_with_a_remedy(command, case, mode):
    arguments, words = USAGE[case]
    says(command(mode, *arguments), 2, *words)


def test_an_option_given_twice_is_refused(command):
    says(command("check", "--children", "1", *good_command()), 2, "--children")


CONFIG = {
    "an unknown name": ("children = 2\n\nchildrn = 3\n", ["3", "childrn", "children"]),
    "a bad value": ("# comment\nchildren = many\n", ["2", "children", "many"]),
    "no assignment": ("children\n", ["1", "children"]),
    "a section": ("[www]\n", ["1", "www"]),
    "twice": ("children = 2\nchildren = 3\n", ["2", "children"]),
}


@pytest.mark.parametrize("case", CONFIG)
def test_a_mistake_in_the_file_is_named_with_file_and_line(command, folder, case):
    text, (line, *words) = CONFIG[case]
    path = f"{folder}/cede.conf"
    with open(path, "w") as file:
        file.write(text)
    arguments = ["--config", path, "--listen", "127.0.0.1:21200", *IDENTITY, "--", PHP_CGI]
    says(command("check", *arguments), 2, f"{path}:{line}", *words)


def test_a_missing_file_is_a_failure(command, folder):
    says(command("check", "--config", f"{folder}/absent.conf", *good_command()), 1, f"{folder}/absent.conf")


def test_options_come_from_the_file_and_the_command_line_goes_first(start, folder):
    address = start.new_address()
    path = f"{folder}/cede.conf"
    with open(path, "w") as file:
        file.write(f"# a pool\nlisten = {as_argument(address)}\nchildren = 3\ngive-up = close\n")
    pool = start.cede(listen=[], options=["--config", path], children=2)
    pool.address = address
    assert pool.get("hello.php").text == "hello\n"
    assert len(pool.wait_for_children(2)) == 2


def test_help_names_every_option(command):
    code, out, error = command("--help")
    assert (code, error) == (0, "")
    options = "listen listen-mode listen-owner listen-group backlog children user group allow-root give-up config"
    for option in [*options.split(), "keepalive-limit", "max-parked", "stop-timeout", "log-level", "help", "version"]:
        assert f"--{option}" in out


def test_version_is_one_line(command):
    code, out, error = command("--version")
    assert (code, error) == (0, "")
    assert re.fullmatch(r"cede \d+\.\d+\.\d+\n", out)


@needs_root
def test_root_without_a_user_is_refused(command):
    says(command("--listen", "127.0.0.1:21200", "--children", "1", "--", PHP_CGI), 1, "--user", "--allow-root")


@needs_root
def test_root_as_the_user_is_refused(command):
    arguments = ["--listen", "127.0.0.1:21200", "--user", "root", "--", PHP_CGI]
    says(command(*arguments), 1, "root", "--allow-root")


@needs_root
def test_root_is_allowed_when_asked_for(start):
    pool = start.cede(children=1, identity=["--allow-root"])
    assert procfs.status(pool.children[0])["Uid"].split() == ["0"] * 4
    assert pool.get("hello.php").text == "hello\n"


@needs_root
def test_an_ordinary_user_needs_no_user_option(start):
    pool = start.cede(children=1, identity=[], user=USER, group=GROUP, extra_groups=[])
    assert pool.get("hello.php").text == "hello\n"
    assert procfs.status(pool.children[0])["Uid"].split()[0] == str(pwd.getpwnam(USER).pw_uid)


@needs_root
def test_an_ordinary_user_can_not_become_another(command):
    arguments = ["--listen", "127.0.0.1:21200", "--user", "daemon", "--", PHP_CGI]
    says(command(*arguments, user=USER, group=GROUP, extra_groups=[]), 1, "--user", "daemon")


@needs_root
@pytest.mark.parametrize("option", ["--user", "--group", "--listen-owner", "--listen-group"])
def test_an_unknown_name_is_refused(command, folder, option):
    others = ["--user", USER] if option != "--user" else []
    arguments = ["--listen", f"{folder}/s", option, "nosuchname", *others, "--", PHP_CGI]
    says(command("check", *arguments), 1, option, "nosuchname")


def static_program(folder, source):
    path = f"{folder}/static"
    subprocess.run(["cc", "-static", "-x", "c", "-", "-o", path], input=source, text=True, check=True)
    return path


def plain_file(folder):
    path = f"{folder}/plain-file"
    with open(path, "w") as file:
        file.write("text\n")
    os.chmod(path, 0o644)
    return path


BAD_BINARIES = {
    "missing": lambda folder: f"{folder}/absent",
    "not executable": plain_file,
    "a directory": lambda folder: folder,
    "static, ends": lambda folder: static_program(folder, "int main(void) { return 0; }"),
    "static, stays": lambda folder: static_program(folder, "int pause(void);\nint main(void) { for (;;) pause(); }"),
    "ends at once": lambda folder: "/bin/true",
    "ends at once with a status": lambda folder: "/bin/false",
    "the PHP command line": lambda folder: PHP_CLI,
}


@pytest.mark.parametrize("kind", ["tcp", "unix"])
@pytest.mark.parametrize("case", BAD_BINARIES)
def test_a_binary_that_can_not_serve_gives_one_clear_error(command, start, folder, case, kind):
    binary = BAD_BINARIES[case](folder)
    address = start.new_address(kind)
    outcome = command("run", "--listen", as_argument(address), "--children", 2, *IDENTITY, "--", binary)
    says(outcome, 1, binary)
    assert procfs.descendants(os.getpid()) == []
    assert can_listen(address[1]) if kind == "tcp" else not os.path.exists(address)


def test_a_program_that_never_asks_for_a_connection_is_given_up(command):
    arguments = ["--listen", f"127.0.0.1:{free_port()}", "--start-timeout", "500ms", *IDENTITY]
    says(command(*arguments, "--", "/bin/sleep", "600"), 1, "/bin/sleep", "--start-timeout")
    assert procfs.descendants(os.getpid()) == []


@pytest.mark.parametrize("case", ["missing", "not executable", "a directory", "static, ends"])
def test_check_finds_a_bad_binary(command, folder, case):
    binary = BAD_BINARIES[case](folder)
    says(command("check", "--listen", "127.0.0.1:21200", *IDENTITY, "--", binary), 1, binary)


def test_the_default_mode_is_run(start, processes):
    address = start.new_address()
    process = processes.start("cede", [start.binary, *good_command(as_argument(address))])
    eventually(lambda: not can_listen(address[1]), "it listens")
    process.wait_for_log(r"ready.*children=1|children=1.*ready")
    assert process.stop() == 0


def test_options_may_carry_their_value_after_an_equals_sign(command):
    arguments = ["--listen=127.0.0.1:21200", "--children=1", *IDENTITY, "--", PHP_CGI]
    assert command("check", *arguments)[0] == 0

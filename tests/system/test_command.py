# SPDX-License-Identifier: Apache-2.0
"""The command line: what it refuses and how it says so; where it listens."""
import grp
import os
import pwd
import re
import socket
import stat
import subprocess

import pytest

from support import procfs
from support.ports import can_listen, free_port, has_ipv6
from support.process import clean_environment
from support.server import GROUP, PHP_CGI, PHP_CLI, STAND_IN, USER, Cede, as_argument
from support.waiting import eventually, parallel

pytestmark = pytest.mark.skipif(bool(STAND_IN), reason="plain php-cgi has another command line")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root changes users and owners")

IDENTITY = ["--user", USER, "--group", GROUP] if os.geteuid() == 0 else []
REMEDY = re.compile(
    r"\b(add|check|choose|correct|did you mean|give|install|keep|leave|must|pass|pick|put|remove|see|set|start|stop|"
    r"try|use|write)\b",
    re.IGNORECASE,
)


@pytest.fixture
def command(start):
    """Runs cede to its end: (exit status, standard output, standard error)."""

    def run(*arguments, timeout=20, **options):
        done = subprocess.run(
            [start.binary, *map(str, arguments)],
            env=options.pop("env", clean_environment()),
            stdin=options.pop("stdin", subprocess.DEVNULL),
            capture_output=True,
            text=True,
            timeout=timeout,
            **options,
        )
        return done.returncode, done.stdout, done.stderr

    return run


def good_command(address="127.0.0.1:21200", children=1):
    return ["--listen", address, "--children", str(children), *IDENTITY, "--", PHP_CGI]


def says(outcome, status, *words):
    """The exit status, every one of `words`, and a remedy; all in one line."""
    code, out, error = outcome
    assert code == status, error
    assert out == ""
    lines = [line for line in error.splitlines() if all(word in line for word in words)]
    assert len(lines) == 1, f"one line with {words}:\n{error}"
    assert REMEDY.search(lines[0]), f"no remedy in: {lines[0]}"
    assert len(error.splitlines()) <= 3, f"one clear error, not:\n{error}"


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
    "no children": (["--children", "0", *good_command()], ["--children", "0"]),
    "children in words": (["--children", "ten", "--listen", "127.0.0.1:21200", "--", PHP_CGI], ["--children", "ten"]),
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


def not_executable(folder):
    path = f"{folder}/plain-file"
    with open(path, "w") as file:
        file.write("text\n")
    os.chmod(path, 0o644)
    return path


BAD_BINARIES = {
    "missing": lambda folder: f"{folder}/absent",
    "not executable": not_executable,
    "a directory": lambda folder: folder,
    "static, ends": lambda folder: static_program(folder, "int main(void) { return 0; }"),
    "static, stays": lambda folder: static_program(folder, "#include <unistd.h>\nint main(void) { for (;;) pause(); }"),
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


def test_check_of_a_good_command_succeeds_and_starts_nothing(command, folder):
    stale = stale_socket(f"{folder}/s")
    before = os.stat(stale).st_ino
    code, _, error = command("check", "--listen", stale, "--children", 2, *IDENTITY, "--", PHP_CGI)
    assert code == 0, error
    assert os.stat(stale).st_ino == before
    assert procfs.descendants(os.getpid()) == []


def stale_socket(path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(1)
    return path


def test_a_stale_socket_file_is_replaced(start):
    address = start.new_address("unix")
    stale_socket(address)
    assert start.cede(listen=[address]).get("hello.php").text == "hello\n"


@pytest.mark.parametrize("queue", ["empty", "full"])
def test_a_live_socket_is_left_alone(command, folder, queue):
    path = f"{folder}/live"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(0)
        waiting = []
        if queue == "full":
            for _ in range(2):
                client = socket.socket(socket.AF_UNIX)
                client.setblocking(False)
                waiting.append(client)
                try:
                    client.connect(path)
                except BlockingIOError:
                    break
        inode = os.stat(path).st_ino
        says(command(*good_command(path)), 1, path)
        assert os.stat(path).st_ino == inode
        for client in waiting:
            client.close()
        with socket.socket(socket.AF_UNIX) as client:
            while waiting:
                listener.accept()[0].close()
                waiting.pop()
            client.connect(path)


def test_a_file_that_is_no_socket_is_left_alone(command, folder):
    path = not_executable(folder)
    says(command(*good_command(path)), 1, path)
    with open(path) as file:
        assert file.read() == "text\n"


def test_a_port_in_use_is_an_error(command):
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        says(command(*good_command(f"127.0.0.1:{port}")), 1, f"127.0.0.1:{port}")


def test_a_socket_in_a_missing_folder_is_an_error(command, folder):
    says(command(*good_command(f"{folder}/absent/s")), 1, f"{folder}/absent")


def test_nothing_is_left_of_the_first_address_when_the_second_fails(command, folder):
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        says(command("--listen", f"{folder}/first", *good_command(f"127.0.0.1:{port}")), 1, f"127.0.0.1:{port}")
    assert not os.path.exists(f"{folder}/first")


@needs_root
def test_a_socket_file_gets_its_mode_owner_and_group(start):
    address = start.new_address("unix")
    pool = start.cede(
        listen=[address], options=["--listen-mode", "0640", "--listen-owner", "daemon", "--listen-group", "www-data"]
    )
    found = os.stat(address)
    assert stat.S_ISSOCK(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o640
    assert pwd.getpwuid(found.st_uid).pw_name == "daemon"
    assert grp.getgrgid(found.st_gid).gr_name == "www-data"
    assert pool.get("hello.php").text == "hello\n"


def test_a_socket_file_is_not_open_to_everybody_by_default(start):
    address = start.new_address("unix")
    start.cede(listen=[address])
    assert stat.S_IMODE(os.stat(address).st_mode) & 0o007 == 0


def test_several_addresses_serve_the_same_children(start):
    kinds = ["tcp", "unix", "tcp"] + (["tcp6"] if has_ipv6() else [])
    pool = start.cede(children=2, listen=[start.new_address(kind) for kind in kinds])
    for address in pool.addresses:
        answers = parallel([lambda: int(pool.get("pid.php", "ms=50", address=address).text)] * 2)
        assert set(answers) == set(pool.children)


def test_an_asterisk_listens_on_all_addresses(start):
    port = free_port()
    pool = start.cede(listen=[("*", port)])
    for host in ["127.0.0.1"] + (["::1"] if has_ipv6() else []):
        assert pool.get("hello.php", address=(host, port)).text == "hello\n"


# Does what systemd does between fork and exec: sockets from descriptor 3 on, and who they are for.
AS_SYSTEMD = """
import os, sys
sockets, command = sys.argv[1].split(","), sys.argv[2:]
for at, number in enumerate(sockets):
    os.dup2(int(number), 100 + at)
for at in range(len(sockets)):
    os.dup2(100 + at, 3 + at, inheritable=True)
    os.close(100 + at)
os.environ.update(LISTEN_FDS=str(len(sockets)), LISTEN_PID=str(os.getpid()), LISTEN_FDNAMES="one:two")
os.execv(command[0], command)
"""


def listening(address):
    if isinstance(address, str):
        one = socket.socket(socket.AF_UNIX)
    else:
        one = socket.socket(socket.AF_INET)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(address)
    one.listen(64)
    return one


def test_sockets_from_systemd_are_served_and_left_behind(start, processes):
    addresses = [start.new_address("tcp"), start.new_address("unix")]
    sockets = [listening(address) for address in addresses]
    numbers = [one.fileno() for one in sockets]
    command = [start.binary, "--children", 2, "--log-level", "info", *IDENTITY, "--", PHP_CGI]
    arguments = ["/usr/bin/python3", "-c", AS_SYSTEMD, ",".join(map(str, numbers)), *command]
    process = processes.start("cede", arguments, pass_fds=numbers)
    pool = Cede(process, addresses, start.scripts).wait_until_ready()
    for one in sockets:
        one.close()
    for address in addresses:
        assert pool.get("hello.php", address=address).text == "hello\n"
    assert "LISTEN_" not in pool.get("env.php").text
    assert process.stop() == 0
    assert os.path.exists(addresses[1]), "a socket file of systemd's is systemd's to remove"


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_a_listener_as_standard_input_is_served(start, kind):
    address = start.new_address(kind)
    with listening(address) as listener:
        pool = start.cede(listen=[], stdin=listener)
    pool.address = address
    for _ in range(4):
        assert pool.get("hello.php").text == "hello\n"
    assert pool.process.stop() == 0


def test_without_any_address_the_error_names_the_ways_to_give_one(command):
    says(command("--children", "1", *IDENTITY, "--", PHP_CGI), 1, "--listen")


def test_another_process_is_not_mistaken_for_the_one_that_systemd_meant(command):
    environment = clean_environment(LISTEN_FDS="1", LISTEN_PID="1")
    says(command("--children", "1", *IDENTITY, "--", PHP_CGI, env=environment), 1, "--listen")


def test_the_default_mode_is_run(start, processes):
    address = start.new_address()
    process = processes.start("cede", [start.binary, *good_command(as_argument(address))])
    eventually(lambda: not can_listen(address[1]), "it listens")
    process.wait_for_log(r"ready.*children=1|children=1.*ready")
    assert process.stop() == 0


def test_options_may_carry_their_value_after_an_equals_sign(command):
    arguments = ["--listen=127.0.0.1:21200", "--children=1", *IDENTITY, "--", PHP_CGI]
    assert command("check", *arguments)[0] == 0

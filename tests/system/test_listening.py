# SPDX-License-Identifier: Apache-2.0
"""Where cede listens: addresses, socket files, sockets from systemd and on standard input."""
import grp
import os
import pwd
import socket
import stat

import pytest

from support import procfs
from support.command import good_command, needs_root, says
from support.ports import free_port, has_ipv6
from support.process import clean_environment
from support.server import IDENTITY, PHP_CGI, STAND_IN, Cede, listening
from support.waiting import parallel

pytestmark = pytest.mark.skipif(bool(STAND_IN), reason="plain php-cgi listens in its own way")


def stale_socket(path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(1)
    return path


def test_a_stale_socket_file_is_replaced(start):
    address = start.new_address("unix")
    stale_socket(address)
    assert start.cede(listen=[address]).get("hello.php").text == "hello\n"


def test_check_leaves_the_socket_file_as_it_is_and_starts_nothing(command, folder):
    path = stale_socket(f"{folder}/s")
    before = os.stat(path).st_ino
    code, _, error = command("check", *good_command(path))
    assert code == 0, error
    assert os.stat(path).st_ino == before
    assert procfs.descendants(os.getpid()) == []


def fill_queue(path):
    """Connects until no further connection fits."""
    waiting = []
    while True:
        client = socket.socket(socket.AF_UNIX)
        client.setblocking(False)
        try:
            client.connect(path)
        except BlockingIOError:
            client.close()
            return waiting
        waiting.append(client)


@pytest.mark.parametrize("queue", ["empty", "full"])
def test_a_live_socket_is_left_alone(command, folder, queue):
    path = f"{folder}/live"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(2)
        waiting = fill_queue(path) if queue == "full" else []
        inode = os.stat(path).st_ino
        says(command(*good_command(path)), 1, path)
        assert os.stat(path).st_ino == inode
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                listener.accept()[0].close()
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            client.connect(path)
        for client in waiting:
            client.close()


def test_a_file_that_is_no_socket_is_left_alone(command, folder):
    path = f"{folder}/plain-file"
    with open(path, "w") as file:
        file.write("text\n")
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
    says(command("--children", "1", *IDENTITY, "--", PHP_CGI, environment=environment), 1, "--listen")

# SPDX-License-Identifier: Apache-2.0
"""Which lsphp is run, and how cede is told: a link in lsphp's place, CEDE_CHILD, the command line, --protocol; and
standing alone, without a web server that executes it."""
import os
import re
import signal
import subprocess

import pytest

from support import kinds, procfs
from support.clients import kept_connections
from support.command import needs_root, says
from support.connection import LsapiConnection
from support.detached import AT_ONCE, WebServer, cede_as_path, environment
from support.process import clean_environment
from support.server import IDENTITY, STAND_IN, Cede

pytestmark = [kinds.lsphp, pytest.mark.skipif(bool(STAND_IN), reason="plain lsphp has another command line")]


def test_a_link_named_lsphp_runs_the_lsphp_real_beside_it(web, installed):
    app = web.execute([installed])
    assert app.get("hello.php").text == "hello\n"
    assert app.get("title.php").text == f"lsphp.real:{app.script('title.php')[-45:]}"
    app.wait_until_ready()
    assert len(procfs.children(app.pid)) == 11
    assert app.process.stop(signal.SIGTERM, AT_ONCE) == 0


def test_a_link_to_the_link_does_too(web, installed, folder):
    place = os.path.join(folder, "elsewhere")
    os.mkdir(place)
    os.chmod(place, 0o755)
    os.symlink(installed, os.path.join(place, "lsphp"))
    assert web.execute([os.path.join(place, "lsphp")]).get("hello.php").text == "hello\n"


def test_arguments_of_the_link_go_to_cede_or_to_lsphp(start, web, installed, folder):
    with open(f"{folder}/own.ini", "w") as file:
        file.write("memory_limit=87M\n")
    os.chmod(f"{folder}/own.ini", 0o644)
    app = web.execute([installed, "--log-level", "info", "--children", "3", "-c", f"{folder}/own.ini"])
    assert app.get("settings.php", "names=memory_limit").text.startswith("memory_limit=87M ")
    assert len(app.wait_until_ready().wait_for_children(3)) == 3


@pytest.mark.parametrize("arguments", [["-v"], ["-i"], ["-q", "SCRIPT", "one", "two"]], ids=" ".join)
def test_what_lsphp_does_by_itself_it_does_through_the_link(start, installed, folder, arguments):
    script = f"{folder}/hello.php"
    with open(script, "w") as file:
        file.write("<?php echo implode(' ', array_slice($argv, 1)), ' ', PHP_SAPI, \"\\n\";\n")
    words = [script if word == "SCRIPT" else word for word in arguments]

    def run(program):
        done = subprocess.run(
            [program, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=20,
            env=clean_environment(),
        )
        # phpinfo() shows times, pids and the program's own path.
        return done.returncode, done.stderr, done.stdout.splitlines()[: 1 if "-i" in words else None]

    assert run(installed) == run(f"{installed}.real")
    assert run(installed)[0] == 0


def test_the_link_without_the_real_one_says_what_is_missing(start, installed, web):
    os.unlink(f"{installed}.real")
    app = web.execute([installed])
    assert app.process.wait(5) == 2
    assert re.search(r"error: .*lsphp\.real.*put", app.process.log)


def test_cede_child_names_the_program(start, web):
    app = web.execute([start.binary], {**environment(), "CEDE_CHILD": f"{start.child} -n"})
    assert app.get("hello.php").text == "hello\n"
    assert "CEDE_CHILD" not in app.get("request.php").text


def test_the_command_line_goes_before_cede_child_and_cede_child_before_the_link(start, web, installed):
    given = {**environment(), "CEDE_CHILD": start.child}
    name = os.path.basename(start.child)
    assert web.execute([installed], given).get("title.php").text.startswith(f"{name}:")
    given["CEDE_CHILD"] = "/nonexistent"
    other = WebServer(start)
    assert other.execute(cede_as_path(start), given).get("hello.php").text == "hello\n"


@pytest.mark.parametrize("form", ["{path}", "unix:{path}", "uds:/{path}", "uds://{path}", "UDS://{path}"])
def test_standing_alone_it_takes_socket_paths_in_every_spelling(start, form):
    path = start.new_address("unix")
    pool = start.cede(children=2, listen=[form.format(path=path)])
    pool.address = path
    kept = kept_connections(pool, 6)
    assert [pool.ask(connection, "hello.php").text for connection in kept] == ["hello\n"] * 6
    assert pool.process.stop() == 0
    assert not os.path.exists(path), "its own socket file it removes"


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_the_link_takes_the_address_of_lsphp_s_option_b(start, installed, processes, kind):
    address = start.new_address(kind)
    spelled = address if kind == "unix" else f"{address[0]}:{address[1]}"
    arguments = [installed, "-b", spelled, "--children", "2", "--log-level", "info"]
    if os.geteuid() == 0:
        arguments += ["--user", "www-data"]
    process = processes.start("cede", arguments)
    pool = Cede(process, [address], start.scripts, LsapiConnection).wait_until_ready()
    assert pool.get("hello.php").text == "hello\n"


@needs_root
def test_root_is_refused_for_lsphp_whatever_was_allowed(start, command):
    """As root, lsphp ends after its first connection."""
    arguments = ["--listen", start.new_address("unix"), "--protocol", "lsapi", "--allow-root", "--", start.child]
    says(command(*arguments), 1, "--user")
    says(command("check", *arguments), 1, "--user")


@needs_root
def test_root_is_refused_for_lsphp_when_only_the_program_shows_that_it_is_one(start, command):
    arguments = ["--listen", start.new_address("unix"), "--allow-root", "--", start.child]
    says(command(*arguments), 1, "--user")


@pytest.mark.parametrize("protocol", ["auto", "lsapi"])
def test_the_protocol_is_found_by_itself_or_given(start, protocol):
    pool = start.cede(children=1, options=["--protocol", protocol])
    assert pool.get("hello.php").text == "hello\n"
    assert "lsapi" in pool.process.log


def test_the_wrong_protocol_is_an_error_that_says_so(start, command):
    arguments = ["--listen", start.new_address("unix"), "--protocol", "fastcgi", *IDENTITY, "--", start.child]
    says(command(*arguments), 1, "--protocol")

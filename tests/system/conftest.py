# SPDX-License-Identifier: Apache-2.0
"""A folder and processes for each test; both are gone afterwards, but a failed test leaves its folder."""
import os
import re
import resource
import shutil
import tempfile

import pytest

from support import lsphp as lsphps
from support.command import run_to_end
from support.control import Control, runtime_environment
from support.detached import WebServer
from support.exchange import nobody_else_notices, own_starter
from support.process import Processes, adopt_orphans
from support.server import BUILD, REPOSITORY, STAND_IN, LsphpStarter, Starter
from support.web import Apache, HAProxy, Lighttpd, Nginx


def pytest_configure(config):
    adopt_orphans()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(hard, 8192) if os.geteuid() == 0 else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(wanted, 8192)), wanted))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.failed:
        item.failed = True
        folder = getattr(item, "folder", None)
        if folder and os.path.isdir(folder):
            report.sections.append(("folder kept", folder))
            for name in sorted(os.listdir(folder)):
                if name.endswith(".log"):
                    with open(os.path.join(folder, name), errors="replace") as file:
                        report.sections.append((name, file.read()[-6000:]))


@pytest.fixture(scope="session")
def session_folder():
    """Readable by every user, since children and web servers run as www-data."""
    path = tempfile.mkdtemp(prefix="cede-tests-", dir="/tmp")
    os.chmod(path, 0o755)
    yield path
    shutil.rmtree(os.path.join(path, "php"), ignore_errors=True)
    shutil.rmtree(os.path.join(path, "bin"), ignore_errors=True)
    if not os.listdir(path):
        os.rmdir(path)


@pytest.fixture(scope="session")
def scripts(session_folder):
    """A copy of the PHP scripts that www-data can read, wherever the checkout is."""
    path = os.path.join(session_folder, "php")
    shutil.copytree(os.path.join(REPOSITORY, "tests", "support", "php"), path)
    for folder, _, names in os.walk(path):
        os.chmod(folder, 0o755)
        for name in names:
            # opcache leaves files alone that changed within the last two seconds.
            os.chmod(os.path.join(folder, name), 0o644)
            os.utime(os.path.join(folder, name), (1_700_000_000, 1_700_000_000))
    return path


@pytest.fixture(scope="session")
def binaries(session_folder):
    path = os.path.join(session_folder, "bin")
    os.mkdir(path)
    os.chmod(path, 0o755)
    return path


@pytest.fixture
def folder(request, session_folder):
    """The test's own folder; every user may write, because scripts do."""
    name = re.sub(r"[^\w.-]+", "-", request.node.name)[:60]
    path = tempfile.mkdtemp(prefix=f"{name}-", dir=session_folder)
    os.chmod(path, 0o777)
    request.node.folder = path
    yield path
    if not getattr(request.node, "failed", False):
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def processes(folder):
    started = Processes(folder)
    yield started
    started.clean_up()
    reports = started.sanitizer_reports()
    assert not reports, f"a sanitizer found something: {reports}"


@pytest.fixture(scope="session")
def lsphp(binaries):
    found = lsphps.prepare(binaries)
    if found is None:
        pytest.skip("no lsphp: run scripts/build-lsphp, or set CEDE_LSPHP to the path of one")
    return found


@pytest.fixture
def start_php_cgi(processes, folder, scripts, binaries):
    return Starter(processes, folder, scripts, binaries)


@pytest.fixture
def start_lsphp(processes, folder, scripts, binaries, lsphp):
    return LsphpStarter(processes, folder, scripts, binaries, lsphp)


@pytest.fixture
def start(request):
    """Starts servers: start.cede(...), start.plain(...). Their children are php-cgi, or lsphp where a test is marked
    with one of support.kinds."""
    return request.getfixturevalue(getattr(request, "param", "start_php_cgi"))


@pytest.fixture(scope="module")
def _cede_and_lsphp(session_folder, scripts, binaries, lsphp):
    with own_starter(LsphpStarter, session_folder, scripts, binaries, lsphp) as start:
        # Both are started with the same php.ini, so that their arguments and titles are the same.
        php = start.php_arguments({})
        yield start.cede(children=2, php=php), start.plain(php=php)


@pytest.fixture
def cede_and_lsphp(_cede_and_lsphp, request):
    """cede with two children, and lsphp by itself; the same for all tests of a file."""
    cede, plain = _cede_and_lsphp
    request.node.folder = os.path.dirname(cede.process.log_path)
    with nobody_else_notices(cede):
        yield cede, plain


@pytest.fixture
def web(start):
    """A web server that executes what it is given."""
    return WebServer(start)


@pytest.fixture
def installed(start, folder):
    """A folder as an administrator makes it: the real one renamed, and a link to cede in its place."""
    place = os.path.join(folder, "fcgi-bin")
    os.mkdir(place)
    os.chmod(place, 0o755)
    shutil.copy2(start.child, os.path.join(place, "lsphp.real"))
    os.symlink(start.binary, os.path.join(place, "lsphp"))
    return os.path.join(place, "lsphp")


@pytest.fixture
def command(start):
    """Runs cede to its end: command(ARGUMENT...) gives its exit status, standard output, standard error."""
    return lambda *arguments, **options: run_to_end(start.binary, arguments, **options)


@pytest.fixture
def place():
    """A folder whose path is short enough for sockets."""
    path = tempfile.mkdtemp(prefix="cc-", dir="/tmp")
    os.chmod(path, 0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def start_in(start, place):
    """start_in(...): as start.cede(), with its control socket in `place`; gives pool and control."""

    def started(**options):
        pool = start.cede(environment=runtime_environment(place), **options)
        return pool, Control(pool, start.binary)

    return started


@pytest.fixture
def controlled(start_in):
    return start_in(children=2)


@pytest.fixture
def nginx(start):
    return Nginx(start)


@pytest.fixture(params=[Nginx, HAProxy, Lighttpd, Apache], ids=lambda kind: kind.__name__.lower())
def web_server(request, start):
    """Each web server in turn, not yet running."""
    return request.param(start)


def pytest_sessionstart(session):
    if not os.access(os.path.join(BUILD, "cede"), os.X_OK) and not STAND_IN:
        pytest.exit(f"{BUILD}/cede does not exist: build it (ninja -C build) or set CEDE_BUILD", returncode=4)

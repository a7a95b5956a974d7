# SPDX-License-Identifier: Apache-2.0
"""cede behind another program, which prepares what it runs in: mounts, process numbers, capabilities."""
import os
import shutil
import subprocess

import pytest

from . import procfs
from .server import IDENTITY, Cede, as_argument
from .waiting import eventually


def works(*prefix):
    """Whether the machine lets us execute a program behind `prefix`."""
    if shutil.which(prefix[0]) is None:
        return False
    done = subprocess.run([*prefix, "true"], stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
    return done.returncode == 0


def needs(*prefix):
    """Skips tests where `prefix` does not work."""
    return pytest.mark.skipif(not works(*prefix), reason=f"this machine does not allow {' '.join(prefix)}")


OWN_MOUNTS = ("unshare", "-m")
OWN_PROCESSES = ("unshare", "-p", "--fork", "--mount-proc")


def with_mounts(script):
    """A prefix that runs shell commands in a mount namespace of its own and then the program in it, as the same
    process."""
    return [*OWN_MOUNTS, "sh", "-ec", script + '\nexec "$@"', "sh"]


def start_behind(start, prefix, options=(), identity=None, children=1, php=(), wait=True, command=None, **process):
    """As start.cede(), with the words of `prefix` in front of the command line; `command`: in php-cgi's place."""
    address = start.new_address()
    words = [*prefix, start.binary, "run", "--listen", as_argument(address), "--children", children]
    words += ["--log-level", "info", *options, *(IDENTITY if identity is None else identity)]
    words += ["--", command or start.child, *php]
    pool = Cede(start.processes.start("cede", words, **process), [address], start.scripts, start.connection_type)
    return pool.wait_until_ready() if wait else pool


class Chroot:
    """A folder in which php-cgi finds what it needs, once prefix() has mounted it there. Nothing is copied, and
    outside the namespace the folder is empty but for links."""

    MOUNTED = ("usr", "etc", "dev")

    def __init__(self, folder, scripts, proc=True):
        self.path = os.path.join(folder, "root")
        self._scripts = scripts
        self._proc = proc
        for name in (*self.MOUNTED, "proc", "scripts", "inner"):
            os.makedirs(os.path.join(self.path, name))
        os.chmod(self.path, 0o755)
        os.mkdir(os.path.join(self.path, "tmp"))
        os.chmod(os.path.join(self.path, "tmp"), 0o1777)
        for name in ("bin", "sbin", "lib", "lib64"):
            if os.path.islink(f"/{name}"):
                os.symlink(os.readlink(f"/{name}"), os.path.join(self.path, name))

    def prefix(self):
        lines = [f"mount --rbind /{name} {self.path}/{name}" for name in self.MOUNTED]
        lines.append(f"mount --bind {self._scripts} {self.path}/scripts")
        if self._proc:
            lines.append(f"mount --bind /proc {self.path}/proc")
        return with_mounts("\n".join(lines))


def only_child(process):
    """Pid, as seen from here, of the program that `unshare --fork` runs."""
    return eventually(lambda: procfs.children(process.pid), "the program behind unshare has started")[0]


def zombies(pid):
    return [one for one in procfs.descendants(pid, zombies=True) if not procfs.alive(one)]

# SPDX-License-Identifier: Apache-2.0
"""What the kernel says about processes: parents, states, descriptors, connections."""
import os
import re
import socket

_GONE = ("Z", "X")


def stat(pid):
    """(state, parent) of a process, or None."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[0].decode(), int(fields[1])


def alive(pid):
    """Whether the process exists and is more than a zombie."""
    found = stat(pid)
    return found is not None and found[0] not in _GONE


def _all_processes():
    for name in os.listdir("/proc"):
        if name.isdigit():
            found = stat(int(name))
            if found:
                yield int(name), found[0], found[1]


def children(pid):
    """Pids of the living direct children, in order of their pids."""
    return sorted(child for child, state, parent in _all_processes() if parent == pid and state not in _GONE)


def descendants(pid, zombies=False):
    """Pids of all processes below `pid`, parents first."""
    below = {}
    for child, state, parent in _all_processes():
        if zombies or state not in _GONE:
            below.setdefault(parent, []).append(child)
    found, todo = [], [pid]
    while todo:
        for child in below.get(todo.pop(), []):
            found.append(child)
            todo.append(child)
    return found


def title(pid):
    """argv[0], or what the process wrote over it: lsphp puts a colon and its script there while it runs one."""
    try:
        with open(f"/proc/{pid}/cmdline", errors="replace") as file:
            return file.read().split("\0")[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def status(pid):
    """The fields of /proc/PID/status as text."""
    with open(f"/proc/{pid}/status") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def descriptors(pid):
    """{number: what it refers to}; empty if the process is gone."""
    found = {}
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                found[int(name)] = os.readlink(f"/proc/{pid}/fd/{name}")
            except FileNotFoundError:
                continue
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


def _accepted_inode(connection):
    """Inode of the server's end of a TCP connection of ours; None while it waits in the listen queue."""
    ours = connection.socket.getsockname()[1]
    theirs = connection.socket.getpeername()[1]
    table = "/proc/net/tcp" if connection.socket.family == socket.AF_INET else "/proc/net/tcp6"
    with open(table) as file:
        for line in file.readlines()[1:]:
            fields = line.split()
            local, remote = (int(field.rpartition(":")[2], 16) for field in fields[1:3])
            if (local, remote) == (theirs, ours):
                return int(fields[9]) or None
    return None


def holders(connection, candidates):
    """Those of the processes `candidates` that have the server's end of a TCP `connection` open."""
    inode = _accepted_inode(connection)
    if inode is None:
        return []
    wanted = f"socket:[{inode}]"
    return [pid for pid in candidates if wanted in descriptors(pid).values()]


def voluntary_switches(pid):
    """How often the process went to sleep by itself so far."""
    return int(status(pid)["voluntary_ctxt_switches"])


def resident_bytes(pid):
    return int(re.match(r"\s*(\d+) kB", status(pid)["VmRSS"]).group(1)) * 1024


def cpu_ticks(pid):
    """User and system time so far, in clock ticks (10 ms)."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return int(fields[11]) + int(fields[12])

# SPDX-License-Identifier: Apache-2.0
"""What /proc says about processes, and waiting for a condition."""
import os
import subprocess
import time


class BenchError(Exception):
    """Something that the user has to mend; the message says what and how."""


def wait_for(condition, seconds, what):
    """Polls until `condition()` is true and returns its value; BenchError after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise BenchError(f"{what} did not happen within {seconds} s")
        time.sleep(0.001)


def status_field(pid, name):
    """A number of /proc/PID/status, such as VmRSS (kB) or voluntary_ctxt_switches."""
    with open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith(name + ":"):
                return int(line.split()[1])
    raise BenchError(f"/proc/{pid}/status has no {name}")


def start_time(pid):
    """Clock ticks since boot; 0 for a process that is gone."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return int(stat.read().rpartition(")")[2].split()[19])
    except OSError:
        return 0


def children(pid):
    """Living direct children, the oldest first."""
    with open(f"/proc/{pid}/task/{pid}/children") as listed:
        pids = [int(each) for each in listed.read().split()]
    return sorted((each for each in pids if is_alive(each)), key=lambda each: (start_time(each), each))


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def version(command):
    """The first line of what it prints."""
    try:
        out = subprocess.run(command, capture_output=True, text=True, timeout=10).stdout
        return out.splitlines()[0].strip() if out else "not there"
    except OSError:
        return "not there"


def cpu_model():
    with open("/proc/cpuinfo") as info:
        for line in info:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return "unknown"


def cores():
    return len(os.sched_getaffinity(0))

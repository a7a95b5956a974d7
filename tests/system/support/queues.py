# SPDX-License-Identifier: Apache-2.0
"""Listen queues, as the kernel shows them, over time."""
import socket
import struct
import threading
import time

INTERVAL = 0.01
LISTEN = "0A"


def depth(address):
    """How many connections wait in the queue of the TCP socket that listens at `address` (IPv4)."""
    host, port = address
    (number,) = struct.unpack("=I", socket.inet_aton(host))
    local = f"{number:08X}:{port:04X}"
    # Listening sockets come first, whatever else there is.
    with open("/proc/net/tcp", "rb", buffering=0) as file:
        for line in file.read(65536).decode("ascii", "replace").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 4 and fields[1] == local and fields[3] == LISTEN:
                return int(fields[4].partition(":")[2], 16)
    raise AssertionError(f"nobody listens at {address}")


class Sampler:
    """The depth of a queue each 10 ms, as long as the block lasts: `depths`."""

    def __init__(self, address):
        self.address = address
        self.depths = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _run(self):
        while not self._stop.wait(INTERVAL):
            self.depths.append(depth(self.address))

    @property
    def mean(self):
        return sum(self.depths) / max(len(self.depths), 1)

    def longest_run(self, at_least):
        """For how many samples in a row so many stood in the queue."""
        longest = run = 0
        for one in self.depths:
            run = run + 1 if one >= at_least else 0
            longest = max(longest, run)
        return longest


class Load:
    """`clients` that ask for what takes `ms` milliseconds, on a connection of its own each time, and pause for
    `pause` seconds: as long as the block lasts. `waited`: how long each request took, in seconds."""

    def __init__(self, pool, clients, ms, pause):
        self.pool, self.ms, self.pause = pool, ms, pause
        self.waited, self.failed = [], []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(clients)]

    def __enter__(self):
        for number, thread in enumerate(self._threads):
            thread.start()
            time.sleep(self.pause / len(self._threads) if number else 0)
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self):
        while not self._stop.is_set():
            begin = time.monotonic()
            try:
                answer = self.pool.get("sleep.php", f"ms={self.ms}").text
                if answer != f"slept {self.ms}\n":
                    self.failed.append(answer)
            except (AssertionError, OSError) as error:
                self.failed.append(repr(error))
            self.waited.append(time.monotonic() - begin)
            self._stop.wait(self.pause)

# SPDX-License-Identifier: Apache-2.0
"""Where a server listens."""
import os
import socket

from .processes import BenchError

BACKLOG = 4096


class TcpEndpoint:
    """A port of 127.0.0.1."""

    family = socket.AF_INET

    def __init__(self, port):
        self.name = str(port)
        self.bind_to = ("127.0.0.1", port)
        self.address = f"127.0.0.1:{port}"  # for cede and the load generator


class UnixEndpoint:
    """A socket file."""

    family = socket.AF_UNIX

    def __init__(self, folder, number):
        self.name = str(number)
        self.address = self.bind_to = os.path.join(folder, f"{number}.sock")


def is_listening(endpoint):
    with socket.socket(endpoint.family) as probe:
        return probe.connect_ex(endpoint.bind_to) == 0


def listener(endpoint):
    """A listening socket, as a web server makes it for the program that it starts."""
    made = socket.socket(endpoint.family)
    if endpoint.family == socket.AF_INET:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(endpoint.bind_to)
    made.listen(BACKLOG)
    return made


class Endpoints:
    """Hands out endpoints that nobody listens on, another one at every call: no TIME_WAIT of an earlier case is in
    the way."""

    def __init__(self, kind, folder, first_port):
        self._kind = kind
        self._folder = folder
        self._ports = (first_port, first_port + 100)
        self._next = first_port

    def next(self):
        first, end = self._ports
        for _ in range(end - first):
            number = self._next
            self._next = first + (number + 1 - first) % (end - first)
            if self._kind == "unix":
                endpoint = UnixEndpoint(self._folder, number)
                if os.path.exists(endpoint.address):
                    os.unlink(endpoint.address)
                return endpoint
            endpoint = TcpEndpoint(number)
            if not is_listening(endpoint):
                return endpoint
        raise BenchError(f"no free port from {first} to {end - 1}; give another range with --port")

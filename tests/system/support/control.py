# SPDX-License-Identifier: Apache-2.0
"""The control socket of a running cede, as a client without a library sees it."""
import json
import re
import socket

from .command import run_to_end
from .process import clean_environment


class Control:
    """Of one pool: its socket's path comes from the log, as an administrator has it."""

    def __init__(self, pool, binary):
        self.binary = binary
        self.path = pool.process.wait_for_log(r"control socket (\S+)").group(1)

    def command(self, *arguments, **options):
        """`cede ARGUMENTS --control PATH`: (exit status, standard output, standard error)"""
        return run_to_end(self.binary, [*arguments, "--control", self.path], **options)

    @property
    def status(self):
        """The JSON of `GET /status`."""
        code, body = self.http("GET", "/status")
        assert code == 200, body
        return body

    def http(self, method, target, body=None, timeout=10.0):
        """(status of HTTP, what the JSON says)"""
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {target} HTTP/1.1\r\nHost: cede\r\nContent-Length: {len(content)}\r\n\r\n"
        with self.connect(timeout) as client:
            client.sendall(head.encode() + content)
            return parse(rest(client))

    def connect(self, timeout=10.0):
        client = socket.socket(socket.AF_UNIX)
        client.connect(self.path)  # without a limit: it waits for room in the queue
        client.settimeout(timeout)
        return client


def rest(client):
    """All that comes until the end of the connection."""
    received = b""
    while data := client.recv(65536):
        received += data
    return received


def parse(answer):
    """(status of HTTP, what the JSON says) of a whole answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    found = re.match(rb"HTTP/1\.1 (\d{3}) ", head)
    assert found, answer
    return int(found.group(1)), json.loads(body)


def runtime_environment(folder, **more):
    """As a service manager gives it: sockets are made, and looked for, in `folder`, too."""
    return clean_environment(RUNTIME_DIRECTORY=folder, **more)

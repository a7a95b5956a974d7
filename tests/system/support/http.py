# SPDX-License-Identifier: Apache-2.0
"""A browser's side: requests to a web server, with bodies and answers too big to hold in memory."""
import hashlib
import http.client
import socket
from dataclasses import dataclass

_PIECE = 1 << 18
_PERIOD = bytes(range(251))  # the pattern of bytes.php


def pattern(size):
    """`size` bytes of the pattern that bytes.php answers with, in pieces."""
    block = _PERIOD * (_PIECE // 251)
    while size > 0:
        piece = block[: min(size, len(block))]
        yield piece
        size -= len(piece)


def pattern_hash(size):
    digest = hashlib.sha256()
    for piece in pattern(size):
        digest.update(piece)
    return digest.hexdigest()


@dataclass
class Answer:
    status: int
    headers: dict
    body: bytes
    length: int
    sha256: str

    @property
    def text(self):
        return self.body.decode()


def fetch(port, path, method="GET", body=None, headers=None, timeout=30.0, keep_body=1 << 20, connection=None):
    """One request. `body`: bytes, or a number: that many bytes of the pattern. Holds at most `keep_body` bytes of
    the answer; its length and hash are of all of it."""
    client = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        headers = dict(headers or {})
        if isinstance(body, int):
            headers.update({"Content-Length": str(body), "Content-Type": "application/octet-stream"})
            body = pattern(body)
        client.request(method, path, body=body, headers=headers)
        response = client.getresponse()
        digest, kept, length = hashlib.sha256(), b"", 0
        while piece := response.read(_PIECE):
            digest.update(piece)
            length += len(piece)
            if len(kept) < keep_body:
                kept += piece
        names = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, names, kept, length, digest.hexdigest())
    finally:
        if connection is None:
            client.close()


def half_an_exchange(port, head, read_at_least=1):
    """Sends raw bytes, reads a little of the answer and goes away."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(head)
        read = 0
        while read < read_at_least:
            data = client.recv(4096)
            if not data:
                break
            read += len(data)

# SPDX-License-Identifier: Apache-2.0
"""A client's connection to a FastCGI or an LSAPI server."""
import select
import socket
import time

from . import fastcgi, lsapi


class Closed(Exception):
    """The server closed the connection; `records` and `rest` are what came of the answer before."""

    def __init__(self, records, rest):
        super().__init__(f"closed after {len(records)} records and {len(rest)} further bytes")
        self.records = records
        self.rest = rest

    @property
    def without_answer(self):
        return not self.records and not self.rest


class Connection:
    """One connection. Reads fail after `timeout` seconds: longer than anything here may take, so it means a stall."""

    protocol = fastcgi

    def __init__(self, address, timeout=10.0):
        self.address = address
        if isinstance(address, str):
            self.socket = socket.socket(socket.AF_UNIX)
        else:
            self.socket = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(timeout)
        try:
            self.socket.connect(address)
        except OSError:
            self.socket.close()
            raise
        self._buffer = bytearray()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def send_in_pieces(self, data, cuts, pause=0.001):
        """Sends `data` cut at these offsets, each piece on its own in the other's socket for `pause` seconds."""
        edges = [0, *sorted(cuts), len(data)]
        for start, end in zip(edges, edges[1:]):
            if start != end:
                self.send(data[start:end])
                if end != len(data):
                    time.sleep(pause)

    def _receive(self):
        """More bytes into the buffer; False at the end of the stream, orderly or not."""
        try:
            data = self.socket.recv(262144)
        except (ConnectionResetError, BrokenPipeError):
            return False
        self._buffer += data
        return bool(data)

    def read_record(self):
        """The next record, or None if the stream ended."""
        while True:
            parsed = self.protocol.parse_record(self._buffer)
            if parsed is not None:
                del self._buffer[: parsed[1]]
                return parsed[0]
            if not self._receive():
                return None

    def read_response(self):
        """Everything up to the end of an answer; raises Closed if the stream ends before."""
        response = self.protocol.Response()
        while True:
            one = self.read_record()
            if one is None:
                raise Closed(response.records, bytes(self._buffer))
            response.records.append(one)
            if self.protocol.is_end(one):
                return response

    def request(self, script, query="", **options):
        """Sends a request on this connection and reads its answer."""
        self.send(self.protocol.request(script, query, **options))
        return self.read_response()

    def read_bytes_until(self, enough):
        """All raw bytes until `enough(bytes)` or the end of the stream: (bytes, whether it ended)."""
        while not enough(self._buffer):
            if not self._receive():
                return bytes(self._buffer), True
        return bytes(self._buffer), False

    def clear(self):
        """Forgets what was read."""
        self._buffer.clear()

    def read_to_end(self):
        """All raw bytes that were not taken yet, until the server closes."""
        while self._receive():
            pass
        rest, self._buffer = bytes(self._buffer), bytearray()
        return rest

    def ends_without_more(self):
        """Waits for the end of the stream; whether nothing came before it, but an announcement where there is one."""
        return self.read_to_end() in (b"", self.protocol.ANNOUNCEMENT_OF_THE_END)

    @property
    def _readable(self):
        poll = select.poll()  # select() ends at descriptor 1023
        poll.register(self.socket, select.POLLIN)
        return bool(poll.poll(0))

    @property
    def silent(self):
        """Open, and with nothing to read."""
        return not self._buffer and not self._readable

    @property
    def closed(self):
        """Whether the server closed its end and nothing is left to read."""
        if not self._readable:
            return False
        try:
            return not self.socket.recv(1, socket.MSG_PEEK)
        except (ConnectionResetError, BrokenPipeError):
            return True


class LsapiConnection(Connection):
    """A connection as OpenLiteSpeed has it; a CONN_CLOSE between two answers stays unread until asked about."""

    protocol = lsapi

    @property
    def close_announced(self):
        """Whether CONN_CLOSE has come, and nothing else."""
        return self._what_came()[0] == lsapi.CLOSE

    @property
    def closed(self):
        """Whether the server closed its end, announced or not, and nothing else is left to read."""
        came, ended = self._what_came()
        return ended and came in (b"", lsapi.CLOSE)

    def _what_came(self):
        """(everything that was not taken yet, whether the stream has ended behind it)"""
        while self._readable:
            if not self._receive():
                return bytes(self._buffer), True
        return bytes(self._buffer), False

# SPDX-License-Identifier: Apache-2.0
"""LSAPI as a web server speaks it, written from the packet layout alone (docs/lsapi.md), and able to break every
rule of it. Offers the same names as fastcgi.py where both protocols have the thing."""
import struct
from dataclasses import dataclass, field

BEGIN_REQUEST, ABORT_REQUEST, RESP_HEADER, RESP_STREAM, RESP_END = range(1, 6)
STDERR_STREAM, REQ_RECEIVED, CONN_CLOSE, INTERNAL_ERROR = range(6, 10)
HEADER_SIZE = 8
FIXED_SIZE = 44
MAX_PACKET = 65535
LITTLE, BIG = "<", ">"
# Value of reqBodyLen: as many bytes as the Content-Length header says.
BODY_AS_IN_HEADER = -2

INDEXED = (
    "Accept Accept-Charset Accept-Encoding Accept-Language Authorization Connection Content-Type Content-Length Cookie "
    "Cookie2 Host Pragma Referer User-Agent Cache-Control If-Modified-Since If-Match If-None-Match If-Range "
    "If-Unmodified-Since Keep-Alive Range X-Forwarded-For Via Transfer-Encoding"
).split()
_PLACE = {name.lower(): place for place, name in enumerate(INDEXED)}
INDEX_SIZE = 152


def packet(type, content=b"", length=None, order=LITTLE, flag=None, magic=b"LS"):
    """A packet; `length` and `flag` only to lie about them."""
    flag = int(order == BIG) if flag is None else flag
    length = HEADER_SIZE + len(content) if length is None else length
    return magic + struct.pack(f"{order}BBi", type, flag, length) + content


ABORT = packet(ABORT_REQUEST)
CLOSE = ANNOUNCEMENT_OF_THE_END = packet(CONN_CLOSE)


def entry(name, value, name_length=None, value_length=None):
    """One environment entry; the lengths, which count the NULs, only to lie about them."""
    name, value = (text if isinstance(text, bytes) else text.encode() for text in (name, value))
    name_length = len(name) + 1 if name_length is None else name_length
    value_length = len(value) + 1 if value_length is None else value_length
    return struct.pack(">HH", name_length, value_length) + name + b"\0" + value + b"\0"


def environment(script, query="", method="GET", extra=None):
    """What OpenLiteSpeed sends for the absolute path `script`, in its order."""
    name = "/" + script.rpartition("/")[2]
    known = {
        "DOCUMENT_ROOT": script.rpartition("/")[0],
        "REMOTE_ADDR": "127.0.0.1",
        "REMOTE_PORT": "40000",
        "SERVER_ADDR": "127.0.0.1",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "REQUEST_URI": name + ("?" + query if query else ""),
    }
    known.update(extra or {})
    known.update(
        {
            "SCRIPT_FILENAME": script,
            "QUERY_STRING": query,
            "SCRIPT_NAME": name,
            "SERVER_PROTOCOL": "HTTP/1.1",
            "SERVER_SOFTWARE": "tests",
            "REQUEST_METHOD": method,
        }
    )
    return list(known.items())


def php_value(name, value, admin=False):
    """An entry of the special environment: a PHP setting (php_value, or php_admin_value)."""
    return b"\x01" + (b"\x04" if admin else b"\x01") + name.encode(), value.encode()


def http_block(method, uri, headers):
    """(block, {place in the index: (length, offset)}, [(name offset, length, value offset, length) of the others])"""
    block = bytearray(b"\0\0\0\0" + f"{method} {uri} HTTP/1.1\r\n".encode("latin-1"))
    index, unknown = {}, []
    for name, value in headers:
        name, value = name.encode("latin-1"), value.encode("latin-1")
        name_at, value_at = len(block), len(block) + len(name) + 2
        block += name + b": " + value + b"\r\n"
        place = _PLACE.get(name.decode("latin-1").lower())
        if place is None:
            unknown.append((name_at, len(name), value_at, len(value)))
        else:
            index[place] = (len(value), value_at)
    return bytes(block + b"\r\n"), index, unknown


def _list(entries):
    return b"".join(one if isinstance(one, bytes) else entry(*one) for one in entries)


def begin(env, special_env=(), http=None, order=LITTLE, body_length=0, **bend):
    """A BEGIN_REQUEST packet. `http`: what http_block() gives. `bend` replaces what would be right: any of the fixed
    header's fields (`FIELDS` below), `length`, `flag`, `magic`, `type` of the packet, `env_end`, `special_env_end`
    (the four zero bytes), `padding`, `index` {place: (length, offset)}, `unknown`, `tail` (bytes behind the block)."""
    block, index, unknown = http or http_block("GET", "/", [])
    index, unknown = {**index, **bend.pop("index", {})}, bend.pop("unknown", unknown)
    special = _list(special_env) + bend.pop("special_env_end", b"\0\0\0\0")
    values, at = {}, FIXED_SIZE + len(special)
    for one in env:
        encoded = _list([one])
        if not isinstance(one, bytes):
            values[one[0]] = at + len(encoded) - len(one[1].encode()) - 1
        at += len(encoded)
    lists = special + _list(env) + bend.pop("env_end", b"\0\0\0\0")
    padding = bend.pop("padding", b"\0" * (-(FIXED_SIZE + len(lists)) % 8))
    lengths = struct.pack(f"{order}25H2x", *(index.get(place, (0, 0))[0] for place in range(25)))
    offsets = struct.pack(f"{order}25i", *(index.get(place, (0, 0))[1] for place in range(25)))
    rows = b"".join(struct.pack(f"{order}4i", *row) for row in unknown)
    content = lists + padding + lengths + offsets + rows + block + bend.pop("tail", b"")
    fields = {
        "http_header_length": len(block),
        "body_length": body_length,
        "script_file": values.get("SCRIPT_FILENAME", 0),
        "script_name": values.get("SCRIPT_NAME", 0),
        "query_string": values.get("QUERY_STRING", 0),
        "request_method": values.get("REQUEST_METHOD", 0),
        "unknown_headers": len(unknown),
        "env_count": len(env),
        "special_env_count": len(special_env),
    }
    fields.update((name, bend.pop(name)) for name in FIELDS if name in bend)
    fixed = struct.pack(f"{order}9i", *fields.values())
    return packet(bend.pop("type", BEGIN_REQUEST), fixed + content, order=order, **bend)


FIELDS = (
    "http_header_length body_length script_file script_name query_string request_method unknown_headers env_count "
    "special_env_count"
).split()


def request(script, query="", method=None, body=b"", keep=True, headers=(), extra=None, **options):
    """A whole request in bytes. `keep` is without effect: FastCGI has it, and LSAPI keeps every connection.
    `headers`: (name, value) pairs besides Host, Content-Type and Content-Length; `extra`: environment;
    `content_length`: another one than the body's, or None for none; `options`: as for begin()."""
    method = method or ("POST" if body else "GET")
    size = options.pop("content_length", str(len(body)) if method == "POST" or body else None)
    lines = [("Host", "localhost"), *headers]
    if size is not None:
        lines.append(("Content-Length", size))
        if "content-type" not in [name.lower() for name, _ in headers]:
            lines.append(("Content-Type", "application/octet-stream"))
    env = options.pop("env", None) or environment(script, query, method, extra)
    uri = "/" + script.rpartition("/")[2] + ("?" + query if query else "")
    http = options.pop("http", None) or http_block(method, uri, lines)
    return begin(env, http=http, **{"body_length": len(body), **options}) + body


@dataclass
class Packet:
    type: int
    content: bytes = b""
    flag: int = 0


def parse_record(buffer):
    """(packet, rest) of the first whole packet in `buffer`, or None."""
    if len(buffer) < HEADER_SIZE:
        return None
    magic, type, flag, size = struct.unpack_from("<2sBBi", buffer)
    assert magic == b"LS" and flag == 0, f"not a packet: {bytes(buffer[:64])!r}"
    assert RESP_HEADER <= type <= INTERNAL_ERROR and HEADER_SIZE <= size <= MAX_PACKET + HEADER_SIZE, bytes(buffer[:64])
    if len(buffer) < size:
        return None
    return Packet(type, bytes(buffer[HEADER_SIZE:size]), flag), size


def split_records(data):
    """All packets of `data`, and what is left behind the last whole one."""
    packets, at = [], 0
    view = memoryview(data)
    while True:
        parsed = parse_record(view[at:])
        if parsed is None:
            return packets, bytes(view[at:])
        packets.append(parsed[0])
        at += parsed[1]


def is_end(packet):
    """Whether an answer is complete with this packet."""
    return packet.type == RESP_END


def answers_in(data):
    """How many answers are complete in these bytes."""
    return sum(map(is_end, split_records(data)[0]))


def without_noise(data):
    """lsphp leaves nothing to chance."""
    return data


@dataclass
class Response:
    """What came for one request, up to and with RESP_END."""

    records: list = field(default_factory=list)

    @property
    def types(self):
        return [one.type for one in self.records]

    def _stream(self, type):
        return b"".join(one.content for one in self.records if one.type == type)

    @property
    def lines(self):
        """The header lines, in order."""
        found = []
        for one in self.records:
            if one.type == RESP_HEADER:
                count = struct.unpack_from("<i", one.content)[0]
                sizes = struct.unpack_from(f"<{count}H", one.content, 8)
                at = 8 + 2 * count
                for size in sizes:
                    assert one.content[at + size - 1] == 0, "a header line ends in NUL"
                    found.append(one.content[at : at + size - 1].decode("latin-1"))
                    at += size
                assert at == len(one.content), "header lines fill their packet"
        return found

    @property
    def headers(self):
        split = (line.partition(":") for line in self.lines)
        return {name.strip().lower(): value.strip() for name, _, value in split}

    @property
    def status(self):
        for one in self.records:
            if one.type == RESP_HEADER:
                return struct.unpack_from("<i", one.content, 4)[0] or 200
        return None

    @property
    def body(self):
        return self._stream(RESP_STREAM)

    @property
    def text(self):
        return self.body.decode()

    @property
    def stderr(self):
        return self._stream(STDERR_STREAM)

    @property
    def close_announced(self):
        return any(one.type == CONN_CLOSE for one in self.records)

# SPDX-License-Identifier: Apache-2.0
"""FastCGI as a web server speaks it, written from the specification alone, and able to break every rule of it."""
import struct
from dataclasses import dataclass, field

BEGIN_REQUEST, ABORT_REQUEST, END_REQUEST, PARAMS, STDIN, STDOUT, STDERR, DATA = range(1, 9)
GET_VALUES, GET_VALUES_RESULT, UNKNOWN_TYPE = 9, 10, 11
RESPONDER, AUTHORIZER, FILTER = 1, 2, 3
KEEP_CONN = 1
HEADER_SIZE = 8
MAX_CONTENT = 65535
ANNOUNCEMENT_OF_THE_END = b""  # FastCGI has none


@dataclass
class Record:
    type: int
    content: bytes = b""
    request_id: int = 1
    padding: bytes = b""
    version: int = 1

    def encode(self):
        header = struct.pack(
            ">BBHHBx", self.version, self.type, self.request_id, len(self.content), len(self.padding)
        )
        return header + self.content + self.padding


def record(type, content=b"", request_id=1, padding=0, version=1):
    """A record on the wire; `padding` bytes of padding that are not zero, which nobody may look at."""
    return Record(type, content, request_id, b"\xa5" * padding, version).encode()


def begin(keep=False, role=RESPONDER, request_id=1, flags=None, version=1):
    body = struct.pack(">HB5x", role, (KEEP_CONN if keep else 0) if flags is None else flags)
    return record(BEGIN_REQUEST, body, request_id, version=version)


def length(number, long=False):
    return struct.pack(">I", number | 0x80000000) if long or number > 127 else bytes([number])


def pair(name, value, long=False):
    """One name/value pair; `long` writes the four-byte form even for small lengths."""
    name, value = (text if isinstance(text, bytes) else text.encode() for text in (name, value))
    return length(len(name), long) + length(len(value), long) + name + value


def stream(type, content, request_id=1, record_size=MAX_CONTENT, padding=0, end=True):
    """A stream cut into records of `record_size` bytes, and its end (an empty record)."""
    cut = [content[at : at + record_size] for at in range(0, len(content), record_size)]
    records = [record(type, piece, request_id, padding) for piece in cut]
    if end:
        records.append(record(type, b"", request_id))
    return b"".join(records)


def params(pairs, request_id=1, record_size=MAX_CONTENT, padding=0, end=True):
    """The parameters, cut into records of at most `record_size` bytes between (never within) pairs."""
    contents = [b""]
    for name, value in pairs:
        encoded = pair(name, value)
        if contents[-1] and len(contents[-1]) + len(encoded) > record_size:
            contents.append(b"")
        contents[-1] += encoded
    records = [record(PARAMS, content, request_id, padding) for content in contents if content]
    if end:
        records.append(record(PARAMS, b"", request_id))
    return b"".join(records)


def parameters(script, query="", method="GET", body=b"", content_length=None, extra=None):
    """What nginx's fastcgi_params sends, for the absolute path `script`."""
    name = "/" + script.rpartition("/")[2]
    known = {
        "QUERY_STRING": query,
        "REQUEST_METHOD": method,
        "CONTENT_TYPE": "application/octet-stream" if method == "POST" else "",
        "CONTENT_LENGTH": str(len(body)) if content_length is None else content_length,
        "SCRIPT_NAME": name,
        "REQUEST_URI": name + ("?" + query if query else ""),
        "DOCUMENT_URI": name,
        "DOCUMENT_ROOT": script.rpartition("/")[0],
        "SERVER_PROTOCOL": "HTTP/1.1",
        "GATEWAY_INTERFACE": "CGI/1.1",
        "SERVER_SOFTWARE": "tests",
        "REMOTE_ADDR": "127.0.0.1",
        "SERVER_NAME": "localhost",
        "REDIRECT_STATUS": "200",
        "SCRIPT_FILENAME": script,
    }
    if method != "POST" and not body and content_length is None:
        known["CONTENT_LENGTH"] = ""
    known.update(extra or {})
    return list(known.items())


def request(script, query="", method=None, body=b"", keep=False, request_id=1, **options):
    """A whole request in bytes. `options`: content_length, extra (parameters), stdin_record_size, params_record_size,
    padding."""
    method = method or ("POST" if body else "GET")
    padding = options.get("padding", 0)
    pairs = parameters(script, query, method, body, options.get("content_length"), options.get("extra"))
    return (
        begin(keep, request_id=request_id)
        + params(pairs, request_id, options.get("params_record_size", MAX_CONTENT), padding)
        + stream(STDIN, body, request_id, options.get("stdin_record_size", MAX_CONTENT), padding)
    )


def get_values(*names):
    return record(GET_VALUES, b"".join(pair(name, "") for name in names), request_id=0)


def parse_pairs(content):
    """Name/value pairs of a GET_VALUES_RESULT."""
    found, at = {}, 0
    while at < len(content):
        sizes = []
        for _ in range(2):
            if content[at] & 0x80:
                sizes.append(struct.unpack_from(">I", content, at)[0] & 0x7FFFFFFF)
                at += 4
            else:
                sizes.append(content[at])
                at += 1
        name = content[at : at + sizes[0]].decode()
        at += sizes[0]
        found[name] = content[at : at + sizes[1]].decode()
        at += sizes[1]
    return found


def parse_record(buffer):
    """(record, rest) of the first whole record in `buffer`, or None."""
    if len(buffer) < HEADER_SIZE:
        return None
    version, type, request_id, size, padding = struct.unpack_from(">BBHHBx", buffer)
    end = HEADER_SIZE + size + padding
    if len(buffer) < end:
        return None
    content = bytes(buffer[HEADER_SIZE : HEADER_SIZE + size])
    return Record(type, content, request_id, bytes(buffer[HEADER_SIZE + size : end]), version), end


def is_end(record):
    """Whether an answer is complete with this record."""
    return record.type == END_REQUEST


def answers_in(data):
    """How many answers are complete in these bytes; replies to a management record count."""
    return sum(is_end(one) or one.type == GET_VALUES_RESULT for one in split_records(data)[0])


def split_records(data):
    """All records of `data`, and what is left behind the last whole one."""
    records, at = [], 0
    view = memoryview(data)
    while True:
        parsed = parse_record(view[at:])
        if parsed is None:
            return records, bytes(view[at:])
        records.append(parsed[0])
        at += parsed[1]


def without_noise(data):
    """The bytes that a server sent, with the parts that php-cgi leaves to chance blanked: the reserved bytes of
    END_REQUEST (stale buffer) and padding."""
    records, rest = split_records(data)
    blanked = []
    for one in records:
        content = one.content
        if one.type == END_REQUEST:
            content = content[:5] + b"\0\0\0"
        blanked.append(Record(one.type, content, one.request_id, b"\0" * len(one.padding), one.version).encode())
    return b"".join(blanked) + rest


@dataclass
class Response:
    """What came for one request, up to and with END_REQUEST."""

    records: list = field(default_factory=list)

    def _stream(self, type):
        return b"".join(one.content for one in self.records if one.type == type)

    @property
    def stdout(self):
        return self._stream(STDOUT)

    @property
    def stderr(self):
        return self._stream(STDERR)

    @property
    def headers(self):
        head = self.stdout.partition(b"\r\n\r\n")[0].decode("latin-1")
        split = (line.partition(":") for line in head.split("\r\n") if ":" in line)
        return {name.strip().lower(): value.strip() for name, _, value in split}

    @property
    def status(self):
        return int(self.headers.get("status", "200").split()[0])

    @property
    def body(self):
        return self.stdout.partition(b"\r\n\r\n")[2]

    @property
    def text(self):
        return self.body.decode()

    @property
    def protocol_status(self):
        return self.records[-1].content[4]

    @property
    def app_status(self):
        return struct.unpack(">I", self.records[-1].content[:4])[0]

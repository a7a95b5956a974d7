# SPDX-License-Identifier: Apache-2.0
"""Inputs for a FastCGI server, good and bad, and what php-cgi 8.2 is known to do with each."""
import struct
from dataclasses import dataclass

from . import fastcgi
from .fastcgi import PARAMS, STDIN, begin, get_values, pair, parameters, params, record, request, stream


@dataclass
class Case:
    """`data` is sent on a fresh connection. Then `answers` END_REQUEST records (or management
    replies) come, and then the connection is `open` (the next request on it is served), `closed` by the server, or
    `waits` for the rest."""

    name: str
    data: bytes
    answers: int
    then: str


def _header(type, size, padding=0, request_id=1, version=1):
    return struct.pack(">BBHHBx", version, type, request_id, size, padding)


def _get(script, **options):
    return request(script("hello.php"), **options)


def good_cases(script):
    """`script(name)` is the absolute path of a script."""
    body = bytes(range(256)) * 40
    yield Case("GET", _get(script), 1, "closed")
    yield Case("GET keep", _get(script, keep=True), 1, "open")
    yield Case("HEAD", request(script("head.php"), method="HEAD", keep=True), 1, "open")
    yield Case("OPTIONS", request(script("head.php"), method="OPTIONS", keep=True), 1, "open")
    yield Case("status 404", request(script("status.php"), "code=404", keep=True), 1, "open")
    yield Case("no such script", request(script("absent.php"), keep=True), 1, "open")
    yield Case("fatal error", request(script("fatal.php"), keep=True), 1, "open")
    yield Case("exit with a status", request(script("early_exit.php"), "code=3", keep=True), 1, "open")
    yield Case("exit in the middle", request(script("exit_middle.php"), "code=1", keep=True), 1, "open")
    yield Case("error log", request(script("stderr.php"), keep=True), 1, "open")
    yield Case("flushed pieces", request(script("flush.php"), "pieces=4&ms=5&size=100", keep=True), 1, "open")
    yield Case("empty flushes", request(script("flush_empty.php"), keep=True), 1, "open")
    yield Case("flush, no keep", request(script("flush.php"), "pieces=3&ms=5", keep=False), 1, "closed")
    for size in (0, 1, 8000, 8184, 8192, 16384, 65528, 65536, 1_000_000):
        yield Case(f"answer of {size}", request(script("bytes.php"), f"bytes={size}", keep=True), 1, "open")
    for chunk in (1, 7, 8191, 20000, 300_000):
        query = f"bytes={min(400_000, 3000 * chunk)}&chunk={chunk}"
        yield Case(f"answer in chunks of {chunk}", request(script("bytes.php"), query, keep=True), 1, "open")
    for size in (0, 1, 7, 8, 8192, 16383, 16384, 16385, 65535, 65536, 1_000_000):
        upload = (bytes(range(251)) * (size // 251 + 1))[:size]
        for keep in (True, False):
            data = request(script("body.php"), method="POST", body=upload, keep=keep)
            yield Case(f"POST of {size}, keep={keep}", data, 1, "open" if keep else "closed")
    for size in (1, 3, 8, 100, 8191):
        data = request(script("echo.php"), body=body[: size * 300], keep=True, stdin_record_size=size)
        yield Case(f"STDIN in records of {size}", data, 1, "open")
    for padding in (1, 7, 255):
        data = request(script("echo.php"), body=body, keep=True, padding=padding, stdin_record_size=999)
        yield Case(f"padding of {padding}", data, 1, "open")
    yield Case("body not read", request(script("ignores_body.php"), body=body, keep=True), 1, "open")
    yield Case("PUT body not read", request(script("hello.php"), method="PUT", body=body, keep=True), 1, "open")
    yield Case("PUT body read", request(script("echo.php"), method="PUT", body=body, keep=True), 1, "open")
    yield Case("form", _form(script, body), 1, "open")
    many = {f"X_{n:04}": "v" * (n % 300) for n in range(400)}
    for size in (1, 300, 4096, 60000):
        data = request(script("params.php"), keep=True, extra=many, params_record_size=size)
        yield Case(f"PARAMS in records of {size}", data, 1, "open")
    long = {"X_LONG": "v" * 60_000, "X_" + "N" * 200: "", "X_EMPTY": ""}
    yield Case("long names and values", request(script("params.php"), keep=True, extra=long), 1, "open")
    yield Case("long form of short lengths", _long_lengths(script), 1, "open")
    yield Case("pipelined", _get(script, keep=True) * 5, 5, "open")
    mixed = request(script("echo.php"), body=body, keep=True) + _get(script, keep=True) + _get(script)
    yield Case("pipelined, the last one without keep", mixed, 3, "closed")
    yield Case("request ids", b"".join(_get(script, keep=True, request_id=n) for n in (3, 256, 65535)), 3, "open")
    yield Case("GET_VALUES", get_values("FCGI_MAX_CONNS", "FCGI_MAX_REQS", "FCGI_MPXS_CONNS"), 1, "open")
    yield Case("GET_VALUES of nothing known", get_values("FOO", ""), 1, "open")
    yield Case("GET_VALUES, then a request", get_values("FCGI_MPXS_CONNS") + _get(script, keep=True), 2, "open")
    yield Case("a request, then GET_VALUES", _get(script, keep=True) + get_values("FCGI_MPXS_CONNS"), 2, "open")


def _form(script, content):
    boundary = "cut"
    head = 'Content-Disposition: form-data; name="{}"'
    body = (
        f'--{boundary}\r\n{head.format("colour")}\r\n\r\nred\r\n'
        f'--{boundary}\r\n{head.format("picture")}; filename="p.bin"\r\nContent-Type: application/octet-stream\r\n\r\n'
    ).encode() + content + f"\r\n--{boundary}--\r\n".encode()
    kind = {"CONTENT_TYPE": f"multipart/form-data; boundary={boundary}"}
    return request(script("upload.php"), body=body, keep=True, extra=kind)


def _long_lengths(script):
    content = b"".join(pair(name, value, long=True) for name, value in parameters(script("hello.php")))
    return begin(keep=True) + stream(PARAMS, content) + record(STDIN)


def bad_cases(script):
    hello = parameters(script("hello.php"))
    good_params = params(hello)
    keep = begin(keep=True)
    rest = good_params + record(STDIN)

    yield Case("version 0", begin(keep=True, version=0) + rest, 0, "closed")
    yield Case("version 0 within a request", keep + record(PARAMS, b"", version=0) + rest, 0, "closed")
    yield Case("version 2", begin(keep=True, version=2) + rest, 1, "open")
    yield Case("version 255", begin(keep=True, version=255) + rest, 1, "open")
    for role in (0, 4, 65535):
        yield Case(f"role {role}", begin(keep=True, role=role) + rest, 0, "closed")
    for role in (fastcgi.AUTHORIZER, fastcgi.FILTER):
        yield Case(f"role {role}", begin(keep=True, role=role) + rest, 1, "open")
    yield Case("unknown flags", begin(flags=0xFE) + rest, 1, "closed")
    yield Case("all flags", begin(flags=0xFF) + rest, 1, "open")
    for type in (0, 12, 255):
        yield Case(f"unknown type {type} first", record(type, b"12345678"), 0, "closed")
        yield Case(f"unknown type {type} with id 0", record(type, b"12345678", request_id=0), 0, "closed")
    for type in (fastcgi.ABORT_REQUEST, fastcgi.DATA, fastcgi.PARAMS, fastcgi.STDOUT, fastcgi.END_REQUEST):
        yield Case(f"type {type} first", record(type, b"", request_id=7), 0, "closed")
    yield Case("STDIN with content first", record(STDIN, b"body"), 0, "closed")
    yield Case("empty STDIN records first", record(STDIN) * 3 + keep + rest, 1, "open")
    yield Case("BEGIN of 7 bytes", record(fastcgi.BEGIN_REQUEST, b"\0\1\1\0\0\0\0") + rest, 0, "closed")
    yield Case("BEGIN of 9 bytes", record(fastcgi.BEGIN_REQUEST, b"\0\1\1\0\0\0\0\0\0") + rest, 0, "closed")
    yield Case("BEGIN of 0 bytes", record(fastcgi.BEGIN_REQUEST, b"") + rest, 0, "closed")
    yield Case("PARAMS of an id that is not open", keep + params(hello, request_id=9) + record(STDIN), 1, "open")
    yield Case("STDIN of an id that is not open", keep + good_params + record(STDIN, b"", 9), 1, "open")
    interleaved = params(hello[:5], end=False) + params(hello[5:], request_id=3)
    yield Case("interleaved PARAMS of another id", keep + interleaved + record(STDIN), 1, "open")
    yield Case("second BEGIN before PARAMS", keep + keep + rest, 1, "closed")
    yield Case("second BEGIN within PARAMS", keep + params(hello, end=False) + keep + rest, 1, "closed")
    yield Case("STDIN ends PARAMS", keep + params(hello, end=False) + record(STDIN), 1, "open")
    yield Case("no parameters", keep + record(PARAMS) + record(STDIN), 1, "open")
    nameless = stream(PARAMS, b"\0\0" * 10 + b"\0\3abc" + _encoded(hello))
    yield Case("zero-length names", keep + nameless + record(STDIN), 1, "open")
    yield Case("10,000 empty pairs", keep + stream(PARAMS, b"\0\0" * 10_000, end=False) + rest, 1, "open")
    for name, content in _bad_pairs().items():
        yield Case(name, keep + stream(PARAMS, content) + record(STDIN), 0, "closed")
    split = pair("X_SPLIT", "value")
    straddling = params(hello, end=False) + record(PARAMS, split[:5]) + record(PARAMS, split[5:]) + record(PARAMS)
    yield Case("a pair over two records", keep + straddling + record(STDIN), 0, "closed")
    yield Case("content and padding above 65535", keep + _header(PARAMS, 65500, 255) + b"\0" * 65755, 0, "closed")
    padded = keep + params(hello, end=False) + record(PARAMS, b"", padding=8) + record(STDIN)
    yield Case("padding on the end of PARAMS", padded, 1, "closed")
    yield from _bad_bodies(script)
    yield from _truncated(script)
    aborted = _get(script, keep=True) + record(fastcgi.ABORT_REQUEST)
    yield Case("abort after the request", aborted, 1, "closed")
    for junk in (b"GET / HTTP/1.0\r\n\r\n", b"\0" * 64, b"\xff" * 64, b"LSAPI..." * 4):
        yield Case(f"not FastCGI: {junk[:5]!r}", junk, 0, "closed")


def _encoded(pairs):
    return b"".join(pair(name, value) for name, value in pairs)


def _bad_pairs():
    huge = struct.pack(">I", 0xFFFFFFFF)
    return {
        "both lengths 2^31 - 1": huge + huge + b"name",
        "value length 2^31 - 1": b"\4" + huge + b"name",
        "name longer than the record": b"\x10\0short",
        "value longer than the record": b"\1\x7fnv",
        "long length cut": b"\x80\0",
        "only a name length": b"\1",
    }


def _bad_bodies(script):
    echo = script("echo.php")
    longer = parameters(echo, method="POST", content_length="4")
    yield Case("body too long", begin(keep=True) + params(longer) + stream(STDIN, b"123456789"), 1, "closed")
    shorter = parameters(echo, method="POST", content_length="10")
    yield Case("body too short, but ended", begin(keep=True) + params(shorter) + stream(STDIN, b"12345"), 0, "waits")
    yield Case("body promised, nothing sent", begin(keep=True) + params(shorter), 0, "waits")
    # Above post_max_size: php-cgi runs the script, but wants to see the whole body before it ends the answer.
    gigabyte = parameters(script("hello.php"), method="POST", content_length=str(1 << 30))
    yield Case("1 GB promised, nothing sent", begin(keep=True) + params(gigabyte), 0, "waits")
    for text in ("-5", "abc", "99999999999999999999"):
        odd = parameters(script("hello.php"), method="POST", content_length=text)
        yield Case(f"CONTENT_LENGTH {text}", begin() + params(odd) + stream(STDIN, b""), 1, "closed")
    wrong = parameters(echo, method="POST", content_length="8")
    data = begin(keep=True) + params(wrong) + record(STDIN, b"1234") + record(PARAMS, b"5678") + record(STDIN)
    yield Case("PARAMS within the body", data, 1, "closed")
    second = begin(keep=True) + params(wrong) + record(STDIN, b"1234") + request(script("hello.php"), request_id=2)
    yield Case("BEGIN within the body", second, 1, "closed")
    unended = begin(keep=True) + params(wrong) + record(STDIN, b"12345678") + _get(script, request_id=2)
    yield Case("BEGIN in place of the end of a whole body", unended, 2, "closed")
    abort = begin(keep=True) + params(wrong) + record(STDIN, b"1234") + record(fastcgi.ABORT_REQUEST)
    yield Case("abort within the body", abort, 1, "closed")


def _truncated(script):
    data = request(script("echo.php"), body=b"b" * 100, keep=True)
    for size in (1, 3, 7, 8, 12, 15, 16, 20, 30, len(data) - 110, len(data) - 60):
        yield Case(f"the first {size} bytes", data[:size], 0, "waits")

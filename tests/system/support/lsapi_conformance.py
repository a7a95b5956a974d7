# SPDX-License-Identifier: Apache-2.0
"""Inputs for an LSAPI server, good and bad, and what lsphp 8.2 is known to do with each."""
import struct

from . import lsapi
from .conformance import Case
from .lsapi import BIG, MAX_PACKET, begin, environment, http_block, packet, php_value, request


def good_cases(script):
    """`script(name)` is the absolute path of a script. Each answer is complete, and its connection of further use."""
    for name, data in _good_requests(script):
        yield Case(name, data, 1, "open")


def _good_requests(script):
    def ask(name, query="", **options):
        return request(script(name), query, **options)

    yield "GET", ask("hello.php")
    yield "HEAD", ask("head.php", method="HEAD")
    yield "OPTIONS", ask("head.php", method="OPTIONS")
    for code in (200, 204, 301, 304, 404, 503):
        yield f"status {code}", ask("status.php", f"code={code}")
    yield "no such script", ask("absent.php")
    yield "fatal error", ask("fatal.php")
    yield "fatal error, logged", ask("fatal.php", special_env=[php_value("log_errors", "1")])
    yield "fatal error, not shown", ask("fatal.php", special_env=[php_value("display_errors", "0")])
    yield "exit with a status", ask("early_exit.php", "code=3")
    yield "exit in the middle", ask("exit_middle.php", "code=1")
    yield "error log", ask("stderr.php", "text=" + "x" * 3000)
    yield "flushed pieces", ask("flush.php", "pieces=4&ms=5&size=100")
    yield "empty flushes", ask("flush_empty.php")
    for size in (0, 1, 8000, 8184, 8192, 16383, 16384, 16385, 65536, 1_000_000):
        yield f"answer of {size}", ask("bytes.php", f"bytes={size}")
    for chunk in (1, 7, 8191, 20000, 300_000):
        yield f"answer in chunks of {chunk}", ask("bytes.php", f"bytes={min(400_000, 3000 * chunk)}&chunk={chunk}")
    for size in (0, 1, 7, 8, 7000, 8192, 16384, 65536, 200_000, 2_000_000):
        upload = (bytes(range(251)) * (size // 251 + 1))[:size]
        yield f"POST of {size}", ask("body.php", method="POST", body=upload)
    body = bytes(range(256)) * 400
    yield "PUT", ask("echo.php", method="PUT", body=body)
    yield "body not read", ask("ignores_body.php", body=body)
    yield "PUT body not read", ask("hello.php", method="PUT", body=body)
    for size in (0, 1, 5000, 20_000):
        yield f"{size} bytes of the body read", ask("part_of_body.php", f"bytes={size}", body=body)
    yield "body as long as its header says", ask("body.php", body=body, body_length=lsapi.BODY_AS_IN_HEADER)
    yield "no body, as its header says", ask("body.php", body_length=lsapi.BODY_AS_IN_HEADER)
    yield "header of another length than the body", ask("body.php", body=body, content_length="7")
    yield "another negative length is no body", ask("body.php", method="POST", body_length=-1)
    yield "form", ask("request.php", method="POST", body=b"a=1&b%5B%5D=2&b%5B%5D=3", headers=[_FORM])
    yield "multipart form", _multipart(script, body)
    yield "cookies", ask("cookies.php", "count=20", headers=[("Cookie", "; ".join(f"c{n}={n}" for n in range(50)))])
    yield "many answer headers", ask("many_headers.php", "count=900&size=10")
    yield "more answer headers than lsphp sends", ask("many_headers.php", "count=1100&size=1")
    yield "long answer headers", ask("many_headers.php", "count=3&size=9000")
    yield from _many_request_headers(ask)
    yield from _php_settings(ask)
    yield "environment", ask("request.php", "a=1", extra={"X_EXTRA": "v" * 3000, "X_" + "N" * 200: "", "X_EMPTY": ""})
    yield "no block of its own for headers", ask("hello.php", http=(b"\0\0\0\0", {}, []))
    yield "no zero bytes in front of the block", ask("hello.php", http=(b"GET / HTTP/1.1\r\n\r\n", {}, []))
    yield "largest packet", _of_size(script, MAX_PACKET)
    yield "8192 entries", _entries(script, 8192)
    yield "other bits of the flag", ask("hello.php", flag=0xFE)
    for name, options in _in_both_orders().items():
        yield name, ask("request.php", "a=1", order=BIG, **options)


_FORM = ("Content-Type", "application/x-www-form-urlencoded")


def _multipart(script, content):
    boundary = "cut"
    head = 'Content-Disposition: form-data; name="{}"'
    body = (
        f'--{boundary}\r\n{head.format("colour")}\r\n\r\nred\r\n'
        f'--{boundary}\r\n{head.format("picture")}; filename="p.bin"\r\nContent-Type: application/octet-stream\r\n\r\n'
    ).encode() + content + f"\r\n--{boundary}--\r\n".encode()
    kind = ("Content-Type", f"multipart/form-data; boundary={boundary}")
    return request(script("upload.php"), body=body, headers=[kind])


def _many_request_headers(ask):
    known = [(name, f"value of {name}") for name in lsapi.INDEXED if name not in ("Content-Length", "Content-Type")]
    yield "all headers of the index", ask("request.php", headers=known, content_length="3", body=b"abc")
    yield "300 headers that are not", ask("request.php", headers=[(f"X-{n}", "v" * (n % 60)) for n in range(300)])
    yield "a long header", ask("request.php", headers=[("X-Long", "v" * 30_000), ("User-Agent", "u" * 20_000)])


def _php_settings(ask):
    query = "names=memory_limit,precision,user_agent&set=9M"
    values = {"memory_limit": "77M", "precision": "9", "user_agent": "u" * 2000}
    for admin in (False, True):
        special = [php_value(name, value, admin) for name, value in values.items()]
        yield f"PHP settings, {admin=}", ask("settings.php", query, special_env=special)
    yield "PHP settings of before are gone", ask("settings.php", query)
    yield "engine off", ask("hello.php", special_env=[php_value("engine", "0")])
    yield "suEXEC data is for a root lsphp", ask("hello.php", special_env=[(b"\0SUEXEC_UGID", b"\1\2\3\4\5\6\7\10")])


def _in_both_orders():
    """Requests whose numbers are in the other order."""
    return {
        "other order": {},
        "other order, with a body": {"body": b"x" * 100_000},
        "other order, body as long as its header says": {"body": b"x" * 20_000, "body_length": lsapi.BODY_AS_IN_HEADER},
        "other order, headers": {"headers": [("X-One", "1"), ("User-Agent", "u"), ("Cookie", "c=1")]},
        "other order, PHP settings": {"special_env": [php_value("precision", "9")]},
    }


def _of_size(script, size):
    """A request whose packet has exactly this size, all of it used by one header."""
    def build(filler):
        block = http_block("GET", "/hello.php", [("X-Filler", "f" * filler)])
        return begin(environment(script("hello.php")), http=block)

    return build(size - len(build(0)))


def _entries(script, count):
    """A request with so many entries of environment, for most of which there is only room for a letter."""
    known = environment(script("hello.php"))
    return begin([("", "")] * (count - len(known)) + known)


def bad_cases(script):
    """What lsphp answers by closing, without a packet. Nothing here is run."""
    for name, data in _bad_requests(script):
        yield Case(name, data, 0, "closed")


def _bad_requests(script):
    hello = environment(script("hello.php"))

    def bent(**bend):
        return begin(hello, **bend)

    yield "wrong magic", bent(magic=b"LT")
    yield "FastCGI", struct.pack(">BBHHBx", 1, 1, 1, 8, 0) + struct.pack(">HB5x", 1, 0)
    yield "HTTP", b"GET / HTTP/1.0\r\n\r\n"
    yield "zeros", b"\0" * 64
    yield "ones", b"\xff" * 64
    for type in (0, *range(2, 10), 255):
        yield f"type {type}", bent(type=type)
        if type != lsapi.ABORT_REQUEST:  # that is no fault: its client has gone
            yield f"type {type}, alone", packet(type)
    for length in (-(2**31), -1, 65536, 2**31 - 1):
        yield f"packet length {length}", bent(length=length)
    size = len(bent())
    for length in (size - 1, size - 8, size - 40):
        yield f"packet length {length - size}", bent(length=length)
    yield "packet length in the other order", bent(flag=1)
    yield "flag of the other order", begin(hello, order=BIG, flag=0)
    for name in ("script_file", "script_name", "query_string", "request_method"):
        for offset in (-1, -(2**31), size, 2**31 - 1):
            yield f"{name} at {offset}", bent(**{name: offset})
    yield from _bad_lists(hello, bent)
    yield from _bad_blocks(hello, bent)


def _bad_lists(hello, bent):
    for name, right in (("env_count", len(hello)), ("special_env_count", 0)):
        for count in (right + 1, 8193, 65536, 2**31 - 1):
            yield f"{name} {count}", bent(**{name: count})
    yield "env_count one too few", bent(env_count=len(hello) - 1)
    yield "8193 entries", begin([("", "")] * (8193 - len(hello)) + hello)
    yield "no end of the environment", bent(env_end=b"\0\0\0\1")
    yield "no end of the special environment", bent(special_env_end=b"\1\0\0\0")
    for name_length, value_length in ((0, 2), (2, 0), (0, 0), (65535, 2), (2, 65535)):
        odd = lsapi.entry("A", "B", name_length, value_length)
        yield f"entry of {name_length} and {value_length}", begin([odd, *hello])
        yield f"special entry of {name_length} and {value_length}", begin(hello, [odd])


def _bad_blocks(hello, bent):
    for more in (1, -1, 8, 2**31 - 400):
        block = http_block("GET", "/", [])
        yield f"block of {more} more", bent(http_header_length=len(block[0]) + more)
    yield "block of a negative length", bent(http_header_length=-8)
    for count in (1, 100, 4095):
        yield f"{count} unknown headers that are not there", bent(unknown_headers=count)
    yield "bytes behind the block", bent(tail=b"tail")
    for padding in (b"", b"\0" * 8):
        yield f"padding of {len(padding)}", begin(hello + [("X", "")], padding=padding)
    lengths = http_block("GET", "/", [("Host", "h")])
    end = len(lengths[0])
    for place in (0, 7, 10, 23):
        for length, offset in ((1, end), (end, 8), (0, end + 1), (1, 2**31 - 1)):
            yield f"place {place}: {length} at {offset}", begin(hello, http=lengths, index={place: (length, offset)})
    for row in ((end + 1, 0, 4, 1), (4, end, 4, 1), (4, 1, end + 1, 0), (4, 1, 4, end), (4, 1, 4, 2**31 - 500)):
        yield f"unknown header {row}", begin(hello, http=lengths, unknown=[row])


def stricter_cases(script):
    """What lsphp believes, and reads outside its buffer for; cede treats it as the rest."""
    hello = environment(script("hello.php"))
    block = http_block("GET", "/", [("Host", "h")])

    def bent(**bend):
        return begin(hello, **bend)

    cases = {
        "packet of 44 bytes": packet(lsapi.BEGIN_REQUEST, b"\0" * 36),
        "packet of 8 bytes": packet(lsapi.BEGIN_REQUEST),
        "packet of 43 bytes": packet(lsapi.BEGIN_REQUEST, b"\0" * 35),
        "length 0": bent(length=0),
        "length 7": bent(length=7),
        "env_count -1": bent(env_count=-1),
        "special_env_count -1": bent(special_env_count=-(2**31)),
        "unknown_headers -1": bent(unknown_headers=-1),
        "value without its NUL": begin([lsapi.entry("A", "B")[:-1] + b"x", *hello]),
        "name without its NUL": begin([b"\0\2\0\2AxB\0", *hello]),
        "header at a negative offset": begin(hello, http=block, index={10: (1, -1)}),
        "unknown header at a negative offset": begin(hello, http=block, unknown=[(-5, 1, 4, 1)]),
        "unknown header of a negative length": begin(hello, http=block, unknown=[(4, -1, 4, 1)]),
    }
    for name, data in cases.items():
        yield Case(name, data, 0, "closed")

# SPDX-License-Identifier: Apache-2.0
"""Ports for the servers under test: below the ephemeral range, so that no client socket takes them."""
import os
import socket

_FIRST, _LAST = (int(end) for end in os.environ.get("CEDE_TEST_PORTS", "21200-21399").split("-"))
_next = _FIRST


def free_port():
    """A TCP port on which nothing listens, IPv4 and IPv6. Ports are handed out in turn, the oldest again last."""
    global _next
    for _ in range(_LAST - _FIRST + 1):
        port = _next
        _next = _FIRST if _next == _LAST else _next + 1
        if can_listen(port):
            return port
    raise AssertionError(f"no free port in {_FIRST}-{_LAST}; set CEDE_TEST_PORTS=FIRST-LAST to use others")


def can_listen(port):
    """Whether a server could listen on this port now."""
    for family, host in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((host, port))
                probe.listen(1)
        except OSError as error:
            if family == socket.AF_INET or error.errno not in (97, 99):  # no IPv6 on this machine
                return False
    return True


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
        return True
    except OSError:
        return False

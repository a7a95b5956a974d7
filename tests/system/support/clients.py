# SPDX-License-Identifier: Apache-2.0
"""Clients that keep their connections."""


def kept_connections(pool, count, address=None):
    """`count` connections, each with one answered request, all still open."""
    connections = []
    for _ in range(count):
        connection = pool.connect(address)
        assert pool.ask(connection, "hello.php").text == "hello\n"
        connections.append(connection)
    return connections


def close_all(connections):
    for connection in connections:
        connection.close()

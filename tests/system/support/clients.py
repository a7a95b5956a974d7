# SPDX-License-Identifier: Apache-2.0
"""Clients that keep their connections."""
import contextlib

from .waiting import Background


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


@contextlib.contextmanager
def clients_that_go_on(pool, count):
    """`count` clients that ask all the time, every second one on a kept connection, and get a good answer each time.
    Gives a list, which has afterwards how many answers each has had."""
    stop, served = [], []

    def client(kept):
        answers = 0
        with pool.connect() as connection:
            while not stop:
                response = pool.ask(connection, "hello.php") if kept else pool.get("hello.php")
                assert response.text == "hello\n"
                answers += 1
        return answers

    clients = [Background(client, kept=number % 2 == 0) for number in range(count)]
    try:
        yield served
    finally:
        stop.append(True)
    served += [one.result() for one in clients]

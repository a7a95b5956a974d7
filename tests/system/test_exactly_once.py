# SPDX-License-Identifier: Apache-2.0
"""Every request runs once and is answered once, however often connections change hands."""
import time

import pytest

from support import kinds
from support.connection import Closed, LsapiConnection
from support.waiting import Background, parallel

pytestmark = kinds.both


def runs_in(path):
    try:
        with open(path) as file:
            return file.read().split()
    except FileNotFoundError:
        return []


def test_requests_of_many_clients_on_few_children_run_once_each(start, folder):
    pool = start.cede(children=4)
    ran = f"{folder}/ran"
    clients, requests = 24, 120

    def client(number):
        with pool.connect() as connection:
            for at in range(requests):
                mark = f"{number}-{at}"
                query, body = f"file={ran}&id={mark}", b"x" * (at * 37 % 5000)
                assert pool.ask(connection, "tick.php", query, method="POST", body=body).text == mark

    parallel([lambda n=n: client(n) for n in range(clients)], timeout=60)
    runs = runs_in(ran)
    assert len(runs) == len(set(runs)) == clients * requests


# The instant at which the next request meets the order to give up, from two milliseconds before to two after (F14).
OFFSETS = [step * 50e-6 for step in range(-40, 41)]


@pytest.mark.parametrize("how", ["park", "close"])
def test_f14_a_request_that_meets_the_order_to_give_up_is_run_and_answered_or_neither(start, folder, how):
    pool = start.cede(children=1, options=["--give-up", how])
    ran = f"{folder}/ran"
    lost, sent = 0, []
    for number, offset in enumerate(OFFSETS * 3):
        mark = f"request-{number}"
        with pool.connect() as connection:
            pool.ask(connection, "hello.php")
            request = pool.request("tick.php", f"file={ran}&id={mark}", method="POST", body=b"x" * 100, keep=True)
            due = time.perf_counter() + 0.004

            def arrive(at=due + offset):
                while time.perf_counter() < at:
                    pass
                return pool.get("hello.php").text

            other = Background(arrive)
            while time.perf_counter() < due:
                pass
            try:
                connection.send(request)
                assert connection.read_response().text == mark
                sent.append(mark)
            except (Closed, BrokenPipeError, ConnectionResetError) as error:
                assert how == "close", "a parked connection was closed"
                assert pool.connection_type is not LsapiConnection, "CONN_CLOSE had not been answered by a close"
                assert not isinstance(error, Closed) or error.without_answer, "an answer was cut off"
                lost += 1
            assert other.result() == "hello\n"
    # A retry of what was closed would be safe: it has not run.
    assert runs_in(ran) == sent
    assert len(sent) + lost == 3 * len(OFFSETS)

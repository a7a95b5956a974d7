# SPDX-License-Identifier: Apache-2.0
"""Waiting for conditions, and running things side by side."""
import threading
import time


def eventually(condition, what="the condition", timeout=10.0, interval=0.005):
    """Polls until `condition()` is true and returns its value; fails after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not so within {timeout} s (last value: {value!r})")
        time.sleep(interval)


def stays(condition, what="the condition", seconds=0.1, interval=0.01):
    """The opposite of `eventually`: `condition()` must hold all the time for `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        assert value, f"{what}: no longer so (value: {value!r})"
        time.sleep(interval)


class Background:
    """A function in a thread; `result()` waits for it, and raises what it raised."""

    def __init__(self, function, *arguments, **named):
        self._outcome = None
        self._error = None
        self._thread = threading.Thread(target=self._run, args=(function, arguments, named), daemon=True)
        self._thread.start()

    def _run(self, function, arguments, named):
        try:
            self._outcome = function(*arguments, **named)
        except BaseException as error:  # handed to whoever asks for the result
            self._error = error

    @property
    def done(self):
        return not self._thread.is_alive()

    def result(self, timeout=30.0):
        self._thread.join(timeout)
        assert self.done, f"still running after {timeout} s"
        if self._error is not None:
            raise self._error
        return self._outcome


def parallel(functions, timeout=30.0):
    """Runs all functions at once; returns their results in the same order."""
    started = [Background(function) for function in functions]
    return [one.result(timeout) for one in started]

# SPDX-License-Identifier: Apache-2.0
"""A worker process of OpenLiteSpeed 1.9, as far as an LSAPI application can tell: it has a pool of its own whose
connection that was used last is used next, reads on idle connections, and sends a request again when its connection is
lost. One thread, one epoll; requests begin in submit(), everything else happens in run()."""
import collections
import contextlib
import errno
import select
import socket
import time

from . import lsapi

# A request is sent so often at most, then its client gets a 503.
ATTEMPTS = 3
CONNECT_LIMIT = 2.0
# After a connect that met a full queue, as after any failure, the queue is looked at again after so many seconds.
RETRY = 1.0


class Job:
    """A request on its way; `answer` (lsapi.Response) or `failure` (text) once it is done."""

    def __init__(self, data, done=None, patience=None):
        self.data = data
        self.done = done
        self.begun = time.monotonic()
        # When the client goes away, which the application hears as ABORT_REQUEST and a closed connection.
        self.gone_at = None if patience is None else self.begun + patience
        self.attempts = 0
        self.answer = None
        self.failure = None
        self.took = None
        self.connection = None  # number of the connection that answered


class _Link:
    """A connection of the pool."""

    def __init__(self, one, number):
        self.socket = one
        self.number = number
        self.buffer = bytearray()
        self.unsent = b""
        self.job = None
        self.packets = []
        self.completed = 0
        self.acked = False
        self.marked = False  # CONN_CLOSE came while a request was attached
        self.connecting = False
        self.since = time.monotonic()


class Worker:
    def __init__(self, address, size=10, init_timeout=60.0):
        self.address = address
        self.size = size
        self.init_timeout = init_timeout
        self.counted = collections.Counter()
        self._links = {}
        self._free = []
        self._waiting = collections.deque()
        self._retry_at = None
        self._unfinished = 0
        self._epoll = select.epoll()
        self._timers = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for link in list(self._links.values()):
            self._drop(link)
        self._epoll.close()

    @property
    def idle(self):
        """How many connections are in the pool without a request."""
        return len(self._free)

    def submit(self, data, done=None, patience=None):
        """Begins a request; `done(job)` is called from run() when it has ended, and may submit others."""
        job = Job(data, done, patience)
        self._unfinished += 1
        self._start(job)
        return job

    def after(self, seconds, function):
        """Calls `function` from run() in so many seconds; run() does not end before."""
        self._timers.append((time.monotonic() + seconds, function))

    def run(self, limit=60.0):
        """Until every request has ended."""
        deadline = time.monotonic() + limit
        while self._unfinished or self._timers:
            assert time.monotonic() < deadline, f"{self._unfinished} requests without an end after {limit} s"
            self.turn()

    def run_for(self, seconds):
        """So long, whether or not there are requests: the pool's idle connections are read."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.turn(min(0.02, max(0.0, end - time.monotonic())))

    def close_idle(self):
        """What pcKeepAliveTimeout does, without the wait."""
        for link in list(self._free):
            self._drop(link)

    def turn(self, longest=0.02):
        if self._timers:
            now = time.monotonic()
            due = [one for one in self._timers if one[0] <= now]
            self._timers = [one for one in self._timers if one[0] > now]
            for _, function in due:
                function()
            if self._timers:
                longest = min(longest, max(0.0, min(at for at, _ in self._timers) - now))
        for number, events in self._epoll.poll(longest):
            link = self._links.get(number)
            if link is not None:
                self._serve(link, events)
        self._check_limits()

    # --- starting a request ---------------------------------------------------------------------

    def _start(self, job, first_in_queue=False):
        if self._free:
            self._send(self._free.pop(), job)
        elif len(self._links) < self.size:
            self._connect(job)
        elif first_in_queue:
            self._waiting.appendleft(job)
        else:
            self._waiting.append(job)

    def _connect(self, job):
        family = socket.AF_UNIX if isinstance(self.address, str) else socket.AF_INET
        one = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        failed = one.connect_ex(self.address)
        if failed not in (0, errno.EINPROGRESS):
            one.close()
            # A full queue is no attempt; nor is a refusal here: the real one would restart the application.
            self.counted["connects that failed"] += 1
            self._waiting.appendleft(job)
            self._retry_at = time.monotonic() + RETRY
            return
        self.counted["connections"] += 1
        link = _Link(one, self.counted["connections"])
        link.connecting = failed == errno.EINPROGRESS
        self._links[one.fileno()] = link
        self._epoll.register(one.fileno(), select.EPOLLIN)
        self._send(link, job)

    def _send(self, link, job):
        link.job, link.acked, link.packets = job, False, []
        link.since = time.monotonic()
        link.unsent = job.data
        if link.connecting:
            self._epoll.modify(link.socket.fileno(), select.EPOLLIN | select.EPOLLOUT)
        else:
            self._write(link)

    def _write(self, link):
        try:
            sent = link.socket.send(link.unsent)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._lost(link)
            return
        watched = bool(sent < len(link.unsent))
        link.unsent = link.unsent[sent:]
        self._epoll.modify(link.socket.fileno(), select.EPOLLIN | (select.EPOLLOUT if watched else 0))

    # --- what comes back ------------------------------------------------------------------------

    def _serve(self, link, events):
        if link.connecting and events & (select.EPOLLOUT | select.EPOLLHUP | select.EPOLLERR):
            link.connecting = False
        if events & select.EPOLLOUT and link.unsent:
            self._write(link)
        if events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR) and link.socket.fileno() in self._links:
            self._read(link)

    def _read(self, link):
        try:
            data = link.socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lost(link)
            return
        link.buffer += data
        while link.socket.fileno() in self._links:
            parsed = lsapi.parse_record(link.buffer)
            if parsed is None:
                return
            del link.buffer[: parsed[1]]
            self._take(link, parsed[0])

    def _take(self, link, packet):
        if packet.type == lsapi.CONN_CLOSE:
            self.counted["closes announced"] += 1
            if link.job is None:
                self._drop(link)
                self._go_on()
            else:
                self.counted["closes that crossed a request"] += not link.packets
                link.marked = True
            return
        if link.job is None:
            self.counted["packets nobody asked for"] += 1
            self._drop(link)
            return
        link.acked = True
        link.packets.append(packet)
        if packet.type == lsapi.RESP_END:
            self._answered(link)

    def _answered(self, link):
        job, link.job = link.job, None
        link.completed += 1
        job.answer = lsapi.Response(link.packets)
        job.connection = link.number
        link.packets = []
        if link.marked:
            self._drop(link)
        else:
            self._free.append(link)
        self._go_on()  # who waits goes before who asks now
        self._finish(job)

    def _finish(self, job):
        self._unfinished -= 1
        job.took = time.monotonic() - job.begun
        if job.done:
            job.done(job)

    def _go_on(self):
        while self._waiting and (self._free or len(self._links) < self.size):
            before = len(self._waiting)
            self._start(self._waiting.popleft(), first_in_queue=True)
            if len(self._waiting) >= before:
                return

    # --- what goes wrong ------------------------------------------------------------------------

    def _drop(self, link):
        self._links.pop(link.socket.fileno(), None)
        if link in self._free:
            self._free.remove(link)
        link.socket.close()

    def _lost(self, link):
        job, link.job = link.job, None
        self._drop(link)
        if job is None:
            self.counted["idle connections lost"] += 1
            self._go_on()
            return
        self.counted["requests sent again, acknowledged" if link.acked else "requests sent again"] += 1
        job.attempts += 1
        if not link.acked and link.completed and (not self._free or (job.attempts - 1) % ATTEMPTS == 0):
            self._connect(job)
        elif job.attempts < ATTEMPTS:
            self._start(job, first_in_queue=True)
        else:
            job.failure = "503"
            self.counted["503"] += 1
            self._finish(job)

    def _check_limits(self):
        now = time.monotonic()
        if self._retry_at is not None and now >= self._retry_at:
            self._retry_at = None
            self._go_on()
        for link in [one for one in self._links.values() if one.job is not None]:
            if link.job.gone_at is not None and now >= link.job.gone_at:
                self._abort(link)
            elif link.connecting and now - link.since > CONNECT_LIMIT:
                self._lost(link)
            elif not link.completed and not link.acked and now - link.since > self.init_timeout:
                self.counted["fresh connections that timed out"] += 1
                self._lost(link)

    def _abort(self, link):
        job, link.job = link.job, None
        try:
            link.socket.send(lsapi.ABORT)
        except OSError:
            pass
        self._drop(link)
        self.counted["requests aborted"] += 1
        job.failure = "client gone"
        self._finish(job)
        self._go_on()


@contextlib.contextmanager
def workers(pool, count, size=10):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Worker(pool.address, size)) for _ in range(count)]


def at_once(worker, pool, count, name, query="", limit=15.0):
    """So many requests at once; how long each took."""
    data = pool.request(name, query)
    jobs = [worker.submit(data) for _ in range(count)]
    worker.run(limit)
    assert [job.failure for job in jobs] == [None] * count
    assert {job.answer.status for job in jobs} == {200}
    return [job.took for job in jobs]


def closed_loop(worker, request, answered, more, width=1):
    """`width` requests are always under way. They are numbered: request(n) gives the bytes, answered(n, job) is told
    of the end, and n + width follows if more(n + width). Returns when the last one has ended."""
    def ask(number):
        worker.submit(request(number), lambda job: done(number, job))

    def done(number, job):
        answered(number, job)
        if more(number + width):
            ask(number + width)

    for number in range(width):
        ask(number)
    worker.run()


def nothing_odd(worker):
    """Whether nothing happened that a web server logs, or pays for."""
    ordinary = {"connections", "closes announced", "closes that crossed a request"}
    return {what: times for what, times in worker.counted.items() if times and what not in ordinary} == {}

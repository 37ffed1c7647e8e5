"""A link to a far server, on loopback: a TCP proxy that delays all bytes and limits their rate.

It runs in a process of its own, so its work is not done by what is measured. A connection has what
makes far servers slow: bytes arrive half a round trip after they were sent; all connections
together get one rate each way; a connection begins with 10 segments in flight, and with twice as
many each round trip (TCP's slow start); and its first bytes wait one round trip more, since a proxy
cannot delay the kernel's own handshake.
"""

from __future__ import annotations

import argparse
import errno
import heapq
import itertools
import os
import re
import select
import socket
import struct
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

ROUND_TRIP = 0.020
RATE = 125e6
"""Bytes a second: 1 Gbit/s."""
FIRST_WINDOW = 10 * 1448
LARGEST_WINDOW = 4 << 20
READ = 256 << 10
BACKLOG_SECONDS = 0.005
"""How much the router keeps of what came faster than the link takes it."""
EARLY = 0.0005
"""epoll waits whole milliseconds, so what is due within half of one goes out now."""


class Pipe:
    """One rate for all bytes that go one way, and who waits for room, in order."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.free_at = 0.0
        self.queue: deque[Flow] = deque()

    def room_at(self) -> float:
        """When it takes bytes again."""
        return self.free_at - BACKLOG_SECONDS

    def sent_at(self, now: float, size: int) -> float:
        """When the last of these bytes has left, if they come now."""
        self.free_at = max(self.free_at, now) + size / self.rate
        return self.free_at


@dataclass(eq=False)
class Flow:
    """The bytes of a connection that go one way, and when they are due."""

    source: socket.socket
    target: socket.socket
    pipe: Pipe
    delay: float
    opened: float
    """When the handshake is over."""

    def __post_init__(self) -> None:
        self.waiting: deque[tuple[float, memoryview]] = deque()
        self.unacknowledged: deque[tuple[float, int]] = deque()
        self.in_flight, self.window = 0, FIRST_WINDOW
        self.ended = self.done = self.finished = self.reset = False
        self.blocked = self.queued = False
        self.wakes_at = float("inf")

    def acknowledge(self, now: float) -> None:
        """Free the window of what the sender knows to have arrived."""
        while self.unacknowledged and self.unacknowledged[0][0] <= now + EARLY:
            size = self.unacknowledged.popleft()[1]
            self.in_flight -= size
            self.window = min(self.window + size, LARGEST_WINDOW)

    def has_room(self) -> bool:
        """Whether enough of the window is free for bytes to enter the link."""
        return not self.ended and self.window - self.in_flight >= min(self.window // 2, READ)

    def read(self, now: float) -> None:
        """Take what the sender has, as far as the window allows."""
        try:
            data = self.source.recv(min(self.window - self.in_flight, READ))
        except BlockingIOError:
            return
        except OSError:
            data, self.reset = b"", True
        self.ended = not data
        self.in_flight += len(data)
        due = self.pipe.sent_at(max(now, self.opened), len(data)) + self.delay
        self.waiting.append((due, memoryview(data)))

    def write(self, now: float) -> None:
        """Give the receiver what is due."""
        self.blocked = False
        while self.waiting and self.waiting[0][0] <= now + EARLY and not self.done:
            due, data = self.waiting[0]
            try:
                sent = self.target.send(data) if data else 0
            except BlockingIOError:
                self.blocked = True
                return
            except OSError:
                self.done = self.reset = True
                return
            if sent:
                self.unacknowledged.append((now + self.delay, sent))
            if sent < len(data):
                self.waiting[0] = (due, data[sent:])
            else:
                self.waiting.popleft()
                self.done = not data

    def next_event(self) -> float:
        """When something of it is due without anything that comes from outside."""
        written = self.waiting[0][0] if self.waiting and not self.blocked else float("inf")
        return min(written, self.unacknowledged[0][0] if self.unacknowledged else float("inf"))


class Proxy:
    """Accepts connections and moves their bytes, all in one thread."""

    def __init__(
        self, listener: socket.socket, target: tuple[str, int], round_trip: float, rate: float
    ) -> None:
        self.listener, self.target, self.round_trip = listener, target, round_trip
        self.up, self.down = Pipe(rate), Pipe(rate)
        self.poll = select.epoll()
        self.flows: dict[int, tuple[Flow, Flow]] = {}
        """By the number of a socket: the flow that reads from it, the one that writes to it."""
        self.masks: dict[int, int] = {}
        self.timers: list[tuple[float, int, Callable[[float], None]]] = []
        self.numbers = itertools.count()
        listener.setblocking(False)
        self.poll.register(listener, select.EPOLLIN)

    def run(self) -> None:
        while True:
            wait = self.timers[0][0] - time.monotonic() - EARLY if self.timers else -1.0
            for number, event in self.poll.poll(max(wait, 0.0) if self.timers else -1):
                if number == self.listener.fileno():
                    self.accept()
                else:
                    self.serve(number, event)
            now = time.monotonic()
            while self.timers and self.timers[0][0] <= now + EARLY:
                heapq.heappop(self.timers)[2](now)

    def at(self, due: float, act: Callable[[float], None]) -> None:
        heapq.heappush(self.timers, (due, next(self.numbers), act))

    def accept(self) -> None:
        client, _ = self.listener.accept()
        server = socket.socket()
        for one in (client, server):
            one.setblocking(False)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if server.connect_ex(self.target) not in (0, errno.EINPROGRESS):
            client.close()
            return
        opened = time.monotonic() + self.round_trip
        there = Flow(client, server, self.up, self.round_trip / 2, opened)
        back = Flow(server, client, self.down, self.round_trip / 2, opened)
        self.flows[client.fileno()] = (there, back)
        self.flows[server.fileno()] = (back, there)
        self.settle(there, opened)

    def serve(self, number: int, event: int) -> None:
        if number not in self.flows:
            return  # dropped by an event before this one
        reads, writes = self.flows[number]
        now = time.monotonic()
        if writes.blocked:
            self.move(writes, now)
        if event & ~select.EPOLLOUT and number in self.flows:
            self.take(reads, now)

    def take(self, flow: Flow, now: float) -> None:
        """Read from a sender, or let it wait for its turn."""
        if flow.pipe.queue or flow.pipe.room_at() > now + EARLY:
            if not flow.pipe.queue:
                self.at(flow.pipe.room_at(), lambda now: self.turn(flow.pipe, now))
            flow.queued = True
            flow.pipe.queue.append(flow)
        elif flow.has_room():
            flow.read(now)
        self.settle(flow, now)

    def turn(self, pipe: Pipe, now: float) -> None:
        """The pipe has room for those that wait."""
        while pipe.queue and pipe.room_at() <= now + EARLY:
            flow = pipe.queue.popleft()
            flow.queued = False
            if flow.source.fileno() >= 0:
                if flow.has_room():
                    flow.read(now)
                self.settle(flow, now)
        if pipe.queue:
            self.at(pipe.room_at(), lambda now: self.turn(pipe, now))

    def move(self, flow: Flow, now: float) -> None:
        """Do what is due in a flow."""
        if flow.source.fileno() >= 0:
            flow.write(now)
            self.settle(flow, now)

    def settle(self, flow: Flow, now: float) -> None:
        """Ask epoll and the timers for the next events of a flow; drop a connection that has ended."""
        other = self.flows[flow.source.fileno()][1]
        if flow.done and (flow.reset or other.done):
            self.drop(flow)
            return
        if flow.done and not flow.finished:
            flow.finished = True
            try:
                flow.target.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # it has just been reset, which epoll reports next
        flow.acknowledge(now)
        due = flow.next_event()
        if due < flow.wakes_at:
            flow.wakes_at = due
            self.at(due, lambda now: self.wake(flow, now))
        self.watch(flow.source)
        self.watch(flow.target)

    def wake(self, flow: Flow, now: float) -> None:
        flow.wakes_at = float("inf")
        self.move(flow, now)

    def watch(self, one: socket.socket) -> None:
        number = one.fileno()
        reads, writes = self.flows[number]
        mask = select.EPOLLIN if not reads.queued and reads.has_room() else 0
        mask |= select.EPOLLOUT if writes.blocked else 0
        before = self.masks.get(number, 0)
        # Without a mask epoll would still report errors, again and again.
        if mask and not before:
            self.poll.register(number, mask)
        elif mask and mask != before:
            self.poll.modify(number, mask)
        elif before and not mask:
            self.poll.unregister(number)
        self.masks[number] = mask

    def drop(self, flow: Flow) -> None:
        for one in (flow.source, flow.target):
            number = one.fileno()
            if self.masks.pop(number, 0):
                self.poll.unregister(number)
            del self.flows[number]
            if flow.reset:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.close()


@dataclass(frozen=True)
class Link:
    """A running link."""

    endpoint: str
    """The address of the server at its end, as clients on this side name it."""
    process: int

    def cpu_seconds(self) -> float:
        """The processor time that the proxy has used."""
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def link(endpoint: str, *, round_trip: float = ROUND_TRIP, rate: float = RATE) -> Generator[Link]:
    """Put a server, such as "http://127.0.0.1:8333", at the end of a link (`rate`: bytes a second)."""
    from remote.servers.processes import HOST, running

    parts = urlsplit(endpoint)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [
            sys.executable, "-S", __file__, str(parts.hostname), str(parts.port),
            str(round_trip), str(rate),
        ]  # fmt: skip

        def port() -> str | None:
            found = re.search(r"listens on (\d+)\n", (folder / "server.log").read_text())
            return found and found[1]

        with running(command, folder=folder, ready=lambda: bool(port())) as process:
            yield Link(f"{parts.scheme}://{HOST}:{port()}", process.pid)


def main() -> None:
    """Run as a program; the port comes out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("round_trip", type=float, help="seconds")
    parser.add_argument("rate", type=float, help="bytes a second")
    asked = parser.parse_args()
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        print("listens on", listener.getsockname()[1], flush=True)
        Proxy(listener, (asked.host, asked.port), asked.round_trip, asked.rate).run()


if __name__ == "__main__":
    main()

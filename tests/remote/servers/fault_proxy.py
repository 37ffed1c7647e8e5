"""A proxy that breaks what it passes on, by rules, and counts it."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO, Self
from urllib.parse import urlsplit

from remote.servers.faults import Fault, Rule
from remote.servers.http1 import (
    Asked,
    HttpError,
    Reply,
    body_length,
    has_body,
    header,
    read_body,
    read_reply_head,
    read_request_head,
)
from remote.servers.s3 import S3

BLOCK = 256 << 10
ENOUGH_SECONDS = 10.0


@dataclass
class Seen:
    """One request that came, and what became of it."""

    connection: int
    method: str
    path: str
    query: str
    range: tuple[int, int | None] | None
    began: float
    status: int = 0
    """0: no answer was sent."""
    sent: int = 0
    """Bytes of bodies that went to the client."""
    received: int = 0
    """And that came from it."""
    fault: str | None = None
    ended: float = 0.0


class FaultProxy:
    """Stands in front of a server, `with FaultProxy(seaweed.endpoint, keys=seaweed.client) as proxy:`.

    Requests go on byte by byte, the Host included, so their signatures stay right. Clients use
    `proxy.endpoint`. It serves from threads of this process; children made by fork do not hold its
    sockets.
    """

    def __init__(self, endpoint: str, *, keys: S3 | None = None) -> None:
        parts = urlsplit(endpoint)
        self._store = (str(parts.hostname), int(parts.port or 80))
        self._keys = keys
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._seen: list[Seen] = []
        self._threads: list[threading.Thread] = []
        self._sockets: set[socket.socket] = set()
        self._numbers = itertools.count()
        self._stopping = threading.Event()
        _PROXIES.add(self)

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        with self._lock:
            for one in self._sockets:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(ENOUGH_SECONDS)
        self._listener.close()
        alive = [thread.name for thread in self._threads if thread.is_alive()]
        if alive:
            raise RuntimeError(f"the fault proxy's threads did not end: {alive}")

    # -- rules and counts -------------------------------------------------------------------------

    def add(self, fault: Fault, **conditions: Any) -> Rule:
        """Let a fault happen at requests that fit; see `Rule`. The first rule that fits wins."""
        rule = Rule(fault, **conditions)
        with self._lock:
            self._rules.append(rule)
        return rule

    def heal(self) -> None:
        """Take all rules away."""
        with self._lock:
            self._rules.clear()

    def forget(self) -> None:
        """Begin to count anew."""
        with self._lock:
            self._seen.clear()

    def requests(self, method: str | None = None, key: str | None = None) -> list[Seen]:
        """The requests since the last `forget`, in order; `key` is part of the path."""
        with self._lock:
            return [
                one
                for one in self._seen
                if (method is None or one.method == method) and (key is None or key in one.path)
            ]

    def count(self, method: str | None = None, key: str | None = None) -> int:
        """How many requests there were."""
        return len(self.requests(method, key))

    def sent(self, key: str | None = None) -> int:
        """How many bytes of bodies went to clients."""
        return sum(one.sent for one in self.requests(key=key))

    def connections(self) -> int:
        """How many connections carried the requests."""
        return len({one.connection for one in self.requests()})

    # -- serving ----------------------------------------------------------------------------------

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, name="fault-proxy", daemon=True)
        with self._lock:
            self._threads = [one for one in self._threads if one.is_alive() or not one.ident]
            self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        connection = _Connection(self, client, next(self._numbers))
        self._hold(client)
        try:
            while not self._stopping.is_set() and connection.one_request():
                pass
        except OSError:
            pass  # one of the two sides has gone, as they may
        finally:
            connection.close()

    def _hold(self, one: socket.socket) -> None:
        with self._lock:
            self._sockets.add(one)

    def _close(self, one: socket.socket) -> None:
        with self._lock:
            self._sockets.discard(one)
        with contextlib.suppress(OSError):
            one.close()

    def _begin(self, asked: Asked, connection: int) -> tuple[Seen, Fault | None]:
        seen = Seen(
            connection, asked.method, asked.path, asked.query, asked.range, time.monotonic()
        )
        with self._lock:
            rule = next((rule for rule in self._rules if rule.happens(asked)), None)
            seen.fault = rule.fault.name if rule else None
            self._seen.append(seen)
        return seen, rule.fault if rule else None

    def _resigned(self, asked: Asked) -> Asked:
        """A request with other headers than its client signed."""
        if self._keys is None or header(asked.headers, "authorization") is None:
            return asked
        host = header(asked.headers, "host")
        signer = S3(f"http://{host}", self._keys.key_id, self._keys.secret)
        path, _, query = asked.target.partition("?")
        kept = {
            name: value
            for name, value in asked.headers
            if not name.lower().startswith(("x-amz-", "authorization"))
        }
        signed = signer.signed(asked.method, path, query, kept)
        return Asked(asked.method, asked.target, list(signed.items()), asked.body)


class _Broken(OSError):
    """The fault has ended this connection."""


class _Connection:
    """A client's connection, and one to the store that belongs to it."""

    def __init__(self, proxy: FaultProxy, client: socket.socket, number: int) -> None:
        self.proxy, self.client, self.number = proxy, client, number
        self.reader: BinaryIO = client.makefile("rb")
        self.store: socket.socket | None = None
        self.store_reader: BinaryIO | None = None

    def one_request(self) -> bool:
        """Serve the next request; whether the connection goes on."""
        asked = read_request_head(self.reader)
        if asked is None:
            return False
        seen, fault = self.proxy._begin(asked, self.number)
        try:
            if (header(asked.headers, "expect") or "").lower() == "100-continue":
                self.client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            if fault and fault.upload_share is not None:
                self._cut(asked, seen, fault.upload_share)
            body = read_body(self.reader, asked.headers, to_end=False)
            seen.received = len(body)
            asked = Asked(asked.method, asked.target, asked.headers, body)
            if fault is None:
                self._relay(asked, seen)
            else:
                self._break(asked, seen, fault)
        finally:
            seen.ended = time.monotonic()
        return (header(asked.headers, "connection") or "").lower() != "close"

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.reader.close()
        self.proxy._close(self.client)
        self._leave()

    def _leave(self) -> None:
        if self.store_reader is not None:
            self.store_reader.close()
        if self.store is not None:
            self.proxy._close(self.store)

    # -- the store's side -------------------------------------------------------------------------

    def _ask(self, asked: Asked) -> Reply:
        """The head of the store's answer. A kept connection may have been closed meanwhile."""
        for fresh in (self.store is None, True):
            if fresh:
                self._connect()
            assert self.store is not None
            assert self.store_reader is not None
            try:
                self.store.sendall(_unchunked(asked).encoded())
                self.store.sendall(asked.body)
                reply = read_reply_head(self.store_reader)
            except OSError:
                reply = None
            if reply is not None:
                return reply
        raise HttpError("the store does not answer")

    def _connect(self) -> None:
        self._leave()
        self.store = socket.create_connection(self.proxy._store, timeout=600)
        self.proxy._hold(self.store)
        self.store.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.store_reader = self.store.makefile("rb")

    def _whole(self, asked: Asked) -> Reply:
        """The store's answer with its body, and with a Content-Length."""
        reply = self._ask(asked)
        if not has_body(asked.method, reply.status):
            return reply
        assert self.store_reader is not None
        body = read_body(self.store_reader, reply.headers, to_end=True)
        return reply.with_header("Transfer-Encoding", None).with_body(body)

    # -- the client's side ------------------------------------------------------------------------

    def _relay(self, asked: Asked, seen: Seen) -> None:
        """Pass on an answer as it comes."""
        reply = self._ask(asked)
        length = body_length(reply.headers)
        if not has_body(asked.method, reply.status):
            length = 0
        if length is None:
            assert self.store_reader is not None
            body = read_body(self.store_reader, reply.headers, to_end=True)
            reply = reply.with_header("Transfer-Encoding", None).with_body(body)
            self._send(reply, seen)
            return
        seen.status = reply.status
        self.client.sendall(reply.encoded())
        assert self.store_reader is not None
        while length:
            block = self.store_reader.read(min(length, BLOCK))
            if not block:
                raise HttpError("the store's answer ended early")
            seen.sent += len(block)
            self.client.sendall(block)
            length -= len(block)

    def _send(self, reply: Reply, seen: Seen, share: float = 1.0) -> None:
        # Counted first, so that a client that has its answer finds it counted.
        part = memoryview(reply.body)[: int(len(reply.body) * share)]
        seen.status, seen.sent = reply.status, len(part)
        self.client.sendall(reply.encoded())
        self.client.sendall(part)

    def _break(self, asked: Asked, seen: Seen, fault: Fault) -> None:
        if fault.before:
            fault.before(asked)
        if fault.answer:
            reply = fault.answer(asked)
        else:
            changed = fault.ask and self.proxy._resigned(fault.ask(asked))
            reply = self._whole(changed or asked)
            if fault.change:
                reply = fault.change(reply)
        if not has_body(asked.method, reply.status) and reply.body:
            reply = Reply(reply.status, reply.headers)
        if fault.wait:
            self._idle(fault.wait)
        if fault.share is None:
            self._send(reply, seen)
            return
        if fault.share >= 0:
            self._send(reply, seen, fault.share)
        if fault.ends == "stall":
            self._idle(fault.stalls)
        self._end(reset=fault.ends == "reset")

    def _idle(self, seconds: float) -> None:
        """Wait, but not longer than anybody listens."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self.proxy._stopping.is_set():
            readable, _, _ = select.select([self.client], [], [], min(left, 0.1))
            if readable and not self.client.recv(1, socket.MSG_PEEK):
                raise _Broken("the client has gone")
            if readable:
                time.sleep(min(left, 0.02))

    def _cut(self, asked: Asked, seen: Seen, share: float) -> None:
        """Let part of a body through to the store, and break both connections."""
        if share > 0:
            part = self.reader.read(int((body_length(asked.headers) or 0) * share))
            seen.received = len(part)
            self._connect()
            assert self.store is not None
            self.store.sendall(asked.encoded())
            self.store.sendall(part)
            _reset_on_close(self.store)
        self._end(reset=True)

    def _end(self, *, reset: bool) -> None:
        if reset:
            _reset_on_close(self.client)
        raise _Broken("as the rule says")


def _unchunked(asked: Asked) -> Asked:
    """The request with its body's length, if it came in chunks."""
    if body_length(asked.headers) is not None or not asked.body:
        return asked
    kept = [pair for pair in asked.headers if pair[0].lower() != "transfer-encoding"]
    return Asked(asked.method, asked.target, [*kept, ("Content-Length", str(len(asked.body)))])


def _reset_on_close(one: socket.socket) -> None:
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


_PROXIES: weakref.WeakSet[FaultProxy] = weakref.WeakSet()


def _let_go() -> None:
    """In a forked child: a socket that the child holds would stay open when the proxy closes it."""
    for proxy in _PROXIES:
        for one in [proxy._listener, *proxy._sockets]:
            number = one.detach()
            if number >= 0:
                os.close(number)


os.register_at_fork(after_in_child=_let_go)

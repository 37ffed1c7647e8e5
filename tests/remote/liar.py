"""A server that answers each request as a test wants: rightly, wrongly, late or not at all."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest

from penstock._core import Fetch, ObjectState, RemoteStore, StoreError

DATA = np.random.default_rng(7).bytes(3 << 20)
TAG = '"one"'
DATE = "Wed, 21 Oct 2026 07:28:00 GMT"


@dataclass
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    number: int

    @property
    def range(self) -> tuple[int, int]:
        """The first byte and the byte after the last."""
        found = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers["range"])
        assert found
        start, last = found.groups()
        if not start:
            return max(0, len(DATA) - int(last)), len(DATA)
        return int(start), min(len(DATA), int(last) + 1)


Answer = Callable[[Request, socket.socket], None]


def send(
    connection: socket.socket, status: str, headers: dict[str, str], body: bytes = b""
) -> None:
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers.items())]
    connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)


def part(
    request: Request,
    connection: socket.socket,
    *,
    tag: str | None = TAG,
    body: bytes | None = None,
    length: int | None = None,
    shift: int = 0,
) -> None:
    """The right answer to a request for a range, or one with these faults."""
    start, end = request.range
    body = DATA[start:end] if body is None else body
    headers = {
        "Content-Length": str(len(body) if length is None else length),
        "Content-Range": f"bytes {start + shift}-{end - 1 + shift}/{len(DATA)}",
        "Last-Modified": DATE,
    }
    send(connection, "206 Partial Content", headers | ({"ETag": tag} if tag else {}), body)


@dataclass
class Server:
    """Answers requests one after another with what the test gives, then rightly."""

    answers: list[Answer]
    always: Answer = part
    seen: list[Request] = field(default_factory=list[Request])

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            while head := lines.readline().decode():
                method, target, _ = head.split()
                headers: dict[str, str] = {}
                while line := lines.readline().decode().strip():
                    name, value = line.split(":", 1)
                    headers[name.lower()] = value.strip()
                body = lines.read(int(headers.get("content-length", 0)))
                with self._lock:
                    request = Request(method, target, headers, body, len(self.seen))
                    self.seen.append(request)
                    answer = self.answers.pop(0) if self.answers else self.always
                try:
                    answer(request, connection)
                except OSError:
                    return

    def close(self) -> None:
        self._listener.close()


Serve = Callable[..., Server]


PINNED = ObjectState(len(DATA), TAG, None, None)


def fetch(store: RemoteStore, *ranges: tuple[int, int], state: ObjectState = PINNED) -> Fetch:
    starts = pa.array([start for start, _ in ranges], pa.uint64())
    lengths = pa.array([length for _, length in ranges], pa.uint64())
    return store.fetch("x", state, starts, lengths)


def kind(error: pytest.ExceptionInfo[StoreError]) -> str:
    return error.value.args[0]


def status(line: str, **headers: str) -> Answer:
    def answer(request: Request, connection: socket.socket) -> None:
        send(connection, line, {"Content-Length": "0"} | headers)

    return answer


def reset(request: Request, connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    raise ConnectionError  # the server closes the connection, and as it must not linger, resets it


def half_then_reset(request: Request, connection: socket.socket) -> None:
    start, end = request.range
    part(request, connection, body=DATA[start : (start + end) // 2], length=end - start)
    time.sleep(0.1)  # or the reset overtakes what was sent
    reset(request, connection)


def half_then_silence(request: Request, connection: socket.socket) -> None:
    start, end = request.range
    part(request, connection, body=DATA[start : (start + end) // 2], length=end - start)
    time.sleep(30)


def silence(request: Request, connection: socket.socket) -> None:
    time.sleep(30)


def short(request: Request, connection: socket.socket) -> None:
    start, end = request.range
    part(request, connection, body=DATA[start : (start + end) // 2])


def longer(request: Request, connection: socket.socket) -> None:
    start, end = request.range
    part(request, connection, body=b"?" * (end - start + 1))


def shifted(request: Request, connection: socket.socket) -> None:
    part(request, connection, shift=1)


def whole(request: Request, connection: socket.socket) -> None:
    headers = {"Content-Length": str(len(DATA)), "ETag": TAG, "Last-Modified": DATE}
    send(connection, "200 OK", headers, b"" if request.method == "HEAD" else DATA)


def replaced(request: Request, connection: socket.socket) -> None:
    start, end = request.range
    part(request, connection, tag='"two"', body=b"!" * (end - start))


def endless_redirect(request: Request, connection: socket.socket) -> None:
    send(connection, "302 Found", {"Content-Length": "0", "Location": request.target})


SECRET = "sEcReT0123456789"


def s3(server: Server, **options: str) -> dict[str, str]:
    return {
        "aws_endpoint_url": server.url,
        "aws_allow_http": "true",
        "aws_access_key_id": "name",
        "aws_secret_access_key": SECRET,
        "aws_region": "here",
    } | options

"""HTTP/1.1 messages as the proxy and the servers of the tests read and write them, byte by byte."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from io import BufferedIOBase
from typing import BinaryIO
from urllib.parse import unquote

Stream = BinaryIO | BufferedIOBase
Headers = list[tuple[str, str]]
RANGE = re.compile(r"bytes=(\d+)-(\d*)$|bytes=-(\d+)$")


class HttpError(OSError):
    """The other side sent something that is not HTTP, or went away in the middle of it."""


def header(headers: Headers, name: str) -> str | None:
    """The value of a header, whatever the case of its name."""
    return next((value for found, value in headers if found.lower() == name.lower()), None)


@dataclass(frozen=True)
class Asked:
    """A request, with its target exactly as it was sent."""

    method: str
    target: str
    headers: Headers
    body: bytes = field(default=b"", repr=False)

    @property
    def path(self) -> str:
        """The decoded path, such as "/bucket/some key"."""
        return unquote(self.target.partition("?")[0])

    @property
    def query(self) -> str:
        """What follows the question mark, as it was sent."""
        return self.target.partition("?")[2]

    @property
    def range(self) -> tuple[int, int | None] | None:
        """The first and the last byte asked for. A negative first one: so many from the end."""
        text = header(self.headers, "range")
        found = text and RANGE.match(text)
        if not found:
            return None
        if found[3]:
            return -int(found[3]), None
        return int(found[1]), int(found[2]) if found[2] else None

    def encoded(self) -> bytes:
        """The bytes of the request without its body."""
        return _head(f"{self.method} {self.target} HTTP/1.1", self.headers)


@dataclass(frozen=True)
class Reply:
    """An answer."""

    status: int
    headers: Headers = field(default_factory=list)
    body: bytes = field(default=b"", repr=False)

    def header(self, name: str) -> str | None:
        """The value of a header."""
        return header(self.headers, name)

    def with_header(self, name: str, value: str | None) -> Reply:
        """The same with another value of a header, or without it."""
        kept = [pair for pair in self.headers if pair[0].lower() != name.lower()]
        return replace(self, headers=kept if value is None else [*kept, (name, value)])

    def with_body(self, body: bytes) -> Reply:
        """The same with another body, and the Content-Length that belongs to it."""
        return replace(self.with_header("Content-Length", str(len(body))), body=body)

    def encoded(self) -> bytes:
        """The bytes of the answer without its body."""
        try:
            reason = HTTPStatus(self.status).phrase
        except ValueError:
            reason = "Unknown"
        return _head(f"HTTP/1.1 {self.status} {reason}", self.headers)


def _head(first: str, headers: Headers) -> bytes:
    lines = [first, *(f"{name}: {value}" for name, value in headers), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def read_head(stream: Stream) -> tuple[str, Headers] | None:
    """The first line of a message and its headers; None if there is no further message."""
    first = stream.readline(1 << 16)
    if not first:
        return None
    headers: Headers = []
    while (line := stream.readline(1 << 16)) not in (b"\r\n", b"\n"):
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon:
            raise HttpError(f"not a header: {line!r}")
        headers.append((name, value.strip()))
    return first.decode("latin-1").strip(), headers


def read_request_head(stream: Stream) -> Asked | None:
    """The next request of a connection, without its body."""
    head = read_head(stream)
    if head is None:
        return None
    parts = head[0].split(" ")
    if len(parts) != 3:
        raise HttpError(f"not a request: {head[0]!r}")
    return Asked(parts[0], parts[1], head[1])


def read_reply_head(stream: Stream) -> Reply | None:
    """The next answer, without its body; "100 Continue" is none."""
    while (head := read_head(stream)) is not None:
        status = int(head[0].split(" ")[1])
        if status >= 200:
            return Reply(status, head[1])
    return None


def body_length(headers: Headers) -> int | None:
    """The length of a message's body; None if chunks or the end of the connection say it."""
    if "chunked" in (header(headers, "transfer-encoding") or "").lower():
        return None
    length = header(headers, "content-length")
    return None if length is None else int(length)


def read_body(stream: Stream, headers: Headers, *, to_end: bool) -> bytes:
    """The whole body. Without a length it is empty, or `to_end` all that comes."""
    length = body_length(headers)
    if length is not None:
        body = stream.read(length)
        if len(body) < length:
            raise HttpError(f"{len(body)} of {length} bytes came")
        return body
    if "chunked" in (header(headers, "transfer-encoding") or "").lower():
        return b"".join(_chunks(stream))
    return stream.read() if to_end else b""


def _chunks(stream: Stream):
    while True:
        size = int(stream.readline(1 << 16).partition(b";")[0] or b"0", 16)
        if not size:
            while stream.readline(1 << 16) not in (b"\r\n", b"\n", b""):
                pass
            return
        chunk = stream.read(size)
        if len(chunk) < size:
            raise HttpError(f"{len(chunk)} of {size} bytes of a chunk came")
        yield chunk
        stream.readline(1 << 16)


def has_body(method: str, status: int) -> bool:
    """Whether such an answer has a body, whatever its headers say."""
    return method != "HEAD" and status not in (204, 304)

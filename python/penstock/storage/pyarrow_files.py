"""Adapts sources and sinks to pyarrow's file interface, and translates pyarrow's errors to penstock's.

pyarrow reports bad bytes as `ArrowInvalid`, as `OSError` without an errno, or as a Python error of its wrapper. An
`OSError` with an errno is the operating system's, and is not translated.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from copy import copy
from typing import Any, Generic, TypeVar

import pyarrow as pa

from penstock.columns.joined import outgrown
from penstock.engine.locks import Lock
from penstock.errors import (
    ChangedError,
    ChecksumError,
    FormatError,
    LimitError,
    PenstockError,
    UnsupportedError,
)
from penstock.storage.base import Sink, Source
from penstock.storage.local import LocalSource

WRITE_BYTES = 1 << 20
"""Small pieces are collected up to this size before they are written."""


_MOST_FAILURES = 16


class Failures:
    """The last errors that reading for pyarrow raised, by path, because pyarrow may replace an error of its file by one
    that has only its text."""

    def __init__(self) -> None:
        self._last: dict[str, BaseException] = {}
        self._lock = Lock()

    @contextmanager
    def noted(self, path: str) -> Generator[None, None, None]:
        try:
            yield
        except BaseException as error:
            with self._lock:
                self._last.pop(path, None)
                self._last[path] = copy(error)  # without its traceback, which holds the file
                if len(self._last) > _MOST_FAILURES:
                    del self._last[next(iter(self._last))]
            raise

    def behind(self, error: BaseException, path: str) -> BaseException | None:
        """The error of the file whose text is in an error of pyarrow."""
        with self._lock:
            found = self._last.get(path)
        # It stays for other threads, whose reads of the file failed, too.
        return copy(found) if found is not None and type(found).__name__ in str(error) else None


FAILURES = Failures()
"""Those of this process."""


@contextmanager
def translated(path: str) -> Generator[None, None, None]:
    """Translate pyarrow's errors about the bytes of `path` to penstock's. An error of storage stays the same."""
    try:
        with _translated(path):
            yield
    except FormatError as error:
        if error.__cause__ is None or (cause := FAILURES.behind(error.__cause__, path)) is None:
            raise
        raise cause from None


@contextmanager
def _translated(path: str) -> Generator[None, None, None]:
    try:
        yield
    except PenstockError as error:
        raise error.at(file=path) from error.__cause__
    except (pa.ArrowNotImplementedError, NotImplementedError) as error:
        raise UnsupportedError(f"pyarrow cannot do this: {error}", file=path) from error
    except MemoryError as error:
        raise LimitError(f"asks for more memory than is available: {error}", file=path) from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise _from_text(str(error), path) from error
    except UnicodeDecodeError as error:
        name = error.object.decode(errors="backslashreplace")
        raise FormatError(
            "a name in the file is not UTF-8", file=path, found=f"'{name}'"
        ) from error
    except (ValueError, KeyError, IndexError, TypeError, OverflowError, pa.ArrowException) as error:
        # The bytes are the cause of all these, for example of a KeyError for a field.
        raise _from_text(str(error), path) from error


def next_batch(stream: Any) -> Any:
    """The next batch of a stream. Raises FormatError at its end, because a StopIteration would end the caller's
    generator."""
    try:
        return stream.read_next_batch()
    except StopIteration:
        raise FormatError("the stream ends before its batch") from None


@contextmanager
def writable(path: str) -> Generator[None, None, None]:
    """Like `translated`, but for records that pyarrow cannot write."""
    try:
        yield
    except (NotImplementedError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        if isinstance(error, PenstockError):
            raise
        message = f"pyarrow cannot write this: {error}"
        hint = None
        if "dictionary replacement" in str(error).lower():
            hint = "stream=True, or one dictionary for all batches"
        raise UnsupportedError(message, file=path, hint=hint) from error


def _from_text(text: str, path: str) -> PenstockError:
    """The error for the text of a pyarrow error, which alone shows what happened."""
    lower = text.lower()
    if (limited := outgrown(ValueError(text))) is not None:
        return limited.at(file=path)
    if "decrypt" in lower or "encrypted" in lower:
        return UnsupportedError(
            f"the file is encrypted, and penstock cannot decrypt it ({text})",
            file=path,
            hint="decrypt it with the program that wrote it",
        )
    if "crc checksum" in lower:
        return ChecksumError(f"a page's checksum does not match ({text})", file=path)
    return FormatError(text or "the bytes violate the format's rules", file=path)


class PositionedFile:
    """A `Source` as a seekable file object for pyarrow. For one thread at a time."""

    closed = False

    def __init__(self, source: Source) -> None:
        self._source = source
        self._at = 0

    def read(self, length: int = -1) -> bytes:
        left = max(self._source.size - self._at, 0)
        length = left if length < 0 else min(length, left)
        if length == 0:
            return b""
        with FAILURES.noted(self._source.path):
            data = self._source.read(self._at, length).to_bytes()
        self._at += len(data)
        return data

    def read_buffer(self, length: int = -1) -> pa.Buffer:
        """Like `read`, without a copy; pyarrow prefers it."""
        left = max(self._source.size - self._at, 0)
        data = self._source.read(self._at, left if length < 0 else min(length, left))
        self._at += len(data)
        return pa.py_buffer(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = max(offset + (0, self._at, self._source.size)[whence], 0)
        return self._at

    def tell(self) -> int:
        return self._at

    def size(self) -> int:
        return self._source.size

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return True

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass  # the source belongs to the reader


class Bytes:
    """The bytes of a source for pyarrow, which reads local files itself, by `pread` or from a memory map. The file is
    opened once, so that all threads see the same file."""

    def __init__(self, source: Source, *, mmap: bool) -> None:
        self.source = source
        self._native: Any = None
        if isinstance(source, LocalSource) and source.size:
            name = os.fsencode(source.path)  # pyarrow does not accept every text as a path
            self._native = pa.memory_map(name) if mmap else pa.OSFile(name)
            if self._native.size() != source.size:
                raise ChangedError(
                    "the file changed while it was being opened",
                    file=source.path,
                    expected=f"{source.size} bytes",
                    found=f"{self._native.size()} bytes",
                )
        self.mapped: Any = self._native.read_buffer() if mmap and self._native is not None else None

    def file(self) -> Any:
        """A file object for one pyarrow reader."""
        if self._native is not None:
            return self._native
        return pa.PythonFile(PositionedFile(self.source), mode="r")

    def range(self, start: int, length: int) -> Any:
        """Bytes [start, start + length) as a pa.Buffer. They are not copied if the file is mapped."""
        length = max(min(length, self.source.size - start), 0)
        if self.mapped is not None:
            return self.mapped.slice(start, length)
        if self._native is not None:
            return pa.py_buffer(self._native.read_at(length, start))
        return pa.py_buffer(self.source.read(start, length))

    def read(self, start: int, length: int) -> bytes:
        """Like `range`, but returns Python bytes."""
        return self.range(start, length).to_pybytes()

    def close(self) -> None:
        native, self._native, self.mapped = self._native, None, None
        if native is not None:
            native.close()
        self.source.close()


class Splice:
    """Several ranges of a file as one file object."""

    closed = False

    def __init__(self, data: Bytes, ranges: list[tuple[int, int]]) -> None:
        self._data = data
        self._ranges = ranges[::-1]

    def read(self, length: int = -1) -> Any:
        parts: list[Any] = []
        while length != 0 and self._ranges:
            start, left = self._ranges.pop()
            count = left if length < 0 else min(length, left)
            if count:
                with FAILURES.noted(self._data.source.path):
                    parts.append(self._data.range(start, count))
            if count < left:
                self._ranges.append((start + count, left - count))
            length -= count if length > 0 else 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        pass


class SinkFile:
    """A `Sink` as a file object for pyarrow's writers. It never finishes the sink."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._waiting = bytearray()
        self._abandoned = False
        self.closed = False
        self.num_bytes = 0

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if self._abandoned:
            return len(view)
        self.num_bytes += len(view)
        if len(self._waiting) + len(view) <= WRITE_BYTES:
            self._waiting += view
            return len(view)
        self.drain()
        if len(view) < WRITE_BYTES:
            self._waiting += view
        else:
            self._sink.write(view)
        return len(view)

    def drain(self) -> None:
        """Write the collected bytes to the sink."""
        if self._waiting:
            waiting, self._waiting = self._waiting, bytearray()
            self._sink.write(waiting)

    def abandon(self) -> None:
        """Discard all further bytes, because a pyarrow writer finishes its file even if it is dropped."""
        self._abandoned = True
        self._waiting = bytearray()

    def tell(self) -> int:
        return self.num_bytes

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


H = TypeVar("H")


class Pool(Generic[H]):
    """A pool of handles, each for one thread at a time. If none is free, a new one is made."""

    def __init__(self, make: Callable[[], H]) -> None:
        self._make = make
        self._free: list[H] = []
        self._lock = Lock()

    @contextmanager
    def borrow(self) -> Generator[H, None, None]:
        with self._lock:
            handle = self._free.pop() if self._free else None
        if handle is None:
            handle = self._make()
        yield handle
        # Not in a finally, because a handle is in an unknown state after an error.
        with self._lock:
            self._free.append(handle)

    def clear(self) -> None:
        with self._lock:
            self._free.clear()

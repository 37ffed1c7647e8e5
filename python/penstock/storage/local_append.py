"""Appends either all new bytes to a local file, or none.

A lock on the file, which a process holds until it ends, lets only one process append at a time. The note of
`append_journal` is durable before the first new byte is written, and is removed when the last byte is durable. While it
exists, readers stop at the old end. If a process was killed while appending, the next process that opens the file
removes the new bytes, or keeps them if they are complete.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock import _core
from penstock.errors import ChangedError
from penstock.storage import append_journal as journal
from penstock.storage.append_journal import Journal
from penstock.storage.journal import is_at, lock
from penstock.storage.local_sink import Calls, LocalSink, naming, sync_path, write_all

if TYPE_CHECKING:
    from typing import Self

WAIT_SECONDS = 60.0
"""How long an append waits for another append, which holds the lock only while it copies bytes."""
_POLL_SECONDS = 0.02
_BLOCK_BYTES = 4 << 20


class Tail:
    """The exclusive right to append to a file during the `with` block. Raises BlockingIOError if another append does
    not end within `wait_seconds`."""

    def __init__(self, path: str, calls: Calls, wait_seconds: float = WAIT_SECONDS) -> None:
        self.path = journal.resolved(path)
        self._calls = calls
        self._wait_seconds = wait_seconds
        self._fd = -1

    def __enter__(self) -> Self:
        deadline = time.monotonic() + self._wait_seconds
        flags = os.O_RDWR | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        while True:
            self._fd = self._calls.open(self.path, flags)
            try:
                self._lock(deadline)
                if is_at(self._fd, self.path):
                    self.settle()
                    return self
            except BaseException:
                self._release()
                raise
            self._release()  # the file was replaced meanwhile: lock the new one

    def __exit__(self, *_: object) -> None:
        self._release()

    def _lock(self, deadline: float) -> None:
        while True:
            if lock(self._fd):
                return
            if time.monotonic() >= deadline:
                message = "another append to this file is running, or a program has locked it"
                raise BlockingIOError(errno.EAGAIN, message, self.path)
            time.sleep(_POLL_SECONDS)

    def _release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):  # all bytes are already durable
                self._calls.close(fd)

    def settle(self) -> None:
        if not journal.is_there(self.path):
            return
        known = journal.load(self.path)
        file = _core.File(self.path)
        if known is not None and known.state(file.read, file.size) == "torn":
            self._calls.truncate(self._fd, known.old_size)
        self._calls.fsync(self._fd)
        self._forget()

    def grow(self, new: str, old_size: int) -> None:
        """Append the bytes of the file `new`.

        Raises:
            ChangedError: the size of the file is not `old_size`.
            OSError: the bytes could not be written; the file is unchanged.
        """
        more, file = _core.File(new), _core.File(self.path)
        if file.size != old_size:
            raise ChangedError("the file has changed since it was examined", file=self.path)
        known = Journal(
            old_size,
            old_size + more.size,
            journal.border_of(file.read, old_size),
            more.read(0, journal.EDGE_BYTES).to_bytes().hex(),
            journal.checksum(more.read, 0, more.size),
        )
        self._note(known)
        try:
            with naming(self.path):
                for at in range(0, more.size, _BLOCK_BYTES):
                    block = more.read(at, _BLOCK_BYTES)
                    write_all(self._calls, self._fd, [memoryview(block)])
                self._calls.fsync(self._fd)
            if os.fstat(self._fd).st_size != known.new_size:
                raise ChangedError("another program is writing to the file", file=self.path)
            self._calls.unlink(journal.path_for(self.path))
        except BaseException:
            self._take_back(known)
            raise
        self._sync_folder()

    def _note(self, known: Journal) -> None:
        # The note contains some of the new bytes, so it gets only the file's permissions.
        sink = LocalSink(
            journal.path_for(self.path), overwrite=True, calls=self._calls, like=self.path
        )
        try:
            sink.write(known.to_bytes())
            sink.commit()
        except BaseException:
            sink.abort()
            with suppress(OSError):
                self._forget()
            raise

    def _take_back(self, known: Journal) -> None:
        """Restore the old end of the file. If this fails, the note remains, and the next process tries again."""
        with suppress(OSError):
            if os.fstat(self._fd).st_size <= known.new_size:
                self._calls.truncate(self._fd, known.old_size)
                self._calls.fsync(self._fd)
            self._forget()

    def _forget(self) -> None:
        with suppress(FileNotFoundError):
            self._calls.unlink(journal.path_for(self.path))
        self._sync_folder()

    def _sync_folder(self) -> None:
        # A note that reappears after a power failure is recognized as completed.
        with suppress(OSError):
            sync_path(self._calls, os.path.dirname(self.path))


def settle(path: str, calls: Calls) -> None:
    """Complete or undo the append of a killed process, if this process may write and no append runs."""
    with suppress(OSError), Tail(path, calls, wait_seconds=0):
        pass

"""The note that is next to a file while data is appended to it. It has the old size and facts about the appended bytes.

An append writes the note before the first new byte, and removes it when the last byte is durable. If there is a note,
only the first `old_size` bytes are read. The note is a hidden JSON file:

| key | value |
|---|---|
| old_size, new_size | bytes of the file before and after |
| border | crc32c of the last bytes before `old_size`, up to 4096 |
| head | the first new bytes, up to 4096, in hexadecimal |
| tail | crc32c of all new bytes |

A note may have been copied, or may be older than the file. It is trusted only if the bytes around the old end of the
file match it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal

from penstock import _core
from penstock.columns.facts import parsed_object
from penstock.storage.hidden import hidden

SUFFIX = ".penstock-append"
EDGE_BYTES = 4096
_BLOCK_BYTES = 4 << 20
_MOST_BYTES = 1 << 16
_DISK_BYTES = 512
"""The smallest unit that a disk writes as a whole. Larger blocks and pages are multiples of it."""

Read = Callable[[int, int], _core.Buffer]
"""Reads bytes [start, start + length) of a file; fewer at its end."""

State = Literal["whole", "torn", "foreign"]


@dataclass(frozen=True, slots=True)
class Journal:
    """The contents of a note about a growing file."""

    old_size: int
    new_size: int
    border: int
    head: str
    tail: int

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    def state(self, read: Read, size: int) -> State:
        """Whether all new bytes are in the file ("whole"), some are missing ("torn"), or the note is about another file
        ("foreign")."""
        if (
            not self.old_size <= size <= self.new_size
            or border_of(read, self.old_size) != self.border
        ):
            return "foreign"
        head = bytes.fromhex(self.head)
        found = read(self.old_size, min(len(head), size - self.old_size)).to_bytes()
        if not _is_left_of(found, head, self.old_size):
            return "foreign"
        if size == self.new_size and checksum(read, self.old_size, size) == self.tail:
            return "whole"
        return "torn"


def _is_left_of(found: bytes, written: bytes, start: int) -> bool:
    """Whether `found` can be the remains of `written` after a power failure. The disk may have lost any block. A lost
    block holds zeros, or its earlier contents, without what should have been written at its end."""
    at = 0
    while at < len(found):
        end = at + _DISK_BYTES - (start + at) % _DISK_BYTES
        block, whole = found[at:end], written[at:end]
        kept = block.rstrip(b"\0")
        if not whole.startswith(kept):
            return False
        at = end
    return True


def path_for(data_path: str) -> str:
    """The path of a file's note. For a link, the note is next to the link's target."""
    return hidden(resolved(data_path), SUFFIX)


def resolved(path: str) -> str:
    """The path of a file, or of the target of a link."""
    return os.path.realpath(path) if os.path.islink(path) else path


def load(data_path: str) -> Journal | None:
    """Read the note about a file; None if it is missing or invalid."""
    try:
        with open(path_for(data_path), "rb") as file:
            stored = parsed_object(file.read(_MOST_BYTES + 1), _MOST_BYTES)
        old_size, new_size, border, tail = (
            stored.count(key) for key in ("old_size", "new_size", "border", "tail")
        )
        journal = Journal(old_size, new_size, border, stored.text("head"), tail)
        num_head = len(bytes.fromhex(journal.head))
    except (OSError, ValueError):
        return None
    makes_sense = 0 <= old_size < new_size and num_head == min(EDGE_BYTES, new_size - old_size)
    return journal if makes_sense else None


def is_there(data_path: str) -> bool:
    """Whether a file has a note."""
    return os.path.lexists(path_for(data_path))


def border_of(read: Read, size: int) -> int:
    """The crc32c of the last bytes of a file of this size."""
    start = max(0, size - EDGE_BYTES)
    return read(start, size - start).crc32c()


def checksum(read: Read, start: int, end: int) -> int:
    """The crc32c of bytes [start, end)."""
    value = 0
    for at in range(start, end, _BLOCK_BYTES):
        value = read(at, min(_BLOCK_BYTES, end - at)).crc32c(value)
    return value


def visible_size(path: str) -> int | None:
    """How many bytes of a file to read while an append runs, or after an interrupted append that was not undone. None
    for all bytes."""
    journal = load(path)
    if journal is None:
        return None
    file = _core.File(path)
    if is_locked(path):
        return journal.old_size if journal.old_size <= file.size else None
    return journal.old_size if journal.state(file.read, file.size) == "torn" else None


def is_locked(path: str) -> bool:
    """Whether a process is appending to a file right now."""
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # this file system has no locks
    finally:
        os.close(fd)
    return False

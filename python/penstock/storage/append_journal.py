"""The note beside a file that is growing: how long it was, and what is being appended.

An append writes it before the first new byte and removes it when the last one is durable. A process that finds one
reads the file as it was, up to `old_size`. It is JSON, in a hidden file of its own:

| key | what |
|---|---|
| old_size, new_size | bytes of the file before and after |
| border | crc32c of the last bytes before `old_size`, up to 4096 |
| head | the first new bytes, up to 4096, in hexadecimal |
| tail | crc32c of all new bytes |

The presence of a note verifies nothing: it may have been copied, or have outlived the file that it was about. It is
trusted only if the bytes around the old end match it.
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
"""What disks write whole, at the least; larger blocks and pages are several of these."""

Read = Callable[[int, int], _core.Buffer]
"""Bytes of a file by (start, length); shorter where it ends."""

State = Literal["whole", "torn", "foreign"]


@dataclass(frozen=True, slots=True)
class Journal:
    """What is known of a file that is growing."""

    old_size: int
    new_size: int
    border: int
    head: str
    tail: int

    def to_bytes(self) -> bytes:
        """As it is stored."""
        return json.dumps(asdict(self)).encode()

    def state(self, read: Read, size: int) -> State:
        """What became of the file: all new bytes are there, or some of them ("torn", which can be
        taken back), or it is not the file that this is about."""
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
    """Whether bytes can be what a power cut left of those that were written at this place of a file. A disk keeps
    any of its blocks and loses any; a block that was lost is zeros, or was written when its end was not yet."""
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
    """Where the note about a file is: beside it, or beside what a link points to."""
    return hidden(resolved(data_path), SUFFIX)


def resolved(path: str) -> str:
    """The file itself, where a link points to it."""
    return os.path.realpath(path) if os.path.islink(path) else path


def load(data_path: str) -> Journal | None:
    """The note about a file, or None if there is none that makes sense."""
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
    """Whether there is a note about a file."""
    return os.path.lexists(path_for(data_path))


def border_of(read: Read, size: int) -> int:
    """The checksum of the last bytes of a file of this size."""
    start = max(0, size - EDGE_BYTES)
    return read(start, size - start).crc32c()


def checksum(read: Read, start: int, end: int) -> int:
    """The checksum of bytes [start, end)."""
    value = 0
    for at in range(start, end, _BLOCK_BYTES):
        value = read(at, min(_BLOCK_BYTES, end - at)).crc32c(value)
    return value


def visible_size(path: str) -> int | None:
    """How many bytes of a file count while an append is under way, or was cut off and cannot be
    taken back; None where all of them do."""
    journal = load(path)
    if journal is None:
        return None
    file = _core.File(path)
    if is_locked(path):
        return journal.old_size if journal.old_size <= file.size else None
    return journal.old_size if journal.state(file.read, file.size) == "torn" else None


def is_locked(path: str) -> bool:
    """Whether somebody is appending to a file at this moment."""
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # no locks on this file system; then nobody has appended with one
    finally:
        os.close(fd)
    return False

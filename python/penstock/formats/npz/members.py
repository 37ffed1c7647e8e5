"""Deflated members of an npz archive: inflated once, then read like any other bytes.

A deflated member has no way in but from its front. The first record that is asked of one inflates
it whole: into memory while the members of the file that are there take little, else into a temporary
file without a name. No more is ever inflated than the archive's directory and the array's header
agree on, and the checksum is proved on the way.
"""

from __future__ import annotations

import mmap
import struct
import tempfile
from collections.abc import Generator
from typing import Any

import numpy as np

from penstock import _core
from penstock.columns.numbers import as_numpy
from penstock.engine.locks import Lock
from penstock.errors import ChecksumError, FormatError, LimitError, PenstockError, TruncatedError
from penstock.formats.npz.zip_directory import Member
from penstock.formats.numpy.arrays import Place
from penstock.storage.base import Source

EMPTY = _core.Buffer.from_bytes(b"")
STEP_BYTES = 1 << 20
MEMORY_BYTES = 64 << 20
"""What the inflated members of one file may take in memory; the others go to temporary files."""


class Room:
    """How much memory the inflated members of one file still may take."""

    def __init__(self) -> None:
        self._left = MEMORY_BYTES
        self._lock = Lock()

    def take(self, size: int) -> bool:
        """Whether so many bytes may be kept in memory; they are counted if so."""
        with self._lock:
            if size > self._left:
                return False
            self._left -= size
            return True

    def give_back(self, size: int) -> None:
        """So many bytes are not kept after all."""
        with self._lock:
            self._left += size


class InflatedPlace(Place):
    """The array of a deflated member: what follows its header of `start` bytes."""

    def __init__(self, source: Source, member: Member, start: int, room: Room) -> None:
        self._source = source
        self._member = member
        self._start = start
        self._room = room
        self._lock = Lock()
        self._whole: np.ndarray | None = None

    def mapped(self) -> np.ndarray:
        """All bytes of the array."""
        with self._lock:
            if self._whole is None:
                self._whole = self._inflate()[self._start :]
            return self._whole

    def read(self, start: int, length: int) -> np.ndarray:
        return self.mapped()[start : start + length]

    def gather(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        whole = self.mapped()
        pairs = zip(starts.tolist(), lengths.tolist(), strict=True)
        parts = [whole[start : start + length] for start, length in pairs]
        return np.concatenate(parts) if parts else whole[:0]

    def _inflate(self) -> np.ndarray:
        size = self._member.plain_bytes
        if self._room.take(size):
            found = np.empty(size, np.uint8)
            at = 0
            try:
                for part in inflated(self._source, self._member):
                    found[at : at + len(part)] = part
                    at += len(part)
            except BaseException:
                self._room.give_back(size)
                raise
        else:
            with tempfile.TemporaryFile(prefix="penstock-", buffering=0) as file:
                for part in inflated(self._source, self._member):
                    rest = part.data
                    while len(rest):
                        rest = rest[file.write(rest) :]
                found = np.frombuffer(mmap.mmap(file.fileno(), size), np.uint8)
        found.flags.writeable = False
        return found


_HEAD = _core.Buffer.from_bytes(b"\x1f\x8b\x08" + bytes(6) + b"\xff")
"""Of a gzip member without a name or a time."""


def inflated(source: Source, member: Member) -> Generator[np.ndarray]:
    """The plain bytes of a deflated member, part by part as uint8; never more than it claims to have.

    It is read as the gzip member that it would be: behind a head, and before the checksum and the
    size that the archive's directory has of it. At the last part, both are proved.

    Raises:
        FormatError: no deflated data, or more of it than the member says.
        TruncatedError: less.
        ChecksumError: other bytes than the member says.
    """
    engine = _core.Inflater("gzip")
    engine.push(_HEAD, False, 1)
    done = taken = 0
    waiting = EMPTY
    while done <= member.plain_bytes:
        if not len(waiting) and taken < member.packed_bytes:
            length = min(STEP_BYTES, member.packed_bytes - taken)
            waiting = source.read(member.start + taken, length)
            taken += length
        try:
            part, consumed = engine.push(waiting, False, STEP_BYTES)
        except _core.KernelError as error:
            raise _error(error.args[0], source, member) from None
        waiting = waiting.slice(consumed, len(waiting))
        done += len(part)
        if engine.num_members or done > member.plain_bytes:
            break
        if len(part):
            yield as_numpy(part)
        elif not consumed and taken == member.packed_bytes:
            break
    if done < member.plain_bytes and not engine.num_members:
        raise TruncatedError(
            f"the member {member.name!r} inflates to too few bytes",
            file=source.path,
            byte=member.start,
            expected=f"{member.plain_bytes} bytes",
            found=f"{done} bytes",
        )
    said = struct.pack("<II", member.crc, member.plain_bytes & 0xFFFFFFFF)
    try:
        more = engine.push(_core.Buffer.from_bytes(said), True, 1)[0]
    except _core.KernelError as error:
        fault = error.args[0]
        if fault.kind != "compression_checksum" or engine.num_members:
            raise _error(fault, source, member) from None
        raise ChecksumError(
            f"the checksum of the member {member.name!r} does not match",
            file=source.path,
            byte=member.start,
            expected=f"0x{member.crc:08x} (stored)",
            found=None if fault.found is None else f"0x{fault.found:08x}",
        ) from None
    if len(more) or done > member.plain_bytes or engine.num_members != 1 or not engine.finished:
        raise FormatError(
            f"the member {member.name!r} inflates to more bytes than it says",
            file=source.path,
            byte=member.start,
            expected=f"{member.plain_bytes} bytes",
        )


def _error(fault: Any, source: Source, member: Member) -> PenstockError:
    if fault.kind == "limit":
        return LimitError(fault.message, file=source.path, byte=member.start)
    why = fault.message
    if fault.kind not in ("compression", "truncated"):
        why = "other bytes follow its end"  # which were read as the trailer, or as another member
    message = f"the member {member.name!r} is no deflated data: {why}"
    return FormatError(message, file=source.path, byte=member.start)

"""Deflated members of an npz archive: inflated once, then read like any other bytes.

A deflated member has no way in but from its front. The first record that is asked of one inflates
it whole: into memory while the members of the file that are there take little, else into a temporary
file without a name. No more is ever inflated than the archive's directory and the array's header
agree on, and the checksum is proved on the way.
"""

from __future__ import annotations

import mmap
import tempfile
import zlib
from typing import Any

import numpy as np

from penstock.errors import ChecksumError, FormatError, TruncatedError
from penstock.forks import Lock
from penstock.formats.zip_directory import Member
from penstock.storage import Source

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


class InflatedPlace:
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
        target: Any
        if self._room.take(size):
            target = bytearray(size)
        else:
            with tempfile.TemporaryFile(prefix="penstock-") as file:
                file.truncate(size)
                target = mmap.mmap(file.fileno(), size)
        at = crc = 0
        for part in inflated(self._source, self._member):
            target[at : at + len(part)] = part
            crc = zlib.crc32(part, crc)
            at += len(part)
        if at < size:
            raise TruncatedError(
                f"the member {self._member.name!r} inflates to too few bytes",
                file=self._source.path,
                byte=self._member.start,
                expected=f"{size} bytes",
                found=f"{at} bytes",
            )
        if crc != self._member.crc:
            raise ChecksumError(
                f"the checksum of the member {self._member.name!r} does not match",
                file=self._source.path,
                byte=self._member.start,
                expected=f"0x{self._member.crc:08x} (stored)",
                found=f"0x{crc:08x}",
            )
        found = np.frombuffer(target, np.uint8)
        found.flags.writeable = False
        return found


def inflated(source: Source, member: Member) -> Any:
    """The plain bytes of a deflated member, part by part; never more than it claims to have."""
    engine = zlib.decompressobj(-15)
    done = taken = 0
    waiting = b""
    try:
        while not engine.eof:
            if not waiting and taken < member.packed_bytes:
                length = min(STEP_BYTES, member.packed_bytes - taken)
                waiting = source.read(member.start + taken, length).to_bytes()
                taken += len(waiting)
            part = engine.decompress(waiting, STEP_BYTES)
            waiting = engine.unconsumed_tail
            done += len(part)
            if done > member.plain_bytes:
                raise FormatError(
                    f"the member {member.name!r} inflates to more bytes than it says",
                    file=source.path,
                    byte=member.start,
                    expected=f"{member.plain_bytes} bytes",
                )
            if part:
                yield part
            elif not waiting and taken >= member.packed_bytes:
                return
    except zlib.error as error:
        raise FormatError(
            f"the member {member.name!r} is no deflated data: {error}",
            file=source.path,
            byte=member.start,
        ) from None

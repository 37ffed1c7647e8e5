"""Deflated members of an npz archive: inflated once, then read like any other bytes.

A deflated member can be read only from its start, so the first read inflates the whole member: into memory while the
members of a file take at most MEMORY_BYTES, else into a temporary file without a name. The archive's directory and the
array's header state a size, and no more than that is inflated. The checksum is verified.
"""

from __future__ import annotations

import mmap
import struct
import tempfile
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np

from penstock import _core
from penstock.columns.numbers import in_bytes
from penstock.engine.locks import Lock
from penstock.errors import ChecksumError, FormatError, LimitError, PenstockError, TruncatedError
from penstock.formats.npz.zip_directory import Member
from penstock.formats.numpy.arrays import Place
from penstock.storage.base import Source

_EMPTY = _core.Buffer.from_bytes(b"")
STEP_BYTES = 1 << 20
MEMORY_BYTES = 64 << 20
"""The maximum bytes of inflated members that stay in memory for one file. Others go to temporary files."""


class InflatedPlace(Place):
    """The array in a deflated member, after a header of `start` bytes."""

    def __init__(self, source: Source, member: Member, start: int, *, in_memory: bool) -> None:
        self._source = source
        self._member = member
        self._start = start
        self._in_memory = in_memory
        self._lock = Lock()
        self._whole: np.ndarray | None = None

    def mapped(self) -> np.ndarray:
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
        parts = inflated(self._source, self._member)
        if self._in_memory:
            found = np.empty(size, np.uint8)
            at = 0
            for part in parts:
                found[at : at + len(part)] = part
                at += len(part)
        else:
            with tempfile.TemporaryFile(prefix="penstock-") as file:
                for part in parts:
                    file.write(part.data)
                file.flush()
                found = np.frombuffer(mmap.mmap(file.fileno(), size), np.uint8)
        found.flags.writeable = False
        return found


_HEAD = _core.Buffer.from_bytes(b"\x1f\x8b\x08" + bytes(6) + b"\xff")
"""The head of a gzip member without a name or a time."""


def inflated(source: Source, member: Member) -> Generator[np.ndarray]:
    """Yield the plain bytes of a deflated member as uint8 arrays, never more than its stated size.

    The decompressor is given a gzip member: a gzip header, the bytes of the zip member, then the checksum and size from
    the directory. It verifies these two at the end.

    Raises:
        FormatError: the bytes are not deflated data, or inflate to more than the stated size.
        TruncatedError: they inflate to less.
        ChecksumError: they inflate to different bytes.
    """
    engine = _core.Inflater("gzip")
    engine.push(_HEAD, False, 1)
    done = 0
    trailer = None
    try:
        for part in _parts(engine, source, member):
            done += len(part)
            if done > member.plain_bytes or engine.num_members:
                break
            yield in_bytes(part)
        if done < member.plain_bytes and not engine.num_members:
            raise TruncatedError(
                f"the member {member.name!r} inflates to too few bytes",
                file=source.path,
                byte=member.start,
                expected=f"{member.plain_bytes} bytes",
                found=f"{done} bytes",
            )
        trailer = struct.pack("<II", member.crc, member.plain_bytes & 0xFFFFFFFF)
        more, _ = engine.push(_core.Buffer.from_bytes(trailer), True, 1)
    except _core.KernelError as error:
        is_at_end = trailer is not None and not engine.num_members
        raise _error(error.args[0], source, member, is_at_end=is_at_end) from None
    if len(more) or done > member.plain_bytes or engine.num_members != 1 or not engine.finished:
        raise FormatError(
            f"the member {member.name!r} inflates to more than its stated size",
            file=source.path,
            byte=member.start,
            expected=f"{member.plain_bytes} bytes",
        )


def _parts(engine: _core.Inflater, source: Source, member: Member) -> Iterator[_core.Buffer]:
    """Yield everything that a member inflates to, even beyond its stated size."""
    taken = 0
    waiting = _EMPTY
    while True:
        if not len(waiting) and taken < member.packed_bytes:
            length = min(STEP_BYTES, member.packed_bytes - taken)
            waiting = source.read(member.start + taken, length)
            taken += length
        part, consumed = engine.push(waiting, False, STEP_BYTES)
        waiting = waiting.slice(consumed, len(waiting))
        if len(part) or engine.num_members:
            yield part
        elif not consumed and taken == member.packed_bytes:
            return


def _error(fault: Any, source: Source, member: Member, *, is_at_end: bool) -> PenstockError:
    place: dict[str, Any] = {"file": source.path, "byte": member.start}
    if fault.kind == "limit":
        return LimitError(fault.message, **place)
    if fault.kind == "compression_checksum" and is_at_end:
        return ChecksumError(
            f"the checksum of the member {member.name!r} does not match",
            expected=f"0x{member.crc:08x} (stored)",
            found=None if fault.found is None else f"0x{fault.found:08x}",
            **place,
        )
    why = fault.message
    if fault.kind not in ("compression", "truncated"):
        why = "other bytes follow its end"  # they were read as a trailer, or as another gzip member
    return FormatError(f"the member {member.name!r} is not deflated data: {why}", **place)

"""The CRC-32 that a zip archive stores for each member.

It covers a whole member, so comparing it takes all bytes of the member. `verify` reads each member from start to end. A
scan reads chunks, on several threads and in any order: it joins the checksums of adjacent parts, and compares the
result after the last part. Before some records of a member are read for the first time, the whole member is read once,
by a take only if the file is on this machine.
"""

from __future__ import annotations

import numpy as np

from penstock import _core
from penstock.columns.numbers import as_arrow
from penstock.engine.locks import Lock
from penstock.errors import ChangedError, ChecksumError
from penstock.formats.npz.zip_directory import Member
from penstock.formats.numpy.checks import Check
from penstock.storage.base import Source

_PIECE_BYTES = 4 << 20
_MOST_PARTS = 1 << 12
"""How many separate parts are remembered, at most. If there are more, only `verify` compares the checksum."""


class MemberCheck(Check):
    """The checksum of one stored member, which is a header of `header_bytes` and an array."""

    def __init__(
        self, source: Source, member: Member, header_bytes: int = 0, array_bytes: int = 0
    ) -> None:
        self._source = source
        self._member = member
        self._header_bytes = header_bytes
        self._array_bytes = array_bytes
        self._lock = Lock()
        self._checking = Lock()
        self._starting: dict[int, tuple[int, int]] = {}
        """Maps the start of each part in the array to the part's end and checksum."""
        self._ending: dict[int, int] = {}
        """Maps the end of each part to its start."""
        self._found: int | None = None
        self._is_needed = True

    def saw(self, start: int, values: np.ndarray) -> None:
        """Note that bytes of the array (uint8) were read, starting at `start`. If this completes the array, compare the
        checksum and raise ChecksumError if the member is damaged."""
        end = start + len(values)
        if not self._is_needed or not len(values):
            return
        if self._found is None:
            crc = _core.Buffer.from_values(as_arrow(values)).crc32()
            with self._lock:
                is_all = self._join(start, end, crc)
            if is_all:
                self._compare()
        elif end == self._array_bytes:
            self._raise_damaged()  # an earlier scan found the damage, and this scan has reached the end, too

    def _join(self, start: int, end: int, crc: int) -> bool:
        """Join a part with its neighbours. Return whether that completes the array."""
        if start in self._starting or end in self._ending or len(self._starting) >= _MOST_PARTS:
            return False
        if (before := self._ending.pop(start, None)) is not None:
            crc = _core.Buffer.joined_crc32(self._starting.pop(before)[1], crc, end - start)
            start = before
        if (after := self._starting.pop(end, None)) is not None:
            crc = _core.Buffer.joined_crc32(crc, after[1], after[0] - end)
            end = after[0]
        self._starting[start] = end, crc
        self._ending[end] = start
        return start == 0 and end == self._array_bytes

    def _compare(self) -> None:
        crc = self._crc(0, self._header_bytes)
        crc = _core.Buffer.joined_crc32(crc, self._starting[0][1], self._array_bytes)
        found = self._crc(self._header_bytes + self._array_bytes, self._member.plain_bytes, crc)
        if found == self._member.crc:
            self._is_needed = False
        else:
            self._found = found
            self._raise_damaged()

    def before_some(self) -> None:
        if (
            self._source.storage is None
        ):  # not of a file on another machine: a few records must not fetch all of it
            self.once()

    def once(self) -> None:
        if not self._is_needed:
            return
        with self._checking:  # other threads wait for the result
            if self._found is None and self._is_needed:
                found = self._crc(0, self._member.plain_bytes)
                if found == self._member.crc:
                    self._is_needed = False
                    return
                self._found = found
            if self._is_needed:
                self._raise_damaged()

    def verify(self) -> None:
        """Read the whole member, and raise ChecksumError if it is damaged. Later reads do not verify it again."""
        self._is_needed = False
        self._found = self._crc(0, self._member.plain_bytes)
        if self._found != self._member.crc:
            self._raise_damaged()

    def _crc(self, start: int, end: int, crc: int = 0) -> int:
        """Return the checksum of bytes of the member, appended to bytes with the checksum `crc`."""
        for at in range(start, end, _PIECE_BYTES):
            length = min(_PIECE_BYTES, end - at)
            piece = self._source.read(self._member.start + at, length)
            if len(piece) < length:
                raise ChangedError(
                    "the file was truncated while it was open", file=self._source.path
                )
            crc = piece.crc32(crc)
        return crc

    def _raise_damaged(self) -> None:
        raise ChecksumError(
            f"the checksum of the member {self._member.name!r} does not match",
            file=self._source.path,
            byte=self._member.start,
            expected=f"0x{self._member.crc:08x} (stored)",
            found=f"0x{self._found:08x}",
        )

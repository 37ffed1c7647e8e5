"""What Python must know about framings: the size of a frame, and what its checksums verify.

The kernels select a framing by its name, and find, verify and select frames. The code here handles the rare work
around damage, and record positions. To add a framing, extend this module and `rust/src/wire/frames.rs`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock import _core

Read = Callable[[int, int], _core.Buffer]
"""Reads bytes of a file, or of the stream in it, from an offset: `read(start, length)`."""


_SMALL_BYTES = 64 << 10
"""A frame of up to this size is read completely to see whether it is the one in the index."""


@dataclass(frozen=True, slots=True)
class Framing:
    """A framing whose records contain their size but no checksum. The frame is the payload.

    Its index stores the CRC-32C of each whole frame, so that damage can be found with an index.
    """

    name: str
    """The framing's name in the kernels."""
    head_bytes: int = 0
    tail_bytes: int = 0
    look_bytes: int = 1
    """How many bytes are needed to recognize the start of a frame."""
    is_checked: bool = False
    """Whether frames contain checksums that verify a payload without an index."""
    keeps_index: bool = True
    """Whether an index made from these frames is valid for other readers, too."""
    overlooked: Mapping[str, str] = field(default_factory=dict)
    """Kinds of findings that the framing's reference library does not report, and what that library does instead."""

    @property
    def least_bytes(self) -> int:
        """The size of an empty payload's frame, or 0 if the framing has no fixed head and tail."""
        return self.head_bytes + self.tail_bytes

    def frame_bytes(self, payload_bytes: Any) -> Any:
        """The size of the frame for a payload size, or for an array of payload sizes."""
        return payload_bytes + (self.head_bytes + self.tail_bytes)

    def more_bytes(self, need: int, had: int) -> int:
        """How many bytes to read for a frame that needs at least `need` bytes, after `had` bytes were not enough.
        Doubling keeps the work proportional to the frame's size if that size is known only at its end."""
        return max(need, 2 * had)

    def agrees(self, read: Read, start: int, end: int, known: int) -> bool:
        """Whether bytes [start, end) seem to be the record with the checksum `known` from an index. The check is cheap:
        only the start of a large record is read."""
        if end - start > _SMALL_BYTES:
            head = read(start, _SMALL_BYTES)
            found = _core.next_head(self.name, head, 0)
            return found is not None and found[0] == 0
        return read(start, end - start).crc32c() == known

    def stored(self, tail: bytes) -> int:
        """The checksum in the tail of a frame."""
        return 0

    def checksum(self, crc: int) -> int | None:
        """A payload's CRC-32C in the stored form, or None if the framing stores no checksum."""
        return None

    def proves(self, payload: _core.Buffer, tail: bytes) -> bool:
        """Whether a payload matches the checksum in a frame's tail."""
        return self.checksum(payload.crc32c()) == self.stored(tail)

    def lengths(self, head: bytes) -> Sequence[int]:
        """The lengths that a damaged head may have contained."""
        return ()

    def meant(self, head: bytes) -> Sequence[int]:
        """The lengths from `lengths` that agree with a checksum in the head."""
        return ()

    def half_says(self, head: bytes, length: int) -> bool:
        """Whether the length or its checksum in a damaged head still agrees with this length."""
        return False

    def frames(self, payloads: Sequence[bytes]) -> _core.Framed:
        """Build frames from payloads, back to back."""
        raise NotImplementedError


_MASK = 0xA282EAD8
"""TFRecord adds this constant to a checksum after rotating it."""


def _crc32c(data: bytes) -> int:
    return _core.Buffer.from_bytes(data).crc32c()


@functools.cache
def _changes() -> dict[int, list[tuple[int, int]]]:
    """Map a difference between two CRCs of eight bytes to the changes of one byte (position, changed bits) that cause
    it. CRCs are linear, so the difference does not depend on the other bytes."""
    found: dict[int, list[tuple[int, int]]] = {}
    for place in range(8):
        for change in range(1, 256):
            changed = bytes(place) + bytes([change]) + bytes(7 - place)
            found.setdefault(_crc32c(changed) ^ _crc32c(bytes(8)), []).append((place, change))
    return found


class _TFRecord(Framing):
    """`length u64, masked crc32c of it u32, payload, masked crc32c of the payload u32`."""

    def more_bytes(self, need: int, had: int) -> int:
        return need

    def agrees(self, read: Read, start: int, end: int, known: int) -> bool:
        # Compare the head and the stored checksum, but not the payload.
        head = read(start, self.head_bytes)
        tail = read(end - self.tail_bytes, self.tail_bytes).to_bytes()
        right = _core.next_head(self.name, head, 0) == (0, end - start)
        return right and self.stored(tail) == known

    def stored(self, tail: bytes) -> int:
        return int.from_bytes(tail, "little")

    def checksum(self, crc: int) -> int:
        return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF

    def lengths(self, head: bytes) -> Sequence[int]:
        """The lengths that `meant` finds, or else the length in the head."""
        if len(head) < self.head_bytes:
            return ()
        return self.meant(head) or (int.from_bytes(head[:8], "little"),)

    def meant(self, head: bytes) -> Sequence[int]:
        """The length in the head if one byte of its checksum is wrong. Otherwise the lengths that differ from it by one
        byte and match the checksum. In three million tests of each case, none was mistaken for the other."""
        if len(head) < self.head_bytes:
            return ()
        stored = self.stored(head[8:12])
        wrong = (stored ^ self._of(head[:8])).to_bytes(4, "little")
        if wrong.count(0) == 3:
            return (int.from_bytes(head[:8], "little"),)
        rotated = (stored - _MASK) & 0xFFFFFFFF
        crc = (rotated >> 17 | rotated << 15) & 0xFFFFFFFF
        found: list[int] = []
        for place, change in _changes().get(_crc32c(head[:8]) ^ crc, ()):
            length = bytearray(head[:8])
            length[place] ^= change
            found.append(int.from_bytes(length, "little"))
        return found

    def half_says(self, head: bytes, length: int) -> bool:
        right = length.to_bytes(8, "little")
        return head[:8] == right or self.stored(head[8:12]) == self._of(right)

    def _of(self, length: bytes) -> int:
        return self.checksum(_crc32c(length))

    def frames(self, payloads: Sequence[bytes]) -> _core.Framed:
        return _core.frame_records(pa.array(payloads, pa.binary()))


_BY_TENSORFLOW = {
    "short_tail": "TensorFlow does not report this",
    "empty_member": "TensorFlow reads nothing after it, without an error",
    "second_stream": "TensorFlow reads nothing after it, without an error",
    "cut_trailer": "TensorFlow reads all records before it",
    "trailing_bytes": "TensorFlow reads all records before it",
}

_PARTS: dict[str, Any] = {"head_bytes": 12, "tail_bytes": 4, "look_bytes": 12}
TFRECORD = _TFRecord("tfrecord", **_PARTS, is_checked=True, overlooked=_BY_TENSORFLOW)


class _UncheckedTFRecord(_TFRecord):
    def agrees(self, read: Read, start: int, end: int, known: int) -> bool:
        length = int.from_bytes(read(start, 8).to_bytes(), "little")
        tail = read(end - self.tail_bytes, self.tail_bytes).to_bytes()
        return self.frame_bytes(length) == end - start and self.stored(tail) == known


UNCHECKED_TFRECORD = _UncheckedTFRecord(
    "tfrecord_unchecked", **_PARTS, is_checked=True, keeps_index=False, overlooked=_BY_TENSORFLOW
)
RECORDIO = Framing("recordio", look_bytes=8)


class _Tar(Framing):
    """Tar members that share a key. Each has a header of 512 bytes, followed by its padded contents."""

    def agrees(self, read: Read, start: int, end: int, known: int) -> bool:
        if end - start <= _SMALL_BYTES:
            return Framing.agrees(self, read, start, end, known)
        head = read(start, _SMALL_BYTES)
        frames, _, need, fault = _core.walk(self.name, head, 0, end - start, False)
        return fault is None and not len(frames) and need > 0


WEBDATASET = _Tar("webdataset", look_bytes=512)
MSGPACK = Framing("msgpack")

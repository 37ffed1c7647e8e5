"""What Python has to know of a framing: how large a frame is, and what its checksums prove.

The kernels know a framing by its name, and find, prove and select frames. What is here is for the
rare work around damage, and for places. A framing is added here and in `rust/src/wire/frames.rs`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock import _core

Read = Callable[[int, int], _core.Buffer]
"""Reads a file, or the stream in it, from an offset on: `read(start, length)`."""


_SMALL_BYTES = 64 << 10
"""Up to this size a frame is read whole to see whether it is the one that was indexed."""


@dataclass(frozen=True, slots=True)
class Framing:
    """A framing whose records tell their own size and have no checksum: the frame is the payload.

    Its index keeps the CRC-32C of each whole frame, so that with an index damage is found.
    """

    name: str
    """What the kernels call it."""
    head_bytes: int = 0
    tail_bytes: int = 0
    look_bytes: int = 1
    """Bytes by which a frame's beginning is known."""
    is_checked: bool = False
    """Whether frames have checksums of their own, which prove a payload without an index."""
    keeps_index: bool = True
    """Whether an index that was made by these frames is good for other readers as well."""
    overlooked: Mapping[str, str] = field(default_factory=dict)
    """Kinds of findings that the framing's own library says nothing of, and what it does instead."""

    @property
    def least_bytes(self) -> int:
        """Bytes of the frame of an empty payload, as far as the framing knows."""
        return self.head_bytes + self.tail_bytes

    def frame_bytes(self, payload_bytes: Any) -> Any:
        """Bytes of whole frames, of one payload or of an array of them."""
        return payload_bytes + (self.head_bytes + self.tail_bytes)

    def more_bytes(self, need: int, had: int) -> int:
        """How many bytes to read for a frame that needs `need` and of which `had` were not enough.
        One that cannot say its size before it ends gets twice as many, so that the work stays in
        proportion to its bytes."""
        return max(need, 2 * had)

    def agrees(self, read: Read, start: int, end: int, known: int) -> bool:
        """Whether the record in a part of a file seems to be the one whose checksum an index knows.
        Cheap: a large one is not read."""
        if end - start > _SMALL_BYTES:
            head = read(start, _SMALL_BYTES)
            found = _core.next_head(self.name, head, 0)
            return found is not None and found[0] == 0
        return read(start, end - start).crc32c() == known

    def stored(self, tail: bytes) -> int:
        """The checksum in the tail of a frame."""
        return 0

    def checksum(self, crc: int) -> int | None:
        """A payload's CRC-32C as it would be stored; None where none is."""
        return None

    def proves(self, payload: _core.Buffer, tail: bytes) -> bool:
        """Whether a payload is the one that the tail was written for."""
        return self.checksum(payload.crc32c()) == self.stored(tail)

    def lengths(self, head: bytes) -> Sequence[int]:
        """The lengths that a damaged head may have meant."""
        return ()

    def meant(self, head: bytes) -> Sequence[int]:
        """Of those, the ones that a checksum in the head speaks for."""
        return ()

    def half_says(self, head: bytes, length: int) -> bool:
        """Whether a part of a damaged head still tells this length."""
        return False

    def frames(self, payloads: Sequence[bytes]) -> _core.Framed:
        """Payloads as frames, one after another."""
        raise NotImplementedError


_MASK = 0xA282EAD8
"""What TFRecord adds to a checksum, after it has rotated it."""


def _crc32c(data: bytes) -> int:
    return _core.Buffer.from_bytes(data).crc32c()


@functools.cache
def _changes() -> dict[int, list[tuple[int, int]]]:
    """Changes of one of eight bytes (its place, and the bits that are others) by what each does to their CRC:
    the same whatever the bytes are, since CRCs are linear."""
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
        # The head and the stored checksum, not the payload.
        head = read(start, self.head_bytes)
        tail = read(end - self.tail_bytes, self.tail_bytes).to_bytes()
        right = _core.next_head(self.name, head, 0) == (0, end - start)
        return right and self.stored(tail) == known

    def stored(self, tail: bytes) -> int:
        return int.from_bytes(tail, "little")

    def checksum(self, crc: int) -> int:
        return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF

    def lengths(self, head: bytes) -> Sequence[int]:
        """Those that are meant if one byte is wrong, or else the length that stands there."""
        if len(head) < self.head_bytes:
            return ()
        return self.meant(head) or (int.from_bytes(head[:8], "little"),)

    def meant(self, head: bytes) -> Sequence[int]:
        """The length that stands there, if one byte of the checksum is wrong; or those one byte away that have the
        checksum that stands there. Of three million changes of the one kind none looked like the other."""
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
    "short_tail": "TensorFlow says nothing",
    "empty_member": "TensorFlow reads nothing after it, and says nothing",
    "second_stream": "TensorFlow reads nothing after it, and says nothing",
    "cut_trailer": "TensorFlow reads all records before it",
    "trailing_bytes": "TensorFlow reads all records before it",
}

_PARTS: dict[str, Any] = {"head_bytes": 12, "tail_bytes": 4, "look_bytes": 12}
TFRECORD = _TFRecord("tfrecord", **_PARTS, is_checked=True, overlooked=_BY_TENSORFLOW)


class _UncheckedTFRecord(_TFRecord):
    """The same frames, whose checksums nobody asks for."""

    def agrees(self, read: Read, start: int, end: int, known: int) -> bool:
        length = int.from_bytes(read(start, 8).to_bytes(), "little")
        tail = read(end - self.tail_bytes, self.tail_bytes).to_bytes()
        return self.frame_bytes(length) == end - start and self.stored(tail) == known


UNCHECKED_TFRECORD = _UncheckedTFRecord(
    "tfrecord_unchecked", **_PARTS, is_checked=True, keeps_index=False, overlooked=_BY_TENSORFLOW
)
RECORDIO = Framing("recordio", look_bytes=8)


class _Tar(Framing):
    """Members of one key, each a header of 512 bytes and its contents, padded."""

    def agrees(self, read: Read, start: int, end: int, known: int) -> bool:
        if end - start <= _SMALL_BYTES:
            return Framing.agrees(self, read, start, end, known)
        head = read(start, _SMALL_BYTES)
        frames, _, need, fault = _core.walk(self.name, head, 0, end - start, False)
        return fault is None and not len(frames) and need > 0


WEBDATASET = _Tar("webdataset", look_bytes=512)
MSGPACK = Framing("msgpack")

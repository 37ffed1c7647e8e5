"""The file format of an index: a header, named sections, and a checksum for each 64 KiB of the sections.

```
offset  size  field                        (all numbers little endian)
0       8     magic "PENSTOCK"
8       2     version, 3
10      1     compression: 0 none, 1 gzip, 2 zlib
11      1     layout: 0 plain, 1 members (each holds whole frames), 2 seek points, 3 none (no places)
12      4     num_sections, S
16      8     num_records, N
24      8     data_bytes: size of the data file
32      8     plain_bytes: size of the stream of frames
40      8     num_points, P
48      32    state of the data file when the index was made: inode, size, mtime_ns, ctime_ns; all 0 if unknown
80      8     body_bytes, B
88      4     crc32c of the bytes between the header and the body
92      4     crc32c of the 92 bytes before
96      32 S  table: { name (16 bytes, padded with zeros), start u64 in the body, length u64 }
...     4 C   checksums: crc32c of each 64 KiB of the body, C = ceil(B / 65536)
...     B     body; begins at the next multiple of 64
```

A reader skips unknown sections. Each section begins at a multiple of 64 in the body:

| section | holds |
|---|---|
| schema | the Arrow schema of the records, as an Arrow IPC message |
| classes | JSON {column path: [class names in order of first appearance]}; null: too many names |
| sample | blake2b of a sample of the data file, for formats without record positions |
| starts | u64[N + 1]: the start of each frame in the stream, then the end of the last frame |
| checksums | u32[N]: the stored checksum of each record |
| lengths | u32 length of JSON [columns], the JSON, then u32[N] for each: the length of the list in each record |
| positions | the positions of the records of a file that is not framed, see `positions.py` |
| points | P x { bit u64, plain u64, crc32c u32, window_bytes u32 }, then the deflated windows |
| blocks | u32: crc32c of each MiB of the data file |

A point's crc32c covers the bytes of the file from the point's byte up to the next point.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from penstock import _core
from penstock.columns.numbers import as_arrow
from penstock.storage.base import Sink, Source

MAGIC = b"PENSTOCK"
VERSION = 3
BLOCK_BYTES = 64 << 10
COMPRESSIONS = ("", "gzip", "zlib")
LAYOUTS = ("plain", "members", "points", "none")
_HEADER = struct.Struct("<8sHBBIQQQQQQqqQI")
_CHECK = struct.Struct("<I")
_ENTRY = struct.Struct("<16sQQ")
HEADER_BYTES = _HEADER.size + _CHECK.size
_ALIGNED = 64
_MOST_SECTIONS = 64


class State(NamedTuple):
    """The state of a file as the operating system reports it; all zeros if unknown."""

    inode: int = 0
    size: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0

    @property
    def is_known(self) -> bool:
        return any(self)


UNKNOWN = State()


class Facts(NamedTuple):
    compression: str
    layout: str
    num_records: int
    data_bytes: int
    plain_bytes: int
    num_points: int
    state: State


class Sections:
    """An open index. Its header is verified when it is opened, and its sections when they are read."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.path = source.path
        self.facts, num_sections, self.num_bytes, table_crc = facts_of(
            source.read(0, HEADER_BYTES).to_bytes()
        )
        num_blocks = -(-self.num_bytes // BLOCK_BYTES)
        self._start = _aligned(HEADER_BYTES + _ENTRY.size * num_sections + 4 * num_blocks)
        if num_sections > _MOST_SECTIONS or self._start + self.num_bytes != source.size:
            raise ValueError("its size does not match its header")
        length = self._start - HEADER_BYTES
        table = source.read(HEADER_BYTES, length)
        if len(table) != length or table.crc32c() != table_crc:
            raise ValueError("the checksum of its table does not match")
        stored = table.to_bytes()
        entries = stored[: _ENTRY.size * num_sections]
        self._places = {
            name.rstrip(b"\0"): (start, size) for name, start, size in _ENTRY.iter_unpack(entries)
        }
        self._checksums = np.frombuffer(stored, "<u4", num_blocks, len(entries))
        if any(start + size > self.num_bytes for start, size in self._places.values()):
            raise ValueError("a section extends beyond its end")

    def read(self, name: str) -> _core.Buffer | None:
        """Read and verify one section; None if it is missing."""
        place = self._places.get(name.encode())
        if place is None:
            return None
        start, length = place
        begin = start // BLOCK_BYTES * BLOCK_BYTES
        end = min(-(-(start + length) // BLOCK_BYTES) * BLOCK_BYTES, self.num_bytes)
        return self._verified(begin, end).slice(start - begin, length)

    def read_all(self) -> dict[str, _core.Buffer]:
        """Read and verify all sections in one read."""
        body = self._verified(0, self.num_bytes)
        return {
            name.decode("ascii", "replace"): body.slice(start, length)
            for name, (start, length) in self._places.items()
        }

    def place(self, name: str) -> tuple[int, int]:
        """Where a section is in the body, and its length; 0 if it is missing."""
        return self._places.get(name.encode(), (0, 0))

    def read_blocks(self, numbers: Sequence[int]) -> dict[int, _core.Buffer]:
        """Read and verify some of the blocks of the body, together."""
        ends = [min((number + 1) * BLOCK_BYTES, self.num_bytes) for number in numbers]
        begins = [number * BLOCK_BYTES for number in numbers]
        lengths = np.array(ends, np.uint64) - np.array(begins, np.uint64)
        starts = np.array(begins, np.uint64) + np.uint64(self._start)
        data = self._source.gather(as_arrow(starts), as_arrow(lengths))
        found: dict[int, _core.Buffer] = {}
        at = 0
        for number, length in zip(numbers, lengths.tolist(), strict=True):
            found[number] = self._checked(data.slice(at, length), number)
            at += length
        return found

    def _verified(self, begin: int, end: int) -> _core.Buffer:
        data = self._source.read(self._start + begin, end - begin)
        if len(data) != end - begin:
            raise ValueError("it is truncated")
        return self._checked(data, begin // BLOCK_BYTES)

    def _checked(self, data: _core.Buffer, first: int) -> _core.Buffer:
        """Verify blocks from number `first` on."""
        for number, at in enumerate(range(0, len(data), BLOCK_BYTES), first):
            piece = data.slice(at, min(BLOCK_BYTES, len(data) - at))
            if piece.crc32c() != self._checksums[number]:
                raise ValueError("a checksum does not match")
        return data


def facts_of(header: bytes) -> tuple[Facts, int, int, int]:
    """Parse a header: the facts, the number of sections, the bytes of the body, and the checksum of the table.

    Raises:
        ValueError, struct.error, IndexError: it is not a valid header.
    """
    magic, version, compression, layout, num_sections, *numbers, table_crc = _HEADER.unpack_from(
        header
    )
    if magic != MAGIC or version != VERSION:
        raise ValueError("unknown magic or version")
    (header_crc,) = _CHECK.unpack_from(header, _HEADER.size)
    if _core.Buffer.from_bytes(header[: _HEADER.size]).crc32c() != header_crc:
        raise ValueError("the checksum of its header does not match")
    counts, state = numbers[:4], State(*numbers[4:8])
    facts = Facts(COMPRESSIONS[compression], LAYOUTS[layout], *counts, state=state)
    if facts.layout != "none" and bool(facts.compression) != (facts.layout != "plain"):
        raise ValueError("its layout does not fit its compression")
    return facts, num_sections, numbers[8], table_crc


def write(sink: Sink, facts: Facts, sections: Sequence[tuple[str, bytes | np.ndarray]]) -> None:
    """Write an index with these sections in this order."""
    table: list[bytes] = []
    parts: list[np.ndarray] = []
    at = 0
    for name, values in sections:
        data = _as_bytes(values)
        table.append(_ENTRY.pack(name.encode(), at, len(data)))
        padding = _aligned(len(data)) - len(data)
        parts += [data, np.zeros(padding, np.uint8)]
        at += len(data) + padding
    tail = b"".join(table) + np.fromiter(_checksums(parts), "<u4").tobytes()
    tail += bytes(_aligned(HEADER_BYTES + len(tail)) - HEADER_BYTES - len(tail))
    header = _HEADER.pack(
        MAGIC,
        VERSION,
        COMPRESSIONS.index(facts.compression),
        LAYOUTS.index(facts.layout),
        len(table),
        facts.num_records,
        facts.data_bytes,
        facts.plain_bytes,
        facts.num_points,
        *facts.state,
        at,
        _core.Buffer.from_bytes(tail).crc32c(),
    )
    header += _CHECK.pack(_core.Buffer.from_bytes(header).crc32c()) + tail
    sink.write_all([header, *parts])


def _as_bytes(values: bytes | np.ndarray) -> np.ndarray:
    if isinstance(values, bytes):
        return np.frombuffer(values, np.uint8)
    return np.ascontiguousarray(values).view(np.uint8)


def _checksums(parts: Sequence[np.ndarray]) -> Iterator[int]:
    crc, room = 0, BLOCK_BYTES
    for part in parts:
        data = _core.Buffer.from_values(as_arrow(part))
        at = 0
        while at < len(data):
            length = min(room, len(data) - at)
            crc = data.slice(at, length).crc32c(crc)
            at, room = at + length, room - length
            if not room:
                yield crc
                crc, room = 0, BLOCK_BYTES
    if room < BLOCK_BYTES:
        yield crc


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNED) * _ALIGNED

"""A plain writer of ArrayRecord files for tests: it builds new files from the chunks of a real file.

To make lying files with correct hashes, it needs Riegeli's hash. The kernel's hash is not available in Python, so
this module has a small implementation, which was checked against files of array_record.
"""

from __future__ import annotations

import struct

_MASK = (1 << 64) - 1
_INIT0 = (0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3)
_INIT1 = (0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377)
_KEY = struct.unpack("<4Q", b"Riegeli/records\n" * 2)


class _State:
    """HighwayHash, by its published definition."""

    def __init__(self) -> None:
        self.mul0, self.mul1 = list(_INIT0), list(_INIT1)
        self.v0 = [m ^ k for m, k in zip(_INIT0, _KEY, strict=True)]
        turned = [(k >> 32 | k << 32) & _MASK for k in _KEY]
        self.v1 = [m ^ k for m, k in zip(_INIT1, turned, strict=True)]

    def update(self, lanes: list[int]) -> None:
        for i in range(4):
            self.v1[i] = (self.v1[i] + self.mul0[i] + lanes[i]) & _MASK
            self.mul0[i] ^= (self.v1[i] & 0xFFFFFFFF) * (self.v0[i] >> 32)
            self.v0[i] = (self.v0[i] + self.mul1[i]) & _MASK
            self.mul1[i] ^= (self.v0[i] & 0xFFFFFFFF) * (self.v1[i] >> 32)
        for low in (0, 2):
            self._zipper(self.v1, self.v0, low)
        for low in (0, 2):
            self._zipper(self.v0, self.v1, low)

    def _zipper(self, source: list[int], target: list[int], low: int) -> None:
        data = struct.pack("<2Q", source[low], source[low + 1])
        order = (3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7)
        mixed = struct.unpack("<2Q", bytes(data[n] for n in order))
        target[low] = (target[low] + mixed[0]) & _MASK
        target[low + 1] = (target[low + 1] + mixed[1]) & _MASK

    def rest(self, data: bytes) -> None:
        size = len(data)
        self.v0 = [(v + (size << 32) + size) & _MASK for v in self.v0]
        for i in range(4):
            halves = (self.v1[i] & 0xFFFFFFFF, self.v1[i] >> 32)
            low, high = ((h << size | h >> (32 - size)) & 0xFFFFFFFF for h in halves)
            self.v1[i] = high << 32 | low
        packet = bytearray(32)
        whole = size & ~3
        packet[:whole] = data[:whole]
        if size & 16:
            packet[28:32] = data[size - 4 :]
        elif size & 3:
            left = size & 3
            packet[16:19] = bytes((data[whole], data[whole + (left >> 1)], data[whole + left - 1]))
        self.update(list(struct.unpack("<4Q", packet)))

    def hash64(self) -> int:
        for _ in range(4):
            turned = [self.v0[n] for n in (2, 3, 0, 1)]
            self.update([(v >> 32 | v << 32) & _MASK for v in turned])
        return (self.v0[0] + self.v1[0] + self.mul0[0] + self.mul1[0]) & _MASK


def hash64(data: bytes) -> int:
    """HighwayHash-64 with Riegeli's key."""
    state = _State()
    for at in range(0, len(data) // 32 * 32, 32):
        state.update(list(struct.unpack_from("<4Q", data, at)))
    if len(data) % 32:
        state.rest(data[len(data) // 32 * 32 :])
    return state.hash64()


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def chunk(
    records: list[bytes], *, count: int | None = None, size: int | None = None, kind: bytes = b"r"
) -> bytes:
    """A plain chunk of records with correct hashes; `count` and `size` may be wrong."""
    sizes = b"".join(varint(len(record)) for record in records)
    data = b"\0" + varint(len(sizes)) + sizes + b"".join(records)
    return chunk_of(
        data,
        len(records) if count is None else count,
        sum(map(len, records)) if size is None else size,
        kind,
    )


def chunk_of(data: bytes, count: int, size: int, kind: bytes = b"r") -> bytes:
    head = struct.pack("<QQQQ", len(data), hash64(data), count << 8 | kind[0], size)
    return struct.pack("<Q", hash64(head)) + head + data


def numbers(*values: int) -> bytes:
    """A message of varints in fields 1, 2, 3 ..."""
    return b"".join(bytes([n << 3]) + varint(value) for n, value in enumerate(values, 1))


SIGNATURE = struct.pack("<QQQ", 0x3F4A880DD170AF83, 0, 64) + chunk_of(b"", 0, 0, b"s")
MAGIC = 0x71930E704FDAE05E
BLOCK = 1 << 16


def block_header(before: int, after: int) -> bytes:
    rest = struct.pack("<QQ", before, after)
    return struct.pack("<Q", hash64(rest)) + rest


def file_of(
    chunks: list[bytes],
    listed: list[tuple[int, int, int]] | None = None,
    head: bytes | None = None,
    footer_offset: int | None = None,
    magic: int = MAGIC,
) -> bytes:
    """A file with less than 64 KiB of chunks. The contents of its footer and postscript may be wrong."""
    data = SIGNATURE
    places: list[tuple[int, int, int]] = []
    for one in chunks:
        count, size = struct.unpack_from("<QQ", one, 24)
        places.append((len(data), size, count >> 8))
        data += one
    listed = places if listed is None else listed
    if head is None:
        head = numbers(1, len(listed), sum(count for _, _, count in listed))
    head = b"\x0a" + varint(len(head)) + head
    footer = len(data)
    data += chunk([head, *(numbers(*entry) for entry in listed)])
    assert len(data) < BLOCK
    postscript = chunk([numbers(footer if footer_offset is None else footer_offset, magic)] * 3)
    end = block_header(0, 24 + len(postscript)) + postscript
    return data.ljust(BLOCK, b"\0") + end.ljust(BLOCK, b"\0")

"""Lies for formats whose records follow one another: TFRecord, RecordIO, ArrayRecord, tar, MessagePack."""

from __future__ import annotations

import gzip
import random
import struct
import zlib

from fuzz.lies import DEPTHS, number, put
from fuzz.lies.messages import message
from fuzz.riegeli_files import BLOCK, hash64
from fuzz.tfrecords import FRAMING, framed, head


def inflated(rng: random.Random, data: bytes) -> bytes:
    """Lies about TFRecord within gzip or zlib, and about the size that gzip stores."""
    if data[:2] == b"\x1f\x8b":
        if rng.random() < 0.2:
            return data[:-4] + struct.pack("<I", number(rng, len(data), 32))
        return gzip.compress(tfrecord(rng, gzip.decompress(data)), mtime=0)
    if data[:1] == b"\x78":
        return zlib.compress(tfrecord(rng, zlib.decompress(data)))
    return tfrecord(rng, data)


def tfrecord(rng: random.Random, data: bytes) -> bytes:
    """A wrong length with a correct checksum, or a payload of hostile messages with a correct checksum."""
    frames: list[tuple[int, int]] = []
    at = 0
    while at + FRAMING <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        frames.append((at, length))
        at += length + FRAMING
    at, length = rng.choice(frames)
    end = at + length + FRAMING
    if rng.random() < 0.5:
        return data[:at] + head(number(rng, length)) + data[at + 12 :]
    return data[:at] + framed(message(rng, data[at + 12 : end - 4])) + data[end:]


def recordio(rng: random.Random, data: bytes) -> bytes:
    """Another length, or another part number, in a record of RecordIO."""
    places: list[int] = []
    at = 0
    while at + 8 <= len(data):
        (word,) = struct.unpack_from("<I", data, at + 4)
        places.append(at)
        at += 8 + ((word & 0x1FFFFFFF) + 3 & ~3)
    at = rng.choice(places)
    (word,) = struct.unpack_from("<I", data, at + 4)
    part, length = word >> 29, word & 0x1FFFFFFF
    if rng.random() < 0.3:
        part = rng.randrange(8)
    else:
        length = number(rng, length, 29)
    return put(data, at + 4, "<I", part << 29 | length)


def array_record(rng: random.Random, data: bytes) -> bytes:
    """A number in the head of a block or chunk, or the data of a chunk, with correct hashes."""
    if rng.random() < 0.2:
        at = BLOCK * rng.randrange(-(-len(data) // BLOCK))
        return _with_hash(put(data, *_claim(rng, data, at + 8 + 8 * rng.randrange(2))), at, 24)
    at = rng.choice(_chunks(data))
    if rng.random() < 0.6:
        place = at + 8 + 8 * rng.choice((0, 2, 3))
        return _with_hash(put(data, *_claim(rng, data, place)), at, 40)
    (length,) = struct.unpack_from("<Q", data, at + 8)
    if not 0 < length < 4096 or at + 40 + length > len(data):
        raise ValueError
    body = bytearray(data[at + 40 : at + 40 + length])
    for _ in range(rng.randrange(1, 4)):
        body[rng.randrange(len(body))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    data = data[: at + 40] + bytes(body) + data[at + 40 + length :]
    return _with_hash(put(data, at + 16, "<Q", hash64(bytes(body))), at, 40)


def _chunks(data: bytes) -> list[int]:
    """The positions of those chunks that no block header interrupts."""
    found, at = [24], 64
    while at + 40 <= len(data):
        if at % BLOCK == 0:
            at += 24
        (length,) = struct.unpack_from("<Q", data, at + 8)
        if not any(data[at : at + 40]):
            at = -(-at // BLOCK) * BLOCK
            continue
        found.append(at)
        at += 40 + length
    return found


def _claim(rng: random.Random, data: bytes, at: int) -> tuple[int, str, int]:
    (real,) = struct.unpack_from("<Q", data, at)
    return at, "<Q", number(rng, real)


def _with_hash(data: bytes, at: int, size: int) -> bytes:
    return put(data, at, "<Q", hash64(data[at + 8 : at + size]))


_KINDS = (b"0", b"\0", b"1", b"2", b"5", b"7", b"L", b"K", b"x", b"g", b"S", b"N", b"V", b"M")


def tar(rng: random.Random, data: bytes) -> bytes:
    """The size or kind of a member with a correct checksum, or a number in a pax header."""
    if data[:2] == b"\x1f\x8b":
        return gzip.compress(tar(rng, gzip.decompress(data)), mtime=0)
    heads: list[tuple[int, int]] = []
    at = 0
    while at + 512 <= len(data):
        text = data[at + 124 : at + 136].strip(b" \0")
        if not any(data[at : at + 512]):
            break
        size = int(text or b"0", 8)
        heads.append((at, size))
        at += 512 + -(-size // 512) * 512
    at, size = rng.choice(heads)
    block = data[at : at + 512]
    if block[156:157] in b"xg" and rng.random() < 0.5:
        return (
            data[: at + 512] + _pax(rng, data[at + 512 : at + 512 + size]) + data[at + 512 + size :]
        )
    how = rng.randrange(5)
    if how == 0:
        block = block[:156] + rng.choice(_KINDS) + block[157:]
    elif how == 1:
        claimed = number(rng, size, 88)
        block = block[:124] + b"\x80" + claimed.to_bytes(11, "big") + block[136:]
    elif how == 2:
        claimed = rng.choice((b"-1", b"", b"1_0", b"9", b"\xff" * 12, b"7" * 12, b"0x10", b" 1 1"))
        block = block[:124] + claimed.ljust(12, b"\0") + block[136:]
    else:
        claimed = b"%o" % number(rng, size, 33)
        block = block[:124] + claimed.rjust(11, b"0") + b"\0" + block[136:]
    total = sum(block) - sum(block[148:156]) + 8 * 32
    block = block[:148] + b"%06o\0 " % total + block[156:]
    return data[:at] + block + data[at + 512 :]


def _pax(rng: random.Random, lines: bytes) -> bytes:
    """The lines of a pax header, within the same number of bytes."""
    claims = (b"11 size=-1\n", b"30 size=99999999999999999999\n", b"9999999999 a=b\n", b"0 a=b\n",
              b"6 a=b\n" * 50, b"20 GNU.sparse.map=1,\n", b"18 path=\xff\xfe/a.txt", b"12 size=1_0\n")  # fmt: skip
    return (rng.choice(claims) + lines)[: len(lines)]


def msgpack(rng: random.Random, data: bytes) -> bytes:
    """A different head for one of the values, with another length or with any depth."""
    heads = _heads(data)
    at, length, count = rng.choice(heads)
    if rng.random() < 0.3:
        depth = rng.choice(DEPTHS)
        deep = rng.choice((b"\x91", b"\x81\xa1a", b"\xdc\0\1", b"\x81\x91", b"\x92\1"))
        return data[:at] + deep * depth + data[at:]
    layout = rng.choice((b"\xdc", b"\xdd", b"\xde", b"\xdf", b"\xd9", b"\xda", b"\xdb", b"\xc4", b"\xc5", b"\xc6",
                         b"\xc7", b"\xc8", b"\xc9"))  # fmt: skip
    width = {**dict.fromkeys(b"\xdc\xde\xda\xc5\xc8", 2), **dict.fromkeys(b"\xd9\xc4\xc7", 1)}.get(
        layout[0], 4
    )
    claimed = number(rng, count, 8 * width).to_bytes(width, "big")
    kind = b"\5" if layout in (b"\xc7", b"\xc8", b"\xc9") else b""
    return data[:at] + layout + claimed + kind + data[at + length :]


_FIXED = {**dict.fromkeys((0xC0, 0xC2, 0xC3), 0), 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8,
          0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8, 0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17}  # fmt: skip
_SIZED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_NESTED = {0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}


def _heads(data: bytes) -> list[tuple[int, int, int]]:
    """The values of a file that have a length: the position, the number of head bytes, and the value of the head."""
    found: list[tuple[int, int, int]] = []
    at = 0
    while at < len(data):
        kind = data[at]
        if 0x80 <= kind <= 0x9F:
            found.append((at, 1, kind & 15))
            at += 1
        elif 0xA0 <= kind <= 0xBF:
            found.append((at, 1, kind & 31))
            at += 1 + (kind & 31)
        elif kind in _SIZED or kind in _NESTED:
            width = _SIZED.get(kind, 0) or _NESTED[kind]
            count = int.from_bytes(data[at + 1 : at + 1 + width], "big")
            found.append((at, 1 + width, count))
            at += 1 + width + (count if kind in _SIZED else 0) + (0xC7 <= kind <= 0xC9)
        else:
            at += 1 + _FIXED.get(kind, 0)
    return found

"""TFRecord frames and tf.train.Examples made without penstock, to test penstock with.

This code is deliberately slow and simple: penstock's results are compared with it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence

HEAD = 12
TAIL = 4
FRAMING = HEAD + TAIL

_TABLE = []
for _n in range(256):
    _c = _n
    for _ in range(8):
        _c = (_c >> 1) ^ (0x82F63B78 if _c & 1 else 0)
    _TABLE.append(_c)


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli), byte by byte."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    """The checksum as TFRecord stores it."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def head(length: int) -> bytes:
    """The 12 bytes before a payload of `length` bytes; the length may be false."""
    bare = struct.pack("<Q", length)
    return bare + struct.pack("<I", masked(bare))


def frame(payload: bytes) -> bytes:
    """One whole frame."""
    return head(len(payload)) + payload + struct.pack("<I", masked(payload))


def file_of(payloads: Iterable[bytes]) -> bytes:
    """A plain TFRecord file."""
    return b"".join(frame(payload) for payload in payloads)


def starts_of(payloads: Iterable[bytes]) -> list[int]:
    """Where each frame starts, and where the last frame ends."""
    starts = [0]
    for payload in payloads:
        starts.append(starts[-1] + FRAMING + len(payload))
    return starts


def gzip_of(plain: bytes, members: int = 1, level: int = 6) -> bytes:
    """`plain` as this many gzip members, divided at any positions."""
    size = -(-len(plain) // members) or 1
    parts = [plain[at : at + size] for at in range(0, max(len(plain), 1), size)]
    return b"".join(_deflated(part, 31, level) for part in parts)


def gzip_member(plain: bytes, num_records: int) -> bytearray:
    """A gzip member as penstock writes it, with its size and number of records in its header."""
    body = _deflated(plain, -15, 6)
    size = 24 + len(body) + 8
    fixed = b"\x1f\x8b\x08\x04\0\0\0\0\0\x03\x0c\0PS\x08\0"
    trailer = struct.pack("<II", zlib.crc32(plain), len(plain))
    return bytearray(fixed + struct.pack("<II", size, num_records) + body + trailer)


def zlib_of(plain: bytes, level: int = 6) -> bytes:
    """`plain` as one zlib stream."""
    return _deflated(plain, 15, level)


def _deflated(plain: bytes, window_bits: int, level: int) -> bytes:
    deflater = zlib.compressobj(level, zlib.DEFLATED, window_bits)
    return deflater.compress(plain) + deflater.flush()


def varint(number: int) -> bytes:
    """An unsigned varint; negative numbers as protobuf's int64 (ten bytes)."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def message(number: int, body: bytes) -> bytes:
    """A length-delimited protobuf field."""
    return varint(number << 3 | 2) + varint(len(body)) + body


Value = Sequence[int] | Sequence[float] | Sequence[bytes] | None


def feature(values: Value) -> bytes:
    """A Feature. None leaves its kind unset, and [] is an empty int64 list."""
    if values is None:
        return b""
    if all(isinstance(value, int) for value in values):
        body = message(1, b"".join(varint(int(value)) for value in values)) if values else b""
        return message(3, body)
    if all(isinstance(value, bytes) for value in values):
        return message(1, b"".join(message(1, bytes(value)) for value in values))
    return message(2, message(1, struct.pack(f"<{len(values)}f", *values)))


def example(features: Mapping[str, Value]) -> bytes:
    """A tf.train.Example in canonical form: sorted keys, and one packed run for each list."""
    entries = b""
    for key in sorted(features, key=str.encode):
        entries += message(1, message(1, key.encode()) + message(2, feature(features[key])))
    return message(1, entries)

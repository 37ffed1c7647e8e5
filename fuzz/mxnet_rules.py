"""MXNet's rules for RecordIO, as a minimal implementation to compare with. It uses only `struct`.

It was written from the layout that MXNet 1.9.1 was observed to read and write. MXNet itself cannot be installed
together with a current NumPy; tests/interop/test_mxnet.py runs it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

MAGIC = 0xCED7230A
MAGIC_BYTES = struct.pack("<I", MAGIC)
HEADER = struct.Struct("<IfQQ")


class Broken(Exception):
    """The bytes break the rules."""


def part(flag: int, piece: bytes) -> bytes:
    """One part, padded."""
    return struct.pack("<II", MAGIC, flag << 29 | len(piece)) + piece + bytes(-len(piece) % 4)


def frame(payload: bytes) -> bytes:
    """All parts of a record, split at each aligned magic."""
    pieces = [bytearray()]
    for at in range(0, len(payload), 4):
        word = payload[at : at + 4]
        if word == MAGIC_BYTES:
            pieces.append(bytearray())
        else:
            pieces[-1] += word
    if len(pieces) == 1:
        return part(0, payload)
    flags = [1, *[2] * (len(pieces) - 2), 3]
    return b"".join(part(flag, piece) for flag, piece in zip(flags, pieces, strict=True))


def file_of(payloads: Iterable[bytes]) -> bytes:
    return b"".join(map(frame, payloads))


def records_of(data: bytes) -> tuple[list[bytes], int]:
    """The whole records at the front of a file, and the position after them. If something else follows, raises
    Broken, whose args are the same values and a reason."""
    found: list[bytes] = []
    at = 0
    while at < len(data):
        pieces: list[bytes] = []
        start = at
        while True:
            if len(data) - at < 8:
                raise Broken(found, start, "cut")
            magic, word = struct.unpack_from("<II", data, at)
            flag, length = word >> 29, word & (1 << 29) - 1
            if magic != MAGIC or flag not in ((2, 3) if pieces else (0, 1)):
                raise Broken(found, start, "broken")
            end = at + 8 + length + -length % 4
            if end > len(data):
                raise Broken(found, start, "cut")
            pieces.append(data[at + 8 : at + 8 + length])
            at = end
            if flag in (0, 3):
                break
        found.append(MAGIC_BYTES.join(pieces))
    return found, at


def pack(label: float | Sequence[float], image: bytes, id: int = 0, id2: int = 0) -> bytes:
    """A payload of an image pack."""
    if isinstance(label, (int, float)):
        return HEADER.pack(0, label, id, id2) + image
    return HEADER.pack(len(label), 0, id, id2) + struct.pack(f"<{len(label)}f", *label) + image


def unpack(payload: bytes) -> tuple[float | list[float], int, int, bytes]:
    """Label, id, id2 and image of a payload."""
    flag, label, id_, id2 = HEADER.unpack_from(payload)
    if not flag:
        return label, id_, id2, payload[HEADER.size :]
    labels = list(struct.unpack_from(f"<{flag}f", payload, HEADER.size))
    return labels, id_, id2, payload[HEADER.size + 4 * flag :]


def index_of(text: bytes) -> dict[str, int]:
    """An .idx file as MXIndexedRecordIO reads it: the last offset for a key wins."""
    keys: dict[str, int] = {}
    for line in text.decode().splitlines():
        words = line.split("\t")
        keys[words[0]] = int(words[1])
    return keys

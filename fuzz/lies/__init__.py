"""Mutators that know a format: wrong lengths with correct checksums, deep nesting, and bombs.

A lie takes a valid file and returns one with changed contents, in which every checksum on the way is corrected, so
that the change reaches the code behind the checksums. If a lie does not apply to a file, it returns the file
unchanged.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Sequence

Lie = Callable[[random.Random, bytes], bytes]
MOST_BYTES = 1 << 20
DEPTHS = (2, 30, 99, 101, 500, 5_000, 100_000)
"""Levels of nesting: few, around the limit of 100, and more than a stack can hold."""


def told(rng: random.Random, lies: Sequence[Lie], data: bytes) -> bytes:
    """A file after one lie, and sometimes after a few."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        try:
            data = rng.choice(lies)(rng, data)
        except (
            struct.error,
            zlib.error,
            IndexError,
            ValueError,
            ArithmeticError,
            EOFError,
            OSError,
            RecursionError,
        ):
            continue  # the file is of a different kind
    return data[:MOST_BYTES]


def number(rng: random.Random, real: int, bits: int = 64) -> int:
    """A value for a length of this many bits: near the true one, zero, or far too large."""
    near = real + rng.choice((-8, -4, -2, -1, 1, 2, 4, 8))
    power = 1 << rng.choice((7, 8, 15, 16, 20, 24, 28, 29, 30, 31, 32, 40, 47, 62, 63))
    claims = (
        near,
        near,
        real * 2,
        real // 2,
        0,
        1,
        power,
        power - 1,
        -real,
        -1,
        rng.getrandbits(bits),
    )
    return rng.choice(claims) % (1 << bits)


def put(data: bytes, at: int, layout: str, *values: int) -> bytes:
    """The same bytes with some numbers replaced."""
    made = struct.pack(layout, *values)
    if at < 0 or at + len(made) > len(data):
        raise IndexError
    return data[:at] + made + data[at + len(made) :]


def words(rng: random.Random, data: bytes, start: int, end: int, layout: str) -> bytes:
    """Replaces one of the aligned numbers in [start, end)."""
    size = struct.calcsize(layout)
    at = start + rng.randrange(max((end - start) // size, 0)) * size
    (real,) = struct.unpack_from(layout, data, at)
    return put(data, at, layout, number(rng, real, 8 * size))


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A number and the position after it."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError


def json_text(rng: random.Random, text: bytes) -> bytes:
    """JSON with deep nesting, or with one of its values replaced."""
    depth = rng.choice(DEPTHS)
    deep = rng.choice(
        (b"[" * depth + b"]" * depth, b'{"a":' * depth + b"1" + b"}" * depth, b"[" * depth)
    )
    value = rng.choice(
        (deep, deep, b"null", b"-1", b"1e999", b"NaN", b"9" * 400, b'"\\ud800"', b'"\\u0000"', b"{}",
         b"[]", b"true", b"18446744073709551616", b'"../x"', b'"' + b"x" * 5000 + b'"')
    )  # fmt: skip
    marks = [at for at, byte in enumerate(text) if byte in b":,["]
    if not marks or rng.random() < 0.1:
        return value
    at = rng.choice(marks) + 1
    end = at
    while end < len(text) and text[end] not in b",]}":
        end += 1
    return text[:at] + value + text[end:]

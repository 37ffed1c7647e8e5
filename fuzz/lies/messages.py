"""Lies within protobuf messages: lengths, groups, and messages nested to any depth."""

from __future__ import annotations

import random

from fuzz.lies import DEPTHS, number, read_varint, varint

_DEEPEST = 6


def message(rng: random.Random, data: bytes) -> bytes:
    """Changes one length in a message, or puts something deeply nested before a field."""
    spots = _lengths(data, 0, len(data), 0)
    if rng.random() < 0.3 or not spots:
        at = rng.choice([0, *(start for start, _, _ in spots)])
        return data[:at] + _deep(rng) + data[at:]
    start, end, real = rng.choice(spots)
    claimed = varint(number(rng, real))
    if rng.random() < 0.1:
        claimed = claimed[:-1] + bytes([claimed[-1] | 0x80]) + b"\x80" * rng.randrange(12) + b"\0"
    return data[:start] + claimed + data[end:]


def _lengths(data: bytes, at: int, end: int, depth: int) -> list[tuple[int, int, int]]:
    """(start, end, value) of the lengths of fields, as far as the bytes can be parsed as messages."""
    found: list[tuple[int, int, int]] = []
    try:
        while at < end:
            tag, at = read_varint(data, at)
            kind = tag & 7
            if kind == 0:
                _, at = read_varint(data, at)
            elif kind in (1, 5):
                at += 8 if kind == 1 else 4
            elif kind == 2:
                length, after = read_varint(data, at)
                if after + length > end:
                    return found
                found.append((at, after, length))
                if depth < _DEEPEST:
                    found += _lengths(data, after, after + length, depth + 1)
                at = after + length
            else:
                return found
    except (IndexError, ValueError):
        pass
    return found


def _deep(rng: random.Random) -> bytes:
    depth = rng.choice(DEPTHS)
    if rng.random() < 0.5:
        return b"\x0b" * depth + b"\x0c" * rng.choice((0, depth, depth - 1))
    tag = bytes([rng.choice((0x0A, 0x12, 0x1A))])
    parts: list[bytes] = []
    size = 0
    for _ in range(min(depth, 20_000)):
        part = tag + varint(size)
        parts.append(part)
        size += len(part)
    return b"".join(reversed(parts))

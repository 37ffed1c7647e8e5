"""Makes bad files out of good ones; the same seed gives the same files."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from fuzz.lies import Lie, told

INTERESTING = (
    *(bytes(n) for n in (1, 2, 4, 8, 12, 16)),
    *(b"\xff" * n for n in (1, 2, 4, 8)),
    *((1 << bits).to_bytes(8, "little") for bits in (7, 15, 16, 31, 32, 47, 62, 63)),
    *((1 << bits).to_bytes(4, "little") for bits in (7, 15, 24, 30, 31)),
    b"\x7f",
    b"\x80",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x0b" * 200,
    b"\x0a\x7f",
    b"\x1f\x8b\x08\x00",
    b"\x78\x9c",
)

Change = Callable[[random.Random, bytearray], None]


def flip(rng: random.Random, data: bytearray) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def put(rng: random.Random, data: bytearray) -> None:
    data[rng.randrange(len(data))] = rng.randrange(256)


def overwrite(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    piece = rng.choice(INTERESTING)
    data[at : at + len(piece)] = piece


def insert(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.choice(INTERESTING)


def delete(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.randrange(1, 20)]


def cut(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(len(data)) :]


def repeat(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    piece = data[at : at + rng.randrange(1, 64)]
    data[at:at] = piece * rng.randrange(1, 4)


def move(rng: random.Random, data: bytearray) -> None:
    at, to = rng.randrange(len(data)), rng.randrange(len(data))
    length = rng.randrange(1, 32)
    data[to : to + length] = data[at : at + length]


CHANGES: tuple[Change, ...] = (
    flip,
    flip,
    put,
    put,
    overwrite,
    overwrite,
    insert,
    delete,
    cut,
    repeat,
    move,
)


LIES, BOMBS = 0.4, 0.001
"""The share of runs in which a mutator that knows the format changes the file, and the share in which the file is a
bomb."""


def mutated(
    rng: random.Random,
    seeds: Sequence[bytes],
    lies: Sequence[Lie] = (),
    bombs: Callable[[], Sequence[bytes]] | None = None,
) -> bytes:
    """One of the seeds with a lie, or with one to a few changes that do not depend on the format; sometimes a bomb or
    noise."""
    if bombs is not None and rng.random() < BOMBS:
        return rng.choice(bombs())
    if lies and rng.random() < LIES:
        return told(rng, lies, rng.choice(seeds))
    data = bytearray(rng.choice(seeds))
    if rng.random() < 0.05:
        other = rng.choice(seeds)
        data = data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]
    if rng.random() < 0.02:
        data = bytearray(rng.randbytes(rng.randrange(200)))
    for _ in range(1 if rng.random() < 0.5 else rng.randrange(1, 8)):
        if data:
            rng.choice(CHANGES)(rng, data)
    return bytes(data[:65_536])

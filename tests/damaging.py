"""A file of 64 KiB to damage, how the tests flip one of its bits, and how to make an index treat a change as
damage."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import frames
from penstock.framing.index import sidecar
from penstock.storage.local import LocalSource, LocalStorage

SIZE = 1 << 16
SEED = 20
PATH = "m.tfrecord"


def sixty_four_kib() -> list[bytes]:
    """Payloads of different sizes, one of them empty, whose file has exactly 64 KiB."""
    rng = random.Random(SEED)
    lengths = [0, 1, 11, 2000] + [rng.randrange(2, 1900) for _ in range(58)]
    while sum(lengths) + 16 * (len(lengths) + 1) > SIZE:
        lengths.pop()
    lengths.append(SIZE - sum(lengths) - 16 * (len(lengths) + 1))
    return [rng.randbytes(length) for length in lengths]


PAYLOADS = sixty_four_kib()
STARTS = frames.starts_of(PAYLOADS)
DATA = frames.file_of(PAYLOADS)


def flipped(data: bytes, bit: int) -> bytes:
    """`data` with one bit flipped."""
    bad = bytearray(data)
    bad[bit >> 3] ^= 1 << (bit & 7)
    return bytes(bad)


def tell_the_old_state(index: dict[Path, bytes], path: Path) -> None:
    """Write a sidecar that claims to describe the file in its present state."""
    for place, data in index.items():
        place.write_bytes(data)
        known = sidecar.load(str(place), LocalStorage())
        if known.state.is_known:
            now = sidecar.state_now(LocalSource(str(path)))
            sidecar.save(replace(known, state=now), str(path), LocalStorage())

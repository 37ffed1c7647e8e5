"""Takes records of a local file by number in one call, and compares them with the records found by the slower general
way."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np

import penstock as ps
from fuzz import seeds
from fuzz.tfrecords import framed
from penstock.datasets.scan import join
from penstock.framing.read.framed import FramedReader

_MANY = 600
"""With this many records of 5 KB, several threads read them, while they are in a cache."""


def files() -> list[bytes]:
    """Files of small and of large Examples."""
    path = os.path.join(seeds.folder(), "large.tfrecord")
    values = {"n": range(8), "k": [bytes([n]) * (5000 + n) for n in range(8)]}
    ps.write(values, path, index=False, overwrite=True)
    large = Path(path).read_bytes()
    ps.write({"n": [1, 2], "k": [b"one", b"two"]}, path, index=False, overwrite=True)
    return [large, Path(path).read_bytes(), b"".join(map(framed, seeds.examples()[:12]))]


def taken(data: bytes, rng: random.Random) -> None:
    """The one call must return what the general way returns, even if the file was changed since it was indexed."""
    path = os.path.join(seeds.folder(), "taken.tfrecord")
    Path(path).write_bytes(data)
    checksums = rng.choice(("all", "all", "headers", "none"))
    mapped, damage = rng.random() < 0.3, rng.choice(("error", "skip"))
    dataset = ps.open(path, index="never", checksums=checksums, mmap=mapped, damage=damage)
    reader = dataset.files.reader(0)
    if not isinstance(reader, FramedReader) or not len(dataset):
        return
    if rng.random() < 0.5:
        with open(path, "r+b") as file:
            file.seek(rng.randrange(len(data)))
            file.write(rng.randbytes(rng.randint(1, 20))[: len(data) - file.tell()])
    many = rng.random() < 0.1 and len(data) > 5000 * len(dataset)
    numbers = np.array(rng.choices(range(len(dataset)), k=_MANY if many else 5), np.int64)
    at_once = reader.at_once(numbers, None)
    if at_once is not None:
        at_once.validate(full=True)
        parts = [reader.decode(chunk, chosen, None) for chunk, chosen in reader.pick(numbers)]
        assert repr(join(parts).to_pylist()) == repr(at_once.to_pylist())

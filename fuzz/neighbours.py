"""Targets for formats of other libraries that penstock only reads: MDS and ArrayRecord.

Hashes stop nearly every mutated ArrayRecord file at its head, so one target puts correct hashes around hostile
chunks.
"""

from __future__ import annotations

import functools
import random

import numpy as np
import pyarrow as pa

from fuzz import riegeli_files
from fuzz.mds_shards import one_column, simple
from fuzz.seeds import GOLDEN
from penstock import _core

DAMAGE = ("error", "stop", "skip")


def mds(data: bytes, rng: random.Random) -> None:
    """A whole shard of MDS, plain or compressed, through `open` and `scan`."""
    from fuzz.targets import opened

    name = rng.choice(("a.mds", "a.mds", "a.mds.zstd", "a.mds.gz", "a.mds.snappy"))
    opened(name, data, damage=rng.choice(DAMAGE))


def listing(data: bytes, rng: random.Random) -> None:
    """An index.json next to a shard."""
    import penstock as ps
    from penstock.storage import MemoryStorage

    files = {"d/a.mds": simple([1, 2]), "d/index.json": data}
    rows = list(ps.open("d/a.mds", storage=MemoryStorage(files)))
    assert [row["x"] for row in rows] == [1, 2]


def arrayrecord(data: bytes, rng: random.Random) -> None:
    """A whole ArrayRecord file through `open` and `scan`."""
    from fuzz.targets import opened

    opened("a.array_record", data, damage=rng.choice(DAMAGE), raw=rng.random() < 0.5)


def riegeli(data: bytes, rng: random.Random) -> None:
    """The data of a chunk, with correct hashes around it."""
    count = rng.choice((0, 1, 2, 3, 5, len(data), rng.getrandbits(rng.choice((8, 55)))))
    size = rng.choice((0, 1, 3, 8, 15, len(data), rng.getrandbits(rng.choice((8, 63)))))
    whole = riegeli_files.chunk_of(data, count, size, rng.choice((b"r", b"r", b"r", b"t", b"p")))
    columns = [pa.array([v], pa.uint64()) for v in (0, len(whole), 64, count, size)]
    frames = _core.riegeli_records(_core.Buffer.from_bytes(whole), *columns, 1 << 20, 1 << 20)
    assert len(frames) in (0, count)
    assert sum(len(payload) for payload in pa.array(frames.views()).to_pylist()) in (0, size)
    _core.message_numbers(frames, [1, 2, 3])


@functools.cache
def shards() -> list[bytes]:
    """MDS shards."""
    array = b"\x11\x04\x03" + np.arange(3, dtype="<i2").tobytes()
    made = [simple([1, 2, 3]), simple([]), one_column("ndarray", [array, array])]
    image = b"\1\0\0\0\1\0\0\0\1\0\0\0Lx"
    made += [one_column("pil", [image]), one_column("str_int", [b"12"])]
    files = sorted(GOLDEN.glob("neighbours/mds*/*.mds*"))
    return [*made, *(path.read_bytes() for path in files)]


@functools.cache
def listings() -> list[bytes]:
    """Files called index.json."""
    from fuzz.mds_shards import index_of, listed

    made = [index_of(), index_of(listed("a.mds", simple([1, 2]), 2))]
    files = sorted(GOLDEN.glob("neighbours/*/index.json"))
    return [*made, *(path.read_bytes() for path in files)]


@functools.cache
def array_records() -> list[bytes]:
    """ArrayRecord files; the padding of a block is not changed."""
    made = [riegeli_files.file_of([riegeli_files.chunk([b"a", b"", b"bc"])])]
    files = sorted(GOLDEN.glob("recordio/*.array_record"))
    return [*made, *(path.read_bytes() for path in files)]


@functools.cache
def chunk_data() -> list[bytes]:
    """The data after the heads of chunks: plain, and compressed by each codec."""
    sizes, values = bytes([2, 1]), b"abc"
    made = [b"\0\2" + sizes + values, b"\0\0", b"\0\3\0\0\0"]
    for letter, name in ((b"z", "zstd"), (b"b", "brotli"), (b"s", "snappy")):
        codec = pa.Codec(name)
        packed = [codec.compress(part, asbytes=True) for part in (sizes, values)]
        first = bytes([len(sizes)]) + packed[0]
        made.append(letter + bytes([len(first)]) + first + bytes([len(values)]) + packed[1])
    return made

"""Large records are verified while they are read: errors are the same as for a mapped file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from frames import frame

NUM_RECORDS, RECORD_BYTES = 130, 100_000
FRAME_BYTES = 12 + RECORD_BYTES + 4
RNG = np.random.default_rng(7)
RECORDS = [RNG.bytes(RECORD_BYTES) for _ in range(NUM_RECORDS)]

Scan = Callable[..., list[bytes]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("large") / "whole.tfrecord"
    path.write_bytes(b"".join(map(frame, RECORDS)))
    data = path.read_bytes()
    assert len(data) == NUM_RECORDS * FRAME_BYTES
    return data


def scan(path: Path, threads: int, **options: object) -> list[bytes]:
    batches = ps.open(path, raw=True, **options).scan(threads=threads)
    return [record for batch in batches for record in batch.column(0).to_pylist()]


# A record in the first window, and some records that are read in pieces, are damaged at their first
# and last bytes and in the stored checksum.
FLIPS = [
    (record, place)
    for record in (3, 22, 50, 101, 129)
    for place in (12, 60_000, 11 + RECORD_BYTES, 13 + RECORD_BYTES)
]


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_flipped_bit_is_found_wherever_it_is(
    whole: bytes, tmp_path: Path, threads: int, mmap: bool, indexed: bool
) -> None:
    path = tmp_path / "flipped.tfrecord"
    path.write_bytes(whole)
    if indexed:
        ps.index(path)
    assert scan(path, threads, mmap=mmap) == RECORDS
    for record, place in FLIPS:
        with path.open("r+b") as file:
            file.seek(record * FRAME_BYTES + place)
            byte = file.read(1)[0]
            file.seek(-1, 1)
            file.write(bytes([byte ^ 0x10]))
        with pytest.raises((ps.ChecksumError, ps.StaleIndexError), match=f"record {record}\\b"):
            scan(path, threads, mmap=mmap)
        if not indexed:
            others = RECORDS[:record] + RECORDS[record + 1 :]
            assert scan(path, threads, mmap=mmap, damage="skip") == others
            assert scan(path, threads, mmap=mmap, damage="stop") == RECORDS[:record]
            assert len(scan(path, threads, mmap=mmap, checksums="headers")) == NUM_RECORDS
        with path.open("r+b") as file:
            file.seek(record * FRAME_BYTES + place)
            file.write(bytes([byte]))
    assert scan(path, threads, mmap=mmap) == RECORDS

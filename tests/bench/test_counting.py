"""The storage that counts reads: bytes, reads, seeks and blocks of a known sequence of reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.bench.counting import BLOCK_BYTES, CountingStorage


def test_reads_that_follow_each_other_are_no_seeks(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(100_000))
    counting = CountingStorage()
    source = counting.source(str(path))
    source.read(0, 1000)
    source.read(1000, 1000)
    source.read(50_000, 10)
    source.gather(pa.array([50_010, 60_000, 0], pa.uint64()), pa.array([5, 0, 7], pa.uint64()))
    counts = counting.noted.counts
    assert counts.num_bytes == 1000 + 1000 + 10 + 5 + 7
    assert counts.reads == 5, "one of nothing is none"
    assert counts.seeks == 3
    # Bytes 0 to 2000 are in one block, 50,000 to 50,015 in another; 0 to 7 are read again.
    assert counts.block_bytes == 3 * BLOCK_BYTES


def test_a_record_across_a_border_costs_two_blocks(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(100_000))
    counting = CountingStorage()
    counting.source(str(path)).read(BLOCK_BYTES - 1, 2)
    assert counting.noted.counts.block_bytes == 2 * BLOCK_BYTES


def test_taking_records_of_a_tfrecord_reads_these_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write([bytes([n]) * 1000 for n in range(100)], path, payload="raw")
    counting = CountingStorage()
    ds = ps.open(path, storage=counting, raw=True)
    assert len(ds) == 100
    counting.noted.reset()
    ds.take([3, 4, 50])
    assert counting.noted.counts.num_bytes == 3 * (1000 + 16)
    assert counting.noted.counts.seeks == 2


def test_files_of_a_folder_are_a_seek_each(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (6, 8, 8, 3), np.uint8)
    data = {"image": ps.encode_images(pixels, "png"), "label": ["a", "b"] * 3}
    ps.write(data, tmp_path / "images/", format="imagefolder")
    counting = CountingStorage()
    ds = ps.open(tmp_path / "images", storage=counting)
    assert len(ds) == 6
    counting.noted.reset()
    ds.take([0, 1, 2])
    assert counting.noted.counts.seeks == 3
    assert counting.noted.counts.num_bytes > 0

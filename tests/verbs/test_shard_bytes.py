"""`shard_bytes`: shards of about this size in every format, wherever the input's batches end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.datasets.open import open as open_dataset
from penstock.storage.local_sink import TEMPORARY_SUFFIX
from penstock.verbs.convert.convert import convert
from penstock.verbs.write.write import write


def lengths_of(paths: tuple[str, ...]) -> list[int]:
    return [len(open_dataset(path)) for path in paths]


def test_a_beton_ends_by_the_bytes_of_its_records_not_of_its_pages(tmp_path: Path) -> None:
    records = {"x": np.zeros((20, 250), "f4"), "b": [b"x" * 1000] * 20}
    pages: dict[str, Any] = {"page_bytes": 2 << 20}
    made = write(records, tmp_path / "one-{shard}.beton", shard_bytes=1_000_000, **pages)
    assert lengths_of(made.paths) == [20]
    assert made.num_bytes == os.path.getsize(made.paths[0])
    # A record takes 2,000 bytes of values, 24 in its row and 48 in the table.
    made = write(records, tmp_path / "two-{shard}.beton", shard_bytes=2072 * 10, **pages)
    assert lengths_of(made.paths) == [10, 10]


KILLED = """
import os, sys
import penstock as ps
ps.convert(sys.argv[1], sys.argv[2], shard_bytes=4000, progress=lambda *done: os._exit(9))
"""


@pytest.mark.parametrize("name", ["out.tfrecord", "out-{shard:03d}.rec"])
def test_a_conversion_removes_the_files_of_a_killed_one(tmp_path: Path, name: str) -> None:
    source, target = tmp_path / "in.tfrecord", tmp_path / "out" / name
    target.parent.mkdir()
    write({"data": [b"some bytes"] * 500_000}, source, index=False)
    run = subprocess.run([sys.executable, "-c", KILLED, str(source), str(target)], check=False)
    assert run.returncode == 9
    left = sorted(path.name for path in target.parent.iterdir())
    assert left
    assert all(name.endswith(TEMPORARY_SUFFIX) for name in left)
    others = [".other-00000-of-unknown.tfrecord.0123456789ab", ".out-mine.rec.0123456789ab"]
    for other in others:
        (target.parent / (other + TEMPORARY_SUFFIX)).touch()
    convert(source, target, shard_bytes=1 << 22)
    names = {path.name for path in target.parent.iterdir()}
    found = {name for name in names if name.endswith(TEMPORARY_SUFFIX)}
    assert found == {other + TEMPORARY_SUFFIX for other in others}


def test_a_beton_whose_values_are_all_in_rows_ends_by_its_rows(tmp_path: Path) -> None:
    made = write({"id": range(1000)}, tmp_path / "x-{shard}.beton", shard_bytes=4000)
    assert lengths_of(made.paths) == [500, 500]


def texts(count: int, length: int) -> pa.Table:
    """Records that compress to about a tenth of their size."""
    random = np.random.default_rng(1)
    words = [random.bytes(length // 10) * 10 for _ in range(count)]
    return pa.table({"id": np.arange(count), "b": words})


FORMATS: dict[str, tuple[str, dict[str, Any]]] = {
    "hdf5": ("h5", {}),
    "parquet": ("parquet", {}),
    "plain parquet": ("parquet", {"compression": "none"}),
    "arrow": ("arrow", {}),
    "packed arrow": ("arrow", {"compression": "zstd"}),
    "arrow stream": ("arrow", {"stream": True}),
    "tfrecord": ("tfrecord", {}),
    "npz": ("npz", {}),
    "beton": ("beton", {}),
}


@pytest.mark.parametrize(("ending", "options"), FORMATS.values(), ids=FORMATS.keys())
def test_values_of_any_length_make_shards_of_the_size(
    tmp_path: Path, ending: str, options: dict[str, Any]
) -> None:
    random = np.random.default_rng(0)
    records = {"b": [random.bytes(20_000) for _ in range(300)]}
    made = write(records, tmp_path / f"x-{{shard}}.{ending}", shard_bytes=2_000_000, **options)
    lengths = lengths_of(made.paths)
    assert len(lengths) == 3
    assert all(98 <= length <= 102 for length in lengths[:-1])
    assert made.num_bytes == sum(os.path.getsize(path) for path in made.paths)


@pytest.mark.parametrize(("ending", "options"), FORMATS.values(), ids=FORMATS.keys())
def test_shards_by_bytes_depend_on_the_records_alone(
    tmp_path: Path, ending: str, options: dict[str, Any]
) -> None:
    table = texts(2000, 1000)
    cuts = [table.to_batches(), table.to_batches(max_chunksize=77)]
    found: list[list[bytes]] = []
    for threads, batches in enumerate(cuts, 1):
        target = tmp_path / f"{threads}-{{shard}}.{ending}"
        made = write(batches, target, shard_bytes=100_000, threads=threads, index=False, **options)
        found.append([Path(path).read_bytes() for path in made.paths])
    assert found[0] == found[1]


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_packed_values_are_counted_as_they_are_packed(tmp_path: Path, ending: str) -> None:
    table = texts(5000, 1000)
    made = write(table, tmp_path / f"x-{{shard}}.{ending}", shard_bytes=200_000, compression="zstd")
    sizes = [os.path.getsize(path) for path in made.paths]
    assert len(sizes) > 2
    assert all(150_000 < size < 260_000 for size in sizes[:-1])


def test_many_groups_of_a_shard_are_counted_with_what_waits(tmp_path: Path) -> None:
    options: dict[str, Any] = {"shard_bytes": 1_000_000, "compression": "zstd"}
    table = texts(20_000, 1000)
    how: dict[str, Any] = {"row_group_bytes": 300_000}
    made = write(table, tmp_path / "x-{shard}.parquet", **options, **how)
    sizes = [os.path.getsize(path) for path in made.paths]
    assert all(900_000 < size < 1_150_000 for size in sizes[:-1])


def test_records_of_fields_of_many_kinds_make_hdf5_of_the_size(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    records = {
        "image": random.integers(0, 255, (3000, 16, 16), np.uint8),
        "label": np.arange(3000),
        "lists": [list(range(i % 50)) for i in range(3000)],
        "text": ["text" * (i % 100) for i in range(3000)],
    }
    made = write(records, tmp_path / "x-{shard}.h5", shard_bytes=500_000)
    sizes = [os.path.getsize(path) for path in made.paths]
    assert len(sizes) > 3
    assert all(400_000 < size < 650_000 for size in sizes[:-1])


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
@pytest.mark.parametrize("is_packed", [True, False], ids=["packs well", "does not pack"])
def test_compressed_shards_end_by_their_bytes_on_disk(
    tmp_path: Path, compression: str, is_packed: bool
) -> None:
    random = np.random.default_rng(2)
    length = 600
    values = [random.bytes(60) * 10 if is_packed else random.bytes(length) for _ in range(4000)]
    table = pa.table({"b": pa.array(values, pa.binary())})
    for number, shard_bytes in enumerate((20_000, 300_000)):
        made = {}
        for threads in (1, 3):
            paths = write(
                table,
                tmp_path / f"{number}-{threads}-{{shard:03d}}.tfrecord",
                shard_bytes=shard_bytes,
                compression=compression,
                threads=threads,
            ).paths
            made[threads] = [Path(path).read_bytes() for path in paths]
        assert made[1] == made[3]
        sizes = [len(data) for data in made[1]]
        if is_packed and shard_bytes == 300_000:
            continue  # all records together have fewer bytes than that, or only slightly more
        assert max(sizes) < 1.7 * shard_bytes
        assert min(sizes[:-1]) > 0.5 * shard_bytes
        assert sum(lengths_of(tuple(paths))) == 4000

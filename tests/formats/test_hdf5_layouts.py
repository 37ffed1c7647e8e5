"""Datasets of any layout: the records are those that h5py reads, however they are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest

import penstock as ps

TYPES = ("u1", "<i2", ">f4", "<f4", "<i8", "S3", "<f8")


def dataset(path: Path, rng: np.random.Generator) -> Any:
    """A dataset of random shape, chunks, filters and type, of which a part may never be written."""
    shape = int(rng.integers(1, 60)), *rng.integers(1, 6, rng.integers(0, 3)).tolist()
    dtype = np.dtype(str(rng.choice(TYPES)))
    codec = (None, "gzip", "lzf")[rng.integers(0, 3)]
    chunks = int(rng.integers(1, 20)), *rng.integers(1, 6, len(shape) - 1).tolist()
    written = int(rng.integers(0, shape[0] + 1))
    values: Any = rng.integers(0, int(rng.choice([2, 50, 120])), (written, *shape[1:]))
    if dtype.kind == "S":
        values = np.array([b"abc", b"d", b"ef"])[values % 3]
    with h5py.File(path, "w") as file:
        made = file.create_dataset(
            "x",
            shape,
            dtype,
            chunks=chunks,
            maxshape=(None,) * len(shape),
            compression=codec,
            shuffle=bool(rng.integers(0, 2)),
            fillvalue=None if dtype.kind == "S" else 3,
        )
        made[:written] = values
        return made[...]


def values_of(column: Any) -> list[Any]:
    """All values of a column, flat."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    while pa.types.is_fixed_size_list(column.type):
        column = column.flatten()
    found = column.to_pylist()
    return [value.encode() if isinstance(value, str) else value for value in found]


@pytest.mark.parametrize("seed", range(150))
def test_any_layout_reads_as_h5py_reads_it(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    expected = dataset(tmp_path / "a.h5", rng)
    for mmap in (False, True):
        found = ps.open(str(tmp_path / "a.h5"), mmap=mmap)
        batches = list(found.scan(threads=1 + seed % 2))
        assert [v for b in batches for v in values_of(b["x"])] == expected.reshape(-1).tolist()
        numbers = rng.integers(0, len(expected), int(rng.integers(1, 40)))
        assert values_of(found.take(numbers)["x"]) == expected[numbers].reshape(-1).tolist()
        first = int(rng.integers(0, len(expected)))
        last = int(rng.integers(first, len(expected))) + 1
        some = found.take(np.arange(first, last))
        assert values_of(some["x"]) == expected[first:last].reshape(-1).tolist()

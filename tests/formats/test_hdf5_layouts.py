"""Datasets of any layout: the records equal those that h5py reads, by every way to read them."""

from __future__ import annotations

import ctypes
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
    """All values of a column, flattened."""
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


def test_chunks_larger_than_the_dataset_take_no_memory_for_what_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    empty = np.empty

    def counting(shape: Any, *args: Any, **kwargs: Any) -> Any:
        found = empty(shape, *args, **kwargs)
        asked.append(found.nbytes)
        return found

    with h5py.File(tmp_path / "a.h5", "w") as file:
        how: Any = {"maxshape": (None, 32), "chunks": (1 << 24, 1), "compression": "gzip"}
        file.create_dataset("never", (1, 32), "f4", **how)
        tall: Any = {"maxshape": (None, 64, 64), "chunks": (1024, 32, 32)}
        file.create_dataset("tall", data=np.ones((1, 64, 64), "f4"), **tall)
    found = ps.open(str(tmp_path / "a.h5"))
    monkeypatch.setattr(np, "empty", counting)
    assert found.take([0, 0]).num_rows == 2
    assert sum(batch.num_rows for batch in found.scan(threads=1)) == 1
    assert max(asked) < 1 << 20


@pytest.mark.parametrize("codec", ["gzip", "lzf", None])
def test_ends_that_are_stored_without_filters_and_do_not_say_so(
    tmp_path: Path, codec: str | None
) -> None:
    library = next(
        ctypes.CDLL(line.split()[-1])
        for line in Path("/proc/self/maps").read_text().splitlines()
        if "libhdf5" in line and "_hl" not in line
    )
    values = np.arange(800, dtype="i4").reshape(100, 8)
    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as file:
        plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plan.set_chunk((64, 8))
        plan.set_shuffle()
        if codec == "gzip":
            plan.set_deflate(4)
        elif codec == "lzf":
            plan.set_filter(h5py.h5z.FILTER_LZF)
        library.H5Pset_chunk_opts(ctypes.c_int64(plan.id), ctypes.c_uint(2))
        space = h5py.h5s.create_simple((100, 8), (h5py.h5s.UNLIMITED, 8))
        made = h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_INT32, space, dcpl=plan)
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, values)
    found = ps.open(str(tmp_path / "a.h5"))
    assert [v for b in found.scan() for v in values_of(b["x"])] == values.reshape(-1).tolist()
    assert values_of(found.take([99, 3])["x"]) == values[[99, 3]].reshape(-1).tolist()

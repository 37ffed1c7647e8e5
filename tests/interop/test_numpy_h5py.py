"""NumPy and h5py read files that penstock writes, and penstock reads theirs, with any dtype, shape and order."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.columns.types import fixed_tensors

STORES: tuple[dict[str, Any], ...] = (
    {},
    {"chunks": True},
    {"compression": "gzip", "shuffle": True},
    {"compression": "lzf"},
)
KINDS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
in_one_folder = settings(
    max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    """Numbers of any kind, byte order, shape and memory order."""
    kind = draw(st.sampled_from("<>")) + draw(st.sampled_from(KINDS))
    shape = (draw(st.integers(1, 40)), *draw(st.lists(st.integers(1, 5), max_size=3)))
    seed = draw(st.integers(0, 1 << 30))
    values = np.random.default_rng(seed).integers(0, 100, shape).astype(kind)
    return np.asarray(values, order=draw(st.sampled_from("CF")))  # type: ignore[call-overload]


def native(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("=")))


def as_numpy(column: Any) -> np.ndarray:
    column = column.combine_chunks()
    column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    if hasattr(column, "to_numpy_ndarray"):
        return column.to_numpy_ndarray()
    return column.to_numpy(zero_copy_only=False)


def agrees(path: str, name: str, wanted: np.ndarray) -> None:
    """Check that every way to read the file gives the array."""
    for mmap in (False, True):
        dataset = ps.open(path, index="never", mmap=mmap)
        found = as_numpy(pa.table(dataset).column(name))
        assert found.dtype == wanted.dtype
        assert np.array_equal(found, wanted)
        numbers = np.random.default_rng(1).integers(0, len(wanted), 9)
        batch = pa.Table.from_batches([dataset.take(numbers)])
        assert np.array_equal(as_numpy(batch.column(name)), wanted[numbers])


@in_one_folder
@given(array=arrays())
def test_penstock_reads_what_numpy_and_h5py_write(array: np.ndarray, tmp_path: Path) -> None:
    wanted = native(array)
    np.save(tmp_path / "a.npy", array)
    agrees(str(tmp_path / "a.npy"), "data", wanted)
    np.savez(tmp_path / "a.npz", x=array)
    agrees(str(tmp_path / "a.npz"), "x", wanted)
    np.savez_compressed(tmp_path / "c.npz", x=array)
    agrees(str(tmp_path / "c.npz"), "x", wanted)
    for options in STORES:
        # A new name each time: libhdf5 does not overwrite a file that this process has open.
        path = str(tmp_path / f"{uuid.uuid4().hex}.h5")
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=array, **options)
        agrees(path, "x", wanted)


@in_one_folder
@given(array=arrays())
def test_numpy_and_h5py_read_what_penstock_writes(array: np.ndarray, tmp_path: Path) -> None:
    wanted = native(array)
    column = fixed_tensors(wanted)
    ps.write(pa.table({"data": column}), str(tmp_path / "a.npy"), overwrite=True)
    found = np.load(tmp_path / "a.npy", allow_pickle=False)
    assert (found.dtype, found.tolist()) == (wanted.dtype, wanted.tolist())
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    assert np.array_equal(mapped, wanted)
    for compression in (None, "deflate"):
        table = pa.table({"x": column, "n": np.arange(len(wanted))})
        ps.write(table, str(tmp_path / "a.npz"), overwrite=True, compression=compression)
        with np.load(tmp_path / "a.npz", allow_pickle=False) as archive:
            assert sorted(archive.files) == ["n", "x"]
            assert np.array_equal(archive["x"], wanted)
    for compression in (None, "gzip", "lzf"):
        ps.write(
            pa.table({"g/x": column}),
            str(tmp_path / "a.h5"),
            overwrite=True,
            compression=compression,
        )
        with h5py.File(tmp_path / "a.h5") as file:
            assert file["g/x"].dtype == wanted.dtype
            assert np.array_equal(file["g/x"][...], wanted)


@pytest.mark.parametrize("ending", ["npy", "npz", "h5"])
def test_torch_like_loops_see_rows_as_numpy_gives_them(ending: str, tmp_path: Path) -> None:
    values = np.random.default_rng(3).standard_normal((50, 4)).astype(np.float32)
    path = str(tmp_path / f"a.{ending}")
    ps.write(pa.table({"data": fixed_tensors(values)}), path)
    dataset = ps.open(path)
    assert [list(dataset[n]["data"]) for n in range(0, 50, 7)] == values[::7].tolist()

"""Writing npy: files that NumPy reads, structures, text, nulls, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from npy_files import ARRAYS

import penstock as ps
from penstock.columns.types import DTYPE_KEY, fixed_tensors


def written(data: Any, tmp_path: Path, **options: Any) -> np.ndarray:
    path = str(tmp_path / "w.npy")
    ps.write(data, path, overwrite=True, **options)
    return np.load(path, allow_pickle=False)


def test_numpy_reads_what_is_written(tmp_path: Path) -> None:
    for array in ARRAYS.values():
        native = array.astype(array.dtype.newbyteorder("="))
        if array.dtype.kind in "SU" or 0 in array.shape:
            continue
        column = pa.array(native) if native.ndim == 1 else fixed_tensors(native)
        found = written(pa.table({"data": column}), tmp_path)
        assert found.shape == array.shape
        assert np.array_equal(found, native, equal_nan=array.dtype.kind in "fM")


def test_several_fields_become_a_structured_array(tmp_path: Path) -> None:
    table_ = pa.table(
        {"id": pa.array([1, 2], pa.int32()), "at": fixed_tensors(np.ones((2, 3), np.float16))}
    )
    found = written(table_, tmp_path)
    assert found.dtype == np.dtype([("id", "<i4"), ("at", "<f2", (3,))])
    assert found["id"].tolist() == [1, 2]
    dataset = ps.open(str(tmp_path / "w.npy"), index="never")
    assert dataset.schema.names == ["id", "at"]
    assert dataset.schema.field("at").type.shape == [3]


def test_text_needs_a_length(tmp_path: Path) -> None:
    table_ = pa.table({"name": ["é", "", "abc"], "raw": [b"x", b"yz", b""]})
    with pytest.raises(ps.SchemaError, match="text_length"):
        written(table_, tmp_path)
    assert not list(tmp_path.iterdir())
    found = written(table_, tmp_path, text_length=3)
    assert found["name"].tolist() == ["é", "", "abc"]
    assert found["raw"].tolist() == [b"x", b"yz", b""]
    assert pa.table(ps.open(str(tmp_path / "w.npy"))).to_pydict() == table_.to_pydict()
    with pytest.raises(ps.SchemaError, match="record 2, field 'name'"):
        written(table_, tmp_path, text_length=2)
    with pytest.raises(ps.SchemaError, match="NUL"):
        written(pa.table({"data": ["a\0"]}), tmp_path, text_length=3)


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.list_(pa.int8()),
        pa.month_day_nano_interval(),
        pa.timestamp("s", "UTC"),
        pa.map_(pa.int8(), pa.int8()),
    ],
)
def test_what_an_array_cannot_hold_is_refused_before_the_first_byte(
    kind: Any, tmp_path: Path
) -> None:
    with pytest.raises(ps.SchemaError, match="field 'x'"):
        written(pa.table({"x": pa.array([], kind)}), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_null_is_refused_with_its_record_except_in_times(tmp_path: Path) -> None:
    numbers = pa.chunked_array([[1, 2], [3, None]])
    with pytest.raises(ps.SchemaError, match="record 3, field 'data'"):
        written(pa.table({"data": numbers}), tmp_path)
    assert not list(tmp_path.iterdir())
    times = pa.array([5, None], pa.timestamp("ms"))
    found = written(pa.table({"data": times}), tmp_path)
    assert found.tolist() == np.array([5, "NaT"], "M8[ms]").tolist()
    assert pa.table(ps.open(str(tmp_path / "w.npy")))["data"].to_pylist() == times.to_pylist()


def test_marked_bits_come_back_with_their_mark(tmp_path: Path) -> None:
    for kind, name in (
        (pa.uint16(), b"bfloat16"),
        (pa.fixed_shape_tensor(pa.float32(), [2]), b"complex64"),
    ):
        field = pa.field("data", kind, metadata={DTYPE_KEY: name})
        storage = (
            pa.array([1, 2], pa.uint16())
            if name == b"bfloat16"
            else fixed_tensors(np.ones((2, 2), "f4"))
        )
        written(pa.table([storage], pa.schema([field])), tmp_path)
        assert (
            ps.open(str(tmp_path / "w.npy")).schema.field("data").equals(field, check_metadata=True)
        )


def test_names_beyond_latin_1_make_version_3(tmp_path: Path) -> None:
    found = written(pa.table({"日": [1], "b": [2]}), tmp_path)
    assert found.dtype.names == ("日", "b")
    assert (tmp_path / "w.npy").read_bytes()[6] == 3

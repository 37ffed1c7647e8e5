"""A record's tensors are NumPy arrays with their shape and dtype, as in a loader's batch."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.columns.records import rows_of
from penstock.columns.types import VariableShapeTensorType


def _ways(path: Path, **options: Any) -> list[dict[str, Any]]:
    ds = ps.open(path, **options)
    again = pickle.loads(pickle.dumps(ds))
    return [ds[1], list(ds)[1], ds.__getitems__([0, 1])[1], again[-1]]


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16", "float32", "bool"])
@pytest.mark.parametrize("ending", ["parquet", "arrow", "npz", "h5", "tar", "msgpack"])
def test_formats_that_store_tensors(tmp_path: Path, ending: str, dtype: str) -> None:
    given = np.arange(24).reshape(2, 2, 3, 2).astype(dtype)
    ps.write({"m": given, "n": [1, 2]}, tmp_path / f"m.{ending}")
    for record in _ways(tmp_path / f"m.{ending}"):
        assert isinstance(record["m"], np.ndarray) and record["n"] == 2
        assert record["m"].dtype == given.dtype and record["m"].flags.writeable
        np.testing.assert_array_equal(record["m"], given[1])


def test_tensors_of_examples(tmp_path: Path) -> None:
    ps.write(
        {"m": [[1, 2, 3, 4], [5, 6, 7, 8]], "s": [[b"a", b"b"], [b"c", b""]]},
        tmp_path / "m.tfrecord",
    )
    schema = {"m": ps.features.FixedLen([2, 2], "int64"), "s": ps.features.FixedLen([2], "string")}
    for record in _ways(tmp_path / "m.tfrecord", schema=schema):
        assert record["m"].tolist() == [[5, 6], [7, 8]]
        assert record["s"].dtype == object and record["s"].tolist() == [b"c", b""]


def test_missing_tensors_and_slices() -> None:
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12).reshape(4, 3))
    column = tensors.take(pa.array([0, None, 2, 3]))
    rows = rows_of(pa.record_batch({"m": column}).slice(1, 2))
    assert rows[0]["m"] is None and rows[1]["m"].tolist() == [6, 7, 8]


def test_tensors_in_lists_and_structs() -> None:
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12).reshape(3, 2, 2))
    mask = pa.array([False, False, True, False])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 1, 1, 3]), tensors, mask=mask)
    structs = pa.StructArray.from_arrays([lists.slice(0, 3), tensors], ["l", "t"])
    rows = rows_of(pa.record_batch({"l": lists}))
    assert [None if r["l"] is None else [t.tolist() for t in r["l"]] for r in rows] == [
        [[[0, 1], [2, 3]]], [], None, [[[4, 5], [6, 7]], [[8, 9], [10, 11]]]
    ]  # fmt: skip
    rows = rows_of(pa.record_batch({"s": structs}).slice(1))
    assert rows[0]["s"]["l"] == [] and rows[1]["s"]["l"] is None
    assert [r["s"]["t"].tolist() for r in rows] == [[[4, 5], [6, 7]], [[8, 9], [10, 11]]]


def test_tensors_of_many_shapes() -> None:
    type_ = VariableShapeTensorType(pa.int16(), 2)
    storage = pa.array(
        [{"data": [1, 2, 3, 4, 5, 6], "shape": [2, 3]}, None, {"data": [7], "shape": [1, 1]}],
        type_.storage_type,
    )
    rows = rows_of(pa.record_batch({"v": pa.ExtensionArray.from_storage(type_, storage)}))
    assert rows[0]["v"].tolist() == [[1, 2, 3], [4, 5, 6]] and rows[0]["v"].dtype == np.int16
    assert rows[1]["v"] is None and rows[2]["v"].tolist() == [[7]]


def test_records_and_batches_agree(tmp_path: Path) -> None:
    for order in ([0, 1, 2], [1, 0, 2], [2, 0, 1]):
        type_ = pa.fixed_shape_tensor(pa.int32(), [2, 3, 4], permutation=order)
        storage = pa.FixedSizeListArray.from_arrays(pa.array(range(48), pa.int32()), 24)
        table = pa.table({"t": pa.ExtensionArray.from_storage(type_, storage)})
        ps.write(table, tmp_path / "t.parquet", overwrite=True)
        ds = ps.open(tmp_path / "t.parquet")
        (batch,) = ps.Loader(ds, 2)
        np.testing.assert_array_equal(np.stack([r["t"] for r in ds]), batch["t"])


def test_torch_collates_them(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    given = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    ps.write({"m": given}, tmp_path / "m.parquet")
    (batch,) = torch.utils.data.DataLoader(ps.open(tmp_path / "m.parquet"), batch_size=2)
    assert batch["m"].numpy().tolist() == given.tolist()

"""How the loader converts columns: one kind of column after another."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import penstock as ps
from penstock import features
from penstock.columns.types import VariableShapeTensorType
from penstock.loader._columns import ArrayOptions, as_arrays


def test_fixed_features_of_strings_are_arrays_of_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"one": [[b"a"], [b"b"]], "two": [[b"c", b""], [b"d\0", b"e"]]}, path)
    schema = {"one": features.FixedLen([1], "string"), "two": features.FixedLen([2, 1], "string")}
    batch = next(iter(ps.Loader(ps.open(path, schema=schema), 2)))
    assert batch["one"].tolist() == [[b"a"], [b"b"]]
    assert batch["two"].tolist() == [[[b"c"], [b""]], [[b"d\0"], [b"e"]]]


def test_tensors_of_text_whose_shapes_differ_are_arrays_of_str() -> None:
    kind = VariableShapeTensorType(pa.string(), 2)
    rows = [{"data": ["a", "b"], "shape": [1, 2]}, {"data": ["c"], "shape": [1, 1]}]
    column = pa.ExtensionArray.from_storage(kind, pa.array(rows, kind.storage_type))
    found = as_arrays(pa.record_batch({"x": column}), ArrayOptions())["x"]
    assert [one.tolist() for one in found] == [[["a", "b"]], [["c"]]]

"""Hints for values that arrays cannot hold: the advice is right for the format that is being written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import SchemaError
from penstock.columns.types import VariableShapeTensorType
from penstock.datasets.open import open as open_dataset
from penstock.verbs.write.write import write


def ragged() -> pa.Table:
    type_ = VariableShapeTensorType(pa.float32(), 2)
    values = [{"data": [1.0, 2.0], "shape": [1, 2]}, {"data": [3.0], "shape": [1, 1]}]
    column = pa.ExtensionArray.from_storage(type_, pa.array(values, type_.storage_type))
    return pa.table({"x": column})


STRUCTS = pa.table({"x": [{"a": 1, "b": "q"}]})
LISTS = pa.table({"x": [["a", "b"]]})


@pytest.mark.parametrize(
    ("table", "ending"),
    [(ragged(), "npz"), (ragged(), "h5"), (STRUCTS, "h5"), (STRUCTS, "npz"), (LISTS, "h5")],
)
def test_the_formats_that_are_advised_hold_the_values(
    tmp_path: Path, table: pa.Table, ending: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        write(table, tmp_path / f"x.{ending}")
    hint = caught.value.hint or ""
    advised = hint.rpartition("write ")[2]
    assert advised in ("Parquet or Arrow", "Arrow, Parquet, MessagePack or a tar")
    assert ("text_length" in hint) == (ending == "npz" and table is STRUCTS)
    assert not list(tmp_path.iterdir())
    endings = {"Parquet": "parquet", "Arrow": "arrow", "MessagePack": "msgpack", "a tar": "tar"}
    for other in re.split(", | or ", advised):
        write(table, tmp_path / f"x.{endings[other]}")
        found = pa.table(open_dataset(tmp_path / f"x.{endings[other]}"))
        (column,) = (name for name in found.column_names if name.startswith("x"))
        assert found.column(column).to_pylist() == table.column("x").to_pylist()


def test_an_advised_option_is_an_option_of_the_format(tmp_path: Path) -> None:
    how: dict[str, Any] = {"text_length": 8}
    write(STRUCTS, tmp_path / "x.npz", **how)
    assert pa.table(open_dataset(tmp_path / "x.npz")).to_pylist() == STRUCTS.to_pylist()

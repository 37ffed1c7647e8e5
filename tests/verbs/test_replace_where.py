"""`replace_fields` with a condition: the chosen records get new values, the others keep theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps

COUNT = 400
TABLE = pa.table(
    {
        "id": np.arange(COUNT),
        "label": [None if n % 6 == 0 else n % 5 for n in range(COUNT)],
        "name": [None if n % 4 == 0 else f"name {n}" for n in range(COUNT)],
        "tokens": pa.array([list(range(n % 3)) for n in range(COUNT)], pa.list_(pa.int64())),
    }
)
WHERE = "id % 10 == 3 or label == 4"


def chosen(row: dict[str, Any]) -> bool:
    return row["id"] % 10 == 3 or row["label"] == 4


@pytest.fixture(params=["tfrecord", "parquet", "arrow"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    ps.write(TABLE, tmp_path / f"in.{request.param}", num_shards=3)
    return str(tmp_path / f"in-*.{request.param}")


def rows_of(source: str, **values: Any) -> list[dict[str, Any]]:
    """The expected rows: values are constants, or functions of a row."""
    rows = ps.open(source).to_table().to_pylist()
    for row in filter(chosen, rows):
        row.update({k: v(row) if callable(v) else v for k, v in values.items()})
    return rows


def replaced(source: str, fields: Any, **how: Any) -> list[dict[str, Any]]:
    ps.replace_fields(source, fields, in_place=True, where=WHERE, verify=True, **how)
    return ps.open(source).to_table().to_pylist()


def test_constants_and_arrays(source: str) -> None:
    wanted = rows_of(source, label=9, name="new")
    assert replaced(source, {"label": 9, "name": "new"}) == wanted
    wanted = rows_of(source, label=lambda row: -row["id"])
    assert replaced(source, {"label": -np.arange(COUNT)}) == wanted


def test_none_is_a_null_of_the_type_of_the_field(source: str) -> None:
    before = ps.open(source).schema
    wanted = rows_of(source, label=None, name="new", tokens=None)
    assert replaced(source, {"label": None, "name": "new", "tokens": None}) == wanted
    assert ps.open(source).schema == before


def test_none_stored_beside_the_files_keeps_the_type(source: str) -> None:
    before = ps.open(source).schema
    ps.replace_fields(source, {"name": None, "tokens": None})
    assert ps.open(source).schema.types == before.types
    wanted = [{**row, "name": None, "tokens": None} for row in TABLE.to_pylist()]
    assert ps.open(source).to_table().to_pylist() == wanted
    with pytest.raises(ps.SchemaError, match="null has no type") as refused:
        ps.add_fields(source, {"lang": None})
    assert refused.value.field == "lang"


def test_a_function_is_given_the_chosen_records_only(source: str) -> None:
    seen: list[int] = []

    def longer(batch: pa.RecordBatch) -> dict[str, Any]:
        seen.extend(batch["id"].to_pylist())
        return {"tokens": [[n, n] for n in batch["id"].to_pylist()]}

    wanted = rows_of(source, tokens=lambda row: [row["id"]] * 2)
    assert replaced(source, longer, reads=["id"]) == wanted
    assert set(seen) == {row["id"] for row in TABLE.to_pylist() if chosen(row)}


def test_a_table_needs_rows_for_the_chosen_records_only(source: str) -> None:
    ids = [row["id"] for row in TABLE.to_pylist() if chosen(row)]
    table = pa.table({"id": ids, "label": [100 + n for n in ids]})
    wanted = rows_of(source, label=lambda row: 100 + row["id"])
    assert replaced(source, table, by="id") == wanted
    fewer = table.slice(0, ids.index(393))
    with pytest.raises(ps.SchemaError, match="no row for 393") as caught:
        replaced(source, fewer, by="id")
    assert caught.value.record == 393 - int(ps.open(source).files.firsts[2])


def test_a_condition_without_records_changes_nothing(source: str) -> None:
    before = ps.open(source).to_table().to_pylist()
    ps.replace_fields(source, {"label": 1}, in_place=True, where="id < 0")
    assert ps.open(source).to_table().to_pylist() == before


def test_expressions_and_functions_are_conditions_too(source: str) -> None:
    import pyarrow.compute as pc

    wanted = [row["label"] if row["id"] >= 5 else 7 for row in TABLE.to_pylist()]
    ps.replace_fields(source, {"label": 7}, in_place=True, where=pc.field("id") < 5)
    assert ps.open(source).to_table()["label"].to_pylist() == wanted
    ps.replace_fields(
        source, {"label": 8}, in_place=True, where=lambda batch: batch["id"].to_numpy() < 5
    )
    assert ps.open(source).to_table()["label"].to_pylist() == [8] * 5 + wanted[5:]


def test_values_of_another_type_are_refused(source: str) -> None:
    with pytest.raises(ps.SchemaError, match="field 'label': the new values do not fit the type"):
        ps.replace_fields(source, {"label": "text"}, in_place=True, where="id < 5")
    with pytest.raises(ps.SchemaError, match="no such column"):
        ps.replace_fields(source, {"label": 1}, in_place=True, where="nothing < 5")
    with pytest.raises(ValueError, match="expected `==`"):
        ps.replace_fields(source, {"label": 1}, in_place=True, where="id = 5")

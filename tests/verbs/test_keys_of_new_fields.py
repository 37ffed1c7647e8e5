"""The keys of a table with new fields are checked before any file is changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps


@pytest.mark.parametrize("ending", ["tfrecord", "parquet"])
@pytest.mark.parametrize("how", ["in_place", "into", "beside"])
@pytest.mark.parametrize("verb", ["add", "add with a constant", "replace", "replace where"])
def test_all_keys_are_checked_before_the_first_file_is_written(
    tmp_path: Path, ending: str, how: str, verb: str
) -> None:
    paths = [tmp_path / f"{name}.{ending}" for name in "abc"]
    for n, path in enumerate(paths):
        ps.write({"id": [2 * n, 2 * n + 1], "old": [0, 0]}, path, index=False)
    before = [path.read_bytes() for path in paths]
    name = "new" if verb.startswith("add") else "old"
    table = pa.table({"id": [0, 1, 2, 3, 4, 5], name: [5, 6, 7, 8, 9, 10]})
    given: dict[str, Any] = {"name": "mine"} if how == "beside" else {}
    places: dict[str, dict[str, Any]] = {
        "in_place": {"in_place": True},
        "into": {"into": tmp_path / "out"},
        "beside": {},
    }

    def call(rows: pa.Table) -> None:
        if verb == "add with a constant":
            fields: dict[str, Any] = {column: rows[column] for column in rows.column_names}
            ps.add_fields(paths, {**fields, "one": 1}, by="id", **places[how], **given)
        elif verb == "add":
            ps.add_fields(paths, rows, by="id", **places[how], **given)
        else:
            where: dict[str, Any] = {"where": "id > 0"} if verb == "replace where" else {}
            ps.replace_fields(paths, rows, by="id", **places[how], **where)

    lacking = table.slice(0, 5)
    with pytest.raises(ps.SchemaError, match="the table has no row for 5") as caught:
        call(lacking)
    assert (caught.value.file, caught.value.record) == (str(paths[2]), 1)
    assert [path.read_bytes() for path in paths] == before
    assert not list(tmp_path.glob(f"out/*.{ending}"))
    assert ps.overlays(paths) == []
    call(table)  # the complete table can be used after that
    found = ps.open(tmp_path / "out" if how == "into" else paths).to_table()
    expected = [0 if verb == "replace where" else 5, 6, 7, 8, 9, 10]
    assert found[name].to_pylist() == expected


@pytest.mark.parametrize("ending", ["csv", "tsv"])
@pytest.mark.parametrize("target", ["tfrecord", "parquet"])
def test_a_csv_file_is_a_table(ending: str, target: str, tmp_path: Path) -> None:
    """Columns that the records have get their types: the key 007 is a text, and labels have int32."""
    path = tmp_path / f"a.{target}"
    labels = pa.array([1, 2, 3], pa.int32())
    ps.write(pa.table({"id": ["007", "008", "7"], "label": labels}), path)
    lines = ["id,label,note", '008,5,"a, b\tc"', "007,6,"]
    mark = {"csv": ",", "tsv": "\t"}[ending]
    lines[::2] = [line.replace(",", mark) for line in lines[::2]]
    lines[1] = lines[1].replace("008,5,", f"008{mark}5{mark}")
    (tmp_path / f"new.{ending}").write_text("\n".join(lines))
    how = {"by": "id", "missing": "null", "in_place": True, "replace": True}
    ps.add_fields(path, tmp_path / f"new.{ending}", **how)
    found = ps.open(path, types={"id": "string", "note": "string"})
    assert found.to_table(["id", "label", "note"]).to_pydict() == {
        "id": ["007", "008", "7"],
        "label": [6, 5, None],
        "note": [None, "a, b\tc", None],
    }

"""How a table of new values fits the records is told, and an empty cell of a CSV file removes nothing silently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps


@pytest.fixture(params=["tfrecord", "parquet"])
def source(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    rows = {"id": range(6), "label": [n % 2 for n in range(6)], "text": list("abcdef")}
    ps.write(rows, f"data.{request.param}", num_shards=2)
    return f"data-*.{request.param}"


def values(source: str, name: str) -> list[Any]:
    found = ps.open(source).to_table()[name].to_pylist()
    return [one.decode() if isinstance(one, bytes) else one for one in found]


def test_a_table_is_compared_with_the_records(source: str) -> None:
    table = pa.table({"id": [1, 4, 70, 80], "label": [7, 8, 9, 9]})
    made = ps.replace_fields(source, table, by="id", missing="keep", in_place=True)
    assert made.notes == ("2 of 6 records got new values; 2 rows of the table match no record",)
    assert values(source, "label") == [0, 7, 0, 1, 8, 1]
    made = ps.replace_fields(source, table.slice(0, 2), by="id", missing="keep")
    assert made.notes == ("2 of 6 records got new values",)
    added = pa.table({"id": [1, 70], "score": [0.5, 0.5]})
    made = ps.add_fields(source, added, by="id", missing="null")
    note = "1 of 6 records got new values and 5 got null; 1 row of the table matches no record"
    assert made.notes == (note,)


def test_the_records_that_fulfil_a_condition_are_counted(source: str) -> None:
    made = ps.replace_fields(source, {"label": 5}, where="id < 2", in_place=True)
    assert made.notes == ("2 of 6 records got new values",)
    table = pa.table({"id": [0, 3], "label": [1, 1]})
    made = ps.replace_fields(source, table, by="id", missing="keep", where="id < 2", into="new/")
    assert made.notes == ("1 of 2 records got new values; 1 row of the table matches no record",)


@pytest.mark.parametrize("missing", ["keep", "null"])
def test_a_table_of_which_no_key_matches_is_an_error(source: str, missing: str) -> None:
    table = pa.table({"id": [70], "label": [7]})
    before = values(source, "label")
    with pytest.raises(ps.SchemaError, match="no row of the table has the key of a record"):
        ps.replace_fields(source, table, by="id", missing=missing, in_place=True)
    assert values(source, "label") == before


def test_an_empty_cell_of_a_csv_is_refused_or_keeps_the_value_or_removes_it(source: str) -> None:
    cells = "".join(f"{n},{'' if n == 1 else 9},{'' if n == 2 else 'z'}\n" for n in range(6))
    Path("new.csv").write_text("id,label,text\n" + cells)
    with pytest.raises(ps.SchemaError, match="empty cell") as refused:
        ps.replace_fields(source, "new.csv", by="id", in_place=True)
    assert refused.value.field == "label"
    assert values(source, "label") == [0, 1, 0, 1, 0, 1]
    ps.replace_fields(source, "new.csv", by="id", missing="keep", into="kept/")
    assert values("kept/", "label") == [9, 1, 9, 9, 9, 9]
    assert values("kept/", "text") == ["z", "z", "c", "z", "z", "z"]
    ps.replace_fields(source, "new.csv", by="id", missing="null", into="removed/")
    assert values("removed/", "label") == [9, None, 9, 9, 9, 9]


def test_records_that_got_only_nulls_are_not_counted_as_new_values(source: str) -> None:
    Path("q.csv").write_text("id,q\n1,0.5\n2,\n4,\n")
    made = ps.add_fields(source, "q.csv", by="id", missing="null", into="added/")
    assert made.notes == ("1 of 6 records got new values and 5 got null",)
    assert values("added/", "q") == [None, 0.5, None, None, None, None]
    Path("label.csv").write_text("id,label\n1,7\n2,\n4,\n")
    made = ps.replace_fields(source, "label.csv", by="id", missing="keep", into="kept/")
    assert made.notes == ("1 of 6 records got new values",)
    assert values("kept/", "label") == [0, 7, 0, 1, 0, 1]
    Path("two.csv").write_text("id,label,text\n1,7,\n2,,z\n4,,\n")
    made = ps.replace_fields(source, "two.csv", by="id", missing="keep", into="two/")
    assert made.notes == ("2 of 6 records got new values",)


def test_a_key_may_have_another_name_in_the_table(source: str) -> None:
    table = pa.table({"score": [0.5 * n for n in range(6)], "number": [5, 4, 3, 2, 1, 0]})
    ps.add_fields(source, table, by={"id": "number"}, in_place=True)
    assert values(source, "score") == [2.5, 2.0, 1.5, 1.0, 0.5, 0.0]
    ps.replace_fields(source, table, by={"id": "number"}, columns=["score"], into="new/")
    with pytest.raises(ps.SchemaError, match="no such column; it has: score, number") as error:
        ps.replace_fields(source, table, by="id")
    assert error.value.hint == "by={'field': 'column'} joins by columns of two names"
    both = table.append_column("id", table["number"])
    with pytest.raises(ps.SchemaError, match="besides the key"):
        ps.replace_fields(source, both, by={"id": "number"})
    ps.replace_fields(source, both, by={"id": "number"}, columns=["score"], into="newer/")
    with pytest.raises(ValueError, match="takes one key"):
        ps.replace_fields(source, table, by={})


def test_digits_of_a_csv_are_not_lost(source: str) -> None:
    rows = ["id,code,count,big,half"]
    rows += [f"{n},00{n},{n},1234567890123456789{n}0,{n}.5" for n in range(6)]
    Path("codes.csv").write_text("\n".join(rows))
    ps.add_fields(source, "codes.csv", by="id", into="added/")
    assert values("added/", "code") == [f"00{n}" for n in range(6)]
    assert values("added/", "big") == [f"1234567890123456789{n}0" for n in range(6)]
    assert values("added/", "count") == list(range(6))
    assert values("added/", "half") == [n + 0.5 for n in range(6)]


def test_a_key_of_a_csv_has_the_type_of_the_key_of_the_records(source: str) -> None:
    ps.add_fields(source, {"name": [f"00{n}" for n in range(6)]}, into="named/")
    Path("scores.csv").write_text("".join(["key,score\n", *(f"00{n},{n}\n" for n in range(6))]))
    ps.add_fields("named/", "scores.csv", by={"name": "key"}, into="scored/")
    assert values("scored/", "score") == list(range(6))


def test_a_csv_with_two_columns_of_one_name_is_refused(source: str) -> None:
    Path("twice.csv").write_text("id,x,x\n1,2,3\n")
    with pytest.raises(ps.SchemaError, match="two columns of this name") as error:
        ps.add_fields(source, "twice.csv", by="id")
    assert (error.value.field, error.value.file) == ("x", "twice.csv")

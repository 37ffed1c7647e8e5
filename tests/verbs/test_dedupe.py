"""Laws of `dedupe`: of equal records the first one stays, and the order does not change, as with a Python set of seen
records."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps

NAN = float("nan")
VALUES = st.one_of(
    st.none(),
    st.sampled_from([0.0, -0.0, 1.5, NAN, math.inf]),
    st.floats(width=32, allow_nan=False),
)
ROWS = st.fixed_dictionaries(
    {
        "id": st.integers(0, 5),
        "x": VALUES,
        "name": st.one_of(st.none(), st.sampled_from(["", "a", "b", "a\0"])),
        "tokens": st.one_of(st.none(), st.lists(st.integers(-1, 1), max_size=2)),
    }
)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("x", pa.float64()),
        ("name", pa.string()),
        ("tokens", pa.list_(pa.int64())),
        ("row", pa.int64()),
    ]
)


def key_of(value: Any) -> Any:
    """A key that Python can compare: NaN equals NaN, and lists are compared by their elements."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return tuple(value) if isinstance(value, list) else value


def first_rows(rows: list[dict[str, Any]], by: list[str]) -> list[dict[str, Any]]:
    seen: set[Any] = set()
    kept: list[dict[str, Any]] = []
    for row in rows:
        key = tuple(key_of(row[name]) for name in by)
        if key not in seen:
            seen.add(key)
            kept.append(row)
    return kept


@settings(deadline=None, max_examples=60)
@given(
    st.lists(ROWS, max_size=30),
    st.sampled_from([["id"], ["x"], ["name"], ["tokens"], ["id", "x"], ["name", "tokens", "x"]]),
    st.integers(1, 4),
)
def test_the_first_of_equal_records_stay(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], by: list[str], shards: int
) -> None:
    folder = tmp_path_factory.mktemp("dedupe")
    rows = [{**row, "row": n} for n, row in enumerate(rows)]
    ps.write(pa.Table.from_pylist(rows, SCHEMA), folder / "in.arrow", num_shards=shards)
    made = ps.dedupe(folder / "in-*.arrow", by, into=folder / "out.arrow")
    found = ps.open(folder / "out.arrow").to_table()["row"].to_pylist()
    assert found == [row["row"] for row in first_rows(rows, by)]
    assert made.num_records == len(found)


@pytest.mark.parametrize("ending", ["tfrecord", "parquet", "arrow", "msgpack"])
def test_without_columns_whole_records_are_compared(ending: str, tmp_path: Path) -> None:
    rows = [{"a": n % 5, "b": "x" * (n % 3), "c": [n % 2] * 2} for n in range(200)]
    ps.write(pa.Table.from_pylist(rows), tmp_path / f"in.{ending}", num_shards=2)
    ps.dedupe(tmp_path / f"in-*.{ending}", into=tmp_path / f"out.{ending}")
    found = ps.open(tmp_path / f"out.{ending}").to_table().to_pylist()
    assert found == rows[:30]


def test_equal_tars_are_duplicates_wherever_they_lie(tmp_path: Path) -> None:
    rows = {"__key__": ["a", "b"], "text": ["x", "y"]}
    ps.write(rows, tmp_path / "0.tar")
    (tmp_path / "1.tar").write_bytes((tmp_path / "0.tar").read_bytes())
    made = ps.dedupe(tmp_path / "*.tar", into=tmp_path / "all.arrow")
    assert made.notes[-1] == "compared 2 columns: __key__, text"
    found = ps.open(tmp_path / "all.arrow").to_table(["__key__", "text"])
    assert found.to_pydict() == rows


def test_a_key_names_a_record_of_a_tar(tmp_path: Path) -> None:
    ps.write({"__key__": ["a", "b"], "text": ["x", "x"]}, tmp_path / "0.tar")
    ps.write({"__key__": ["a", "b"], "text": ["x", "y"]}, tmp_path / "1.tar")

    def deduped(by: list[str] | None) -> list[tuple[str, str]]:
        ps.dedupe(tmp_path / "?.tar", by, into=tmp_path / "out.arrow", overwrite=True)
        return [(row["__key__"], row["text"]) for row in ps.open(tmp_path / "out.arrow")]

    assert deduped(None) == [("a", "x"), ("b", "x"), ("b", "y")]
    assert deduped(["text"]) == [("a", "x"), ("b", "y")]
    assert deduped(["__key__"]) == [("a", "x"), ("b", "x")]


def test_a_column_of_another_format_may_be_called_like_the_place(tmp_path: Path) -> None:
    ps.write({"__url__": ["a", "b", "a"]}, tmp_path / "0.parquet")
    made = ps.dedupe(tmp_path / "0.parquet", into=tmp_path / "out.parquet")
    assert made.num_records == 2
    assert made.notes == ("1 of 3 records was left out", "compared 1 column: __url__")


def test_notes_count_the_records_left_out_and_those_without_a_value(tmp_path: Path) -> None:
    rows = pa.table({"a": ["x", None, "x", None, None, "y"], "b": [1, 1, 1, 1, None, None]})
    ps.write(rows, tmp_path / "in.parquet", shard_records=2)

    def notes(by: str | list[str]) -> tuple[str, ...]:
        made = ps.dedupe(
            tmp_path / "in-*.parquet", by, into=tmp_path / "out.parquet", overwrite=True
        )
        return made.notes

    assert notes("a") == ("3 of 6 records were left out; 2 of them have no value in a",)
    assert notes("b") == ("4 of 6 records were left out; 1 of them has no value in b",)
    assert notes(["a", "b"]) == ("2 of 6 records were left out",)
    ps.write(rows.slice(4, 1), tmp_path / "in-6.parquet")
    ps.write(rows.slice(4, 1), tmp_path / "in-7.parquet")
    assert notes("a")[0].endswith("4 of them have no value in a")


@settings(deadline=None, max_examples=30)
@given(st.lists(ROWS, max_size=20))
def test_the_counts_in_the_note_are_those_of_the_records(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("counts")
    rows = [{**row, "row": n} for n, row in enumerate(rows)]
    ps.write(pa.Table.from_pylist(rows, SCHEMA), folder / "in.arrow")
    note = ps.dedupe(folder / "in.arrow", "x", into=folder / "out.arrow").notes[0]
    kept = first_rows(rows, ["x"])
    nulls = sum(row["x"] is None for row in rows) - sum(row["x"] is None for row in kept)
    assert note.startswith(f"{len(rows) - len(kept)} of {len(rows)} record")
    assert ("no value in x" in note) is (nulls > 0)
    assert nulls == 0 or f"; {nulls} of them" in note


def test_payloads_pass_from_tfrecord_to_tfrecord_unparsed(tmp_path: Path) -> None:
    ps.write({"id": [3, 1, 3, 2]}, tmp_path / "in.tfrecord")
    ps.dedupe(str(tmp_path / "in.tfrecord"), "id", into=tmp_path / "out.tfrecord")
    payloads = ps.open(tmp_path / "in.tfrecord", raw=True).to_table()["record"].to_pylist()
    kept = ps.open(tmp_path / "out.tfrecord", raw=True).to_table()["record"].to_pylist()
    assert kept == [payloads[n] for n in (0, 1, 3)]


def test_a_column_of_many_values_is_exact(tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(0, 50_000, 100_000)
    ps.write({"id": ids, "row": np.arange(len(ids))}, tmp_path / "in.parquet")
    ps.dedupe(tmp_path / "in.parquet", "id", into=tmp_path / "out.parquet", num_shards=3)
    found = ps.open(tmp_path / "out-*.parquet").to_table()
    _, first = np.unique(ids, return_index=True)
    assert found["row"].to_pylist() == sorted(first.tolist())


def test_mistakes_say_what_to_do_before_anything_is_written(tmp_path: Path) -> None:
    ps.write({"id": [1, 1]}, tmp_path / "in.tfrecord")
    out = tmp_path / "out.tfrecord"
    with pytest.raises(ps.SchemaError, match="there are: id"):
        ps.dedupe(tmp_path / "in.tfrecord", "nothing", into=out)
    with pytest.raises(ValueError, match="names no column"):
        ps.dedupe(tmp_path / "in.tfrecord", [], into=out)
    with pytest.raises(ps.UnsupportedError, match='damage="stop"'):
        ps.dedupe(ps.open(tmp_path / "in.tfrecord", damage="stop"), into=out)
    assert not out.exists()
    ps.dedupe(tmp_path / "in.tfrecord", into=out)
    with pytest.raises(FileExistsError):
        ps.dedupe(tmp_path / "in.tfrecord", into=out)


def test_a_field_that_only_later_records_have_is_not_lost_silently(tmp_path: Path) -> None:
    ps.write({"id": [1] * 2000}, tmp_path / "in-0.tfrecord")
    ps.write({"id": [1], "late": [5]}, tmp_path / "in-1.tfrecord")
    with pytest.raises(ps.SchemaError, match="late"):
        ps.dedupe(tmp_path / "in-*.tfrecord", into=tmp_path / "out.arrow")

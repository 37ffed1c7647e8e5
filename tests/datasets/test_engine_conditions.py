"""Conditions that engines send: which row groups they exclude, and that the same records hold as in pyarrow."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import penstock as ps
from damaged_groups import write_damaged
from penstock.conditions._simple import parts_of

START = dt.datetime(2026, 1, 1)
HOURS = 1000
TYPES = {
    "us": pa.timestamp("us"),
    "ns": pa.timestamp("ns"),
    "seconds": pa.timestamp("s"),
    "zoned": pa.timestamp("us", "Europe/Berlin"),
    "day": pa.date32(),
}


@pytest.fixture
def times(tmp_path: Path) -> Path:
    """Ten row groups of 100 hours each. A page of each but the fourth is damaged, so reading one of them is an error."""
    path = tmp_path / "times.parquet"
    hours = pa.array([START + dt.timedelta(hours=n) for n in range(HOURS)])
    table = {name: hours.cast(kind, safe=False) for name, kind in TYPES.items()}
    every = pa.table({"id": np.arange(HOURS), **table})
    write_damaged(every, path, [*range(3), *range(4, 10)])
    return path


def test_row_groups_are_skipped_by_times(times: Path) -> None:
    ds = ps.open(times)
    low, high = (START + dt.timedelta(hours=n) for n in (350, 360))
    for name, kind in TYPES.items():
        if name == "day":
            continue
        ends = [pa.scalar(one, pa.timestamp("us")).cast(pa.int64()) for one in (low, high)]
        least, most = (
            one.cast(pa.timestamp("us", getattr(kind, "tz", None))).cast(kind) for one in ends
        )
        near = (pc.field(name) >= least) & (pc.field(name) < most)
        assert ds.to_table(["id"], where=near)["id"].to_pylist() == list(range(350, 360)), name
        texts = f'{name} >= "{low.isoformat()}" and {name} < "{high.isoformat()}"'
        assert ds.to_table(["id"], where=texts)["id"].to_pylist() == list(range(350, 360)), name
    day = low.date()
    assert ds.count(pc.field("day") == day) == 24
    assert ds.count(f'day == "{day.isoformat()}"') == 24
    found = ds.to_arrow_dataset()
    query = f"select id from found where us >= timestamp '{low}' and us < timestamp '{high}' order by id"
    assert duckdb.sql(query).fetchall() == [(n,) for n in range(350, 360)]
    close = pl.col("us").is_between(low, high, closed="both")
    assert ds.lazy().filter(close).select("id").collect()["id"].to_list() == list(range(350, 361))
    assert ds.lazy().filter(pl.col("day") == day).select("id").collect().height == 24
    with pytest.raises(ps.ChecksumError):
        ds.to_table(["id"], where=f'us >= "{START.isoformat()}"')


def test_nanoseconds_between_the_microseconds_of_python_are_found(tmp_path: Path) -> None:
    """Statistics of nanoseconds reach Python as microseconds, or with them."""
    stored = pa.array([1_500_000_000_000_000_500, 1_500_000_000_000_000_900], pa.timestamp("ns"))
    pq.write_table(pa.table({"at": stored}), tmp_path / "a.parquet")
    ds = ps.open(tmp_path / "a.parquet")
    for number, count in ((400, 2), (500, 2), (600, 1), (900, 1), (901, 0)):
        value = pa.scalar(1_500_000_000_000_000_000 + number, pa.timestamp("ns"))
        assert ds.count(pc.field("at") >= value) == count
        assert ds.count(pc.field("at") < value) == 2 - count
    assert (
        ds.lazy()
        .filter(pl.col("at") < pl.lit(stored[1].cast(pa.int64()).as_py()).cast(pl.Datetime("ns")))
        .collect()
        .height
        == 1
    )


def test_texts_in_a_list_are_not_ordered_as_times(tmp_path: Path) -> None:
    """As a text, the later of these two is the smaller."""
    at = pa.array([dt.datetime(2026, 1, 1, 1)], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"at": at}), tmp_path / "a.parquet")
    listed = ["2026-01-01T02:30:00+01:30", "2026-01-01T03:00:00+00:00"]
    where = f"at in {listed}".replace("'", '"')
    assert ps.open(tmp_path / "a.parquet").count(where) == 1


NUMBERS = {
    "small": pa.array([1, 2, 3, None, 5], pa.int32()),
    "whole": pa.array([1, -2, 3, 4, None], pa.int64()),
    "single": pa.array([0.1, 2.0, None, float("nan"), 5.0], pa.float32()),
    "double": pa.array([0.1, 2.0, None, float("nan"), -0.0], pa.float64()),
    "text": pa.array(["a", 'b "c" (d == 3)', "é\n", None, ""]),
    "yes": pa.array([True, False, None, True, False]),
    "at": pa.array([0, 1, None, 10**9, 5], pa.timestamp("us", "UTC")),
    "day": pa.array([0, 1, None, 10**4, 5], pa.date32()),
    "bytes": pa.array([b"a", b"b", None, b"c", b"d"]),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_comparison_of_engines_holds_for_the_records_that_arrow_finds(
    name: str, tmp_path: Path
) -> None:
    table = pa.table({"id": range(5), **NUMBERS})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    ds, other = ps.open(tmp_path / "a.parquet"), pads.dataset(table)
    field = pc.field(name)
    values: list[Any] = [one for one in NUMBERS[name] if one.is_valid]
    values += (
        [2, 3.5] if pa.types.is_floating(NUMBERS[name].type) or name in ("small", "whole") else []
    )
    for value in values:
        parts = [
            field == value,
            field != value,
            field < value,
            field <= value,
            field > value,
            field >= value,
        ]
        parts += [one & (pc.field("small") < 5) & field.is_valid() for one in parts[:2]]
        parts += [one & (pc.field("whole") < pa.scalar(4)) for one in parts[2:4]]
        for where in [*parts, *(~one for one in parts[:6]), parts[0] | parts[2]]:
            found, expected = ds.to_table(["id"], where), other.to_table(["id"], filter=where)
            assert found["id"].to_pylist() == expected["id"].to_pylist(), str(where)


def test_only_comparisons_that_are_joined_by_and_are_taken_apart() -> None:
    schema = pa.table(NUMBERS).schema
    one, other = pc.field("whole") > 3, pc.field("text") == 'b "c" (d == 3)'
    assert [part.sign for part in parts_of(one & other, schema)] == [">", "=="]
    for where in (
        one | other,
        ~one,
        one & ~other,
        pc.field("whole") + 1 > 3,
        pc.field("none") == 3,
        pc.field("whole").isin([1]),
    ):
        assert parts_of(where, schema) == []


def test_the_tail_of_a_lazy_frame_reads_no_other_records(times: Path, tmp_path: Path) -> None:
    path = tmp_path / "tail.parquet"
    table = pq.read_table(times, columns=["us"])  # whose pages are not damaged
    write_damaged(table.add_column(0, "id", pa.array(np.arange(HOURS))), path, [0])
    lazy = ps.open(path).lazy()
    assert lazy.tail(3).collect()["id"].to_list() == [997, 998, 999]
    assert lazy.tail(3).filter(pl.col("id") > 997).select("id").collect()["id"].to_list() == [
        998,
        999,
    ]
    assert lazy.tail(0).collect().height == 0
    with pytest.raises(ps.ChecksumError):
        lazy.tail(HOURS + 1).collect()
    assert ps.open(path, damage="skip").lazy().tail(2).collect()["id"].to_list() == [998, 999]
    assert lazy.filter(pl.col("id") < 350, pl.col("id") >= 300).tail(2).collect()[
        "id"
    ].to_list() == [348, 349]

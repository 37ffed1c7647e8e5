"""Decimals, as duckdb's sums are, in formats that hold none."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import penstock as ps
from penstock.columns.decimals import Decimals
from penstock.errors import SchemaError

SUM = pa.decimal128(38, 0)
ENDINGS = ("tfrecord", "tar", "msgpack", "npz", "h5", "beton")


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_sum_of_duckdb_is_written_as_int64_and_a_part_as_float64(
    ending: str, tmp_path: Path
) -> None:
    query = "select g, sum(g) s, 0.5 part from (select unnest([1, 2, 2]) g) group by g order by g"
    target = tmp_path / f"a.{ending}"
    made = ps.write(duckdb.sql(query), target)
    assert made.notes[:2] == (
        "field 's': decimal128(38, 0) is stored as int64",
        "field 'part': decimal128(2, 1) is stored as float64",
    )
    table = ps.open(target).to_table()
    assert table["s"].to_pylist() == [1, 4] and table["part"].to_pylist() == [0.5, 0.5]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_conversion_of_decimals_is_proven(ending: str, tmp_path: Path) -> None:
    source, target = tmp_path / "a.parquet", tmp_path / f"a.{ending}"
    ps.write(pa.table({"s": pa.array([Decimal(3), Decimal(4)], SUM)}), source)
    made = ps.convert(source, target, prove=True, exact=True)
    assert "field 's': decimal128(38, 0) is stored as int64" in made.notes
    assert ps.open(target).to_table()["s"].to_pylist() == [3, 4]


def test_a_whole_number_beyond_int64_names_its_record(tmp_path: Path) -> None:
    values = pa.chunked_array([pa.array([1], SUM), pa.array([2, None, 2**63], SUM)])
    with pytest.raises(SchemaError, match=r"9223372036854775808 does not fit int64") as caught:
        ps.write(pa.table({"s": values}), tmp_path / "a.tfrecord")
    assert (caught.value.record, caught.value.field) == (3, "s")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("is_conversion", [False, True])
def test_exact_refuses_a_decimal_that_float64_does_not_hold(
    is_conversion: bool, tmp_path: Path
) -> None:
    table = pa.table({"f": [Decimal("0.5"), None, Decimal("0.1")]})
    with pytest.raises(SchemaError, match=r"float64 does not hold 0\.1") as caught:
        if is_conversion:
            ps.write(table, tmp_path / "a.parquet")
            ps.convert(tmp_path / "a.parquet", tmp_path / "a.msgpack", exact=True)
        else:
            ps.write(table, tmp_path / "a.msgpack", exact=True)
    assert (caught.value.record, caught.value.field) == (2, "f")
    ps.write(table[:2], tmp_path / "b.msgpack", exact=True)


def test_lists_of_decimals_are_converted_and_other_columns_stay() -> None:
    batch = pa.record_batch({"x": [[Decimal(1), None], None], "y": ["a", "b"]})
    found = Decimals(batch.schema, exact=True)
    assert next(found.convert([batch])).to_pydict() == {"x": [[1, None], None], "y": ["a", "b"]}
    assert not Decimals(batch.select(["y"]).schema, exact=True)


def test_parquet_and_arrow_keep_decimals(tmp_path: Path) -> None:
    table = pa.table({"s": pa.array([2**70], SUM)})
    for name in ("a.parquet", "a.arrow"):
        assert ps.write(table, tmp_path / name).notes == ()
        assert ps.open(tmp_path / name).to_table()["s"].type == SUM

"""Laws of `sort`: the order is that of Python's stable sort, with NaN after numbers and null last."""

from __future__ import annotations

import datetime as dt
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.verbs.choose._order import order_by

NAN = float("nan")
TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int64": (pa.int64(), st.one_of(st.integers(-3, 3), st.integers(-(1 << 63), (1 << 63) - 1))),
    "uint64": (pa.uint64(), st.one_of(st.integers(0, 3), st.integers(0, (1 << 64) - 1))),
    "float64": (pa.float64(), st.one_of(st.sampled_from([0.0, -0.0, NAN]), st.floats())),
    "float32": (pa.float32(), st.floats(width=32)),
    "float16": (pa.float16(), st.floats(width=16)),
    "bool": (pa.bool_(), st.booleans()),
    "string": (pa.string(), st.text(max_size=3)),
    "string_view": (pa.string_view(), st.text(max_size=3)),
    "binary": (pa.binary(), st.binary(max_size=3)),
    "fixed": (pa.binary(2), st.binary(min_size=2, max_size=2)),
    "date": (pa.date32(), st.dates()),
    "timestamp": (
        pa.timestamp("us"),
        st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1)),
    ),
    "decimal": (pa.decimal128(5, 2), st.decimals(-100, 100, places=2)),
    "label": (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["b", "a", "c"])),
    "null": (pa.null(), st.none()),
}


def key_of(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def python_order(values: list[Any], *, descending: bool) -> list[int]:
    """Python's stable sort, also with reverse=True."""
    rows = range(len(values))
    nulls = [n for n in rows if values[n] is None]
    nans = [n for n in rows if isinstance(values[n], float) and math.isnan(values[n])]
    rest = sorted(set(rows).difference(nulls, nans))
    return [*sorted(rest, key=lambda n: key_of(values[n]), reverse=descending), *nans, *nulls]


@settings(deadline=None, max_examples=40)
@given(st.data(), st.booleans())
@pytest.mark.parametrize("kind", sorted(TYPES))
def test_the_order_is_that_of_python_s_stable_sort(
    kind: str, data: st.DataObject, descending: bool
) -> None:
    type_, strategy = TYPES[kind]
    values = data.draw(st.lists(st.one_of(st.none(), strategy), max_size=40))
    cut = data.draw(st.integers(0, len(values)))
    chunks = [pa.array(part, type_) for part in (values[:cut], values[cut:])]
    column = pa.chunked_array(chunks, type_)
    given_back = column.to_pylist()
    found = order_by(pa.table({"x": column}), descending=descending).tolist()
    assert found == python_order(given_back, descending=descending)


def test_a_second_column_decides_if_the_first_is_equal() -> None:
    rows = [{"a": n % 3, "b": -(n % 7), "row": n} for n in range(100)]
    table = pa.Table.from_pylist(rows).select(["a", "b"])
    found = order_by(table, descending=False).tolist()
    assert found == sorted(range(100), key=lambda n: (rows[n]["a"], rows[n]["b"]))


@pytest.mark.parametrize("ending", ["tfrecord", "parquet", "arrow", "msgpack"])
@pytest.mark.parametrize("descending", [False, True])
def test_files_are_written_in_that_order(ending: str, descending: bool, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    values = [None if n % 9 == 0 else NAN if n % 8 == 0 else n % 50 / 2 for n in range(600)]
    names = [None if n % 11 == 0 else f"name {random.integers(100)}" for n in range(600)]
    table = pa.table({"x": pa.array(values, pa.float32()), "name": names, "row": range(600)})
    ps.write(table, tmp_path / f"in.{ending}", num_shards=3)
    source = str(tmp_path / f"in-*.{ending}")
    for column, given_values in (("x", values), ("name", names)):
        out = tmp_path / f"{column}.{ending}"
        made = ps.sort(source, column, into=out, descending=descending, num_shards=2, prove=True)
        assert made.num_records == 600
        found = ps.open(list(made.paths)).to_table()["row"].to_pylist()
        assert found == python_order(given_values, descending=descending)


def test_mistakes_say_what_to_do_before_anything_is_written(tmp_path: Path) -> None:
    ps.write({"id": [2, 1], "tokens": [[1], [2]]}, tmp_path / "in.arrow")
    out = tmp_path / "out.arrow"
    with pytest.raises(ps.SchemaError, match="there are: id, tokens"):
        ps.sort(tmp_path / "in.arrow", "nothing", into=out)
    with pytest.raises(ps.SchemaError, match="have no order"):
        ps.sort(tmp_path / "in.arrow", "tokens", into=out)
    with pytest.raises(ps.UnsupportedError, match='damage="stop"'):
        ps.sort(ps.open(tmp_path / "in.arrow", damage="stop"), "id", into=out)
    assert not out.exists()

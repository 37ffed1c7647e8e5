"""Casts of decimals to floats, compared with Python's."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.columns.nearest import cast

DIGITS = {pa.decimal32: 9, pa.decimal64: 18, pa.decimal128: 38, pa.decimal256: 76}


@st.composite
def decimals(draw: st.DrawFn) -> pa.Array:
    kind, most = draw(st.sampled_from([*DIGITS.items()]))
    precision = draw(st.integers(1, most))
    scale = draw(st.integers(-3, precision))
    whole = st.integers(-(10**precision) + 1, 10**precision - 1)
    numbers = draw(st.lists(whole | st.none(), max_size=5))
    texts = [None if number is None else f"{number}e{-scale}" for number in numbers]
    values = [None if text is None else Decimal(text) for text in texts]
    return pa.array(values, kind(precision, scale)).slice(draw(st.integers(0, 2)))


@given(decimals())
def test_a_decimal_becomes_the_nearest_float(array: pa.Array) -> None:
    wanted = [None if one is None else float(one) for one in array.to_pylist()]
    assert cast(array, pa.float64()).to_pylist() == wanted


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list, lambda type_: pa.list_(type_, 2)])
def test_decimals_in_lists_become_the_nearest_floats(kind: Any) -> None:
    prices: list[Any] = [[Decimal(1)] * 2, None, [Decimal("7077.40"), None]]
    given = pa.array(prices, kind(pa.decimal128(12, 2)))
    for first in range(3):
        found = cast(given.slice(first), kind(pa.float64()))
        assert found.to_pylist() == [[1.0, 1.0], None, [7077.4, None]][first:]
    pair = pa.array([{"a": Decimal("7077.40"), "b": 1}, None])
    type_ = pa.struct([("a", pa.float64()), ("b", pa.int8())])
    assert cast(pair, type_).to_pylist() == [{"a": 7077.4, "b": 1}, None]


def test_every_cast_of_decimals_gives_the_nearest_floats(tmp_path: Path) -> None:
    texts = [f"{n * 37}.{n % 100:02}" for n in range(1, 1000)]
    wanted = [float(text) for text in texts]
    data = {"p": pa.array(texts).cast(pa.decimal128(12, 2))}
    path = tmp_path / "a.parquet"
    ps.write(data, path)
    assert ps.open(path, types={"p": "float64"}).to_table()["p"].to_pylist() == wanted
    computed = ps.open(path).with_columns({"q": 'cast(p, "float64")'})
    assert computed.to_table(["q"])["q"].to_pylist() == wanted
    ps.write(data, tmp_path / "a.npz")  # which holds no decimals
    assert ps.open(tmp_path / "a.npz").to_table()["p"].to_pylist() == wanted
    ps.convert(path, tmp_path / "b.h5", types={"p": "float64"}, prove=True)
    assert ps.open(tmp_path / "b.h5").to_table()["p"].to_pylist() == wanted

"""Hints about batches and rows that are beyond a limit."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from steps import Case, Cases, rows

import penstock as ps
from penstock.formats.beton import _values as beton_values


def _long_values() -> ps.Dataset:
    ps.write({"a": [b"x" * 9] * 3}, "a.beton")
    return ps.open("a.beton")


def _one_by_one(dataset: ps.Dataset) -> None:
    assert [dataset.take([place])["a"].to_pylist() for place in range(3)] == [[b"x" * 9]] * 3
    (batch, *_) = dataset.scan(batch_records=1)
    assert batch.num_rows == 1
    assert [batch["a"] for batch in ps.Loader(dataset, 1)] == [[b"x" * 9]] * 3


def beyond_offsets() -> Case:
    dataset = _long_values()

    def small(call: Callable[[], Any]) -> Callable[[], Any]:
        def under() -> Any:
            with pytest.MonkeyPatch.context() as patch:  # 2 GiB are too much for a test
                patch.setattr(beton_values, "_MOST_OFFSET", 20)
                return call()

        return under

    return Case(small(lambda: dataset.take([0, 1, 2])), small(lambda: _one_by_one(dataset)))


def _in_parquet(name: str, low: int, value: Any) -> Case:
    """A limit of Parquet that one column exceeds and another does not."""
    ps.write({"a": [value], "b": [1]}, "a.parquet")

    def read(limit: int, **options: Any) -> list[Any]:
        return rows("a.parquet", limits={name: limit}, **options)

    with pytest.raises(ps.LimitError) as refused:
        read(low)
    told = re.fullmatch(
        rf"open\(..., limits={{'{name}': (\d+)}}\), or read other columns", str(refused.value.hint)
    )
    assert told is not None, refused.value.hint

    def raised() -> None:
        assert read(int(told[1])) == [{"a": value, "b": 1}]
        assert read(low, columns=["b"]) == [{"b": 1}]

    return Case(lambda: read(low), raised, told[0])


def rows_that_weigh_much() -> Case:
    return _in_parquet("batch_bytes", 999, list(range(9_999)))


CASES: Cases = {
    "'fewer records at once: a smaller batch_size, batch_records or take'": beyond_offsets,
    "f\"{raise_limit('batch_bytes', self.row_bytes)}, or read other columns\"": rows_that_weigh_much,
}

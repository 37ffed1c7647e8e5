"""`ds.lazy()`: a dataset as a polars LazyFrame that reads only the columns and records a query needs.

Specification: https://docs.pola.rs/user-guide/plugins/io_plugins/
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from datetime import date, datetime
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source

from penstock.columns.types import is_text, storage_of
from penstock.conditions import Bound, Comparison, Filter, Part
from penstock.datasets.dataset import Dataset
from penstock.limits import checked_count


def lazy_frame(dataset: Dataset) -> pl.LazyFrame:
    """Return a LazyFrame over a dataset. polars calls `_frames` when a query is collected."""
    found = _source(partial(_frames, dataset), dataset)
    if dataset.options.damage == "error":
        vars(found)["tail"] = partial(_tail, dataset)
    return found


def _source(frames: Any, dataset: Dataset) -> pl.LazyFrame:
    schema = _frame(pa.Table.from_batches([], dataset.schema)).schema
    return register_io_source(frames, schema=schema, is_pure=True)


def _tail(dataset: Dataset, n: int = 5) -> pl.LazyFrame:
    """`tail` of a frame of all records. It reads no others, although polars asks a source for records from the front
    only. Frames that are made of that frame have the `tail` of polars."""
    return _source(partial(_last_frames, dataset, checked_count("n", n, 0)), dataset)


def _last_frames(dataset: Dataset, n: int, *asked: Any) -> Iterator[pl.DataFrame]:
    """`_frames` of the last `n` records."""
    numbers = np.arange(max(len(dataset) - n, 0), len(dataset))
    return _frames(dataset.subset(numbers), *asked)


def _frames(
    dataset: Dataset,
    with_columns: list[str] | None,
    predicate: pl.Expr | None,
    n_rows: int | None,
    batch_size: int | None,  # noqa: ARG001  polars passes it
) -> Iterator[pl.DataFrame]:
    """Yield the records of a query.

    Args:
        dataset: the data.
        with_columns: the columns that the query uses; None for all.
        predicate: only records for which this holds.
        n_rows: the most records to read, before `predicate`.
        batch_size: not used. It is a hint, and to collect that many records would read far more than `head` needs.
    """
    wanted = dataset.schema.names if with_columns is None else with_columns
    reads = [] if predicate is None else predicate.meta.root_names()
    columns = list(dict.fromkeys([*wanted, *reads]))
    left = n_rows
    # A limit counts the records before the predicate.
    if predicate is not None and n_rows is None and (bounds := _bounds(predicate, dataset)):
        every = Filter(lambda batch: np.ones(batch.num_rows, bool), [], tuple(bounds))
        dataset = dataset.filter(every)
    for batch in dataset.cautious_scan(None if with_columns is None else columns):
        if left is not None:
            batch = batch.slice(0, left)
            left -= batch.num_rows
        frame = _frame(batch)
        if predicate is not None:
            frame = frame.filter(predicate)
        yield frame.select(wanted)
        if left == 0:
            return


def _bounds(predicate: pl.Expr, dataset: Dataset) -> list[Bound]:
    """Return what a predicate requires of single columns. Files and row groups that contradict it are not read. polars
    evaluates the predicate on the others. It is not evaluated on threads of penstock, for which threads of polars may
    be waiting."""
    sides = predicate.meta.pop()
    if len(sides) == 3 and sides[2].is_between(sides[1], sides[0]).meta == predicate:
        _, least, column = sides
        return _bounds(column >= least, dataset) + _bounds(column <= sides[0], dataset)
    if len(sides) != 2:
        return []
    right, left = sides
    if (left & right).meta == predicate:
        return _bounds(left, dataset) + _bounds(right, dataset)
    if not (left.meta.is_column() and right.meta.is_literal()):
        return []
    name = left.meta.output_name()
    type_ = dataset.schema.field(name).type
    # To polars, NaN is larger than other numbers, and statistics leave it out.
    is_time = pa.types.is_timestamp(type_) or pa.types.is_date(type_)
    is_known = is_time or pa.types.is_integer(type_) or is_text(type_)
    return _compared(predicate, name, left, right) if is_known else []


def _compared(predicate: pl.Expr, name: str, left: pl.Expr, right: pl.Expr) -> list[Bound]:
    """Return the bounds of a comparison of a column with a literal."""
    value = pl.select(right).item()
    if left.is_in(right).meta == predicate:
        return _in_list(name, list(value))
    if type(value) not in (int, float, str, date, datetime):
        return []
    if (left != right).meta == predicate:
        return [Part(name, name, lambda batch: _not_equal(batch, value))]
    signs = [sign for sign, compare in _SIGNS.items() if compare(left, right).meta == predicate]
    return [Comparison(name, sign, value) for sign in signs]


def _in_list(name: str, values: list[Any]) -> list[Bound]:
    if not values or any(type(one) not in (int, str) for one in values):
        return []
    least, most = Comparison(name, ">=", min(values)), Comparison(name, "<=", max(values))
    return [least, most, Part(name, name, lambda batch: _is_in(batch, values))]


def _not_equal(batch: pa.RecordBatch, value: Any) -> np.ndarray:
    return np.array([one is not None and one != value for one in batch.column(0).to_pylist()])


def _is_in(batch: pa.RecordBatch, values: list[Any]) -> np.ndarray:
    return np.array([one in values for one in batch.column(0).to_pylist()])


_SIGNS = {
    "==": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _frame(data: Any) -> pl.DataFrame:
    """Return a table or batch with images and JSON as plain bytes and text, and tensors as flat arrays. polars compares and
    computes nothing with Arrow's extension types."""
    for place, field in enumerate(data.schema):
        storage = storage_of(field.type)
        if storage != field.type:
            data = data.set_column(place, field.name, data.column(place).cast(storage))
    return pl.DataFrame(data)

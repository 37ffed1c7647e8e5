"""`ds.lazy()`: a dataset as a polars LazyFrame that reads only the columns and records a query needs.

Specification: https://docs.pola.rs/user-guide/plugins/io_plugins/
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import polars as pl
import pyarrow as pa
from polars.io.plugins import register_io_source

from penstock.datasets.dataset import Dataset


def lazy_frame(dataset: Dataset) -> pl.LazyFrame:
    """Return a LazyFrame over a dataset. polars calls `_frames` when a query is collected."""
    schema = _frame(pa.Table.from_batches([], dataset.schema)).schema
    return register_io_source(partial(_frames, dataset), schema=schema, is_pure=True)


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
    for batch in dataset.cautious_scan(columns):
        if left is not None:
            batch = batch.slice(0, left)
            left -= batch.num_rows
        frame = _frame(batch)
        if predicate is not None:
            frame = frame.filter(predicate)
        yield frame.select(wanted)
        if left == 0:
            return


def _frame(data: Any) -> pl.DataFrame:
    return pl.DataFrame(data)

"""Facts about each record, by its number in the dataset: its values of some columns, its hash, its group."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.columns.canonical import canonical
from penstock.columns.numbers import as_numpy
from penstock.columns.refusals import refuse_twins
from penstock.datasets.dataset import Dataset
from penstock.engine.pipeline import in_order
from penstock.errors import SchemaError, UnsupportedError
from penstock.verbs.progress import Meter


def checked_columns(dataset: Dataset, names: str | Sequence[str], option: str) -> list[str]:
    """Return the names of columns as a list.

    Raises:
        SchemaError: a column is unknown, or two have its name.
        ValueError: there are no names.
    """
    listed = [names] if isinstance(names, str) else list(names)
    if not listed:
        raise ValueError(f"{option}=[] names no column")
    known = dataset.schema.names
    for name in listed:
        if name not in known:
            raise SchemaError(f"no such column; there are: {', '.join(known)}", field=name)
    refuse_twins(dataset.schema, listed)
    return listed


def check_has_numbers(dataset: Dataset, verb: str) -> None:
    """Raise UnsupportedError if damaged records are skipped: the records after them would have other numbers."""
    damage = dataset.options.damage
    if damage != "error":
        raise UnsupportedError(
            f"{verb} numbers the records, which is not possible with damage={damage!r}",
            file=dataset.paths[0],
            hint="penstock.repair first, or convert what is intact",
        )


def check_unchanged(dataset: Dataset) -> None:
    """Raise ChangedError if a file is not the one in which records were chosen by their numbers."""
    for shard in range(len(dataset.paths)):
        dataset.files.check_unchanged(shard)


def of_batches(
    dataset: Dataset,
    columns: list[str] | None,
    make: Callable[[pa.RecordBatch], Any],
    threads: int | None,
) -> Iterator[pa.Array]:
    """Yield what a kernel makes of each batch of canonical values. Equal values give equal results in every format."""

    def run(batch: pa.RecordBatch) -> Iterator[pa.Array]:
        yield pa.array(make(canonical(batch, columns)))

    stream: Callable[[], Iterator[Any]] = partial(dataset.scan, columns, None, threads)
    return in_order([stream], run, lambda made: made.nbytes, threads)


def draws(
    dataset: Dataset, columns: list[str], seed: int, threads: int | None
) -> Iterator[np.ndarray]:
    """Yield for each batch a number of each record, uint64, which only its values and the seed determine."""
    for made in of_batches(dataset, columns, partial(_core.record_draws, seed=seed), threads):
        yield as_numpy(made)


def groups(
    dataset: Dataset, columns: list[str] | None, threads: int | None, meter: Meter | None = None
) -> Iterator[tuple[np.ndarray, int]]:
    """Yield for each batch the group of each record, int64, and how many groups there were before. Records with equal
    values are in one group, and groups are numbered as they are first seen."""
    known = _core.Groups()
    key = secrets.token_bytes(32)  # nobody can make records that differ but have the same hash
    for made in of_batches(dataset, columns, partial(_core.secure_hashes, key=key), threads):
        before = len(known)
        yield as_numpy(known.numbers(made)), before
        if meter is not None:
            meter.add(len(made))


def values_of(dataset: Dataset, columns: list[str], threads: int | None, meter: Meter) -> pa.Table:
    """Return some columns of all records, in memory."""
    batches: list[pa.RecordBatch] = []
    for batch in dataset.scan(columns, None, threads):
        batches.append(batch)
        meter.add(batch.num_rows)
    schema = pa.schema([dataset.schema.field(name) for name in columns])
    return pa.Table.from_batches(batches, schema)

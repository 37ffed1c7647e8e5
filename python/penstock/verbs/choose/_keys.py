"""Values, hashes and groups of all records of a dataset, in the order of the record numbers."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.columns.canonical import canonical
from penstock.columns.numbers import as_numpy
from penstock.columns.refusals import refuse_twins
from penstock.conditions import expression_of
from penstock.datasets.dataset import Dataset
from penstock.engine.pipeline import in_order
from penstock.errors import SchemaError
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


def keyed(dataset: Dataset, names: str | Sequence[str], option: str) -> tuple[Dataset, list[str]]:
    """Return the dataset with the columns that `names` names, and their names. A name may be that of a column, or a path
    into a struct or JSON, as in a condition.

    Raises:
        SchemaError: a column is unknown, or two have its name; or a path leads to nothing.
        ValueError: there are no names.
    """
    listed = [names] if isinstance(names, str) else list(names)
    known = dataset.schema.names
    paths = {name: f"`{name}`" for name in listed if "." in name and name not in known}
    if not paths:
        return dataset, checked_columns(dataset, listed, option)
    read = [name for text in paths.values() for name in expression_of(text, known).columns]
    columns = list(dict.fromkeys([*(name for name in listed if name not in paths), *read]))
    chosen = dataset.select(checked_columns(dataset, columns, option))
    try:
        return chosen.with_columns(paths), listed
    except SchemaError as error:
        if error.hint is not None and error.hint.startswith("cast("):
            cast = error.hint.partition(", or")[0]
            error.hint = f"{option}= with the name of a column that is computed by {cast}"
        raise


def without_places(dataset: Dataset) -> list[str] | None:
    """Return the columns that describe the contents of a record, not its place (`__url__` of tars). None if all do."""
    places = dataset.files.info(0).added_columns
    names = [name for name in dataset.schema.names if name not in places]
    return None if len(names) == len(dataset.schema.names) else names


def numbered(dataset: Dataset, source: Any) -> tuple[Dataset, Any]:
    """Return the dataset whose record numbers may be used, and the source from which records are then written: the
    caller's, because payloads of a path can be copied unparsed. If damage is skipped, both are a view of the records
    that can be read."""
    readable = dataset.readable()
    return readable, source if readable is dataset else readable


def check_unchanged(dataset: Dataset) -> None:
    """Raise ChangedError if a file has changed since its records were chosen by their numbers."""
    for shard in range(len(dataset.paths)):
        dataset.files.check_unchanged(shard)


def of_batches(
    dataset: Dataset,
    columns: list[str] | None,
    make: Callable[[pa.RecordBatch], Any],
    threads: int | None,
) -> Iterator[pa.Array]:
    """Yield the result of `make` for each batch, in canonical types, so that equal values of different formats give
    equal results."""

    def run(batch: pa.RecordBatch) -> Iterator[pa.Array]:
        yield pa.array(make(canonical(batch, columns)))

    stream: Callable[[], Iterator[Any]] = partial(dataset.scan, columns, None, threads)
    return in_order([stream], run, lambda made: made.nbytes, threads)


def draws(
    dataset: Dataset, columns: list[str], seed: int, threads: int | None
) -> Iterator[np.ndarray]:
    """Yield for each batch a uint64 for each record, which depends only on the record's values and the seed."""
    for made in of_batches(dataset, columns, partial(_core.record_draws, seed=seed), threads):
        yield as_numpy(made)


@dataclass(frozen=True, slots=True)
class Grouped:
    """The groups of the records of one batch."""

    group: np.ndarray
    """The group of each record, int64. Records with equal values are in one group. Groups are numbered in the order of
    their first records."""
    before: int
    """The number of groups in earlier batches."""
    is_empty: np.ndarray
    """Whether all values of a record are null, bool."""


def groups(
    dataset: Dataset, columns: list[str] | None, threads: int | None, meter: Meter | None = None
) -> Iterator[Grouped]:
    """Yield the groups of each batch."""
    known = _core.Groups()
    # The key is secret, so that nobody can construct different records with equal hashes.
    key = secrets.token_bytes(32)
    for made in of_batches(dataset, columns, partial(_hashed, key=key), threads):
        before = len(known)
        hashes, is_empty = made.flatten()
        yield Grouped(as_numpy(known.numbers(hashes)), before, np.asarray(is_empty))
        if meter is not None:
            meter.add(len(made))


def _hashed(batch: pa.RecordBatch, key: bytes) -> pa.StructArray:
    """Return the hash of each record, and whether all its values are null."""
    is_empty = np.full(batch.num_rows, batch.num_columns > 0)
    for column in batch.columns:
        is_empty &= np.asarray(column.is_null()) if column.null_count else False
    hashes = pa.array(_core.secure_hashes(batch, key=key))
    return pa.StructArray.from_arrays([hashes, pa.array(is_empty)], ["hash", "is_empty"])


def values_of(dataset: Dataset, columns: list[str], threads: int | None, meter: Meter) -> pa.Table:
    """Read some columns of all records into memory."""
    batches: list[pa.RecordBatch] = []
    for batch in dataset.scan(columns, None, threads):
        batches.append(batch)
        meter.add(batch.num_rows)
    schema = pa.schema([dataset.schema.field(name) for name in columns])
    return pa.Table.from_batches(batches, schema)

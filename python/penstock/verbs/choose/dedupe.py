"""`dedupe` writes the first of equal records, and leaves out the others."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from penstock import describe
from penstock.contract.summary import Summary
from penstock.datasets.dataset import Dataset
from penstock.datasets.open import of_one_call, opened
from penstock.engine.cluster import refuse
from penstock.storage.base import Storage
from penstock.verbs.choose._keys import (
    check_unchanged,
    groups,
    keyed,
    numbered,
    without_places,
)
from penstock.verbs.convert.choice import Choice
from penstock.verbs.convert.convert import How, write_chosen
from penstock.verbs.progress import Progress, meter_of

_MOST_NAMED = 5


def dedupe(
    source: Any,
    by: str | Sequence[str] | None = None,
    *,
    into: str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    prove: bool = False,
    format: str | None = None,
    compression: str | None = None,
    num_shards: int | None = None,
    shard_records: int | None = None,
    shard_bytes: int | None = None,
    index: bool | str = True,
    overwrite: bool = False,
    exact: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    on: None = None,
    write_options: Mapping[str, Any] | None = None,
    storage: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    target_storage: Storage | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
    **format_options: Any,
) -> Summary:
    """Write the records of a dataset without duplicates. The first of equal records is kept. The order of the records
    does not change.

    Without `by`, records are equal if all their columns are, except those that tell only where a record lies: `__url__`
    of a tar. A key names a record, so records of tars with the same content under different keys stay: `by` with the
    other columns finds them. The summary's notes list the columns that were compared.

    Records are compared by a cryptographic hash of 128 bits with a secret key, which takes about 40 bytes of memory
    for each record. Null equals null, NaN equals NaN, and 0.0 equals -0.0.

    Args:
        source: as for `open`, or a Dataset.
        by: a column, or a list of columns, to compare, or paths into structs and JSON, such as `json.url`; None
            compares `columns`, or else all columns but `__url__` of tars.
        into: the target, as for `convert`.
        columns: the columns to write, in this order; None for all. Columns that decide need not be among them.
        prove, format, compression, num_shards, shard_records, shard_bytes, index, overwrite, exact, threads, progress,
        write_options, storage, storage_options, target_storage,
        target_storage_options, format_options: as for `convert`.
        on: must be None: all records are compared in one process.

    Returns:
        A Summary of the written files. Its notes tell how many records were left out, and how many of these have no
        value in `by`: null equals null, so only the first such record is kept. Without `by`, a note tells which
        columns were compared.

    Raises:
        SchemaError: a column is unknown, or the target format cannot hold one.
        UnsupportedError: `on` is given, or the records cannot be numbered, because of damage or `damage="stop"`.
        FileExistsError: a target exists and `overwrite` is False.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write(
        ...     {"id": [1, 2, 1], "name": ["a", "b", "c"]}, "some.tfrecord", overwrite=True
        ... )
        >>> made = ps.dedupe("some.tfrecord", "id", into="unique.tfrecord", overwrite=True)
        >>> ps.open("unique.tfrecord").to_table().to_pydict()
        {'id': [1, 2], 'name': ['a', 'b']}
    """
    refuse(
        on,
        "all records are compared in one process",
        "convert(..., where=...) if a condition leaves out the duplicates, or leave out on=",
    )
    how = How(
        columns=columns,
        prove=prove,
        format=format,
        compression=compression,
        num_shards=num_shards,
        shard_records=shard_records,
        shard_bytes=shard_bytes,
        index=index,
        overwrite=overwrite,
        exact=exact,
        threads=threads,
        progress=progress,
        write_options=write_options,
        format_options=format_options,
        storage=storage,
        storage_options=storage_options,
        target_storage=target_storage,
        target_storage_options=target_storage_options,
    )
    source = of_one_call(source)
    dataset = opened(source, storage, storage_options)
    named = columns if by is None else by
    keys = without_places(dataset) if named is None else keyed(dataset, named, "by")[1]
    dataset, source = numbered(dataset, source)
    compared = dataset.complete() if named is None else keyed(dataset, named, "by")[0]
    found = first_of_equal(compared, keys, how)
    made = write_chosen(source, into, Choice(numbers=found.numbers), how)
    check_unchanged(dataset)
    notes = [_left_out(found, keys or dataset.schema.names)]
    if by is None:
        notes.append(_compared(keys or dataset.schema.names))
    return replace(made, notes=(*made.notes, *notes))


@dataclass(frozen=True, slots=True)
class First:
    """The records that are not equal to an earlier record."""

    numbers: np.ndarray
    num_records: int
    """The number of all records."""
    num_empty: int
    """How many of the records that are left out have no value in any of the columns."""


def _left_out(found: First, columns: list[str]) -> str:
    """The note on the records that were left out."""
    count = found.num_records - len(found.numbers)
    were = "was" if count == 1 else "were"
    note = f"{describe.count(count)} of {describe.records(found.num_records)} {were} left out"
    if found.num_empty:
        have = "has" if found.num_empty == 1 else "have"
        note += f"; {describe.count(found.num_empty)} of them {have} no value in {' and '.join(columns)}"
    return note


def _compared(columns: list[str]) -> str:
    """The note on the columns that were compared."""
    more = "" if len(columns) <= _MOST_NAMED else " and others"
    noun = "column" if len(columns) == 1 else "columns"
    return f"compared {len(columns)} {noun}: {', '.join(columns[:_MOST_NAMED])}{more}"


def first_of_equal(dataset: Dataset, columns: list[str] | None, how: How) -> First:
    """Return the numbers of the records that are not equal to an earlier record."""
    found = [np.zeros(0, np.int64)]
    start = num_empty = 0
    for part in groups(dataset, columns, how.threads, meter_of(how.progress, dataset)):
        # A record is the first of its group if its group number is higher than all before.
        highest = np.maximum.accumulate(np.concatenate([[part.before - 1], part.group]))[:-1]
        is_first = part.group > highest
        found.append(start + np.flatnonzero(is_first))
        num_empty += int(np.count_nonzero(part.is_empty & ~is_first))
        start += len(part.group)
    return First(np.concatenate(found), start, num_empty)

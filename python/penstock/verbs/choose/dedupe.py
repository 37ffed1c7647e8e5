"""`dedupe` writes the first of equal records, and leaves out the others."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.contract.format import Summary
from penstock.datasets.dataset import Dataset
from penstock.verbs.choose._keys import (
    check_unchanged,
    checked_columns,
    groups,
    numbered,
    opened,
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
    write_options: Mapping[str, Any] | None = None,
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
        by: a column, or a list of columns, to compare; None compares all columns but `__url__` of tars.
        into: the target, as for `convert`.
        prove, format, compression, num_shards, shard_records, shard_bytes, index, overwrite, exact, threads, progress,
        write_options, format_options: as for `convert`.

    Returns:
        A Summary of the written files; without `by`, a note tells which columns were compared.

    Raises:
        SchemaError: a column is unknown, or the target format cannot hold one.
        UnsupportedError: the records cannot be numbered, because of damage or `damage="stop"`.
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
    how = How(
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
    )
    dataset = opened(source)
    columns = without_places(dataset) if by is None else checked_columns(dataset, by, "by")
    dataset, source = numbered(dataset, source)
    if by is None:
        numbers = first_of_equal(dataset.complete(), columns, how)
    else:
        numbers = first_of_equal(dataset, columns, how)
    made = write_chosen(source, into, Choice(numbers=numbers), how)
    check_unchanged(dataset)
    if by is None:
        made = replace(made, notes=(*made.notes, _compared(columns or dataset.schema.names)))
    return made


def _compared(columns: list[str]) -> str:
    """The note on the columns that were compared."""
    more = "" if len(columns) <= _MOST_NAMED else " and others"
    noun = "column" if len(columns) == 1 else "columns"
    return f"compared {len(columns)} {noun}: {', '.join(columns[:_MOST_NAMED])}{more}"


def first_of_equal(dataset: Dataset, columns: list[str] | None, how: How) -> np.ndarray:
    """Return the numbers of the records that are not equal to an earlier record."""
    found = [np.zeros(0, np.int64)]
    start = 0
    for group, before in groups(dataset, columns, how.threads, meter_of(how.progress, dataset)):
        # A record is the first of its group if its group number is higher than all before.
        highest = np.maximum.accumulate(np.concatenate([[before - 1], group]))[:-1]
        found.append(start + np.flatnonzero(group > highest))
        start += len(group)
    return np.concatenate(found)

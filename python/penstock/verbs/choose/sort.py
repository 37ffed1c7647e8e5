"""`sort` writes records in the order of their values."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.contract.summary import Summary
from penstock.datasets.open import of_one_call, opened
from penstock.engine.cluster import refuse
from penstock.storage.base import Storage
from penstock.verbs.choose._keys import (
    check_unchanged,
    keyed,
    numbered,
    values_of,
)
from penstock.verbs.choose._order import order_by
from penstock.verbs.convert.choice import Choice
from penstock.verbs.convert.convert import How, write_chosen
from penstock.verbs.progress import Progress, meter_of


def sort(
    source: Any,
    by: str | Sequence[str],
    *,
    into: str | os.PathLike[str],
    descending: bool = False,
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
    """Write the records of a dataset in the order of the values of a column. Records with equal values keep their
    order. NaN comes after all numbers, and null after everything, in either direction.

    This needs memory for the values of the columns in `by`, and 24 bytes for each record. Records are read and written
    block by block. This takes many passes over large Parquet files, because the records of a block are far apart in
    them.

    Args:
        source: as for `open`, or a Dataset.
        by: a column of numbers, strings, bytes, times or booleans, or a path into a struct or JSON, such as `json.url`;
            or a list of these: records with equal values in the first column are sorted by the second column, and so
            on.
        into: the target, as for `convert`.
        descending: the largest values first.
        columns: the columns to write, in this order; None for all. Columns that decide need not be among them.
        prove, format, compression, num_shards, shard_records, shard_bytes, index, overwrite, exact, threads, progress,
        write_options, storage, storage_options, target_storage,
        target_storage_options, format_options: as for `convert`.
        on: must be None: the order of all records is found in one process.

    Returns:
        A Summary of the written files.

    Raises:
        SchemaError: a column is unknown, or its values have no order; or the target format cannot hold one.
        UnsupportedError: `on` is given, or the records cannot be numbered, because of damage or `damage="stop"`.
        FileExistsError: a target exists and `overwrite` is False.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [3, 1, 2]}, "some.tfrecord", overwrite=True)
        >>> _ = ps.sort("some.tfrecord", "id", into="sorted.tfrecord", overwrite=True)
        >>> ps.open("sorted.tfrecord").to_table().to_pydict()
        {'id': [1, 2, 3]}
    """
    refuse(
        on,
        "the order of all records is found in one process",
        "penstock.ray.read(...).sort(...) and penstock.ray.write(...), or leave out on=",
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
    keyed(dataset, by, "by")  # refuses wrong names before all data may be read
    dataset, source = numbered(dataset, source)
    table = values_of(*keyed(dataset, by, "by"), threads, meter_of(progress, dataset))
    numbers = order_by(table, descending=descending)
    del table  # its memory is needed to gather the records
    made = write_chosen(source, into, Choice(numbers=numbers), how)
    check_unchanged(dataset)
    return made

"""Finds the length of each record's list in a column. The lengths are read once, and then kept in the index."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.datasets.dataset import Dataset
from penstock.datasets.scan import shard_batches
from penstock.errors import PenstockError, SchemaError, UnsupportedError
from penstock.framing.index import kept_lengths
from penstock.loader._kept_names import are_kept
from penstock.loader._padding import has_offsets
from penstock.loader._sources import Records


def lengths_of(records: Records, columns: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the length of each record's list in some columns, uint32[num_records]. A missing list has length 0.

    Raises:
        SchemaError: there is no such column, or it does not hold lists.
    """
    for name in columns:
        if name not in records.schema.names:
            known = ", ".join(records.schema.names)
            raise SchemaError(f"no such column for buckets=; there are: {known}", field=name)
        if not has_offsets(records.schema.field(name).type):
            type_ = records.schema.field(name).type
            raise SchemaError(
                f"buckets= takes columns of lists, but this column is {type_}", field=name
            )
    each = [_of_dataset(dataset, columns) for dataset in records.datasets]
    return {name: np.concatenate([found[name] for found in each]) for name in columns}


Lengths = dict[str, np.ndarray]


def _of_dataset(dataset: Dataset, columns: Sequence[str]) -> Lengths:
    # An index has the lengths of all records of its file, but a view has only some of these records.
    is_kept = not dataset.files.is_view and all(are_kept(dataset, name) for name in columns)
    found = _kept(dataset, columns) if is_kept else {}
    missing = [shard for shard in range(len(dataset.paths)) if shard not in found]
    read = _read(dataset, columns, missing)
    if is_kept:
        _keep(dataset, read)
    found |= read
    counts = [len(found[shard][columns[0]]) for shard in range(len(dataset.paths))]
    if counts != np.diff(dataset.files.firsts).tolist():
        raise UnsupportedError(
            "buckets= needs the lengths of all records, but some records are damaged",
            file=dataset.damage[0].file if dataset.damage else None,
            hint="penstock repair, and then open the repaired files",
        )
    return {name: np.concatenate([found[n][name] for n in sorted(found)]) for name in columns}


def _kept(dataset: Dataset, columns: Sequence[str]) -> dict[int, Lengths]:
    """Return the lengths in the indexes of the shards that have them for all columns."""
    files, found = dataset.files, dict[int, Lengths]()
    for shard, path in enumerate(dataset.paths):
        kept = kept_lengths.of_file(path, files.storage, dataset.options, files.format_of)
        count = files.reader(shard).num_records
        if all(len(kept.get(name, ())) == count for name in columns):
            found[shard] = {name: kept[name] for name in columns}
    return found


def _keep(dataset: Dataset, read: dict[int, Lengths]) -> None:
    files = dataset.files
    for shard, lengths in read.items():
        check = partial(files.check_unchanged, shard)
        with suppress(PenstockError, OSError):  # the next loader reads them again
            reader, source = files.own(shard), files.source(shard)
            kept_lengths.keep(source, reader, dataset.options.index, lengths, check)


def _read(dataset: Dataset, columns: Sequence[str], shards: Sequence[int]) -> dict[int, Lengths]:
    parts: dict[int, dict[str, list[np.ndarray]]] = {
        shard: {name: [np.zeros(0, np.uint32)] for name in columns} for shard in shards
    }
    for shard, batch in shard_batches(dataset, list(columns), None, shards):
        for name in columns:
            parts[shard][name].append(_lengths(batch.column(name)))
    return {
        shard: {name: np.concatenate(lengths) for name, lengths in by_name.items()}
        for shard, by_name in parts.items()
    }


def _lengths(array: Any) -> np.ndarray:
    stored: Any = array.storage if isinstance(array, pa.ExtensionArray) else array
    return stored.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint32)

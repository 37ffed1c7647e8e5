"""Finds the length of each record's list in a column. The lengths are read once, and then kept in the index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.contract.format import SkippedRegion
from penstock.datasets._chosen import ChosenFiles
from penstock.datasets._opened import Opened
from penstock.datasets.files import Files
from penstock.datasets.scan import shard_batches
from penstock.datasets.take import take
from penstock.errors import FormatError, PenstockError, StaleIndexError
from penstock.framing.index import kept_lengths
from penstock.storage.local import LocalStorage

Lengths = dict[str, np.ndarray]
"""By column, the length of each record's list, uint32."""
_FEW_RECORDS = 1024
"""How many records are read together around damage."""


def lengths_of(dataset: Opened, columns: Sequence[str]) -> Lengths:
    """Return the length of each record's list in some columns of lists, uint32[num_records]. A missing list has length
    0, and so has a damaged record if damage is skipped."""
    found = _by_shard(dataset.files, columns, dataset.add_skipped)
    return {name: np.concatenate([lengths[name] for lengths in found]) for name in columns}


def are_kept(files: Files, column: str) -> bool:
    """Whether facts about a column may be in an index. The column must be read unmodified and verified, from local files
    that may have an index."""
    options = files.options
    is_own = not (options.raw or options.format_options or files.is_added(column))
    is_here = options.index != "never" and isinstance(files.storage, LocalStorage)
    return is_own and options.verifies and is_here


def _by_shard(
    files: Files, columns: Sequence[str], skipped: Callable[[SkippedRegion], None]
) -> list[Lengths]:
    if isinstance(files, ChosenFiles):
        # An index has the lengths of all records of its file, and a view has some of these records.
        whole = _by_shard(files.base, columns, skipped)
        return list(map(_chosen, whole, files.choice.numbers(files.base)))
    can_keep = all(are_kept(files, name) for name in columns)
    every = range(len(files.paths))
    found = _kept(files, columns) if can_keep else {}
    missing = [shard for shard in every if shard not in found]
    for shard, lengths in _read(files, columns, missing, skipped).items():
        is_whole = len(lengths[columns[0]]) == files.reader(shard).num_records
        found[shard] = lengths if is_whole else _around_damage(files, shard, lengths)
        if is_whole and can_keep:
            _keep(files, shard, lengths)
    return [found[shard] for shard in every]


def _chosen(lengths: Lengths, numbers: np.ndarray) -> Lengths:
    return {name: of_all[numbers] for name, of_all in lengths.items()}


def _kept(files: Files, columns: Sequence[str]) -> dict[int, Lengths]:
    """Return the lengths in the indexes of the shards that have them for all columns."""
    found = dict[int, Lengths]()
    for shard, path in enumerate(files.paths):
        kept = kept_lengths.of_file(path, files.storage, files.options, files.format_of)
        count = files.reader(shard).num_records
        if all(name in kept and len(kept[name]) == count for name in columns):
            found[shard] = {name: kept[name] for name in columns}
    return found


def _keep(files: Files, shard: int, lengths: Lengths) -> None:
    check = partial(files.check_unchanged, shard)
    with suppress(PenstockError, OSError):  # the next caller reads them again
        reader, source = files.own(shard), files.source(shard)
        kept_lengths.keep(source, reader, files.options.index, lengths, check)


def _read(
    files: Files,
    columns: Sequence[str],
    shards: Sequence[int],
    skipped: Callable[[SkippedRegion], None],
) -> dict[int, Lengths]:
    parts: dict[int, dict[str, list[np.ndarray]]] = {
        shard: {name: [np.zeros(0, np.uint32)] for name in columns} for shard in shards
    }
    opened = Opened(files, None)
    for shard, batch in shard_batches(opened, list(columns), None, shards, skipped):
        for name in columns:
            parts[shard][name].append(_lengths(batch.column(name)))
    return {
        shard: {name: np.concatenate(lengths) for name, lengths in by_name.items()}
        for shard, by_name in parts.items()
    }


def _around_damage(files: Files, shard: int, scanned: Lengths) -> Lengths:
    """Read the lengths by record number, because a scan does not say the numbers of the records that it skips."""
    columns = list(scanned)
    if files.options.damage == "stop":
        more = files.reader(shard).num_records - len(scanned[columns[0]])
        return {name: np.pad(lengths, (0, more)) for name, lengths in scanned.items()}
    first, last = (int(number) for number in files.firsts[shard : shard + 2])
    found = {name: np.zeros(last - first, np.uint32) for name in columns}
    opened = Opened(files, None)
    left = [(at, min(at + _FEW_RECORDS, last)) for at in range(first, last, _FEW_RECORDS)]
    while left:
        begin, end = left.pop()
        try:
            batch = take(opened, np.arange(begin, end), columns)
        except StaleIndexError:
            raise
        except FormatError:
            middle = (begin + end) // 2
            left += [(begin, middle), (middle, end)] if end - begin > 1 else []
            continue
        for name in columns:
            found[name][begin - first : end - first] = _lengths(batch.column(name))
    return found


def _lengths(array: Any) -> np.ndarray:
    stored: Any = array.storage if isinstance(array, pa.ExtensionArray) else array
    return stored.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint32)

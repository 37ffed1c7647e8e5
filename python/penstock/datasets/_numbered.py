"""The records of files with their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.contract.format import SkippedRegion
from penstock.datasets._opened import Opened
from penstock.datasets.files import Files
from penstock.datasets.scan import numbered_batches, shard_batches
from penstock.errors import UnsupportedError


def numbered(
    files: Files,
    columns: Sequence[str] | None,
    shards: Sequence[int],
    skipped: list[SkippedRegion],
) -> Iterator[tuple[int, np.ndarray, pa.RecordBatch]]:
    """Yield the records of some files with their numbers, and append the skipped regions to `skipped`."""
    dataset = Opened(files, None)
    if files.options.damage != "error":
        _check_numbers(files)
        # All columns are read, because damage in any of them makes a record unreadable.
        yield from numbered_batches(dataset, None, skipped.append, shards)
        return
    done = [0] * len(files.paths)  # all records are read, so no index is needed to number them
    for shard, batch in shard_batches(dataset, columns, None, shards):
        yield shard, np.arange(done[shard], done[shard] + batch.num_rows), batch
        done[shard] += batch.num_rows


def _check_numbers(files: Files) -> None:
    """Raise UnsupportedError if reading ends at damage: the records before it then have no numbers of their own."""
    if files.options.damage == "stop":
        raise UnsupportedError(
            'records cannot be chosen by their numbers with damage="stop"',
            file=files.paths[0],
            hint='open(..., damage="skip"), which reads on after the damage',
        )

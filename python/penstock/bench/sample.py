"""Draws a sample of a dataset into an Arrow file, from which every candidate is written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.storage import Storage

RUNS = 32
"""The number of runs of adjacent records in a sample, spread evenly over the data."""
_FIRST_RECORDS = 16
SMALL = 4
"""The number of records in the smaller sample, which is used to warm up."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The records used for the measurements."""

    source: str
    num_records: int
    num_all_records: int
    num_bytes: int
    """The size of the sample as an Arrow file."""
    fields: tuple[tuple[str, str], ...]
    """The names and types of the fields."""

    def sentence(self, size: str) -> str:
        """Return a sentence on the measured records. `size` is their size in bytes as text."""
        whole = self.num_records == self.num_all_records
        of = "" if whole else f" of {self.num_all_records:,}, in {RUNS} runs spread over the data"
        plural = "record" if self.num_records == 1 else "records"
        return f"{self.num_records:,} {plural}{of}: {size} in memory as Arrow"


def opened(
    source: Any, storage: Storage | None, storage_options: Mapping[str, Any] | None
) -> ps.Dataset:
    """Return a dataset; it is opened unless `source` is already one."""
    if isinstance(source, ps.Dataset):
        return source
    return ps.open(source, storage=storage, storage_options=storage_options)


def name_of(ds: ps.Dataset) -> str:
    """Return the name of a dataset for a report."""
    first, *others = ds.paths
    return f"{first} and {len(others)} more" if others else first


def spread_over(num_all: int, wanted: int, runs: int = RUNS) -> list[tuple[int, int]]:
    """Return runs [first, last) with `wanted` records in total, spread evenly over `num_all`."""
    if wanted >= num_all:
        return [(0, num_all)]
    edges: np.ndarray = np.linspace(0, wanted, min(runs, wanted) + 1).astype(int)
    sizes = np.diff(edges)
    starts = np.linspace(0, num_all - wanted, len(sizes)).astype(int) + edges[:-1]
    return [(int(first), int(first + size)) for first, size in zip(starts, sizes, strict=True)]


def draw(ds: ps.Dataset, folder: str, records: int, most_bytes: int) -> tuple[Sample, str, str]:
    """Write a sample of `ds` as `sample.arrow`, and a few records as `small.arrow`, into `folder`. Return the Sample
    and the two paths. The sample has at most `records` records, and about `most_bytes` bytes, estimated from the first
    records. Raise ValueError if there are no records, and OSError if the disk has no room."""
    if not len(ds):
        raise ValueError(f"{name_of(ds)} has no records, so there is nothing to measure")
    first = ds.take(range(min(_FIRST_RECORDS, len(ds))))
    each = max(first.nbytes / len(first), 1)
    wanted = max(1, min(records, len(ds), int(most_bytes / each)))
    free = shutil.disk_usage(folder).free
    if 3 * wanted * each > free:
        raise OSError(
            f"{folder} has {ps.describe.size(free)} free, and a sample of {wanted:,} records needs "
            f"about {ps.describe.size(3 * wanted * each)}; use fewer records, or "
            "another folder"
        )

    def batches() -> Iterator[pa.RecordBatch]:
        if wanted == len(ds):
            yield from ds.scan()
            return
        for start, end in spread_over(len(ds), wanted):
            yield ds.take(np.arange(start, end))

    path, small = os.path.join(folder, "sample.arrow"), os.path.join(folder, "small.arrow")
    stream = pa.RecordBatchReader.from_batches(first.schema, batches())
    written = ps.write(stream, path)
    ps.write(first.slice(0, SMALL), small)
    fields = tuple((field.name, str(field.type)) for field in first.schema)
    made = Sample(name_of(ds), written.num_records, len(ds), written.num_bytes, fields)
    return made, path, small

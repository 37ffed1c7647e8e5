"""Progress reports of verbs: records done and bytes of the source, estimated from the records."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from penstock.datasets.dataset import Dataset

Progress = Callable[[int, int, int], None]
"""Called now and then with the records done, the bytes of the source done, and the total bytes of the source."""


class Meter:
    """Counts records, and reports them."""

    def __init__(self, progress: Progress | None, num_records: int, total_bytes: int) -> None:
        self._progress = progress
        self._num_records = max(1, num_records)
        self._total_bytes = total_bytes
        self._done = 0

    def reach(self, num_records: int) -> None:
        self._done = num_records
        if self._progress is not None:
            done_bytes = self._total_bytes * min(self._done, self._num_records) // self._num_records
            self._progress(self._done, done_bytes, self._total_bytes)

    def add(self, num_records: int) -> None:
        self.reach(self._done + num_records)

    def watch(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the same batches, and count each after the caller has used it."""
        for batch in batches:
            yield batch
            self.add(batch.num_rows)


def meter_of(progress: Progress | None, *datasets: Dataset) -> Meter:
    """Return a meter for datasets that are read in parallel. Without `progress`, their records are not counted."""
    if progress is None:
        return Meter(None, 0, 0)
    total_bytes = sum(shard.num_bytes for dataset in datasets for shard in dataset.shards)
    return Meter(progress, max(map(len, datasets)), total_bytes)

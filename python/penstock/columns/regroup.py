"""Splits a stream of batches into groups that do not depend on how the stream was split into batches.

A group ends at a fixed number of records, or of bytes of values. Both are counted record by record. The same records
therefore always form the same groups, and the same bytes of output.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.batches import empty_columns
from penstock.columns.numbers import view_lengths
from penstock.columns.types import is_bytes, is_bytes_view, is_text


# Complexity: one branch for each kind of type.
def record_bytes(array: Any) -> np.ndarray | int:
    """The bytes of the values of each record, without nulls and offsets: one number if all are equal, or an int64
    array."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return record_bytes(array.storage)
    if pa.types.is_null(kind):
        return 0
    if pa.types.is_dictionary(kind):
        return max(kind.index_type.bit_width // 8, 1)
    if is_bytes_view(kind):
        return _masked(view_lengths(array).astype(np.int64), array)
    if is_bytes(kind) or is_text(kind):
        import pyarrow.compute  # takes 60 ms

        pc: Any = pyarrow.compute
        return np.asarray(pc.binary_length(array).fill_null(0), dtype=np.int64)
    if pa.types.is_struct(kind):
        return _masked(sum(record_bytes(array.field(i)) for i in range(kind.num_fields)), array)
    if pa.types.is_fixed_size_list(kind):
        return _fixed_lists(array)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return _lists(array)
    try:
        return max(kind.bit_width // 8, 1)
    except ValueError:
        return 8  # an estimate for unions, list views and run ends


def _masked(sizes: Any, array: Any) -> Any:
    """Set the size of null records to 0, whatever their children hold."""
    if array.null_count == 0 or isinstance(sizes, int):
        return sizes
    return np.where(np.asarray(array.is_valid()), sizes, 0)


def _fixed_lists(array: Any) -> Any:
    width = array.type.list_size
    sizes = record_bytes(array.values.slice(array.offset * width, len(array) * width))
    if isinstance(sizes, int):
        return sizes * width
    return _masked(sizes.reshape(len(array), width).sum(axis=1), array)


def _lists(array: Any) -> Any:
    offsets = np.asarray(array.offsets, dtype=np.int64)
    if pa.types.is_map(array.type):
        first = int(offsets[0]) if len(offsets) else 0
        length = int(offsets[-1]) - first if len(offsets) else 0
        offsets = offsets - first
        sizes = record_bytes(array.keys.slice(first, length)) + record_bytes(
            array.items.slice(first, length)
        )
    else:
        sizes = record_bytes(array.values)
    if isinstance(sizes, int):
        return _masked(np.diff(offsets) * sizes, array)
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    return _masked(sums[offsets[1:]] - sums[offsets[:-1]], array)


class Regroup:
    """Collects batches and yields groups of at most `group_records` records and `group_bytes` bytes of values. A larger
    record is a group of its own."""

    def __init__(self, schema: Any, *, group_records: int, group_bytes: int) -> None:
        if group_records < 1 or group_bytes < 1:
            raise ValueError("a group must allow at least one record and one byte")
        self._schema = schema
        self._records = group_records
        self._bytes = group_bytes
        self._waiting: list[Any] = []
        self._num_waiting = 0
        self.bytes_waiting = 0  # bytes of values

    def add(self, batch: Any) -> Iterator[Any]:
        """Add a batch, and yield the full groups, each as one batch."""
        sizes = sum((record_bytes(column) for column in batch.columns), start=0)
        done = 0
        while done < batch.num_rows:
            room = min(self._records - self._num_waiting, batch.num_rows - done)
            taken, used = self._fits(sizes, done, room)
            if taken:
                self._waiting.append(batch.slice(done, taken))
                self._num_waiting += taken
                self.bytes_waiting += used
                done += taken
            if taken < room or self._num_waiting == self._records:
                yield self._group()

    def _fits(self, sizes: Any, start: int, room: int) -> tuple[int, int]:
        """How many of the next records fit in the group, and their bytes. An empty group takes at least one record."""
        left = self._bytes - self.bytes_waiting
        if isinstance(sizes, int):
            taken = room if sizes == 0 else min(room, max(left, 0) // sizes)
            taken = max(taken, 0 if self._num_waiting else 1)
            return taken, taken * sizes
        sums = np.cumsum(sizes[start : start + room])
        taken = int(np.searchsorted(sums, left, side="right"))
        taken = max(taken, 0 if self._num_waiting else 1)
        return taken, int(sums[taken - 1]) if taken else 0

    def rest(self) -> Iterator[Any]:
        """Yield the last group, if any records are left."""
        if self._num_waiting:
            yield self._group()

    def _group(self) -> Any:
        waiting, self._waiting = self._waiting, []
        count, self._num_waiting, self.bytes_waiting = self._num_waiting, 0, 0
        if not self._schema.names:
            return empty_columns(count)
        # Join even a single batch, because the buffers of a slice depend on how the stream was split.
        return pa.concat_batches(waiting)

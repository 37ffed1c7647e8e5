"""Reads records by number, in the requested order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.columns.batches import empty_batch
from penstock.columns.joined import join, picked
from penstock.columns.lending import as_lent, is_lent
from penstock.columns.numbers import as_arrow, distinct
from penstock.columns.selection import Selection
from penstock.columns.types import IN_PARTS, storage_of
from penstock.contract.format import Chunk
from penstock.datasets._opened import Opened
from penstock.datasets._record_numbers import taken_numbers
from penstock.engine.pipeline import in_order
from penstock.errors import FormatError, StaleIndexError

Picked = tuple[Chunk[Any], Selection]
Watch = Callable[[Iterable[Picked]], Iterator[Picked]]


def take(
    dataset: Opened,
    records: Sequence[int] | np.ndarray,
    columns: Sequence[str] | None,
    watch: Watch = iter,
    *,
    lend: bool = False,
    is_timed: bool = False,
) -> pa.RecordBatch:
    """See Dataset.take. `watch` iterates over the chunks, to measure the time for reading them. Where a reader reads and
    decodes in one step, there are no chunks to watch, unless the call `is_timed`.

    `lend`: columns of bytes and images may be views into the buffers that were read (`lending.lent_schema`). This is
    only for callers that copy the values immediately.
    """
    numbers = taken_numbers(records, dataset)
    how = _How(watch, lend, not is_timed and not (lend and _has_views(dataset, columns)))
    if len(dataset.paths) == 1 or not len(numbers):
        return _from_shard(dataset, 0, numbers, columns, how)
    shards, local = dataset.files.locate(numbers)
    # Visit each shard once, then restore the requested order.
    order = np.argsort(shards, kind="stable")
    touched = distinct(shards).tolist()
    dataset.files.begin(touched, by_number=True)

    def part(shard: int) -> Iterator[pa.RecordBatch]:
        chosen = local[order[shards[order] == shard]]
        yield _from_shard(dataset, shard, chosen, columns, how)

    at_once = min(dataset.files.storage.reads_at_once or 1, len(touched))
    parts = list(in_order([lambda: iter(touched)], part, lambda batch: 0, at_once))
    if lend and any(part.schema != parts[0].schema for part in parts):
        parts = [as_lent(part) for part in parts]  # shards of several formats
    joined = join(parts)
    if (order == np.arange(len(order))).all():
        return joined
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return reordered(joined, place)


class _How(NamedTuple):
    """How the records of each file are read."""

    watch: Watch
    lend: bool
    is_in_one_step: bool
    """Whether a reader that can do so reads and decodes them in one step."""


def _has_views(dataset: Opened, columns: Sequence[str] | None) -> bool:
    """Whether these columns have other types if they are lent."""
    fields = dataset.schema
    return any(is_lent(field) for field in fields if columns is None or field.name in columns)


def want(
    dataset: Opened, numbers: np.ndarray, columns: Sequence[str] | None
) -> Sequence[object] | None:
    """Begin to request records that are taken soon. The caller holds the result until then. None if there is no room
    for them now. It does nothing for files of this machine."""
    if dataset.files.storage.reads_at_once is None or not len(numbers):
        return ()
    shards, local = dataset.files.locate(numbers)
    held: list[object] = []
    for shard in distinct(shards).tolist():
        one = dataset.files.reader(shard).want(local[shards == shard], columns)
        if one is None:
            return held or None  # the rest is requested when it is read
        held.extend(one)
    return held


def reordered(batch: pa.RecordBatch, place: np.ndarray) -> pa.RecordBatch:
    """The records of a batch at these positions, in this order."""
    rows = as_arrow(place)
    try:
        if not any(
            storage_of(type_) in (pa.binary_view(), IN_PARTS) for type_ in batch.schema.types
        ):
            return picked(batch, rows)
        columns = [_taken(column, rows, place) for column in batch.columns]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
    except pa.ArrowNotImplementedError:
        # pyarrow cannot take from view types yet. Slicing record by record copies no bytes.
        slices = [batch.slice(int(at), 1) for at in place]
        return join(slices) if slices else batch.slice(0, 0)


def _taken(column: Any, rows: pa.Array, place: np.ndarray) -> pa.Array:
    stored: Any = storage_of(column.type)
    if stored not in (pa.binary_view(), IN_PARTS):
        return column.take(rows)
    if isinstance(column, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(column.type, _taken(column.storage, rows, place))
    if stored == IN_PARTS:
        parts = [_taken(column.field(name), rows, place) for name in ("head", "body")]
        return pa.StructArray.from_arrays(parts, fields=list(IN_PARTS))
    return _views(column, place)


def _views(array: pa.Array, place: np.ndarray) -> pa.Array:
    """The views at these positions, into the same buffers. Only the 16 bytes of each view are copied."""
    _, views, *data = array.buffers()
    count, first = len(array), 16 * array.offset
    held = np.frombuffer(views, np.uint8, 16 * count, first).reshape(count, 16)
    validity = None
    if array.null_count:
        valid = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), bool)[place]
        validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    chosen = pa.py_buffer(np.ascontiguousarray(held[place]))
    return pa.Array.from_buffers(pa.binary_view(), len(place), [validity, chosen, *data])


def _from_shard(
    dataset: Opened,
    shard: int,
    records: np.ndarray,
    columns: Sequence[str] | None,
    how: _How,
) -> pa.RecordBatch:
    files = dataset.files
    reader = files.reader(shard)
    files.check_count(shard)
    if files.options.mmap:
        files.check_read(shard)  # pages of a truncated file must not be accessed
    if how.is_in_one_step:
        batch = reader.at_once(records, columns)
        if batch is not None:
            files.check_read(shard)
            files.check_fields(shard, batch, whole=columns is None)
            return batch
    decode = reader.lent if how.lend else reader.decode
    try:
        picked = how.watch(reader.pick(records))
        parts: list[pa.RecordBatch] = []
        for chunk, chosen in picked:
            parts.append(decode(chunk, chosen, columns))
            files.check_read(shard, chunk)
    except StaleIndexError:
        files.forget_index(shard)
        raise
    except FormatError:
        files.check_read(shard)  # if the file was changed, that is the better error
        raise
    if parts:
        batch = join(parts)
        files.check_fields(shard, batch, whole=columns is None)
        return batch
    schema = (
        dataset.schema if columns is None else pa.schema([dataset.schema.field(c) for c in columns])
    )
    return empty_batch(schema)

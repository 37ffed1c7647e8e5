"""Values of HDF5 that are read past libhdf5: where it says that they lie, by several threads.

libhdf5 works for one thread at a time, whatever it has to inflate. Its part here is to say where a
dataset's bytes are: one range, or one for each chunk. They are read and unpacked by penstock, if
they are at rest what NumPy wants in memory, plain or packed by gzip and shuffle; anything else
stays with libhdf5 (`hdf5.py`).

    bytes        what
    per chunk    the chunk's values in C order, whole even where the dataset ends inside; then, in
                 the order of the filters: shuffle (all first bytes of the values, all second ...),
                 gzip (a zlib stream). A bit of the chunk's mask is set for a filter left out
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock import _core
from penstock.errors import FormatError, TruncatedError
from penstock.forks import Lock
from penstock.formats.arrays import Cut, FilePlace, StoredArray, as_bytes
from penstock.formats.hdf5_file import Found
from penstock.formats.npy_header import Header
from penstock.pipeline import in_order
from penstock.storage import Source

_FILTERS = ((), ("gzip",), ("shuffle",), ("shuffle", "gzip"))
_Rows = slice | np.ndarray
_Table = dict[tuple[int, ...], tuple[int, int, int]]
"""Where each chunk is, by its first cell: offset in the file, bytes, mask of filters left out."""


def direct(found: Found, source: Source, lock: Lock) -> StoredArray | ChunkedArray | None:
    """A way to read a dataset past libhdf5, or None where there is none."""
    import h5py

    dtype, shape = found.dtype, found.shape
    if dtype.hasobject or not dtype.itemsize or found.user_block:
        return None
    if h5py.h5t.py_create(dtype, logical=True) != found.id.get_type():
        return None
    base, inner = dtype, shape[1:]
    while base.subdtype is not None:
        base, sub = base.subdtype
        inner = (*inner, *sub)
    whole = (shape[0], *inner)
    if found.chunk is not None:
        if found.filters not in _FILTERS or not math.prod(found.chunk) or base is not dtype:
            return None
        return ChunkedArray(found, source, lock)
    start = found.id.get_offset()
    size = math.prod(whole) * base.itemsize
    if start is None or not size or found.filters:
        return None
    if start + size > source.size:
        raise TruncatedError(
            "the values reach beyond the file",
            byte=source.size,
            expected=f"{size} bytes at {start}",
        )
    return StoredArray(
        Header(base, False, whole, start), FilePlace(source, start, size), source.path
    )


class ChunkedArray:
    """A chunked dataset whose chunks are read from where they lie."""

    def __init__(self, found: Found, source: Source, lock: Lock) -> None:
        assert found.chunk is not None
        self._found = found
        self._source = source
        self._lock = lock
        self._dtype = found.dtype
        self._chunk = found.chunk
        self._bytes = math.prod(found.chunk) * found.dtype.itemsize
        self._table: _Table | None = None
        self._fill = np.zeros((), found.dtype)
        # The chunks beside each other that the records of one chunk need.
        axes = zip(found.shape[1:], found.chunk[1:], strict=True)
        self._columns = list(itertools.product(*(range(0, size, step) for size, step in axes)))

    def _places(self) -> _Table:
        """Where each chunk is: offset in the file, bytes, mask of filters left out."""
        with self._lock:
            if self._table is None:
                table: _Table = {}

                def note(info: Any) -> None:
                    table[info.chunk_offset] = (info.byte_offset, info.size, info.filter_mask)

                plan = self._found.id.get_create_plist()
                if plan.fill_value_defined():
                    plan.get_fill_value(self._fill)
                if self._found.id.get_storage_size():
                    self._found.id.chunk_iter(note)
                self._table = table
            return self._table

    def read(self, cut: Cut, *, alone: bool) -> np.ndarray:
        """The records of a cut; `alone` where no other thread works on the same call."""
        table = self._places()
        if not self._found.filters and self._chunk[1:] == self._found.shape[1:] and cut.total:
            gathered = self._gathered(table, cut)
            if gathered is not None:
                return gathered
        out = np.empty((cut.total, *self._found.shape[1:]), self._dtype)
        work = self._parts(cut)
        if alone and len(cut.starts) and cut.total > 1:
            tasks = iter(work)

            def fill(part: tuple[int, _Rows, slice]) -> Iterator[None]:
                self._fill_rows(table, out, *part)
                yield None

            for _ in in_order([lambda: tasks], fill, lambda _: 0, None):
                pass
        else:
            for part in work:
                self._fill_rows(table, out, *part)
        return out

    def _parts(self, cut: Cut) -> Iterator[tuple[int, _Rows, slice]]:
        """(first record of a row of chunks, which of its records, where they go)."""
        step = self._chunk[0]
        if len(cut.starts) == 1:
            first, end = int(cut.starts[0]), int(cut.starts[0]) + cut.total
            for base in range(first // step * step, end, step):
                low, high = max(first, base), min(end, base + step)
                yield base, slice(low - base, high - base), slice(low - first, high - first)
            return
        records = cut.records()
        bases = records // step * step
        edges = [0, *(np.flatnonzero(np.diff(bases)) + 1).tolist(), len(records)]
        for start, stop in itertools.pairwise(edges):
            if stop > start:
                base = int(bases[start])
                yield base, records[start:stop] - base, slice(start, stop)

    def _fill_rows(
        self, table: _Table, out: np.ndarray, base: int, rows: _Rows, target: slice
    ) -> None:
        """Unpack what is wanted of the chunks that start at the record `base`."""
        for column in self._columns:
            ends = [
                min(s + c, n)
                for s, c, n in zip(column, self._chunk[1:], self._found.shape[1:], strict=True)
            ]
            cells = tuple(slice(s, e) for s, e in zip(column, ends, strict=True))
            inside = tuple(slice(0, e - s) for s, e in zip(column, ends, strict=True))
            place = table.get((base, *column))
            if place is None:
                out[(target, *cells)] = self._fill
            else:
                self._unpack(place, rows, out[(target, *cells)], inside)

    def _unpack(
        self, place: tuple[int, int, int], rows: _Rows, out: np.ndarray, inside: tuple[slice, ...]
    ) -> None:
        offset, size, mask = place
        data = self._inflated(offset, size, mask)
        width = self._dtype.itemsize
        if width == 1 or not self._has("shuffle", mask):
            out[...] = data.view(self._dtype).reshape(self._chunk)[rows][(slice(None), *inside)]
            return
        planes = data.reshape(width, *self._chunk)
        # Copied plane by plane: a transposed copy takes three times as long.
        target = out[..., np.newaxis].view(np.uint8)
        for n in range(width):
            target[..., n] = planes[n][rows][(slice(None), *inside)]

    def _has(self, name: str, mask: int) -> bool:
        """Whether a chunk of this mask went through a filter."""
        filters = self._found.filters
        return name in filters and not mask >> filters.index(name) & 1

    def _inflated(self, offset: int, size: int, mask: int) -> np.ndarray:
        """The bytes of a chunk behind gzip."""
        path = self._source.path
        self._check(offset, size)
        packed = self._source.read(offset, size)
        if self._has("gzip", mask):
            engine = _core.Inflater("zlib")
            try:
                # One more than there may be, so that a stream which goes on is not taken for whole.
                packed, _ = engine.push(packed, True, self._bytes + 1)
            except _core.KernelError as error:
                message = f"a chunk is no zlib stream: {error}"
                raise FormatError(message, file=path, byte=offset) from None
            if not engine.finished:
                raise FormatError("a chunk inflates to another size", file=path, byte=offset)
        if len(packed) != self._bytes:
            raise FormatError(
                "a chunk has another size than the dataset says",
                file=path,
                byte=offset,
                expected=f"{self._bytes} bytes",
                found=f"{len(packed)} bytes",
            )
        return as_bytes(packed)

    def _check(self, offset: int, size: int) -> None:
        if offset < 0 or offset + size > self._source.size:
            raise TruncatedError(
                "a chunk reaches beyond the file", file=self._source.path, byte=self._source.size
            )

    def _gathered(self, table: _Table, cut: Cut) -> np.ndarray | None:
        """The records of chunks that are not packed and as wide as the dataset: only their own
        bytes are read. None where a chunk is missing or has another size."""
        row = self._bytes // self._chunk[0]
        starts: list[int] = []
        lengths: list[int] = []
        for base, rows, _ in self._parts(cut):
            place = table.get((base, *self._columns[0]))
            if place is None or place[1] != self._bytes:
                return None
            self._check(place[0], place[1])
            if isinstance(rows, slice):
                starts.append(place[0] + rows.start * row)
                lengths.append((rows.stop - rows.start) * row)
            else:
                starts += (place[0] + rows * row).tolist()
                lengths += [row] * len(rows)
        whole = FilePlace(self._source, 0, self._source.size)
        if all(
            at + size == after for at, size, after in zip(starts, lengths, starts[1:], strict=False)
        ):
            found = whole.read(starts[0], sum(lengths))
        else:
            found = whole.gather(np.array(starts, np.int64), np.array(lengths, np.int64))
        return found.view(self._dtype).reshape(cut.total, *self._found.shape[1:])

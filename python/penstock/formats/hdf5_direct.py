"""Values of HDF5 that are read past libhdf5: where it says that they lie, by several threads.

libhdf5 works for one thread at a time, whatever it has to inflate. Its part here is to say where a
dataset's bytes are: one range, or one for each chunk. They are read and unpacked by penstock, if
they are at rest what NumPy wants in memory, plain or packed by gzip, LZF and shuffle; anything else
stays with libhdf5 (`hdf5.py`).

A chunk's values lie in C order, and are whole even where the dataset ends inside of them. They went
through the filters that the dataset names, but for those whose bits are set in the chunk's mask:
chunks that LZF would not have made smaller are stored as they are.
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
from penstock.pipeline import default_threads
from penstock.storage import Source

_FILTERS = ((), ("gzip",), ("lzf",), ("shuffle",), ("shuffle", "gzip"), ("shuffle", "lzf"))
GROUP_BYTES = 8 << 20
"""Chunks are unpacked side by side up to so many bytes of values,"""
GROUP_CHUNKS = 1 << 16
"""and up to so many of them."""


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
        self._written: tuple[np.ndarray, np.ndarray] | None = None
        self._fill = np.zeros((), found.dtype)
        # The chunks beside each other that the records of one chunk need.
        axes = zip(found.shape[1:], found.chunk[1:], strict=True)
        self._columns = list(itertools.product(*(range(0, size, step) for size, step in axes)))
        # Whether the values of a record lie one behind another in one chunk, and nothing between records.
        self._is_wide = found.chunk[1:] == found.shape[1:]
        width = max(len(self._columns), 1)
        self._most_rows = max(1, min(GROUP_BYTES // (self._bytes * width), GROUP_CHUNKS // width))

    def _places(self, rows: np.ndarray) -> np.ndarray:
        """Where the chunks of some rows of chunks are, int64 [rows, chunks of a row, (offset in the
        file, bytes, mask of filters left out)]; -1 bytes where one was never written."""
        keys, table = self._index()
        width = len(self._columns)
        wanted = rows[:, None] * width + np.arange(width)
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where((keys[at] == wanted)[..., None], table[at], -1)

    def _index(self) -> tuple[np.ndarray, np.ndarray]:
        """The chunks that were written, by their numbers; libhdf5 is asked once. As large as the file
        has chunks, whatever the dataset's shape claims."""
        with self._lock:
            if self._written is None:
                numbers = {column: number for number, column in enumerate(self._columns)}
                found = {-1: (-1, -1, -1)}

                def note(info: Any) -> None:
                    base, *column = info.chunk_offset
                    number = numbers.get(tuple(column))
                    if number is not None:
                        key = base // self._chunk[0] * len(numbers) + number
                        found[key] = info.byte_offset, info.size, info.filter_mask

                plan = self._found.id.get_create_plist()
                if plan.fill_value_defined():
                    plan.get_fill_value(self._fill)
                if self._found.id.get_storage_size():
                    self._found.id.chunk_iter(note)
                keys = np.array(sorted(found), np.int64)
                self._written = keys, np.array([found[key] for key in keys.tolist()], np.int64)
            return self._written

    def read(self, cut: Cut, *, alone: bool) -> np.ndarray:
        """The records of a cut; `alone` where no other thread works on the same call."""
        if not cut.total:
            return np.empty((0, *self._found.shape[1:]), self._dtype)
        threads = default_threads() if alone else 1
        if len(cut.starts) == 1:
            return self._read_run(int(cut.starts[0]), cut.total, threads)
        return self._read_records(cut.records(), threads)

    def _read_run(self, first: int, count: int, threads: int) -> np.ndarray:
        """Records one after another."""
        step = self._chunk[0]
        low, high = first // step, -(-(first + count) // step)
        numbers = np.arange(low, high)
        places = self._places_of_rows(numbers)
        if self._are_stored(places).all():
            row = self._bytes // step
            edges = np.arange(low, high + 1) * step
            edges[0], edges[-1] = first, first + count
            starts = places[:, 0] + (edges[:-1] - numbers * step) * row
            return self._rows(starts, np.diff(edges) * row)
        most = self._most_rows
        if high - low <= most:
            return self._whole(numbers, threads)[first - low * step :][:count]
        out = np.empty((count, *self._found.shape[1:]), self._dtype)
        for begin in range(low, high, most):
            end = min(begin + most, high)
            start, stop = max(first, begin * step), min(first + count, end * step)
            values = self._whole(np.arange(begin, end), threads)
            out[start - first : stop - first] = values[start - begin * step :][: stop - start]
        return out

    def _read_records(self, records: np.ndarray, threads: int) -> np.ndarray:
        """Records whose numbers rise."""
        step, row = self._chunk[0], self._bytes // self._chunk[0]
        bases = records // step
        inside = records - bases * step
        places = self._places_of_rows(bases)
        stored = self._are_stored(places)
        found = self._rows(places[stored, 0] + inside[stored] * row, row)
        if len(found) == len(records):
            return found
        out = np.empty((len(records), *self._found.shape[1:]), self._dtype)
        out[stored] = found
        packed = np.flatnonzero(~stored)
        numbers = np.unique(bases[packed])
        for begin in range(0, len(numbers), self._most_rows):
            group = numbers[begin : begin + self._most_rows]
            low, high = np.searchsorted(bases[packed], [group[0], group[-1] + 1])
            wanted = packed[low:high]
            values = self._whole(group, threads)
            out[wanted] = values[np.searchsorted(group, bases[wanted]) * step + inside[wanted]]
        return out

    def _places_of_rows(self, rows: np.ndarray) -> np.ndarray:
        """The places of rows of one chunk as wide as the dataset, [rows, 3]; else of none."""
        if not self._is_wide:
            return np.full((len(rows), 3), -1, np.int64)
        return self._places(rows)[:, 0]

    def _are_stored(self, places: np.ndarray) -> np.ndarray:
        """Where a chunk's values lie in the file as they are."""
        every = (1 << len(self._found.filters)) - 1
        return (places[:, 1] == self._bytes) & (places[:, 2] & every == every)

    def _rows(self, starts: np.ndarray, lengths: np.ndarray | int) -> np.ndarray:
        """Records that lie in the file as they are: only their own bytes are read."""
        lengths = np.broadcast_to(lengths, starts.shape)
        inner = self._found.shape[1:]
        if not len(starts):
            return np.empty((0, *inner), self._dtype)
        self._check(starts, lengths)
        found = as_bytes(FilePlace(self._source, 0, self._source.size).read_all(starts, lengths))
        return found.view(self._dtype).reshape(-1, *inner)

    def _whole(self, rows: np.ndarray, threads: int) -> np.ndarray:
        """All records of some rows of chunks."""
        places = self._places(rows)
        step, inner = self._chunk[0], self._found.shape[1:]
        there = places[..., 1] >= 0
        chunks = self._unpacked(places[there], threads)
        if self._is_wide and there.all():
            return chunks.reshape(-1, *inner)
        out = np.empty((len(rows) * step, *inner), self._dtype)
        for number, (row, column) in enumerate(np.argwhere(there).tolist()):
            cells = tuple(self._cells(self._columns[column]))
            within = (slice(0, cell.stop - cell.start) for cell in cells)
            out[(slice(row * step, (row + 1) * step), *cells)] = chunks[number][
                (slice(None), *within)
            ]
        for row, column in np.argwhere(~there).tolist():
            cells = self._cells(self._columns[column])
            out[(slice(row * step, (row + 1) * step), *cells)] = self._fill
        return out

    def _cells(self, column: tuple[int, ...]) -> Iterator[slice]:
        """What a chunk that starts at this cell covers of a record."""
        for start, length, end in zip(column, self._chunk[1:], self._found.shape[1:], strict=True):
            yield slice(start, min(start + length, end))

    def _unpacked(self, places: np.ndarray, threads: int) -> np.ndarray:
        """The values of some chunks: [chunks, ...]."""
        if not len(places):
            return np.empty((0, *self._chunk), self._dtype)
        starts, sizes = places[:, 0], places[:, 1]
        self._check(starts, sizes)
        packed = FilePlace(self._source, 0, self._source.size).read_all(starts, sizes)
        try:
            plain = _core.unpack_chunks(
                packed,
                list(zip(sizes.tolist(), places[:, 2].tolist(), strict=True)),
                list(self._found.filters),
                self._bytes,
                self._dtype.itemsize,
                threads,
            )
        except _core.KernelError as error:
            fault = error.args[0]
            byte = int(starts[fault.record or 0])
            raise FormatError(fault.message, file=self._source.path, byte=byte) from None
        return as_bytes(plain).view(self._dtype).reshape(len(places), *self._chunk)

    def _check(self, starts: np.ndarray, lengths: np.ndarray) -> None:
        size = self._source.size
        # Compared without a sum, which could wrap.
        if ((starts < 0) | (lengths > size) | (starts > size - lengths)).any():
            raise TruncatedError(
                "a chunk reaches beyond the file", file=self._source.path, byte=size
            )

"""Reads values of HDF5 without libhdf5, on several threads.

libhdf5 runs on one thread at a time, even while it inflates. Here it only reports where a dataset's bytes are: in one
range, or in one range per chunk. penstock reads the values itself if the file stores them as NumPy has them in memory,
either plain or packed with gzip, LZF and shuffle. libhdf5 reads everything else (`format.py`).

A chunk's values are in C order and complete, even if the dataset ends inside the chunk. They went through the filters
of the dataset, except those whose bits are set in the chunk's mask: LZF is skipped for a chunk that it would not make
smaller.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock import _core
from penstock.columns.numbers import in_bytes
from penstock.engine.locks import Lock
from penstock.engine.pipeline import default_threads
from penstock.errors import FormatError, LimitError, TruncatedError
from penstock.formats.hdf5._file import Found
from penstock.formats.numpy.arrays import Cut, FilePlace, StoredArray
from penstock.formats.numpy.dtypes import without_sub_array
from penstock.formats.numpy.npy_header import Header
from penstock.storage.base import Source
from penstock.tuned import HDF5_GROUP_BYTES

_FILTERS = ((), ("gzip",), ("lzf",), ("shuffle",), ("shuffle", "gzip"), ("shuffle", "lzf"))
GROUP_CHUNKS = 1 << 16
"""The maximum chunks that are unpacked together."""

_Part = tuple[int, slice | np.ndarray, slice]
"""For a row of chunks: its number, which of its records are wanted, and where they go in the result."""


def direct(found: Found, source: Source, lock: Lock) -> StoredArray | ChunkedArray | None:
    """Return a way to read a dataset without libhdf5, or None if there is none."""
    import h5py

    dtype = found.dtype
    if dtype.hasobject or not dtype.itemsize or found.user_block:
        return None
    if h5py.h5t.py_create(dtype, logical=True) != found.id.get_type():
        return None
    if found.chunk is not None:
        return ChunkedArray(found, source, lock) if _is_unpackable(found) else None
    base, shape = without_sub_array(dtype, found.shape)
    start = found.id.get_offset()
    size = math.prod(shape) * base.itemsize
    if start is None or not size or found.filters:
        return None
    if start + size > source.size:
        raise TruncatedError(
            "the values extend beyond the end of the file",
            byte=source.size,
            expected=f"{size} bytes at {start}",
        )
    header = Header(base, False, shape, start)
    return StoredArray(header, FilePlace(source, start, size), source.path)


def _is_unpackable(found: Found) -> bool:
    if (
        found.filters not in _FILTERS
        or not math.prod(found.chunk or ())
        or found.dtype.subdtype is not None
    ):
        return False
    if "shuffle" not in found.filters:
        return True
    values = found.id.get_create_plist().get_filter(found.filters.index("shuffle"))[2]
    return values[:1] == (found.dtype.itemsize,)


class ChunkedArray:
    """A chunked dataset whose chunks are read directly from the file."""

    def __init__(self, found: Found, source: Source, lock: Lock) -> None:
        assert found.chunk is not None
        self._found = found
        self._place = FilePlace(source, 0, source.size)
        self._lock = lock
        self._dtype = found.dtype
        self._chunk = found.chunk
        self._bytes = math.prod(found.chunk) * found.dtype.itemsize
        self._written: tuple[np.ndarray, np.ndarray] | None = None
        self._is_odd = False
        self._fill = np.zeros((), found.dtype)
        # The first cell of each chunk in a row of chunks. Together, the chunks of a row hold whole
        # records.
        axes = zip(found.shape[1:], found.chunk[1:], strict=True)
        self._columns = list(itertools.product(*(range(0, size, step) for size, step in axes)))
        # Whether one chunk holds all values of its records.
        self._is_wide = found.chunk[1:] == found.shape[1:]
        self._most = max(1, min(HDF5_GROUP_BYTES // self._bytes, GROUP_CHUNKS))

    def _places(self, numbers: np.ndarray) -> np.ndarray:
        """Return where chunks are, given by their numbers: int64 [chunks, (file offset, bytes, mask of skipped
        filters)]. A chunk that was never written has -1 bytes."""
        keys, table = self._index()
        at = np.minimum(np.searchsorted(keys, numbers), len(keys) - 1)
        return np.where((keys[at] == numbers)[:, None], table[at], -1)

    def _index(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the sorted numbers of the chunks in the file, and their places. libhdf5 is asked once."""
        with self._lock:
            if self._written is None:
                numbers = {column: number for number, column in enumerate(self._columns)}
                found = {-1: (-1, -1, -1)}

                def note(info: Any) -> None:
                    base, *column = info.chunk_offset
                    number = numbers.get(tuple(column))
                    is_whole = info.size == self._bytes and not info.filter_mask
                    if is_whole and self._found.filters and self._is_partial(info.chunk_offset):
                        self._is_odd = True
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

    def _is_partial(self, start: tuple[int, ...]) -> bool:
        ends = zip(start, self._chunk, self._found.shape, strict=True)
        return any(at + length > end for at, length, end in ends)

    def read(self, cut: Cut, *, alone: bool) -> np.ndarray | None:
        """Return records. `alone` means that no other thread works on the same call. Return None if libhdf5 must read
        them: in newer files, partial chunks at the end of the dataset may be unfiltered, and no mask shows that."""
        self._index()
        if self._is_odd:
            return None
        if not cut.total:
            return np.empty((0, *self._found.shape[1:]), self._dtype)
        threads = default_threads() if alone else 1
        if cut.is_run:
            return self._read_run(int(cut.runs[0][0]), cut.total, threads)
        return self._read_records(cut.records, threads)

    def _read_run(self, first: int, count: int, threads: int) -> np.ndarray:
        step, inner = self._chunk[0], self._found.shape[1:]
        low, high = first // step, -(-(first + count) // step)
        numbers = np.arange(low, high)
        edges = np.arange(low, high + 1) * step
        edges[[0, -1]] = first, first + count
        inside = edges[:-1] - numbers * step
        if self._is_wide:
            places = self._places(numbers)
            if self._are_stored(places).all():
                row = self._bytes // step
                return self._rows(places[:, 0] + inside * row, np.diff(edges) * row)
            if len(numbers) <= self._most and (places[:, 1] >= 0).all():
                return self._unpacked(places, threads).reshape(-1, *inner)[inside[0] :][:count]
        out = np.empty((count, *inner), self._dtype)
        parts: list[_Part] = [
            (number, slice(start, start + end - at), slice(at - first, end - first))
            for number, start, (at, end) in zip(
                numbers.tolist(), inside.tolist(), itertools.pairwise(edges.tolist()), strict=True
            )
        ]
        self._fill_parts(out, parts, threads)
        return out

    def _read_records(self, records: np.ndarray, threads: int) -> np.ndarray:
        """Read records in ascending order."""
        step, row = self._chunk[0], self._bytes // self._chunk[0]
        bases = records // step
        inside = records - bases * step
        out = np.empty((len(records), *self._found.shape[1:]), self._dtype)
        if not self._is_wide:
            edges = [0, *(np.flatnonzero(np.diff(bases)) + 1).tolist(), len(records)]
            runs = itertools.pairwise(edges)
            parts: list[_Part] = [
                (int(bases[a]), inside[a:b], slice(a, b)) for a, b in runs if b > a
            ]
            self._fill_parts(out, parts, threads)
            return out
        places = self._places(bases)
        stored = self._are_stored(places)
        found = self._rows(places[stored, 0] + inside[stored] * row, row)
        if len(found) == len(records):
            return found
        out[stored] = found
        missing = places[:, 1] < 0
        out[missing] = self._fill
        packed = np.flatnonzero(~(stored | missing))
        numbers, firsts = np.unique(bases[packed], return_index=True)
        for begin in range(0, len(numbers), self._most):
            group = numbers[begin : begin + self._most]
            ends = [*firsts.tolist(), len(packed)]
            wanted = packed[ends[begin] : ends[begin + len(group)]]
            chunks = self._unpacked(self._places(group), threads)
            out[wanted] = chunks[np.searchsorted(group, bases[wanted]), inside[wanted]]
        return out

    def _fill_parts(self, out: np.ndarray, parts: list[_Part], threads: int) -> None:
        """Unpack the wanted records of rows of chunks, one group of chunks at a time."""
        width = len(self._columns)
        pairs = ((part, column) for part in parts for column in range(width))
        while group := list(itertools.islice(pairs, self._most)):
            numbers = np.array([row * width + column for (row, _, _), column in group], np.int64)
            places = self._places(numbers)
            there = places[:, 1] >= 0
            chunks = iter(self._unpacked(places[there], threads))
            for ((_, rows, target), column), is_there in zip(group, there.tolist(), strict=True):
                cells = tuple(self._cells(self._columns[column]))
                if is_there:
                    within = (slice(0, cell.stop - cell.start) for cell in cells)
                    out[(target, *cells)] = next(chunks)[rows][(slice(None), *within)]
                else:
                    out[(target, *cells)] = self._fill

    def _are_stored(self, places: np.ndarray) -> np.ndarray:
        """Return which chunks no filter has changed."""
        every = (1 << len(self._found.filters)) - 1
        return (places[:, 1] == self._bytes) & (places[:, 2] & every == every)

    def _rows(self, starts: np.ndarray, lengths: np.ndarray | int) -> np.ndarray:
        """Return records of chunks that no filter has changed, so only their bytes are read."""
        lengths = np.broadcast_to(lengths, starts.shape)
        inner = self._found.shape[1:]
        if not len(starts):
            return np.empty((0, *inner), self._dtype)
        self._check(starts, lengths)
        return self._place.gather(starts, lengths).view(self._dtype).reshape(-1, *inner)

    def _cells(self, column: tuple[int, ...]) -> Iterator[slice]:
        """Yield the cells of a record that the chunk starting at `column` covers."""
        for start, length, end in zip(column, self._chunk[1:], self._found.shape[1:], strict=True):
            yield slice(start, min(start + length, end))

    def _unpacked(self, places: np.ndarray, threads: int) -> np.ndarray:
        """Return the values of chunks: [chunks, ...]."""
        if not len(places):
            return np.empty((0, *self._chunk), self._dtype)
        starts, sizes = places[:, 0], places[:, 1]
        self._check(starts, sizes)
        packed = self._place.read_all(starts, sizes)
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
            if fault.kind == "limit":
                raise LimitError(fault.message, file=self._place.source.path) from None
            byte = int(starts[fault.record or 0])
            raise FormatError(fault.message, file=self._place.source.path, byte=byte) from None
        return in_bytes(plain).view(self._dtype).reshape(len(places), *self._chunk)

    def _check(self, starts: np.ndarray, lengths: np.ndarray) -> None:
        path, size = self._place.source.path, self._place.size
        # Not as a sum, which could overflow.
        if ((starts < 0) | (lengths > size) | (starts > size - lengths)).any():
            raise TruncatedError("a chunk extends beyond the end of the file", file=path, byte=size)

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
from penstock.engine.locks import Lock
from penstock.engine.pipeline import default_threads
from penstock.errors import FormatError, LimitError, TruncatedError
from penstock.formats.hdf5._file import Found
from penstock.formats.numpy.arrays import Cut, FilePlace, StoredArray, as_bytes
from penstock.formats.numpy.npy_header import Header
from penstock.storage.base import Source
from penstock.tuned import HDF5_GROUP_BYTES

_FILTERS = ((), ("gzip",), ("lzf",), ("shuffle",), ("shuffle", "gzip"), ("shuffle", "lzf"))
GROUP_CHUNKS = 1 << 16
"""and up to so many of them."""


_Part = tuple[int, slice | np.ndarray, slice]
"""Of a row of chunks: its number, which of its records, and where they go."""


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
        if "shuffle" in found.filters:
            told = found.id.get_create_plist().get_filter(found.filters.index("shuffle"))[2]
            if told[:1] != (dtype.itemsize,):
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
        self._is_odd = False
        self._fill = np.zeros((), found.dtype)
        # The chunks beside each other that the records of one chunk need.
        axes = zip(found.shape[1:], found.chunk[1:], strict=True)
        self._columns = list(itertools.product(*(range(0, size, step) for size, step in axes)))
        # Whether the values of a record lie one behind another in one chunk, and nothing between records.
        self._is_wide = found.chunk[1:] == found.shape[1:]
        self._most = max(1, min(HDF5_GROUP_BYTES // self._bytes, GROUP_CHUNKS))

    def _places(self, numbers: np.ndarray) -> np.ndarray:
        """Where chunks are, counted along the rows of chunks, int64 [chunks, (offset in the file,
        bytes, mask of filters left out)]; -1 bytes where one was never written."""
        keys, table = self._index()
        at = np.minimum(np.searchsorted(keys, numbers), len(keys) - 1)
        return np.where((keys[at] == numbers)[:, None], table[at], -1)

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
        """Whether a chunk reaches beyond the end of the dataset."""
        ends = zip(start, self._chunk, self._found.shape, strict=True)
        return any(at + length > end for at, length, end in ends)

    def read(self, cut: Cut, *, alone: bool) -> np.ndarray | None:
        """The records of a cut; `alone` where no other thread works on the same call. None where
        chunks at the end of the dataset may be stored without filters and without saying so, which
        is an option of newer files: libhdf5 knows."""
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
        """Records one after another."""
        step, inner = self._chunk[0], self._found.shape[1:]
        low, high = first // step, -(-(first + count) // step)
        numbers = np.arange(low, high)
        edges = np.arange(low, high + 1) * step
        edges[0], edges[-1] = first, first + count
        inside = edges[:-1] - numbers * step
        if self._is_wide:
            places = self._places(numbers)
            if self._are_stored(places).all():
                row = self._bytes // step
                return self._rows(places[:, 0] + inside * row, np.diff(edges) * row)
            if len(numbers) <= self._most and (places[:, 1] >= 0).all():
                return self._unpacked(places, threads).reshape(-1, *inner)[inside[0] :][:count]
        out = np.empty((count, *inner), self._dtype)
        parts: list[_Part] = []
        for number, start, at, end in zip(
            numbers.tolist(), inside.tolist(), edges.tolist(), edges[1:].tolist(), strict=False
        ):
            parts.append((number, slice(start, start + end - at), slice(at - first, end - first)))
        self._fill_parts(out, parts, threads)
        return out

    def _read_records(self, records: np.ndarray, threads: int) -> np.ndarray:
        """Records whose numbers rise."""
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
        """Unpack what is wanted of rows of chunks, some chunks at a time."""
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
            if fault.kind == "limit":
                raise LimitError(fault.message, file=self._source.path) from None
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

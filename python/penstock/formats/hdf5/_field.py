"""Reads one dataset of an HDF5 file as a field: directly where its bytes are known, else through libhdf5."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock.engine.locks import Lock
from penstock.formats.hdf5._direct import direct
from penstock.formats.hdf5._file import Found, attributes, check_chunks
from penstock.formats.numpy.arrays import Cut, StoredArray
from penstock.formats.numpy.dtypes import column, field_of, stored_type, without_sub_array
from penstock.limits import Limits
from penstock.storage.base import Source


class Field:
    """One dataset as a field."""

    def __init__(self, found: Found, source: Source, lock: Lock, limits: Limits) -> None:
        self.found = found
        self._limits = limits
        self._lock = lock
        self._is_checked = False
        self._direct = None if self.is_refused else direct(found, source, lock)
        field: Any = field_of(found.name, found.dtype, found.shape[1:])
        metadata = {**attributes(found.id), **(field.metadata or {})}
        self.field: Any = field.with_metadata(metadata or None)
        self.record_bytes = found.record_bytes
        if found.dtype.hasobject:
            self.record_bytes += source.size // max(found.shape[0], 1)
        self.step = found.chunk[0] if found.chunk else 1

    @property
    def is_refused(self) -> bool:
        """Whether a record exceeds the limit. Then only this field of the file cannot be read."""
        return self.found.record_bytes > self._limits.record_bytes

    def read(self, cut: Cut, wanted: Any, *, alone: bool) -> Any:
        """Return records as a column, which is later cast to the type `wanted`. The runs of `cut` ascend and do not touch.
        `alone` means that the caller uses no other threads."""
        if self.is_refused:
            self._limits.check("record_bytes", self.found.record_bytes)
        values: np.ndarray | None = None
        if isinstance(self._direct, StoredArray):
            values = self._direct.read(cut)
        elif self._direct is not None:
            values = self._direct.read(cut, alone=alone)
        if values is None:
            with self._lock:
                values = self._by_libhdf5(cut)
        return column(values, stored_type(self.field.type, wanted))

    def _by_libhdf5(self, cut: Cut) -> np.ndarray:
        import h5py

        found = self.found
        if not self._is_checked:
            check_chunks(found)
            self._is_checked = True
        rest = found.shape[1:]
        kind, inner = without_sub_array(found.dtype, rest)
        values = np.zeros((cut.total, *inner), kind)
        type_ = h5py.h5t.py_create(found.dtype)
        at = 0
        for first, last, places in self._slabs(cut):
            count = last - first
            whole = values[at : at + count] if places is None else np.zeros((count, *inner), kind)
            if count and 0 not in rest:
                _read_run(found, first, whole, type_)
            if places is not None:
                values[at : at + len(places)] = whole[places]
                count = len(places)
            at += count
        return values

    def _slabs(self, cut: Cut) -> Iterator[tuple[int, int, np.ndarray | None]]:
        """Yield (first, last, which of them or None for all): runs of records to read together, so that no chunk of
        HDF5 is read twice."""
        starts, counts = cut.runs
        if len(starts) <= 1 or self.found.chunk is None:
            for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
                yield start, start + count, None
            return
        records = cut.records
        chunks = records // self.step
        edges = np.flatnonzero(np.diff(chunks)) + 1
        for run in np.split(records, edges):
            first, last = int(run[0]), int(run[-1]) + 1
            yield first, last, None if last - first == len(run) else run - first


def _read_run(found: Found, first: int, into: np.ndarray, type_: Any) -> None:
    """Read consecutive records into an array. h5py refuses an empty list of fixed strings, so a run with such a list is
    read in halves, until only the empty list is left, which is already in the array."""
    import h5py

    rest = found.shape[1:]
    stored = found.id.get_space()
    stored.select_hyperslab((first, *(0 for _ in rest)), (len(into), *rest))
    try:
        found.id.read(h5py.h5s.create_simple((len(into), *rest)), stored, into, type_)
    except ValueError as error:
        if rest or "NULL pointer" not in str(error):
            raise
        half = len(into) // 2
        if half:
            _read_run(found, first, into[:half], type_)
            _read_run(found, first + half, into[half:], type_)

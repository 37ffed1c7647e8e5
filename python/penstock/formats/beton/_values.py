"""The values of a .beton: where the values of some records are, and their bytes as Arrow arrays.

Rows hold the places of values, but only the allocation table has the length of a JPEG. The table has one entry per
stored value, in any order. A single writer leaves the entries in the order of records and fields, so the entries of a
record are first looked up at the place that follows from this order. If they are elsewhere, the whole table is read
once and sorted by place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.columns.numbers import as_arrow, in_bytes
from penstock.engine.locks import Lock
from penstock.errors import ChangedError, FormatError, LimitError, batch_limit
from penstock.formats.beton._layout import ENTRY, JPEG_MODE, RAW_MODE, Field, Layout
from penstock.limits import Limits
from penstock.storage.base import Source

_TABLE_PIECE = ENTRY.itemsize << 16
_MOST_OFFSET = (1 << 31) - 1
"""The largest offset in an Arrow binary array."""


class Spans(NamedTuple):
    """Places of the values of one field: uint64 starts and int64 lengths. Each value was verified to be inside one
    page."""

    starts: np.ndarray
    lengths: np.ndarray


class ValueWindow(NamedTuple):
    """A range of the file that holds all requested values and few other bytes."""

    start: int
    data: _core.Buffer


class Values:
    """Finds and reads the stored values of one file. Several threads may use it concurrently."""

    def __init__(self, source: Source, layout: Layout, limits: Limits) -> None:
        self._source = source
        self._layout = layout
        self._limits = limits
        self._places = {field.name: place for place, field in enumerate(layout.stored)}
        self._sorted: np.ndarray | None = None
        self._lock = Lock()

    # -- places of values --------------------------------------------------------------------------

    def spans(self, field: Field, starts: np.ndarray, lengths: Any, records: np.ndarray) -> Spans:
        """Verify that values are inside pages. Empty values may be anywhere."""
        lengths = np.broadcast_to(np.asarray(lengths, np.uint64), starts.shape)
        layout = self._layout
        shift = layout.page_bytes.bit_length() - 1
        low, high = np.uint64(layout.first_page), np.uint64(layout.table_start)
        fits = (starts >= low) & (starts < high) & (lengths <= np.uint64(layout.page_bytes))
        # No overflow: values that fit so far start inside the file, and a page is at most 2 GiB.
        last = np.where(fits, starts + np.maximum(lengths, 1) - np.uint64(1), high)
        fits &= (last < high) & (last >> shift == starts >> shift)
        wrong = np.flatnonzero(~fits & (lengths > 0))
        if len(wrong):
            at = int(wrong[0])
            raise FormatError(
                "a value is not inside one page of the file",
                record=int(records[at]),
                field=field.name,
                byte=self._row_byte(int(records[at])),
                expected=f"{layout.page_bytes} byte pages in {int(low)}..{int(high)}",
                found=f"{int(lengths[at])} bytes at {int(starts[at])}",
            )
        return Spans(starts, self._within_limits(field, lengths, records))

    def _within_limits(self, field: Field, lengths: Any, records: np.ndarray) -> np.ndarray:
        longest = int(lengths.max(initial=0))
        total = int(lengths.sum(dtype=np.uint64))
        try:
            self._limits.check("record_bytes", longest)
        except LimitError as error:
            record = int(records[int(lengths.argmax())]) if len(records) else None
            raise error.at(field=field.name, record=record) from None
        try:
            self._limits.check_batch(total)
        except LimitError as error:
            # No single record caused this: reading fewer records together works.
            raise error.at(field=field.name) from None
        if total > _MOST_OFFSET:
            message = f"a column of a batch has {total} bytes, beyond Arrow's offsets"
            raise batch_limit(message, field=field.name)
        return lengths.astype(np.int64)

    def _row_byte(self, record: int) -> int:
        return self._layout.rows_start + record * self._layout.row.itemsize

    def image_lengths(self, field: Field, rows: np.ndarray, records: np.ndarray) -> np.ndarray:
        """Return the bytes of each image: of pixels from the row, of a JPEG from the table."""
        modes = rows["mode"]
        pixels = rows["width"].astype(np.uint64) * rows["height"]
        wrong = np.flatnonzero((modes > RAW_MODE) | ((pixels == 0) & (modes == RAW_MODE)))
        if len(wrong):
            at = int(wrong[0])
            raise FormatError(
                "the image is neither a JPEG nor pixels",
                record=int(records[at]),
                field=field.name,
                byte=self._row_byte(int(records[at])),
                found=f"mode {modes[at]}, {rows['width'][at]} x {rows['height'][at]}",
            )
        lengths = pixels * np.uint64(3)
        jpegs = np.flatnonzero(modes == JPEG_MODE)
        if len(jpegs):
            lengths[jpegs] = self._table_lengths(field, rows["ptr"][jpegs], records[jpegs])
        return lengths

    def _table_lengths(self, field: Field, starts: np.ndarray, records: np.ndarray) -> np.ndarray:
        """Return the lengths of values from the allocation table."""
        if self._sorted is None:
            found = self._expected_entries(field, records)
            is_right = (found["ptr"] == starts) & (found["record"] == records.astype(np.uint64))
            if (is_right & (found["size"] > 0)).all():
                return found["size"]
        table = self._by_place()
        places = np.minimum(np.searchsorted(table["ptr"], starts), max(len(table) - 1, 0))
        if len(table):
            found = table[places]
            is_right = (found["ptr"] == starts) & (found["record"] == records.astype(np.uint64))
            wrong = np.flatnonzero(~is_right)
        else:
            found, wrong = table, np.arange(len(starts))
        if len(wrong):
            at = int(wrong[0])
            raise FormatError(
                "the allocation table does not have the length of this JPEG",
                record=int(records[at]),
                field=field.name,
                byte=self._row_byte(int(records[at])),
                expected=f"an entry for byte {int(starts[at])}",
            )
        return found["size"]

    def _expected_entries(self, field: Field, records: np.ndarray) -> np.ndarray:
        """Return the entries at the places where a field's entries are if the table is in order."""
        step = len(self._places)
        place = self._places[field.name]
        first, last = int(records[0]), int(records[-1])
        start = self._layout.table_start
        if last - first == len(records) - 1 and (np.diff(records) == 1).all():
            length = len(records) * step * ENTRY.itemsize
            data = self._source.read(start + first * step * ENTRY.itemsize, length)
            self._check_length(data, length)
            return in_bytes(data, ENTRY)[place::step]
        places = (records.astype(np.uint64) * np.uint64(step) + np.uint64(place)) * np.uint64(
            ENTRY.itemsize
        ) + np.uint64(start)
        sizes = as_arrow(np.full(len(records), ENTRY.itemsize, np.uint64))
        return in_bytes(self._source.gather(as_arrow(places), sizes), ENTRY)

    def _by_place(self) -> np.ndarray:
        """Return the whole table, sorted by place. Empty values are left out, because they share their place with other
        values."""
        with self._lock:
            if self._sorted is None:
                self._sorted = self._read_table()
            return self._sorted

    def _read_table(self) -> np.ndarray:
        start, end = self._layout.table_start, self._source.size
        self._limits.check("batch_bytes", end - start)
        kept: list[np.ndarray] = []
        for at in range(start, end, _TABLE_PIECE):
            length = min(_TABLE_PIECE, end - at)
            data = self._source.read(at, length)
            self._check_length(data, length)
            piece = in_bytes(data, ENTRY)
            kept.append(piece[piece["size"] > 0])
        table = np.concatenate(kept) if kept else np.empty(0, ENTRY)
        table = table[np.argsort(table["ptr"], kind="stable")]
        twice = np.flatnonzero(table["ptr"][1:] == table["ptr"][:-1])
        if len(twice):
            raise FormatError(
                "the allocation table has two values at the same place",
                record=int(min(table["record"][twice[0] + 1], np.uint64(_MOST_OFFSET))),
                byte=start,
                found=f"byte {int(table['ptr'][twice[0]])}",
            )
        return table

    def _check_length(self, data: _core.Buffer, length: int) -> None:
        if len(data) < length:
            raise ChangedError("the file was truncated while it was open")

    # -- their bytes -------------------------------------------------------------------------------

    def window(self, spans: list[Spans]) -> ValueWindow | None:
        """Read the range that spans all these values in one read. Return None if it would hold many other bytes."""
        total = sum(int(span.lengths.sum()) for span in spans)
        if not total:
            return None
        low = min(int(s.starts[s.lengths > 0].min()) for s in spans if s.lengths.any())
        ends = [int((s.starts.astype(np.int64) + s.lengths)[s.lengths > 0].max())
                for s in spans if s.lengths.any()]  # fmt: skip
        size = max(ends) - low
        if size > total + (total >> 2) + (64 << 10) or size > _MOST_OFFSET:
            return None
        data = self._source.read(low, size)
        self._check_length(data, size)
        return ValueWindow(low, data)

    def views(self, spans: Spans, window: ValueWindow | None) -> pa.Array:
        """Return the values as views into the window, into the mapped file, or into bytes that are read now."""
        lengths = spans.lengths.astype(np.uint64)
        # Empty values may be anywhere.
        is_some = spans.lengths > 0
        starts = np.where(is_some, spans.starts, np.uint64(0))
        mapped = self._source.mapped
        if window is not None:
            data = window.data
            starts = np.where(is_some, starts - np.uint64(window.start), np.uint64(0))
        elif mapped is not None:
            data = mapped
        else:
            data = self._source.gather(as_arrow(starts), as_arrow(lengths))
            starts = np.cumsum(lengths) - lengths
        return pa.array(data.views(as_arrow(starts), as_arrow(lengths)))

    def binary(self, spans: Spans, window: ValueWindow | None) -> Any:
        """Return the values as a binary array, without a copy if they are contiguous in a window."""
        if window is not None:
            found = _contiguous(spans, window)
            return self.views(spans, window).cast(pa.binary()) if found is None else found
        offsets = np.zeros(len(spans.lengths) + 1, np.int32)
        np.cumsum(spans.lengths, out=offsets[1:])
        some = spans.lengths > 0  # empty values may be anywhere
        held = self._source.gather(
            as_arrow(spans.starts[some]), as_arrow(spans.lengths[some].astype(np.uint64))
        )
        return _binary(offsets, pa.py_buffer(held))


def _binary(offsets: np.ndarray, data: Any) -> Any:
    buffers = [None, pa.py_buffer(offsets), data]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _contiguous(spans: Spans, window: ValueWindow) -> Any:
    """Return the values as an array over the window if they are contiguous there, else None."""
    starts = spans.starts.astype(np.int64) - window.start
    # An empty value may be anywhere, so it is put at the end of the value before it.
    ends = np.where(spans.lengths > 0, starts + spans.lengths, 0)
    starts = np.where(spans.lengths > 0, starts, np.maximum.accumulate(ends))
    ends = starts + spans.lengths
    if (starts[1:] != ends[:-1]).any():
        return None
    return _binary(np.append(starts, ends[-1:]).astype(np.int32), pa.py_buffer(window.data))

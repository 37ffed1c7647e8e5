"""Writes the bytes of a .beton: first the values into pages, then the rows before the pages and the table after them.

The number of rows is known only at the end, so one page is left free for the header and the rows. If the rows need
more, the pages in their place are copied to the end. These are few, because a row has a few bytes and its values have
thousands. Until the end, the rows and the table are in memory, or in unnamed temporary files if they are large.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import IO

import numpy as np

from penstock.formats.beton._layout import ENTRY, HEADER, VERSION, Field, descriptor, row_dtype
from penstock.storage.base import Sink

_SPOOL_BYTES = 16 << 20
_PIECE = 1 << 16
"""How many rows, or table entries, are written together at the end."""


class Pages:
    """Writes one file. All values of a record go into one page."""

    def __init__(self, sink: Sink, fields: tuple[Field, ...], page_bytes: int) -> None:
        self._sink = sink
        self._fields = fields
        self._stored = [field for field in fields if field.is_stored]
        self.row = row_dtype(fields)
        self.page_bytes = page_bytes
        head = bytes(HEADER.size) + b"".join(descriptor(field) for field in fields)
        sink.write(head)
        self._rows_start = self.num_bytes = len(head)
        self._first_page = self._page_end = self._up(len(head))
        """The start of the first page and the end of the last page, which are equal while there is no page."""
        self.num_records = 0
        self.record_bytes = 0
        """Bytes of the rows, the values, and the table's entries for the values."""
        self._rows, self._table = _spool(sink.path), _spool(sink.path)

    def _up(self, size: int) -> int:
        return -(-size // self.page_bytes) * self.page_bytes

    def add(
        self, rows: np.ndarray, sizes: np.ndarray, values: np.ndarray | list[memoryview]
    ) -> None:
        """Append records, each of which fits into a page.

        Args:
            rows: the rows of the records. This method fills in the places of their values.
            sizes: the bytes of each stored value, int64 [records, fields].
            values: the stored values, record by record: one array of all bytes, or a view for each record.
        """
        if not self._stored:
            self._sink.write(rows.view(np.uint8).data)
            self.num_bytes += rows.nbytes
            self.num_records += len(rows)
            self.record_bytes += rows.nbytes
            return
        entries = np.zeros(sizes.shape, ENTRY)
        entries["ptr"] = self._place(sizes, values)
        entries["size"] = sizes
        entries["record"] = np.arange(self.num_records, self.num_records + len(rows))[:, None]
        for number, field in enumerate(self._stored):
            _places(rows, field)[:] = entries["ptr"][:, number]
        self._rows.write(rows.tobytes())
        self._table.write(entries.tobytes())
        self.num_records += len(rows)
        self.record_bytes += rows.nbytes + entries.nbytes + int(sizes.sum())

    def _place(self, sizes: np.ndarray, values: np.ndarray | list[memoryview]) -> np.ndarray:
        """Write values into pages, and return the place of each value."""
        ends = np.cumsum(sizes.sum(axis=1))
        starts = (np.cumsum(sizes) - sizes.reshape(-1)).reshape(sizes.shape)
        done, done_bytes = 0, 0
        while done < len(ends):
            room = self._page_end - self.num_bytes if self._page_end > self._first_page else 0
            fitting = int(np.searchsorted(ends, done_bytes + room, "right"))
            if fitting == done:
                self._write(bytes(self._page_end - self.num_bytes))
                self._page_end += self.page_bytes
                continue
            last = int(ends[fitting - 1])
            starts[done:fitting] += self.num_bytes - done_bytes
            each = isinstance(values, list)
            parts = values[done:fitting] if each else [values[done_bytes:last].data]
            self._sink.write_all(parts)
            self.num_bytes += last - done_bytes
            done, done_bytes = fitting, last
        return starts

    def _write(self, data: memoryview | bytes) -> None:
        self._sink.write(data)
        self.num_bytes += len(data)

    def close(self) -> None:
        """Write the rows, the table and the header, which are known only at the end."""
        table_start = self.num_bytes
        if self._rows.tell():
            self._write(bytes(self._page_end - self.num_bytes))
            low, high, way = self._make_room(self._rows_start + self._rows.tell())
            self._patch_rows(low, high, way)
            table_start = self.num_bytes
            for entries in _pieces(self._table, ENTRY):
                _move(entries["ptr"], low, high, way)
                self._write(entries.view(np.uint8).data)
        counts = (len(self._fields), self.page_bytes, self.num_records, table_start)
        self._sink.patch(0, HEADER.pack(VERSION, *counts))
        self.drop()

    def drop(self) -> None:
        """Delete the temporary rows and table."""
        self._rows.close()
        self._table.close()

    def _make_room(self, rows_end: int) -> tuple[int, int, int]:
        """Copy the pages that occupy the rows' place to the end. Return where they began and ended, and how far they
        moved."""
        low, high = self._first_page, self._up(rows_end)
        if high <= low:
            return low, low, 0
        last = min(high, self.num_bytes)
        self._write(bytes(max(0, high - self.num_bytes)))
        way = self.num_bytes - low
        self._sink.repeat(low, last - low)
        self.num_bytes += last - low
        self._sink.patch(rows_end, bytes(high - rows_end))
        return low, high, way

    def _patch_rows(self, low: int, high: int, way: int) -> None:
        at = self._rows_start
        for rows in _pieces(self._rows, self.row):
            for field in self._stored:
                _move(_places(rows, field), low, high, way)
            self._sink.patch(at, rows.view(np.uint8).data)
            at += rows.nbytes


def _places(rows: np.ndarray, field: Field) -> np.ndarray:
    """Return the part of the rows that holds the places of a field's values."""
    row = rows[field.name]
    return row if row.dtype.names is None else row["ptr"]


def _move(places: np.ndarray, low: int, high: int, way: int) -> None:
    """Add `way` to all places in [low, high)."""
    if way:
        places[(places >= low) & (places < high)] += np.uint64(way)


def _spool(path: str) -> IO[bytes]:
    """Return an unnamed temporary file in the target's folder. It stays in memory while it is small."""
    folder = os.path.dirname(path) or "."
    where = folder if os.path.isdir(folder) else None
    return tempfile.SpooledTemporaryFile(_SPOOL_BYTES, dir=where)  # type: ignore[return-value]


def _pieces(spool: IO[bytes], dtype: np.dtype) -> Iterator[np.ndarray]:
    """Yield the contents of a spool as writable arrays."""
    spool.seek(0)
    while data := spool.read(_PIECE * dtype.itemsize):
        yield np.frombuffer(bytearray(data), dtype)

"""Writes a .beton: splits batches into rows and pages."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.batches import conform, same_columns
from penstock.columns.lending import lent_schema
from penstock.columns.losses import Losses
from penstock.columns.numbers import memoryviews
from penstock.columns.regroup import record_bytes
from penstock.columns.types import is_image
from penstock.contract.format import Writer
from penstock.errors import SchemaError
from penstock.formats.beton._columns import (
    BetonColumn,
    Labels,
    Stored,
    bytes_of,
    column_of,
    edges_of,
    picked,
)
from penstock.formats.beton._images import Images, pixel_bytes
from penstock.formats.beton._layout import BYTES, IMAGE, JSON, MAX_PAGE_BYTES
from penstock.formats.beton._pages import Pages
from penstock.formats.beton.options import MOST_FIELDS, BetonOptions, check_options
from penstock.storage.base import Sink

_PIECE_BYTES = 16 << 20
"""Bytes of values that are interleaved and written together."""


class BetonWriter(Writer):
    """Writes one .beton."""

    def __init__(self, sink: Sink, schema: pa.Schema, options: BetonOptions, threads: int) -> None:
        check_options(options)
        self._is_decoding = options.image_mode != "jpg"
        self._path = sink.path
        self._schema = schema
        self._lent = lent_schema(schema)
        self._losses = Losses(exact=options.exact)
        self._columns = self._plan(schema, options, threads)
        self._pages = Pages(sink, tuple(c.field for c in self._columns), options.page_bytes)
        self._is_closed = False

    def _plan(self, schema: Any, options: BetonOptions, threads: int) -> list[BetonColumn]:
        try:
            if not schema.names or len(schema.names) > MOST_FIELDS:
                raise SchemaError(
                    "a .beton can have 1 to 65535 fields", found=f"{len(schema.names)} fields"
                )
            columns = [
                column_of(f, Images(f.name, options, threads, self._losses), self._losses)
                for f in schema
            ]
            for name, times in Counter(schema.names).items():
                if times > 1:
                    raise SchemaError("two fields have the same name", field=name)
            return columns
        except SchemaError as error:
            raise error.at(file=self._path) from None

    @property
    def notes(self) -> tuple[str, ...]:
        return self._losses.notes

    @property
    def dictionaries(self) -> dict[str, Any]:
        labels = ((c.field.name, c.encode) for c in self._columns)
        return {name: encode.names for name, encode in labels if isinstance(encode, Labels)}

    @property
    def num_bytes(self) -> int:
        """Bytes of the rows, values and table entries so far. After `close`, the bytes of the file. Before, the file's
        size would be misleading: with whole pages, it is 16 MiB even for a few records."""
        return self._pages.num_bytes if self._is_closed else self._pages.record_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        same_columns(batch, self._schema, self._path)
        start = 0
        for end in _piece_ends(batch, self._is_decoding):
            try:
                self._write_piece(batch.slice(start, end - start))
            except SchemaError as error:
                raise error.at(file=self._path) from None
            start = end

    def _write_piece(self, batch: Any) -> None:
        first = self._pages.num_records
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            if array.null_count:
                at = int(np.flatnonzero(np.asarray(array.is_null()))[0])
                raise SchemaError(
                    "the value is null, and a .beton cannot hold nulls",
                    record=first + at,
                    field=name,
                )
        if batch.schema != self._lent:
            batch = conform(batch, self._schema, self._path)
        rows = np.zeros(batch.num_rows, self._pages.row)
        values: list[Any] = []
        for column, array in zip(self._columns, batch.columns, strict=True):
            stored = column.encode(array, first)
            _fill(rows, column, stored)
            if stored.values is not None:
                values.append(stored.values)
        if not values:
            self._pages.add(rows, np.zeros((len(rows), 0), np.int64), np.zeros(0, np.uint8))
            return
        joined, sizes = _interleaved(values)
        self._check_sizes(sizes, first)
        self._pages.add(rows, sizes, joined)

    def _check_sizes(self, sizes: np.ndarray, first: int) -> None:
        """Raise SchemaError for a record that does not fit into a page."""
        totals = sizes.sum(axis=1)
        most = self._pages.page_bytes
        wrong = np.flatnonzero(totals > most)
        if not len(wrong):
            return
        at = int(wrong[0])
        total = int(totals[at])
        needed = 1 << (total - 1).bit_length()
        names = [column.field.name for column in self._columns if column.field.is_stored]
        raise SchemaError(
            "the values of a record must fit into one page, and these do not",
            record=first + at,
            field=names[int(sizes[at].argmax())],
            expected=f"at most {most} bytes",
            found=total,
            hint=f"page_bytes={needed}"
            if needed <= MAX_PAGE_BYTES
            else "write another format: no page can be as large",
        )

    def close(self) -> None:
        """Write the rows, the table and the header. The sink stays open."""
        if not self._is_closed:
            self._is_closed = True
            self._pages.close()

    def abort(self) -> None:
        self._pages.drop()


def _piece_ends(batch: Any, is_decoding: bool) -> list[int]:
    """Return where to split a batch so that the values of each piece have about 16 MiB."""
    if not batch.num_rows:
        return []
    if not is_decoding and batch.nbytes <= _PIECE_BYTES:
        return [batch.num_rows]  # one piece; splitting would not change the file's bytes
    sizes = sum((record_bytes(column) for column in batch.columns), start=0)
    if is_decoding:
        pixels = (pixel_bytes(column) for column in batch.columns if is_image(column.type))
        sizes = sum(pixels, start=sizes)
    each = np.broadcast_to(np.asarray(sizes, np.int64), (batch.num_rows,))
    pieces = np.cumsum(each) // _PIECE_BYTES
    return [*(np.flatnonzero(np.diff(pieces)) + 1).tolist(), batch.num_rows]


def _fill(rows: np.ndarray, column: BetonColumn, stored: Stored) -> None:
    """Write everything about the values into the rows, except their places."""
    field = column.field
    if not field.is_stored:
        rows[field.name] = stored.row
    elif field.kind == IMAGE:
        for name in ("mode", "width", "height"):
            rows[field.name][name] = stored.row[name]
    elif field.kind in (BYTES, JSON):
        rows[field.name]["size"] = np.diff(edges_of(stored.values))


def _interleaved(values: list[Any]) -> tuple[np.ndarray | list[memoryview], np.ndarray]:
    """Return the values of all fields, record by record, and their sizes. An empty value becomes one zero byte, because
    ffcv would otherwise treat the next value as empty, too."""
    count = len(values[0])
    if len(values) == 1 and values[0].type == pa.binary_view():
        views = memoryviews(values[0])
        return views, np.array([[len(view)] for view in views], np.int64)
    values = [array.cast(pa.binary()) for array in values]
    sizes = np.stack([np.diff(edges_of(array)).astype(np.int64) for array in values], axis=1)
    is_empty = sizes == 0
    if len(values) == 1 and not is_empty.any():
        return bytes_of(values[0]), sizes
    index = np.arange(count * len(values)).reshape(len(values), count).T
    index = np.where(is_empty, count * len(values), index)
    joined = picked([*values, pa.array([b"\0"], pa.binary())], index.reshape(-1))
    return bytes_of(joined), np.maximum(sizes, 1)

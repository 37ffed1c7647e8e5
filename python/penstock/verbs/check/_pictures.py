"""Decodes the pictures of a file, for `verify` and `repair`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.types import is_bytes, is_image, storage_of
from penstock.contract.around import parts_around
from penstock.contract.format import Chunk, Reader, SkippedRegion
from penstock.contract.report import Finding
from penstock.errors import FormatError, PenstockError, SchemaError, UnsupportedError
from penstock.limits import Limits
from penstock.payloads.image_bytes import bytes_of
from penstock.payloads.images import decode_images, image_sizes

_LOOKED_AT = 16
"""The values that show whether a column of bytes holds pictures."""


@dataclass(frozen=True, slots=True)
class Pictures:
    """Some records of a file, in which pictures are to be checked."""

    reader: Reader
    path: str
    chunk: Chunk[Any]
    columns: list[str]

    def findings(self, limits: Limits) -> Iterator[Finding]:
        """Decode all pictures, and yield a finding for each that cannot be decoded."""
        for batch, rows in _batches(self.reader, self.chunk, self.columns):
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                for place, error in _faults(column, limits):
                    yield self.finding(name, int(rows[place]), error)

    def of_batch(
        self, batch: pa.RecordBatch, first: int, limits: Limits
    ) -> Iterator[tuple[int, Finding]]:
        """Decode the pictures of a batch, which begins at row `first`. Yield the row in the batch and the finding."""
        for name in self.columns:
            for row, error in _faults(batch.column(name), limits):
                yield row, self.finding(name, first + row, error)

    def finding(self, name: str, row: int, error: PenstockError) -> Finding:
        reader, chunk = self.reader, self.chunk
        record = int(reader.record_numbers(chunk)[row])
        file, start, end = self.path, chunk.start_byte, chunk.end_byte
        known = reader.readable(chunk)
        if known is None:
            file, start, end = reader.place(record) or (file, start, end)
        else:
            at = int(np.searchsorted(known.records, row))
            start, end = int(known.starts[at]), int(known.ends[at])
        message = f"field {name!r}: the picture cannot be decoded: {error.message}"
        severity = "note" if isinstance(error, UnsupportedError) else "error"
        return Finding("picture", file, record, start, end, message, 1, severity)


def pictures_in(reader: Reader, path: str) -> Iterator[Pictures]:
    """Yield the records of a file in parts, if they have pictures. Damage is skipped, because it is reported before."""
    columns = [field.name for field in reader.schema if _may_be_pictures(field.type)]
    is_known = False
    for chunk in _chunks(reader):
        if not is_known:
            for batch, _ in _batches(reader, chunk, columns):
                columns = [name for name in columns if _are_pictures(batch.column(name))]
                is_known = True
                break
        if not columns:
            return
        with suppress(FormatError, SchemaError):
            for part in reader.parts(chunk, columns):
                yield Pictures(reader, path, part, columns)


def picture_columns(reader: Reader) -> list[str]:
    """Return the columns that have pictures."""
    return next((part.columns for part in pictures_in(reader, "")), [])


def _may_be_pictures(type_: Any) -> bool:
    stored: Any = storage_of(type_)
    is_hugging_face = pa.types.is_struct(stored) and stored.get_field_index("bytes") >= 0
    return is_image(type_) or is_bytes(stored) or is_hugging_face


def _are_pictures(column: Any) -> bool:
    """Whether a column has pictures: by its type, or if at least half of its first values begin like pictures."""
    if is_image(column.type):
        return True
    values = column.slice(0, _LOOKED_AT)
    likely = nulls = 0
    for place in range(len(values)):
        with suppress(PenstockError):
            image = bytes_of(values.slice(place, 1))
            if image.null_count:
                nulls += 1
            else:
                image_sizes(image)
                likely += 1
    return 0 < likely >= (len(values) - nulls) / 2


def _chunks(reader: Reader) -> Iterator[Chunk[Any]]:
    for found in reader.found_by(1):
        for stretch in found() if callable(found) else (found,):
            if not isinstance(stretch, SkippedRegion):
                yield stretch


def _batches(
    reader: Reader, chunk: Chunk[Any], columns: list[str]
) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """Yield the readable records of a chunk, and their numbers in it."""
    try:
        batch, rows, _ = reader.delivered(chunk, None, columns)
        yield batch, np.arange(batch.num_rows) if rows is None else rows
    except (FormatError, SchemaError):
        for first, end, found in parts_around(reader, chunk, columns):
            if isinstance(found, pa.RecordBatch):
                yield found, np.arange(first, end)


def _faults(column: Any, limits: Limits) -> Iterator[tuple[int, PenstockError]]:
    for place in range(len(column)):
        try:
            decode_images(column.slice(place, 1), mode="stored", limits=limits, threads=1)
        except PenstockError as error:
            yield place, error

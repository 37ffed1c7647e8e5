"""npy: one NumPy array, as a table of its first axis.

Specification: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html; see `npy_header.py` for the
layout of the header.

    bytes        what
    start        the header, padded to a multiple of 64
    ...          the values of the array, contiguous, in C or Fortran order, up to the end of the file

The position of a record is computed. A plain array is the field `data`; a structured array has the fields of its dtype.
Values with more axes are tensors. Nothing is ever unpickled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.contract.format import (
    Format,
    FormatInfo,
    NoOptions,
    Options,
    SkippedRegion,
    Writer,
    check_record,
)
from penstock.contract.regions import Region
from penstock.errors import FormatError, PenstockError, TruncatedError
from penstock.formats.numpy.arrays import (
    ArraysReader,
    FilePlace,
    StoredArray,
    check_size,
    columns_of,
    refuse_no_axis,
)
from penstock.formats.numpy.npy_header import MAGIC, Header, parse_header
from penstock.storage.base import Sink, Source


class NpyFormat(Format):
    """npy as a penstock format."""

    info = FormatInfo("npy", (".npy",), holds_decimals=False, can_map=True, lossless=False)
    read_options = NoOptions

    @property
    def write_options(self) -> type:
        from penstock.formats.npy.writer import NpyOptions

        return NpyOptions

    def sniff(self, head: bytes, size: int) -> bool:
        return size >= 10 and head[:6] == MAGIC and head[6:8] in (b"\1\0", b"\2\0", b"\3\0")

    def open(self, source: Source, options: Options) -> ArraysReader:
        """Read the header.

        Raises:
            FormatError, TruncatedError: the file is not a complete npy file; with damage="skip", no record is complete.
            UnsupportedError: the array has no first axis or holds objects, or raw=True.
            SchemaError: a field of schema= is not in the file.
        """
        try:
            header = parse_header(lambda start, length: source.read(start, length).to_bytes())
            header, size, lost = _sized(header, source, options)
            if not header.shape:
                raise refuse_no_axis()
            array = StoredArray(header, FilePlace(source, header.start, size), source.path)
            columns = columns_of(array)
        except PenstockError as error:
            raise error.at(file=source.path) from None
        span = (header.start, header.start + size)
        reader = NpyReader(
            columns, array.num_records, source, options, span=span, lost=(lost,) if lost else ()
        )
        reader.text_length = _text_length(header.dtype)
        return reader

    def layout(self, source: Source, record: int, options: Options) -> Iterator[Region]:
        from penstock.formats.numpy.regions import array_regions

        def read(start: int, length: int) -> bytes:
            return source.read(start, length).to_bytes()

        check_record(record, (yield from array_regions(read, source.size, 0, record)))

    def kept_schema(self, schema: pa.Schema, options: Any) -> pa.Schema | None:
        del options
        return schema

    def create(self, sink: Sink, schema: pa.Schema, options: Any, threads: int) -> Writer:
        from penstock.formats.npy.writer import NpyWriter

        return NpyWriter(sink, schema, options)


class NpyReader(ArraysReader):
    """One open npy file."""

    text_length = 0
    """The length of the longest text field, in characters or bytes."""

    def options_alike(self) -> Any:
        from penstock.formats.npy.writer import NpyOptions

        return NpyOptions(self.text_length or None)


def _text_length(dtype: np.dtype[Any]) -> int:
    if dtype.fields is not None:
        return max((_text_length(field[0]) for field in dtype.fields.values()), default=0)
    return dtype.base.itemsize // {"U": 4, "S": 1}.get(dtype.base.kind, dtype.base.itemsize + 1)


def _sized(
    header: Header, source: Source, options: Options
) -> tuple[Header, int, SkippedRegion | None]:
    """Return a header that counts only complete records, the bytes of its array, and the region after the array that is
    skipped, if any."""
    try:
        size = check_size(header, source.size, 0, options.limits)
    except TruncatedError as error:
        whole = _whole_records(header, source.size)
        if options.damage == "error" or whole is None:
            raise
        num_lost = header.shape[0] - whole
        header = replace(header, shape=(whole, *header.shape[1:]))
        size = check_size(header, source.size, 0, options.limits)
        reason = error.message
    else:
        if header.start + size == source.size:
            return header, size, None
        reason, num_lost = "bytes follow the array, and penstock reads only one array per file", 0
        if options.damage == "error":
            raise FormatError(
                reason,
                byte=header.start + size,
                expected=f"{header.start + size} bytes",
                found=f"{source.size} bytes",
            )
    start = header.start + size
    return header, size, SkippedRegion(source.path, start, source.size, num_lost, reason)


def _whole_records(header: Header, num_bytes: int) -> int | None:
    """Return the number of complete records of a truncated array. None if each record lacks a part, or the array has no
    axis."""
    if not header.shape or (header.fortran_order and len(header.shape) > 1):
        return None
    size = math.prod(header.shape[1:]) * header.dtype.itemsize
    return (num_bytes - header.start) // size

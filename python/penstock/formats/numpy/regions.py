"""The regions of an npy file, which may be a member of an archive."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np

from penstock.contract.regions import Region, constant, damaged, fields, group, rows, text_of
from penstock.errors import FormatError, TruncatedError
from penstock.formats.numpy.npy_header import FIRST_BYTES, MAGIC, Header, parse_header

_SHOWN_BYTES = 256


def array_regions(
    read: Callable[[int, int], bytes], size: int, start: int, record: int
) -> Generator[Region, None, int]:
    """Yield the regions of an npy file of `size` bytes that starts at byte `start`. `read` takes offsets
    from this byte. Returns the number of records.

    Raises:
        FormatError, TruncatedError: the header or the array is not complete.
    """
    head = read(0, FIRST_BYTES)
    yield constant(head, start, "magic", MAGIC)
    yield from fields(head[6:], start + 6, ("major version", "B"), ("minor version", "B"))
    width = 2 if head[6:7] == b"\1" else 4
    yield from fields(head[8:], start + 8, ("header length", "H" if width == 2 else "I"))
    header = parse_header(read)
    at = 8 + width
    yield Region(start + at, header.start - at, "header", _text(read(at, header.start - at)))
    return (yield from values(header, read, size, start, record))


def _text(header: bytes) -> str:
    return header.decode("latin-1").strip()[:200]


def values(
    header: Header, read: Callable[[int, int], bytes], size: int, start: int, record: int
) -> Generator[Region, None, int]:
    """Yield the region of an array's values, which follow its header, and show the values of one record. Returns the
    number of records."""
    expected = header.num_values * header.dtype.itemsize
    found = min(expected, max(size - header.start, 0))
    where = start + header.start
    is_in_rows = bool(header.shape) and (not header.fortran_order or len(header.shape) == 1)
    children: Iterator[Region] = iter(())
    note = f"{header.dtype}, shape {header.shape}"
    if is_in_rows and header.shape[0]:
        row_bytes = expected // header.shape[0]
        whole = header.shape[0] if found == expected else found // row_bytes
        children = row_regions(
            lambda at, length: read(at - start, length),
            header.dtype,
            where,
            row_bytes,
            whole,
            record,
        )
    elif header.shape:
        note += ", in Fortran order: the values of a record are not next to each other"
    yield group("array", where, found, children, note=note)
    if found < expected:
        wanted, has = f"{expected} bytes", f"{found} bytes"
        raise TruncatedError(
            "the array is truncated", byte=start + size, expected=wanted, found=has
        )
    if size > header.start + expected:
        extra = FormatError("bytes follow the array", byte=where + expected)
        yield damaged(extra, where + expected, start + size)
    return header.shape[0] if header.shape else 0


def row_regions(
    read: Callable[[int, int], bytes],
    dtype: np.dtype[Any],
    start: int,
    row_bytes: int,
    count: int,
    record: int,
) -> Iterator[Region]:
    """The regions of the rows of an array. The row of `record` shows its first values."""

    def described(at: int) -> Region:
        shown = _shown(read(at, min(row_bytes, _SHOWN_BYTES)), dtype)
        return Region(at, row_bytes, f"record {record}", shown)

    return rows(start, row_bytes, count, record, described)


def _shown(data: bytes, dtype: np.dtype[Any]) -> str:
    if not dtype.itemsize or dtype.hasobject:
        return text_of(data)
    count = min(len(data) // dtype.itemsize, 8)
    found = np.frombuffer(data, dtype, count)
    with np.printoptions(threshold=8, edgeitems=4, linewidth=1000):
        return str(found[0] if count == 1 else found).replace("\n", " ")[:200]

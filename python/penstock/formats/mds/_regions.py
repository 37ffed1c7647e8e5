"""The regions of an MDS shard: the table of offsets, the config, and the sizes and columns of a record."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from penstock.columns.facts import parsed
from penstock.contract.format import check_record
from penstock.contract.regions import Region, fields, group, several, text_of
from penstock.errors import FormatError, TruncatedError
from penstock.formats.mds._columns import MdsColumn, columns_of
from penstock.formats.mds._encodings import DTYPES
from penstock.limits import Limits

Read = Callable[[int, int], bytes]
"""`read(start, length)` returns bytes of the shard, fewer than `length` at its end."""


def shard(read: Read, size: int, record: int, limits: Limits) -> Iterator[Region]:
    """The regions of a shard of `size` bytes when decompressed."""
    (head,) = fields(read(0, 4), 0, ("n", "I"))
    yield head
    count = int(head.value)
    table_bytes = 4 * (count + 1)
    if 4 + table_bytes > size:
        wanted, has = f"{table_bytes} bytes", f"{size - 4} bytes"
        message = "the table of offsets is longer than the file"
        raise TruncatedError(message, byte=4, expected=wanted, found=has)
    shown = _entries(read, min(record, count), count)
    yield group("offsets", 4, table_bytes, shown, note=f"{count + 1} offsets")
    first, last = _offset(read, 0), _offset(read, count)
    start = 4 + table_bytes
    if not start <= first <= size:
        raise FormatError("record 0 begins outside the shard", byte=4, found=first)
    limits.check("footer_bytes", first - start)
    text = read(start, first - start)
    yield Region(start, first - start, "config", text_of(text))
    columns = _columns(text, start)
    yield from _records(read, size, record, count, columns, limits)
    if last > size:
        message = "the shard ends inside its records"
        raise TruncatedError(message, byte=size, expected=f"{last} bytes", found=f"{size} bytes")
    if last < size:
        raise FormatError("there are bytes after the last record", byte=last)
    check_record(record, count)


def _columns(text: bytes, start: int) -> list[MdsColumn]:
    config = parsed(text, len(text))
    if not isinstance(config, dict):
        raise FormatError("the config is not a JSON object", byte=start)
    return columns_of(config)


def _offset(read: Read, record: int) -> int:
    return int.from_bytes(read(4 + 4 * record, 4), "little")


def _entries(read: Read, record: int, count: int) -> Iterator[Region]:
    """The offsets of a record and of the one after it."""
    for number in range(record, min(record + 2, count + 1)):
        name = "end" if number == count else f"record {number}"
        yield Region(4 + 4 * number, 4, name, _offset(read, number))


def _records(
    read: Read, size: int, record: int, count: int, columns: list[MdsColumn], limits: Limits
) -> Iterator[Region]:
    start, end = _offset(read, 0), min(_offset(read, count), size)
    if record >= count:
        yield from several(start, end - start, 0, count)
        return
    here, after = _offset(read, record), _offset(read, record + 1)
    if not start <= here <= after:
        byte = 4 + 4 * record
        raise FormatError("a record ends before it begins", record=record, byte=byte)
    if here > end:
        yield from several(start, end - start, 0, record)
        return
    yield from several(start, here - start, 0, record)
    limits.check("record_bytes", after - here)
    data = read(here, min(after, end) - here)
    yield group(f"record {record}", here, len(data), _values(data, here, after - here, columns))
    if after < end:
        yield from several(after, end - after, record + 1, count - record - 1)


def _values(data: bytes, start: int, size: int, columns: list[MdsColumn]) -> Iterator[Region]:
    """The sizes of the columns whose sizes vary, then the values of all columns."""
    varying = [column.name for column in columns if column.size is None]
    sizes = list(fields(data, start, *((f"size of {name}", "I") for name in varying)))
    yield from sizes
    left = iter(sizes)
    at = 4 * len(sizes)
    for column in columns:
        length = int(next(left).value) if column.size is None else column.size
        value = data[at : at + length]
        if at + length > size:
            message = "a value ends beyond its record"
            raise FormatError(message, field=column.name, byte=start + at, found=f"{length} bytes")
        if len(value) < length:
            message = "the data ends inside a value"
            raise TruncatedError(message, field=column.name, byte=start + len(data))
        yield Region(start + at, length, column.name, _shown(value, column), column.encoding)
        at += length
    if at < size:
        yield Region(start + at, size - at, "bytes of no column")


def _shown(value: bytes, column: MdsColumn) -> str:
    dtype = DTYPES.get(column.encoding)
    if dtype is not None and len(value) == dtype.itemsize:
        return str(np.frombuffer(value, dtype)[0])
    return text_of(value)

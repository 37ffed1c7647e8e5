"""The regions of a .beton: header, field descriptors, rows, pages with a record's values, allocation table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from penstock import describe
from penstock.contract.format import check_record
from penstock.contract.regions import (
    WALK_BYTES,
    Region,
    fields,
    group,
    named,
    padding,
    read,
    rows,
    text_of,
)
from penstock.errors import FormatError
from penstock.formats.beton._layout import (
    DESCRIPTOR_BYTES,
    ENTRY,
    HEADER,
    IMAGE,
    NAME_BYTES,
    Field,
    Layout,
    read_layout,
)
from penstock.storage.base import Source

_HEADER = named(
    "version H, number of fields H, page size I, number of records Q, allocation table offset Q"
)
_KINDS = {0: "float", 1: "int", 2: "image", 3: "bytes", 4: "ndarray", 5: "json", 6: "tensor"}
_STEP_BYTES = ENTRY.itemsize << 16
_MOST_SHOWN = 1 << 12


def file_regions(source: Source, record: int, custom: Mapping[str, str]) -> Iterator[Region]:
    """All regions of a file."""
    yield from fields(source.read(0, HEADER.size).to_bytes(), 0, *_HEADER)
    num_fields = int.from_bytes(source.read(2, 2).to_bytes(), "little")
    length = min(num_fields * DESCRIPTOR_BYTES, source.size - HEADER.size)
    found = _descriptors(source, num_fields)
    yield group("field descriptors", HEADER.size, length, found, note=f"{num_fields} fields")
    layout = read_layout(source, custom)
    row_bytes = layout.row.itemsize
    entries = _entries(source, layout, record)

    def described(at: int) -> Region:
        data = read(source, at, row_bytes, "a row")
        name, values = f"row of record {record}", _row(data, at, layout)
        return group(name, at, row_bytes, values, between="padding")

    end = layout.rows_start + row_bytes * layout.num_records
    table = rows(layout.rows_start, row_bytes, layout.num_records, record, described)
    note = f"{layout.num_records} rows of {row_bytes} bytes"
    yield group("metadata table", layout.rows_start, end - layout.rows_start, table, note=note)
    start = min(max(layout.first_page, end), layout.table_start)
    yield from padding(end, start)
    note = f"{-(-(layout.table_start - start) // layout.page_bytes)} pages"
    values = _values(source, layout, entries, start)
    between = "values of other records" if entries else ""
    yield group("pages", start, layout.table_start - start, values, None, note, between)
    yield _table(source, layout, record, entries)
    check_record(record, layout.num_records)


def _descriptors(source: Source, count: int) -> Iterator[Region]:
    for number in range(count):
        start = HEADER.size + number * DESCRIPTOR_BYTES
        data = read(source, start, DESCRIPTOR_BYTES, "a field descriptor")
        name = text_of(data[1 : 1 + NAME_BYTES].rstrip(b"\0"))
        parts = (
            Region(start, 1, "type", data[0], _KINDS.get(data[0], "custom")),
            Region(start + 1, NAME_BYTES, "name", name),
            Region(start + 1 + NAME_BYTES, DESCRIPTOR_BYTES - 1 - NAME_BYTES, "arguments"),
        )
        yield Region(start, DESCRIPTOR_BYTES, f"field {name}", children=parts)


def _row(data: bytes, start: int, layout: Layout) -> Iterator[Region]:
    """The values of a row, field by field."""
    (row,) = np.frombuffer(data, layout.row)
    for field in layout.fields:
        dtype, at = _place(layout.row, field.name)
        where = start + at, dtype.itemsize
        if dtype.names is None or field.kind not in _KINDS:
            value = row[field.name]
            name = "ptr" if field.is_stored else ""
            yield Region(*where, f"{field.name} {name}".strip(), str(value))
        else:
            yield Region(*where, field.name, children=tuple(_parts(row[field.name], start + at)))


def _parts(value: Any, start: int) -> Iterator[Region]:
    for name in value.dtype.names:
        dtype, at = _place(value.dtype, name)
        yield Region(start + at, dtype.itemsize, name, int(value[name]))


def _place(dtype: np.dtype[Any], name: str) -> tuple[np.dtype[Any], int]:
    found: Any = dtype.fields
    return found[name][0], found[name][1]


def _entries(source: Source, layout: Layout, record: int) -> list[tuple[int, int, int]]:
    """The entries of a record in the allocation table: the position of each, and the position and size of its value."""
    size = source.size - layout.table_start
    count = len(layout.stored)
    if record >= layout.num_records or not count:
        return []
    found = set[tuple[int, int, int]]()
    # If one process wrote the file, the entries are in the order of the records.
    guess = min(record * count * ENTRY.itemsize, size)
    for at in (guess, *range(0, min(size, WALK_BYTES), _STEP_BYTES)):
        start = layout.table_start + at
        data = source.read(start, _STEP_BYTES).to_bytes()
        table = np.frombuffer(data, ENTRY, len(data) // ENTRY.itemsize)
        for n in np.flatnonzero(table["record"] == record)[:_MOST_SHOWN].tolist():
            _, ptr, value_bytes = table[n].tolist()
            found.add((start + n * ENTRY.itemsize, ptr, value_bytes))
        if len(found) >= count:
            break
    return sorted(found)


def _values(
    source: Source, layout: Layout, entries: list[tuple[int, int, int]], start: int
) -> Iterator[Region]:
    """The values of the record in the pages."""
    at = start
    names = dict(zip(entries, layout.stored, strict=False))
    for entry, ptr, size in sorted(entries, key=lambda one: one[1]):
        if not at <= ptr <= ptr + size <= layout.table_start:
            message = "the value of an entry is outside the pages, or overlaps another value"
            raise FormatError(message, byte=entry, found=f"{size} bytes at {ptr}")
        yield _value(source, ptr, size, names.get((entry, ptr, size)))
        at = ptr + size


def _value(source: Source, ptr: int, size: int, field: Field | None) -> Region:
    head = source.read(ptr, min(size, _MOST_SHOWN)).to_bytes()
    image = describe.image_header(head) if field is not None and field.kind == IMAGE else None
    note = "" if image is None else f"{image.kind}, {image.width} × {image.height}"
    return Region(ptr, size, "value" if field is None else field.name, text_of(head), note)


def _table(
    source: Source, layout: Layout, record: int, entries: list[tuple[int, int, int]]
) -> Region:
    size = source.size - layout.table_start
    children = list[Region]()
    for number, (at, _, _) in enumerate(sorted(entries)):
        data = read(source, at, ENTRY.itemsize, "an entry")
        parts = fields(data, at, *named("record Q, ptr Q, size Q"))
        field = layout.stored[number % len(layout.stored)].name
        children.append(group(f"record {record}: {field}", at, ENTRY.itemsize, parts))
    note = f"{size // ENTRY.itemsize} entries"
    return Region(layout.table_start, size, "allocation table", None, note, tuple(children))

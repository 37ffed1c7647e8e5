"""The parts of a RecordIO record, and its line in the index next to the file."""

from __future__ import annotations

import os
from collections.abc import Iterator

from penstock import describe
from penstock.contract.format import Options
from penstock.contract.regions import (
    Region,
    constant,
    cut,
    fields,
    list_of,
    named,
    padding,
    text_of,
)
from penstock.storage.base import Source

_MAGIC = b"\x0a\x23\xd7\xce"
_FLAGS = ("whole", "first part", "middle part", "last part")
_IR_HEADER = named("flag I, label f, id Q, id2 Q")
_IR_BYTES = 24
_MOST_LABELS = 1 << 16


def record_parts(data: bytes, start: int) -> Iterator[Region]:
    """The parts of a record that starts at this byte. A record is split where its payload has the magic."""
    at = 0
    while at < len(data):
        yield constant(data[at:], start + at, "magic", _MAGIC)
        (head,) = fields(data[at + 4 :], start + at + 4, ("cflag, length", "I"))
        flag, length = int(head.value) >> 29, int(head.value) & 0x1FFFFFFF
        note = _FLAGS[flag] if flag < len(_FLAGS) else "no such flag"
        yield Region(start + at + 4, 4, "cflag, length", f"{flag}, {length}", note)
        at += 8
        payload = data[at : at + length]
        header = tuple(_image_header(payload, start + at)) if flag in (0, 1) else ()
        yield Region(start + at, len(payload), "payload", text_of(payload), children=header)
        if len(payload) < length:
            raise cut("a record", start + len(data), length, len(payload))
        at += length
        padded = min(at + -at % 4, len(data))
        yield from padding(start + at, start + padded)
        at = padded


def _image_header(payload: bytes, start: int) -> Iterator[Region]:
    """The IRHeader, the labels after it, and the image. Nothing if no image follows."""
    if len(payload) < _IR_BYTES:
        return
    header = list(fields(payload, start, *_IR_HEADER))
    count = int(header[0].value)
    image = payload[_IR_BYTES + 4 * count :]
    known = describe.image_header(image) if count <= _MOST_LABELS and image else None
    if known is None:
        return
    yield from header
    if count:
        labels = memoryview(payload[_IR_BYTES : _IR_BYTES + 4 * count]).cast("f")
        values = list_of(labels[:9].tolist(), count)
        yield Region(start + _IR_BYTES, 4 * count, "labels", values)
    note = f"{known.width} × {known.height}"
    yield Region(start + _IR_BYTES + 4 * count, len(image), "image", known.kind, note)


def index_line(source: Source, record: int, options: Options) -> Iterator[Region]:
    """The line of a record in the text index next to the file, if there is one."""
    name = os.path.splitext(os.path.basename(source.path))[0] + ".idx"
    beside = options.beside(name)
    if beside is None:
        return
    try:
        # Of an index longer than `footer_bytes`, only the first `footer_bytes` bytes are read.
        data = beside.read(0, min(beside.size, options.limits.footer_bytes)).to_bytes()
    finally:
        beside.close()
    lines = data.split(b"\n", record + 1)
    if record < len(lines) and lines[record]:
        at = sum(len(line) + 1 for line in lines[:record])
        value = text_of(lines[record].replace(b"\t", b" "))
        line = Region(at, len(lines[record]), f"record {record}: key, offset", value)
        yield Region(0, len(data), name, None, "the index next to the file", (line,)).moved(name)

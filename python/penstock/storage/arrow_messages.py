"""Finds the messages of an Arrow IPC file without reading their bodies.

Specification: https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc

A stream is a sequence of messages. It ends with a length of zero or with the end of the file:

    bytes            what
    4                0xFFFFFFFF (left out before Arrow 0.15)
    4                metadata_length, little-endian int32, padding included
    metadata_length  Message, a flatbuffer: version, kind, header, body length
    body length      buffers, each at an offset that the header gives

A file is "ARROW1" and two zero bytes, a stream as above, a Footer (flatbuffer), the footer's length as int32, and
"ARROW1". The footer gives the position of every dictionary and record batch.

pyarrow reads the messages. This module reads only their headers, with the number of records and the positions of
buffers. Every offset is compared with the available bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from penstock.errors import FormatError, TruncatedError
from penstock.limits import Limits

CONTINUATION = b"\xff\xff\xff\xff"
MAGIC = b"ARROW1"
SCHEMA, DICTIONARY, BATCH = 1, 2, 3
OLDEST_VERSION, LATEST_VERSION = 3, 4
"""Metadata versions V4 and V5. pyarrow does not read older versions."""

Read = Callable[[int, int], bytes]
"""Reads bytes [start, start + length) of the file; fewer at its end."""


_NUMBERS = {kind: struct.Struct("<" + kind).unpack_from for kind in "bBhHiIq"}
_offset, _signed, _short = _NUMBERS["I"], _NUMBERS["i"], _NUMBERS["H"]


class Table:
    """One table of a flatbuffer. An absent field gives its default. An offset outside the bytes raises struct.error."""

    __slots__ = ("_fields", "_fields_bytes", "at", "data")

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at
        self._fields = at - _signed(data, at)[0]
        if self._fields < 0:
            raise struct.error
        self._fields_bytes = _short(data, self._fields)[0]

    @classmethod
    def root(cls, data: bytes) -> Table:
        return cls(data, _offset(data, 0)[0])

    def place(self, field: int) -> int | None:
        """The position of a field's value; None if the field is absent."""
        slot = 4 + 2 * field
        if slot + 2 > self._fields_bytes:
            return None
        offset = _short(self.data, self._fields + slot)[0]
        return self.at + offset if offset else None

    def value(self, field: int, kind: str) -> int:
        at = self.place(field)
        return 0 if at is None else int(_NUMBERS[kind](self.data, at)[0])

    def table(self, field: int) -> Table | None:
        at = self.place(field)
        return None if at is None else Table(self.data, at + _offset(self.data, at)[0])

    def structs(self, field: int, kind: str) -> list[tuple[int, ...]]:
        """A vector of structs, each as a tuple."""
        at = self.place(field)
        if at is None:
            return []
        start = at + _offset(self.data, at)[0]
        count, width = _offset(self.data, start)[0], struct.calcsize(kind)
        end = start + 4 + count * width
        if end > len(self.data):
            raise struct.error
        return list(struct.iter_unpack(kind, self.data[start + 4 : end]))


def _misplaced(data: bytes) -> FormatError:
    message = "the metadata has an offset beyond its end"
    return FormatError(message, expected=f"below {len(data)}")


class Message(NamedTuple):
    """The position of a message and the facts in its header. Sizes and positions are in bytes."""

    kind: int
    start: int
    body: int
    end: int
    num_records: int = 0
    dictionary: int = 0
    is_delta: bool = False
    compressed: tuple[tuple[int, int], ...] = ()
    """Offset in the body, and length, of each compressed buffer."""
    reach: int = 0
    """The end of the last buffer in the body; -1 if a buffer has a negative offset or length."""
    is_big_endian: bool = False
    """For a schema message: whether the batches after it are big-endian."""


def parse_message(metadata: bytes, start: int, body: int, size: int) -> Message:
    """Parse a message's header. `body` is the start of its body, `size` the size of the file."""
    try:
        return _parsed(Table.root(metadata), start, body, size)
    except struct.error:
        raise _misplaced(metadata) from None


def _parsed(table: Table, start: int, body: int, size: int) -> Message:
    version, kind = table.value(0, "h"), table.value(1, "B")
    if not OLDEST_VERSION <= version <= LATEST_VERSION:
        raise FormatError(
            "a message has a version that cannot be read",
            byte=start,
            expected="V4 or V5",
            found=f"V{version + 1}",
        )
    end = body + _body_length(table, start, size - body)
    header = table.table(2)
    dictionary, is_delta = 0, False
    if header is not None and kind == DICTIONARY:
        dictionary, is_delta = header.value(0, "q"), bool(header.value(2, "B"))
        header = header.table(1)
    if header is None or kind not in (SCHEMA, DICTIONARY, BATCH):
        return Message(kind, start, body, end)
    if kind == SCHEMA:
        return Message(kind, start, body, end, is_big_endian=_is_big_endian(header))
    num_records = header.value(0, "q")
    if num_records < 0:
        raise FormatError("a batch has a negative length", byte=start, found=num_records)
    buffers = header.structs(2, "<qq")
    reach = max(map(sum, buffers), default=0)
    if min(map(min, buffers), default=0) < 0:
        reach = -1
    is_compressed = header.place(3) is not None
    compressed = tuple((at, n) for at, n in buffers if n > 0) if is_compressed else ()
    return Message(kind, start, body, end, num_records, dictionary, is_delta, compressed, reach)


def _body_length(table: Table, start: int, left: int) -> int:
    """The length of a message's body. It must be at most `left`, the bytes that remain in the file."""
    length = table.value(3, "q")
    if length < 0:
        raise FormatError("a message's body has a negative length", byte=start, found=length)
    if length > left:
        raise TruncatedError(
            "a message's body ends beyond the file",
            byte=start,
            expected=f"{length} bytes",
            found=f"{max(left, 0)} bytes",
        )
    return length


def _is_big_endian(schema: Table) -> bool:
    return schema.value(0, "h") != 0


_VECTORS = (1, 2), (2, 2), (4, 1)
"""The vectors in a batch header: the number of the field, and the int64 values per struct."""


class Layout(NamedTuple):
    """The arrays of a batch and their buffers, in the order of the specification."""

    nodes: tuple[tuple[int, ...], ...]
    """Length and number of nulls of each array."""
    buffers: tuple[tuple[int, ...], ...]
    """Offset in the body, and length in bytes, of each buffer."""
    codec: int | None
    """The number of the codec of compressed buffers; -1 for an unknown kind of compression."""
    data_buffers: tuple[tuple[int, ...], ...]
    """The number of data buffers of each array of views."""


def read_layout(read: Read, batch: Message) -> Layout:
    """Read the layout of a batch's arrays from its header."""
    head = read(batch.start, batch.body - batch.start)
    metadata = head[8 if head[:4] == CONTINUATION else 4 :]
    try:
        header = Table.root(metadata).table(2)
        if header is None:
            raise FormatError("a batch has no header", byte=batch.start)
        codec, compression = None, header.table(3)
        if compression is not None:
            codec = compression.value(0, "b") if not compression.value(1, "b") else -1
        nodes, buffers, counts = (header.structs(n, "<" + "q" * of) for n, of in _VECTORS)
    except struct.error:
        raise _misplaced(metadata) from None
    return Layout(tuple(nodes), tuple(buffers), codec, tuple(counts))


def read_message(read: Read, start: int, size: int, limits: Limits) -> Message | None:
    """The message at `start`, or None at the end of the stream."""
    if start >= size:
        return None
    # One read usually gets the whole header.
    window = read(start, 4096)
    if len(window) < 4:
        raise TruncatedError("the file ends inside a message", byte=start, expected="4 bytes")
    skip = 8 if window[:4] == CONTINUATION else 4
    if len(window) < skip:
        raise TruncatedError("the file ends inside a message", byte=start, expected="8 bytes")
    length = int.from_bytes(window[skip - 4 : skip], "little", signed=True)
    if length == 0:
        return None
    if length < 0:
        raise FormatError("a message's metadata has a negative length", byte=start, found=length)
    if length > size - start - skip:
        raise TruncatedError(
            "a message's metadata ends beyond the file",
            byte=start,
            expected=f"{length} bytes",
            found=f"{size - start - skip} bytes",
        )
    limits.check("footer_bytes", length)
    if skip + length > len(window):
        window = read(start, skip + length)
    body = start + skip + length
    try:
        return parse_message(window[skip : skip + length], start, body, size)
    except FormatError as error:
        raise error.at(byte=start) from None


def walk_stream(read: Read, size: int, limits: Limits) -> Iterator[Message]:
    """Yield the messages of a stream in order, beginning with the schema."""
    at = 0
    while (message := read_message(read, at, size, limits)) is not None:
        if (message.kind == SCHEMA) != (at == 0):
            raise FormatError("a stream must have one schema, as its first message", byte=at)
        if message.kind not in (SCHEMA, DICTIONARY, BATCH):
            raise FormatError(
                "a message of this kind cannot be in a stream of batches",
                byte=at,
                found=message.kind,
            )
        yield message
        at = message.end


class Footer(NamedTuple):
    """The footer of an IPC file, with (position, metadata length, body length) of each message."""

    start: int
    dictionaries: tuple[tuple[int, int, int], ...]
    batches: tuple[tuple[int, int, int], ...]
    is_big_endian: bool = False


def read_footer(read: Read, size: int, limits: Limits) -> Footer:
    """Read the footer of an IPC file."""
    tail = read(max(size - 10, 0), 10)
    if size < 8 + 10 or tail[4:] != MAGIC:
        raise TruncatedError(
            "there is no Arrow footer at the end; the file is truncated, or was never finished",
            byte=max(size - 6, 0),
            expected=MAGIC,
            found=tail[4:],
        )
    length = int.from_bytes(tail[:4], "little", signed=True)
    start = size - 10 - length
    if length <= 0 or start < 8:
        raise FormatError("the footer is longer than the file", byte=size - 10, found=length)
    limits.check("footer_bytes", length)
    metadata = read(start, length)
    try:
        table = Table.root(metadata)
        places = [table.structs(field, "<qi4xq") for field in (2, 3)]
        schema = table.table(1)
        is_big_endian = schema is not None and _is_big_endian(schema)
    except struct.error:
        raise _misplaced(metadata) from None
    dictionaries, batches = (tuple(_block(found, start) for found in some) for some in places)
    return Footer(start, dictionaries, batches, is_big_endian)


def _block(found: tuple[int, ...], start: int) -> tuple[int, int, int]:
    """Check the position of a message, which must be before the footer at `start`."""
    place, metadata, body = found
    if place < 8 or metadata < 8 or body < 0 or place + metadata + body > start:
        raise FormatError(
            "the footer gives an impossible position for a batch",
            byte=start,
            found=f"{place} + {metadata} + {body}, of {start} bytes",
        )
    return place, metadata, body


def is_stream(head: bytes, size: int) -> bool:
    """Whether a file of `size` bytes that starts with `head` is a stream, which begins with a schema."""
    if len(head) < 16 or size < 16:
        return False
    skip = 8 if head[:4] == CONTINUATION else 4
    length = int.from_bytes(head[skip - 4 : skip], "little", signed=True)
    if skip == 8:
        # No other format starts like this. The schema is not examined, because it may be damaged.
        return length >= 16 and length % 8 == 0
    if not 16 <= length <= size - skip:
        return False
    try:
        table = Table.root(head[skip : skip + length])
        known = 0 <= table.value(0, "h") <= LATEST_VERSION
        return known and table.value(1, "B") == SCHEMA and table.place(2) is not None
    except struct.error:
        return False

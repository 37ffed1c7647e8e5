"""Reads some rows of an Arrow record batch, and only the parts of its buffers that these rows need.

pyarrow reads only whole batches, and a table that was written in one piece is a batch as large as the file.

Specification: https://arrow.apache.org/docs/format/Columnar.html#recordbatch-message. A batch has a node (length,
number of nulls) for every array, depth first, and buffers in the order of the nodes. Most arrays have a validity
bitmap, then the values, or offsets into the next buffer or child. Lengths and offsets are checked against the buffers
before they are used. The caller validates the values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from penstock.errors import ChangedError, FormatError
from penstock.formats.arrow._unpack import Contents, Unpacked, can_unpack, unpacked
from penstock.storage.arrow_messages import Layout, Message, read_layout
from penstock.storage.pyarrow_files import Bytes

_KEPT_LAYOUTS = 64
_VIEW_BYTES = 16
_IN_VIEW = 12
"""The longest value that is stored inside its view, in bytes."""
_NUMBER_BIT = 33
"""A bit above all positions in a buffer: positions and lengths take 31 bits each."""
_GAP_BYTES = 4096
"""Values at most this many bytes apart are read in one piece, with the bytes between them."""

Read = Callable[[int, int], pa.Buffer]
"""Takes start and length, and reads bytes [start, start + length) of a batch's body."""
Cut = Callable[[int], Any]
"""Returns a part of a batch, by the part's number."""


class _Place(NamedTuple):
    """The position of a buffer in the body."""

    start: int
    length: int


@dataclass(frozen=True, slots=True)
class _Column:
    """One array of a batch, the positions of its buffers, and its child arrays."""

    type_: Any
    length: int
    nulls: int
    buffers: tuple[_Place | None, ...]
    children: tuple[_Column, ...]

    def check_nulls(self, read: Read) -> None:
        """Raise FormatError if a bitmap's number of nulls differs from the header. No other check would find a changed
        bit in a bitmap."""
        if self.nulls:
            bits = _part(read, self.buffers[0], 0, -(-self.length // 8))
            there = pa.Array.from_buffers(pa.bool_(), self.length, [None, bits]).true_count
            if self.length - there != self.nulls:
                found = self.length - there
                raise FormatError(
                    "the number of nulls in a bitmap contradicts the header of the batch",
                    expected=self.nulls,
                    found=found,
                )
        for child in self.children:
            child.check_nulls(read)

    # Complexity: one branch for each layout of buffers.
    def cut(self, read: Read, start: int, stop: int) -> Any:
        """Read rows [start, stop)."""
        if stop > self.length:
            raise FormatError(
                "an array is shorter than its batch", expected=stop, found=self.length
            )
        if isinstance(self.type_, pa.BaseExtensionType):
            (storage,) = self.children
            return pa.ExtensionArray.from_storage(self.type_, storage.cut(read, start, stop))
        # Bitmaps can be split only at bytes, so all buffers are read from a multiple of 8 rows on.
        first = start & ~7
        count = stop - first
        valid, *rest = self.buffers
        there = None if valid is None else _part(read, valid, first // 8, -(-count // 8))
        buffers, children = [there], []
        if _is_view(self.type_):
            buffers += _views(read, rest, first, count, there)
        elif _is_by_offsets(self.type_):
            offsets, begin, end = self._offsets(read, rest[0], first, count)
            buffers.append(offsets)
            if self.children:
                inner = self.children[0].cut(read, begin, end)
                children.append(_from_its_first(inner) if kinds.is_map(self.type_) else inner)
            else:
                buffers.append(_part(read, rest[1], begin, end - begin))
        elif kinds.is_fixed_size_list(self.type_):
            size = self.type_.list_size
            children.append(self.children[0].cut(read, first * size, stop * size))
        elif kinds.is_struct(self.type_):
            children += [child.cut(read, first, stop) for child in self.children]
        elif rest:
            bits = self.type_.bit_width
            buffers.append(_part(read, rest[0], first * bits // 8, -(-count * bits // 8)))
        made = pa.Array.from_buffers(self.type_, count, buffers, children=children or None)
        return made.slice(start - first)

    def _offsets(
        self, read: Read, place: _Place | None, first: int, count: int
    ) -> tuple[Any, int, int]:
        """Return offsets that begin at 0, and the beginning and end of the range that they point to."""
        width = _offset_bytes(self.type_)
        if place is None and not self.length:  # an empty array needs no offsets
            return pa.py_buffer(bytes(width)), 0, 0
        data = _part(read, place, first * width, (count + 1) * width)
        offsets = np.frombuffer(data, f"<i{width}")
        begin, end = int(offsets[0]), int(offsets[-1])
        if not 0 <= begin <= end:
            raise FormatError(
                "the offsets of an array decrease", expected=f"{begin} or more", found=end
            )
        return (data if not begin else pa.py_buffer(offsets - offsets[0])), begin, end


def _from_its_first(entries: Any) -> Any:
    """Return the entries of a map as an array with offset 0, because pyarrow's maps ignore the offset of their
    entries."""
    return pa.StructArray.from_arrays(entries.flatten(), fields=list(entries.type))


def _views(
    read: Read, places: Sequence[_Place | None], first: int, count: int, there: Any
) -> list[Any]:
    """Return rows of an array of views, and the pieces of buffers that the views point into.

    A view begins with the length of its value. If that is more than 12 bytes, the view continues with the first four
    bytes of the value, the number of a buffer, and the position of the value in that buffer.
    """
    rows = _part(read, places[0], first * _VIEW_BYTES, count * _VIEW_BYTES)
    views = np.frombuffer(rows, "<i4").reshape(-1, 4).copy()
    if there is not None:
        bits = np.unpackbits(np.frombuffer(there, np.uint8), count=count, bitorder="little")
        views[bits == 0] = 0  # a null may have any view
    far = np.flatnonzero(views[:, 0] > _IN_VIEW)
    lengths, numbers, starts = (views[far, n].astype(np.int64) for n in (0, 2, 3))
    if ((numbers < 0) | (numbers >= len(places) - 1) | (starts < 0)).any():
        raise FormatError("a view points outside the buffers")
    # Each buffer gets a separate range of positions, so that no value extends into the next buffer.
    starts += numbers << _NUMBER_BIT
    order = np.argsort(starts, kind="stable")
    starts, far = starts[order], far[order]
    reached = np.maximum.accumulate(starts + lengths[order])
    begins = np.ones(len(far), bool)
    begins[1:] = starts[1:] > reached[:-1] + _GAP_BYTES
    piece = np.cumsum(begins) - 1
    piece_starts, ends = starts[begins], reached[np.append(begins[1:], True)[: len(far)]]
    views[far, 2], views[far, 3] = piece, starts - piece_starts[piece]
    pieces = []
    for start, end in zip(piece_starts.tolist(), ends.tolist(), strict=True):
        place = places[1 + (start >> _NUMBER_BIT)]
        pieces.append(_part(read, place, start & ((1 << _NUMBER_BIT) - 1), end - start))
    return [pa.py_buffer(views), *pieces]


def _part(read: Read, place: _Place | None, start: int, length: int) -> Any:
    has = 0 if place is None else place.length
    if start + length > has:
        raise FormatError("a buffer is too short for its batch", expected=start + length, found=has)
    return read(0 if place is None else place.start + start, length)


class _LaidOut(NamedTuple):
    """The columns of a batch, and the bytes of its body."""

    columns: list[_Column]
    num_bytes: int
    unpacked: Unpacked | None
    """The inflated layout of a compressed batch, else None."""


class Cutter:
    """Reads ranges of rows from the batches of one file."""

    def __init__(self, data: Bytes, schema: Any, is_big_endian: bool) -> None:
        self._data = data
        self._schema = schema
        self._is_big_endian = is_big_endian
        self._known: dict[int, _LaidOut] = {}
        self._checked: set[tuple[int, int]] = set()

    def can_cut(self, batch: Message, places: list[int]) -> bool:
        """Whether to read rows of these columns without the rest of the batch. False for an uncompressed batch of a
        mapped file, where reading all of it costs nothing."""
        if self._is_big_endian or not places:
            return False
        if self._data.mapped is not None and not batch.compressed:
            return False
        types = [self._schema.field(place).type for place in places]
        return all(_can_cut(type_, has_views=not batch.compressed) for type_ in types)

    def num_bytes(self, batch: Message) -> int:
        """Return the inflated bytes of a batch that `can_cut` accepts, or 0 if its compression is unknown. Raise
        FormatError if the header of the batch is invalid."""
        return self._laid_out(batch).num_bytes

    def reader(self, batch: Message) -> Read:
        """Return a function that reads the bytes of a batch. For a compressed batch, only one thread may use the
        function, and reading backward is expensive."""
        found = self._laid_out(batch)
        return self._body(batch) if found.unpacked is None else self._contents(found).read

    def in_order(self, batch: Message, borders: list[int], places: list[int]) -> Cut:
        """Return a function that reads the rows between two borders of a compressed batch, by the number of the first
        border. It must be called in order of the numbers. The last call verifies the buffers."""
        contents = self._contents(self._laid_out(batch))

        def part(number: int) -> Any:
            start, stop = borders[number : number + 2]
            rows = self.rows(batch, start, stop, places, contents.read)
            if stop == borders[-1]:
                contents.finish()
            return rows

        return part

    def rows(self, batch: Message, start: int, stop: int, places: list[int], read: Read) -> Any:
        """Read rows [start, stop) of some columns with the stored types. The values are not verified.

        Raises:
            FormatError: lengths and offsets do not fit the buffers.
            ChangedError: the file was truncated while it was open.
        """
        columns = self._laid_out(batch).columns
        for place in places:
            if (batch.start, place) not in self._checked:
                columns[place].check_nulls(read)
                self._checked.add((batch.start, place))
        arrays = [columns[place].cut(read, start, stop) for place in places]
        fields = [self._schema.field(place) for place in places]
        schema = pa.schema(fields, self._schema.metadata)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _body(self, batch: Message) -> Read:
        def read(at: int, length: int) -> Any:
            if not length:
                return pa.py_buffer(b"")
            found = self._data.source.read(batch.body + at, length)
            if len(found) < length:
                raise ChangedError("the file was truncated while it was open")
            return pa.py_buffer(found)

        return read

    def _contents(self, found: _LaidOut) -> Contents:
        assert found.unpacked is not None, "it is compressed"
        return Contents(self._data, found.unpacked)

    def _laid_out(self, batch: Message) -> _LaidOut:
        found = self._known.get(batch.start)
        if found is None:
            layout = read_layout(self._data.read, batch)
            num_bytes, contents = batch.end - batch.body, None
            if batch.compressed:
                if not can_unpack(layout):
                    return _LaidOut([], 0, None)
                contents = unpacked(self._data, batch, layout)
                layout, num_bytes = contents.layout, contents.num_bytes
            columns = _lay_out(self._schema, layout)
            for column in columns:
                check_length(batch, column.length)
            if len(self._known) >= _KEPT_LAYOUTS:
                self._known, self._checked = {}, set()
            found = self._known[batch.start] = _LaidOut(columns, num_bytes, contents)
        return found


def check_length(batch: Message, found: int) -> None:
    """Raise FormatError if the length of a batch or of one of its arrays differs from the batch's header."""
    if found != batch.num_records:
        raise FormatError(
            "the length of a batch contradicts its header",
            expected=batch.num_records,
            found=found,
        )


def _lay_out(schema: Any, layout: Layout) -> list[_Column]:
    """Return the arrays of a batch, one for each field of its schema. Raise FormatError if there are too few nodes or
    buffers, or a number is negative."""
    parts = _Parts(iter(layout.nodes), iter(layout.buffers), iter(layout.data_buffers))
    try:
        return [_column(field.type, parts) for field in schema]
    except StopIteration:
        raise FormatError("a batch has fewer arrays than its schema") from None


class _Parts(NamedTuple):
    """Iterators over the parts of a layout."""

    nodes: Iterator[tuple[int, ...]]
    buffers: Iterator[tuple[int, ...]]
    data_buffers: Iterator[tuple[int, ...]]


# Complexity: one branch for each layout that Arrow has.
def _column(type_: Any, parts: _Parts) -> _Column:
    if isinstance(type_, pa.BaseExtensionType):
        storage = _column(type_.storage_type, parts)
        return _Column(type_, storage.length, 0, (), (storage,))
    length, nulls = next(parts.nodes)
    if not 0 <= nulls <= length:
        raise FormatError("an array has an impossible length", found=f"{length}, {nulls} null")
    more = next(parts.data_buffers)[0] if _is_view(type_) else 0
    own = [_Place(*next(parts.buffers)) for _ in range(_num_buffers(type_) + more)]
    if any(place.start < 0 or place.start % 8 or place.length < 0 for place in own):
        raise FormatError("a buffer has an impossible position")
    # If nothing is null, the bitmap may be missing.
    found: list[_Place | None] = [place if place.length else None for place in own]
    if found and not nulls:
        found[0] = None
    elif found and found[0] is None:
        raise FormatError("an array has nulls, but no bitmap of them", found=nulls)
    inner = [type_.field(place).type for place in range(type_.num_fields)]
    # A list, because a generator would turn StopIteration into a RuntimeError.
    children = tuple([_column(one, parts) for one in inner])
    _check_room(type_, length, own, children)
    return _Column(type_, length, nulls, tuple(found), children)


def _check_room(type_: Any, length: int, own: list[_Place], children: tuple[_Column, ...]) -> None:
    """Raise FormatError if an array's buffers or children are too short for its length."""
    has, needs = 0, 0
    if kinds.is_struct(type_):
        has, needs = min((child.length for child in children), default=length), length
    elif kinds.is_fixed_size_list(type_):
        has, needs = children[0].length, length * type_.list_size
    elif _is_by_offsets(type_):
        has, needs = own[1].length, (length + 1) * _offset_bytes(type_) if length else 0
    elif _is_view(type_):
        has, needs = own[1].length, length * _VIEW_BYTES
    elif len(own) > 1:
        has, needs = own[1].length, -(-length * type_.bit_width // 8)
    if has < needs:
        raise FormatError(
            "an array is longer than its buffers or children", expected=needs, found=has
        )


def _can_cut(type_: Any, *, has_views: bool) -> bool:
    """Whether rows of such an array can be read without reading the whole array. They cannot if values may be anywhere:
    in dictionaries, unions and runs, and in views if reading backward is expensive."""
    if isinstance(type_, pa.BaseExtensionType):
        return _can_cut(type_.storage_type, has_views=has_views)
    if _is_by_offsets(type_) or kinds.is_fixed_size_list(type_) or kinds.is_struct(type_):
        inner = [type_.field(place).type for place in range(type_.num_fields)]
        return all(_can_cut(one, has_views=has_views) for one in inner)
    if _is_view(type_):
        return has_views
    return kinds.is_primitive(type_) or kinds.is_decimal(type_) or kinds.is_fixed_size_binary(type_)


def _is_view(type_: Any) -> bool:
    return bool(type_ in (pa.string_view(), pa.binary_view()))


def _num_buffers(type_: Any) -> int:
    if kinds.is_struct(type_) or kinds.is_fixed_size_list(type_):
        return 1
    has_bytes = _is_by_offsets(type_) and not type_.num_fields
    return 3 if has_bytes else 2


def _offset_bytes(type_: Any) -> int:
    wide = kinds.is_large_list(type_) or kinds.is_large_binary(type_)
    return 8 if wide or kinds.is_large_string(type_) else 4


def _is_by_offsets(type_: Any) -> bool:
    return (
        kinds.is_binary(type_)
        or kinds.is_string(type_)
        or kinds.is_large_binary(type_)
        or kinds.is_large_string(type_)
        or kinds.is_list(type_)
        or kinds.is_large_list(type_)
        or kinds.is_map(type_)
    )

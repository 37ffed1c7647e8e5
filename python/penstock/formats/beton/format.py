r"""FFCV's .beton, version 2: rows of fixed size, with the places of their values in large pages.

All numbers are little-endian. There are no checksums. Source: the files and behaviour of ffcv 1.0.2 (https://ffcv.io),
because there is no written specification.

    bytes                  what
    24                     header: u16 version (2), u16 fields, u32 bytes of a page (a power of two
                           from 2 MiB on), u64 records, u64 place of the allocation table
    1041 for each field    u8 type, its name in 16 bytes of ASCII, 1024 bytes of arguments: for
                           tensors u64 shape[32], u64 length and text of the dtype's description
    row size x records     rows: Float f64 | Int i64 | image u8 mode, u16 width, u16 height, u64
                           place (13 bytes, packed) | Bytes, JSON u64 place, u64 length | tensor u64
                           place. Numbers and tensors at multiples of 8, the others anywhere; the
                           row's size is a multiple of its largest alignment
    zeros                  up to a multiple of a page
    pages                  values, packed; all values of a record are in one page
    24 for each value      the allocation table: u64 record, u64 place, u64 length, in any order

A chunk of penstock is a run of records with about 2 MiB of values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.columns.batches import (
    check_columns,
    check_records,
    conform,
    empty_columns,
    projected,
)
from penstock.columns.lending import in_parts, whole
from penstock.columns.numbers import as_arrow, in_bytes
from penstock.columns.selection import Projection, Selection
from penstock.columns.types import ImageType, fixed_tensors
from penstock.contract.format import Chunk, Format, FormatInfo, Options, Reader, Writer
from penstock.contract.regions import Region
from penstock.errors import ChangedError, FormatError, PenstockError, UnsupportedError
from penstock.formats.beton._columns import bytes_of, edges_of
from penstock.formats.beton._layout import (
    BYTES,
    CUSTOM,
    DESCRIPTOR_BYTES,
    FLOAT,
    HEADER,
    IMAGE,
    INT,
    JSON,
    MIN_PAGE_BYTES,
    NAME_BYTES,
    RAW_MODE,
    TENSOR,
    VERSION,
    Field,
    Layout,
    read_layout,
)
from penstock.formats.beton._values import Spans, Values, ValueWindow
from penstock.framing.index import kept_schema
from penstock.storage.base import Sink, Source
from penstock.tuned import BETON_CHUNK_BYTES

if TYPE_CHECKING:
    from penstock import _core

CHUNK_RECORDS = 1 << 16


@dataclass(frozen=True, slots=True)
class BetonReadOptions:
    """Options for reading a .beton."""

    custom_fields: dict[str, str] = field(default_factory=dict[str, str])
    """For each user-defined field, the NumPy dtype of its metadata in a row, such as "<f4,<f4". Files do not store it.
    The field's column holds these metadata bytes of each record."""


class BetonFormat(Format):
    """FFCV's .beton as a penstock format."""

    info = FormatInfo(
        "beton",
        (".beton",),
        holds_decimals=False,
        can_map=True,
        takes_views=True,
        lossless=False,
        loses_dtypes=True,
        holds_images=True,
        reads_images=True,
        holds_text=False,
        holds_structs=False,
    )
    read_options = BetonReadOptions
    class_numbers = pa.int64()

    @property
    def write_options(self) -> type:
        from penstock.formats.beton.options import BetonOptions

        return BetonOptions

    def sniff(self, head: bytes, size: int) -> bool:
        if len(head) < HEADER.size + DESCRIPTOR_BYTES:
            return False
        version, num_fields, page_bytes, _, table_start = HEADER.unpack_from(head)
        if version != VERSION or page_bytes < MIN_PAGE_BYTES or page_bytes & (page_bytes - 1):
            return False
        descriptors_end = HEADER.size + num_fields * DESCRIPTOR_BYTES
        if not num_fields or 0 < table_start < descriptors_end:
            return False
        places = range(HEADER.size, min(len(head) - NAME_BYTES, descriptors_end), DESCRIPTOR_BYTES)
        return all(_is_descriptor(head[place : place + 1 + NAME_BYTES]) for place in places)

    def open(self, source: Source, options: Options) -> BetonReader:
        """Read the header and the descriptors of the fields.

        Raises:
            UnsupportedError: raw=True, or a user-defined field is not in custom_fields=.
            TruncatedError, FormatError: the file is not a valid .beton.
            SchemaError: a field of schema= is not in the file.
        """
        return BetonReader(source, options, self.own_options(options))

    def layout(self, source: Source, record: int, options: Options) -> Iterator[Region]:
        from penstock.formats.beton._regions import file_regions

        return file_regions(source, record, self.own_options(options).custom_fields)

    def kept_schema(self, schema: pa.Schema, options: Any) -> pa.Schema | None:
        codec = {"jpg": "jpeg", "raw": "ppm"}.get(options.image_mode, "")
        fields = [kept_schema.with_numbers(field, self.class_numbers) for field in schema]
        return pa.schema(
            field.with_type(ImageType(codec)) if isinstance(field.type, ImageType) else field
            for field in fields
        )

    def create(self, sink: Sink, schema: pa.Schema, options: Any, threads: int) -> Writer:
        from penstock.formats.beton.writer import BetonWriter

        return BetonWriter(sink, schema, options, threads)

    def check_images(self, images: pa.Array, options: Any) -> None:
        from penstock.formats.beton._images import check_decoded

        check_decoded(images, options)


def _is_descriptor(data: bytes) -> bool:
    """Whether the data starts with a known type and a name."""
    name, _, rest = data[1:].partition(b"\0")
    return (data[0] <= TENSOR or data[0] == CUSTOM) and name != b"" and name.isascii() and (
        not rest.strip(b"\0")
    )  # fmt: skip


class BetonReader(Reader):
    """One open .beton."""

    def __init__(self, source: Source, options: Options, own: BetonReadOptions) -> None:
        self._path = source.path
        self._source = source
        asked = options.schema
        self._layout: Layout = read_layout(source, own.custom_fields)
        self._fields = {field.name: field for field in self._layout.fields}
        self._values = Values(source, self._layout, options.limits)
        # A field that cannot be read is binary here, so that the other fields can be read.
        types = {f.name: pa.binary() if f.type is None else f.type for f in self._layout.fields}
        stored = pa.schema([pa.field(name, types[name], nullable=False) for name in types])
        self.stored_names = stored.names
        if asked is not None:
            check_columns(asked, stored, self._path, options.settled)
        # A later shard is opened with the schema of the first shard, which is usually equal.
        self.schema: pa.Schema = stored if asked is None else asked
        self._codecs = {f.name: f.type.codec for f in self.schema if isinstance(f.type, ImageType)}
        self._lendable = {f.name for f in self.schema if self._is_lendable(f, types[f.name])}

    def _is_lendable(self, field: Any, stored: Any) -> bool:
        """Whether values need no cast. Image types that differ only in the codec need none."""
        is_image = isinstance(stored, ImageType)
        return field.type == stored or (
            is_image and field.type == ImageType(self._codecs.get(field.name, ""))
        )

    @property
    def num_records(self) -> int:
        return self._layout.num_records

    # -- chunks ------------------------------------------------------------------------------------

    def chunks(self) -> Iterator[Chunk[np.ndarray | None]]:
        """Yield runs of records with about BETON_CHUNK_BYTES of values each."""
        step = max(1, BETON_CHUNK_BYTES // self._layout.row.itemsize)
        for first in range(0, self.num_records, step):
            rows = self._rows(first, min(step, self.num_records - first))
            for start, end in self._cuts(rows):
                yield self._chunk(first + start, rows[start:end])

    def _chunk(self, first: int, rows: np.ndarray) -> Chunk[np.ndarray | None]:
        start = self._layout.rows_start + first * self._layout.row.itemsize
        return Chunk(first, len(rows), start, start + rows.nbytes, rows)

    def _cuts(self, rows: np.ndarray) -> Iterator[tuple[int, int]]:
        if not self._layout.stored:
            yield 0, len(rows)
            return
        sums = np.cumsum(self._sizes(rows))
        start = 0
        while start < len(rows):
            before = int(sums[start - 1]) if start else 0
            end = int(np.searchsorted(sums, before + BETON_CHUNK_BYTES, "right"))
            end = min(max(end, start + 1), start + CHUNK_RECORDS)
            yield start, end
            start = end

    def _sizes(self, rows: np.ndarray) -> np.ndarray:
        """Return the approximate bytes of each record's values, from the lengths in its row. For a JPEG, whose row has
        no length, use the distance to the next record's value."""
        most = self._layout.page_bytes
        sizes = np.zeros(len(rows), np.int64)
        for each in self._layout.stored:
            row = rows[each.name]
            if each.kind == IMAGE:
                steps = np.diff(row["ptr"], append=row["ptr"][-1:]).astype(np.int64)
                steps = np.where((steps < 0) | (steps > most), 0, steps)
                pixels = row["width"].astype(np.int64) * row["height"] * 3
                sizes += np.where(row["mode"] == RAW_MODE, pixels, steps)
            elif each.kind in (BYTES, JSON):
                sizes += np.minimum(row["size"], np.uint64(most)).astype(np.int64)
            else:
                sizes += each.value_bytes
        return sizes

    def _rows(self, first: int, count: int) -> np.ndarray:
        size = self._layout.row.itemsize
        data = self._source.read(self._layout.rows_start + first * size, count * size)
        return self._as_rows(data, count)

    def _rows_at(self, records: np.ndarray) -> np.ndarray:
        size = self._layout.row.itemsize
        starts = records.astype(np.uint64) * np.uint64(size) + np.uint64(self._layout.rows_start)
        sizes = as_arrow(np.full(len(records), size, np.uint64))
        return self._as_rows(self._source.gather(as_arrow(starts), sizes), len(records))

    def _as_rows(self, data: _core.Buffer, count: int) -> np.ndarray:
        if len(data) < count * self._layout.row.itemsize:
            raise ChangedError("the file was truncated while it was open", file=self._path)
        return in_bytes(data, self._layout.row)

    def pick(self, records: np.ndarray) -> Iterable[tuple[Chunk[np.ndarray | None], np.ndarray]]:
        """Yield all records in one pair, because each row is read directly."""
        check_records(records, self.num_records, self._path)
        if len(records):
            end = self._layout.table_start
            yield Chunk(0, self.num_records, self._layout.rows_start, end), records

    # -- decoding ----------------------------------------------------------------------------------

    def decode(
        self, chunk: Chunk[np.ndarray | None], records: Selection, columns: Projection
    ) -> pa.RecordBatch:
        """Return some records of one chunk.

        Raises:
            FormatError: a row or the allocation table has a place that cannot hold a value.
            UnsupportedError: Arrow has no type for the dtype of a tensor.
            SchemaError: there is no such column, or a value does not fit schema=.
        """
        return self._decoded(chunk, records, columns, lends=False)

    def lent(
        self, chunk: Chunk[np.ndarray | None], records: Selection, columns: Projection
    ) -> pa.RecordBatch:
        return self._decoded(chunk, records, columns, lends=True)

    def _decoded(
        self,
        chunk: Chunk[np.ndarray | None],
        records: Selection,
        columns: Projection,
        *,
        lends: bool,
    ) -> pa.RecordBatch:
        schema = projected(self.schema, columns, self._path)
        numbers = np.arange(chunk.num_records) if records is None else np.asarray(records)
        if chunk.data is None:
            rows = self._rows_at(numbers)
        else:
            rows = chunk.data if records is None else chunk.data[numbers]
        numbers = numbers + chunk.first_record
        if not schema.names:
            return empty_columns(len(rows)).replace_schema_metadata(schema.metadata)
        try:
            wanted = [self._fields[name] for name in schema.names]
            arrays = self._columns(rows, numbers, wanted, lends)
        except PenstockError as error:
            raise error.at(file=self._path) from None
        fields = [field.with_type(a.type) for field, a in zip(schema, arrays, strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, schema.metadata))
        if lends:
            pairs = zip(schema, fields, strict=True)
            wanted_fields = [own if f.name in self._lendable else f for f, own in pairs]
            schema = pa.schema(wanted_fields, schema.metadata)
        return conform(batch, schema, self._path)

    def _columns(
        self, rows: np.ndarray, numbers: np.ndarray, wanted: list[Field], lends: bool
    ) -> list[Any]:
        spans = {f.name: self._spans(f, rows[f.name], numbers) for f in wanted if f.is_stored}
        window = self._values.window(list(spans.values())) if len(rows) else None
        return [
            self._stored_column(
                each,
                rows[each.name],
                spans[each.name],
                window,
                numbers,
                lends and each.name in self._lendable,
            )
            if each.name in spans
            else _row_column(each, rows[each.name])
            for each in wanted
        ]

    def _spans(self, each: Field, row: np.ndarray, numbers: np.ndarray) -> Spans:
        if each.kind == IMAGE:
            lengths: Any = self._values.image_lengths(each, row, numbers)
            return self._values.spans(each, row["ptr"], lengths, numbers)
        if each.kind in (BYTES, JSON):
            return self._values.spans(each, row["ptr"], row["size"], numbers)
        if each.dtype is None:
            raise UnsupportedError(
                f"Arrow has no type for a tensor of {each.described}",
                field=each.name,
                hint="use columns= with the other fields",
            )
        return self._values.spans(each, row, each.value_bytes, numbers)

    def _stored_column(
        self,
        each: Field,
        row: Any,
        spans: Spans,
        window: ValueWindow | None,
        numbers: np.ndarray,
        lends: bool,
    ) -> Any:
        codec = self._codecs.get(each.name, "")
        has_pixels = each.kind == IMAGE and bool((row["mode"] == RAW_MODE).any())
        if has_pixels or (lends and each.kind in (IMAGE, BYTES)):
            array = self._values.views(spans, window)
        else:
            array = self._values.binary(spans, window)
        if each.kind == BYTES:
            return array
        if has_pixels:
            parts = in_parts(codec, _ppm_heads(row), array)
            return parts if lends else whole(parts)
        if each.kind == IMAGE:
            return pa.ExtensionArray.from_storage(ImageType(codec, array.type), array)
        if each.kind == JSON:
            return pa.ExtensionArray.from_storage(each.type, _texts(each, array, numbers))
        return _tensors(each, array)

    def close(self) -> None:
        self._source.close()


def _row_column(each: Field, row: np.ndarray) -> Any:
    """Return a column whose values are in the rows."""
    if each.kind == FLOAT:
        return as_arrow(row.astype(np.float64))
    if each.kind == INT:
        return as_arrow(row.astype(np.int64))
    data = pa.py_buffer(np.ascontiguousarray(row).tobytes())
    return pa.Array.from_buffers(each.type, len(row), [None, data])


def _ppm_heads(row: np.ndarray) -> pa.Array:
    """Return the PPM header of each image's pixels, empty for a JPEG."""
    pixels, width, height = row["mode"] == RAW_MODE, row["width"], row["height"]
    sizes = np.where(pixels, width.astype(np.uint32) << 16 | height, 0).tolist()
    heads = {size: b"P6\n%d %d\n255\n" % (size >> 16, size & 0xFFFF) for size in set(sizes)}
    heads[0] = b""
    return pa.array([heads[size] for size in sizes], pa.binary())


def _texts(each: Field, array: Any, numbers: np.ndarray) -> Any:
    """Return JSON texts as strings, each up to its first NUL."""
    data, ends = bytes_of(array), edges_of(array)
    last = ends[1:] - ends[0] - 1
    is_plain = bool((np.diff(ends) > 0).all() and not data[last].any())
    if is_plain and np.count_nonzero(data == 0) == len(array):
        import pyarrow.compute  # the import takes 60 ms

        pc: Any = pyarrow.compute

        array = pc.binary_slice(array, 0, -1)
    else:
        array = pa.array([v.split(b"\0", 1)[0] for v in array.to_pylist()], pa.binary())
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        for number, value in zip(numbers, array.to_pylist(), strict=True):
            try:
                value.decode()
            except UnicodeDecodeError:
                record = int(number)
                raise FormatError("the text is not UTF-8", record=record, field=each.name) from None

        raise


def _tensors(each: Field, array: Any) -> Any:
    assert each.dtype is not None
    values = bytes_of(array)
    if each.dtype.kind == "b":
        flat = values != 0
    else:
        flat = np.require(values.view(each.dtype), each.dtype.newbyteorder("="), "A")
    return fixed_tensors(flat.reshape(len(array), *each.shape))

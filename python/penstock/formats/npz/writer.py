"""Writes npz. An archive stores each array contiguously, but records come in batches, so the values wait in a temporary
file. Memory holds a batch and a small buffer for each array."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.batches import conform, same_columns
from penstock.columns.refusals import refuse_ragged
from penstock.columns.types import is_bytes, is_fixed_tensor, is_text, storage_of
from penstock.contract.format import Writer
from penstock.errors import PenstockError, SchemaError
from penstock.formats.npy.writer import check_text_length, descr_of
from penstock.formats.npz._archive import write_archive
from penstock.formats.npz._columns import ENDINGS
from penstock.formats.npz._comment import schema_comment
from penstock.formats.numpy.dtypes import dtype_of, field_of
from penstock.formats.numpy.npy_header import header_bytes
from penstock.formats.numpy.values import missing_of, values_of
from penstock.storage.base import Sink

BUFFER_BYTES = 1 << 18
COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class NpzOptions:
    """Options for writing npz."""

    compression: str | None = None
    """None or "none" stores arrays uncompressed, so that they can be mapped and read at random. "deflate" compresses
    them."""
    level: int = 6
    """The deflate level: 1 is fast, 9 is small."""
    text_length: int | None = None
    """The maximum characters or bytes of a value; text is then one array of NumPy's text type. None writes offsets and
    values of any length."""


class _Spool:
    """One temporary file for blocks of many arrays."""

    def __init__(self, path: str) -> None:
        # It has no name, so it is always deleted. It is next to the target, where there is space.
        folder = os.path.dirname(path) or "."
        self._file = tempfile.TemporaryFile(  # noqa: SIM115
            prefix="penstock-", buffering=0, dir=folder if os.path.isdir(folder) else None
        )
        self._end = 0
        self.num_bytes = 0

    def append(self, data: Any) -> tuple[int, int]:
        view = memoryview(data)
        start = self._end
        while view:
            done = os.pwrite(self._file.fileno(), view, self._end)
            view, self._end = view[done:], self._end + done
        return start, self._end - start

    def read(self, start: int, length: int) -> Iterator[bytes]:
        while length:
            part = os.pread(self._file.fileno(), min(length, COPY_BYTES), start)
            yield part
            start, length = start + len(part), length - len(part)

    def close(self) -> None:
        self._file.close()


class _Array:
    def __init__(self, name: str, dtype: np.dtype[Any], spool: _Spool) -> None:
        self.name = name
        self.dtype = dtype
        self.count = 0
        self._spool = spool
        self._waiting = bytearray()
        self._blocks: list[tuple[int, int]] = []

    def add(self, values: np.ndarray) -> None:
        self.count += len(values)
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        self._spool.num_bytes += len(data)
        if len(data) >= BUFFER_BYTES:
            self._drain()
            self._blocks.append(self._spool.append(data))
            return
        self._waiting += data.data
        if len(self._waiting) >= BUFFER_BYTES:
            self._drain()

    def _drain(self) -> None:
        if self._waiting:
            self._blocks.append(self._spool.append(self._waiting))
            self._waiting = bytearray()

    def parts(self) -> Iterator[bytes]:
        yield header_bytes(descr_of(self.dtype.base), (self.count, *self.dtype.shape))
        for start, length in self._blocks:
            yield from self._spool.read(start, length)
        if self._waiting:
            yield bytes(self._waiting)


class _Part:
    """Writes one column. `native` is the field that reads back from the arrays alone."""

    def __init__(self, field: Any, name: str, spool: _Spool, text_length: int | None) -> None:
        self._name = name
        type_: Any = field.type if is_fixed_tensor(field.type) else storage_of(field.type)
        self._values: _Array | None = None
        self._offsets: _Array | None = None
        self._inner: _Part | None = None
        self._names: dict[str, int] | None = None
        self._valid = _Array(f"{name}#valid", np.dtype("?"), spool)
        self._count = 0
        self._end = 0
        self.native: Any = None
        types = pa.types
        if (is_text(type_) or is_bytes(type_)) and text_length is None:
            kind, plain = ("utf8", pa.string()) if is_text(type_) else ("bytes", pa.binary())
            self._offsets = _new_offsets(name, spool)
            self._values = _Array(f"{name}#{kind}", np.dtype("u1"), spool)
            self.native = pa.field(name, plain)
        elif types.is_list(type_) or types.is_large_list(type_):
            self._offsets = _new_offsets(name, spool)
            self._inner = _Part(type_.value_field, f"{name}#values", spool, text_length)
            native = self._inner.native
            item = pa.field("item", native.type, metadata=native.metadata)
            self.native = pa.field(name, pa.list_(item))
        elif types.is_dictionary(type_) and types.is_string(type_.value_type):
            self._names = {}
            dtype = dtype_of(pa.field(name, type_.index_type))
            self._values = _Array(f"{name}#codes", dtype, spool)
            self._inner = _Part(pa.field(name, pa.string()), f"{name}#names", spool, None)
            self.native = pa.field(name, pa.dictionary(type_.index_type, pa.string()))
        else:
            flat = pa.field(field.name, type_, metadata=field.metadata)
            dtype = dtype_of(flat, text_length or 0)
            self._values = _Array(name, dtype, spool)
            self.native = field_of(name, dtype.base, dtype.shape)

    def add(self, array: Any) -> None:
        if isinstance(array, pa.ExtensionArray) and not is_fixed_tensor(array.type):
            array = array.storage
        keeps_nulls = self._values is not None and self._values.dtype.kind in "mM"
        valid = ~missing_of(array) if array.null_count and not keeps_nulls else None
        if valid is not None:
            self._valid.add(np.ones(self._count - self._valid.count, bool))
            self._valid.add(valid)
        self._count += len(array)
        if self._offsets is not None:
            self._add_ranges(array)
        elif self._names is not None:
            self._add_codes(array)
        else:
            assert self._values is not None
            dtype = self._values.dtype
            if valid is None:
                values = values_of(array, dtype, self._name)
            else:
                values = np.zeros((len(array), *dtype.shape), dtype.base)
                values[valid] = values_of(array.filter(pa.array(valid)), dtype, self._name)
            self._values.add(values)

    def _add_ranges(self, array: Any) -> None:
        assert self._offsets is not None
        if self._inner is not None:
            self._inner.add(array.flatten())
            lengths = np.diff(_offsets_of(array))
        else:
            assert self._values is not None
            as_text = pa.types.is_string(self.native.type)
            whole = array.cast(pa.large_string() if as_text else pa.large_binary())
            lengths = np.diff(_offsets_of(whole))
            kept = whole.drop_null() if whole.null_count else whole
            places = _offsets_of(kept)
            data = kept.buffers()[2]
            if data is not None and len(places):
                self._values.add(np.frombuffer(data, np.uint8)[places[0] : places[-1]])
        if array.null_count:
            lengths = np.where(missing_of(array), 0, lengths)
        ends = self._end + np.cumsum(lengths, dtype=np.int64)
        if len(ends):
            self._end = int(ends[-1])
        self._offsets.add(ends)

    def _add_codes(self, array: Any) -> None:
        assert self._names is not None
        assert self._values is not None
        assert self._inner is not None
        places: list[int] = []
        for value in array.dictionary.to_pylist():
            if value is None:
                raise SchemaError("a label has no name", field=self._name)
            if value not in self._names:
                self._names[value] = len(self._names)
                self._inner.add(pa.array([value], pa.string()))
            places.append(self._names[value])
        if len(self._names) and len(self._names) - 1 > np.iinfo(self._values.dtype).max:
            raise SchemaError(
                f"{len(self._names)} labels are too many for {self._values.dtype}", field=self._name
            )
        indices = array.indices.fill_null(0) if array.null_count else array.indices
        codes = np.asarray(places or [0], self._values.dtype)[indices.cast(pa.int64()).to_numpy()]
        self._values.add(codes)

    def arrays(self) -> Iterator[_Array]:
        if self._offsets is not None:
            yield self._offsets
        if self._values is not None:
            yield self._values
        if self._inner is not None:
            yield from self._inner.arrays()
        if self._valid.count:
            self._valid.add(np.ones(self._count - self._valid.count, bool))
            yield self._valid


def _new_offsets(name: str, spool: _Spool) -> _Array:
    offsets = _Array(f"{name}#offsets", np.dtype("<i8"), spool)
    offsets.add(np.zeros(1, np.int64))
    return offsets


def _offsets_of(array: Any) -> np.ndarray:
    types, type_ = pa.types, array.type
    tests = (types.is_large_list, types.is_large_string, types.is_large_binary)
    dtype = np.dtype(np.int64 if any(test(type_) for test in tests) else np.int32)
    buffer = array.buffers()[1]
    if buffer is None or not buffer.size:
        return np.zeros(1, dtype)
    return np.frombuffer(buffer, dtype, len(array) + 1, array.offset * dtype.itemsize)


class NpzWriter(Writer):
    """Writes one npz file."""

    def __init__(self, sink: Sink, schema: pa.Schema, options: NpzOptions) -> None:
        codec = options.compression or "none"
        if codec not in ("none", "deflate"):
            raise ValueError(f"compression must be 'none' or 'deflate', not {codec!r}")
        if not 0 <= options.level <= 9:
            raise ValueError(f"level must be 0 to 9, not {options.level}")
        check_text_length(options.text_length)
        self._sink = sink
        self._schema: Any = schema
        self._records = 0
        self._spool = _Spool(sink.path)
        self._level = options.level if codec == "deflate" else None
        self._file_bytes: int | None = None
        try:
            self._parts = self._plan(options)
            self._comment = self._kept_schema()
        except PenstockError as error:
            self._spool.close()
            raise error.at(file=sink.path) from None

    def _plan(self, options: NpzOptions) -> list[_Part]:
        names = self._schema.names
        if not names:
            raise SchemaError("an npz file cannot hold records without fields")
        for name, times in Counter(names).items():
            if not name or times > 1:
                raise SchemaError(
                    "two fields have the same name, or a field has no name", field=name
                )
            if "\0" in name or any(ending in name for ending in ENDINGS):
                message = "the name has a NUL, or an ending that npz uses for parts of columns"
                raise SchemaError(message, field=name, hint="rename it")
            if len(name.encode()) > 60_000:
                raise SchemaError("the name is too long for an archive", field=name[:40])
        refuse_ragged(self._schema, "npz")
        return [_Part(f, f.name, self._spool, options.text_length) for f in self._schema]

    def _kept_schema(self) -> bytes:
        """Return the archive's comment: Arrow's schema, or nothing if the arrays alone give that schema."""
        native = pa.schema([part.native for part in self._parts])
        plain = pa.schema(
            [field.with_nullable(True) for field in self._schema], self._schema.metadata
        )
        if native.equals(plain, check_metadata=True):
            return b""
        comment = schema_comment(self._schema)
        if len(comment) > 0xFFFF:
            raise SchemaError(
                "the schema is too large for the comment of an archive",
                expected="at most 65535 bytes",
                found=f"{len(comment)} bytes",
                hint="use fewer fields, less metadata, or types that arrays store without the comment",
            )
        return comment

    @property
    def num_bytes(self) -> int:
        """Bytes of the arrays so far, or of the file after `close`."""
        return self._spool.num_bytes if self._file_bytes is None else self._file_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        path = self._sink.path
        batch = conform(same_columns(batch, self._schema, path), self._schema, path)
        for n, part in enumerate(self._parts):
            try:
                part.add(batch.column(n))
            except SchemaError as error:
                if error.record is not None:
                    error.record += self._records
                raise error.at(file=path, field=self._schema.names[n]) from None
        self._records += batch.num_rows

    def close(self) -> None:
        """Write the archive. The sink stays open."""
        if self._file_bytes is None:
            arrays = (array for part in self._parts for array in part.arrays())
            members = ((f"{array.name}.npy", array.parts()) for array in arrays)
            self._file_bytes = write_archive(self._sink, members, self._comment, self._level)
            self._spool.close()

    def abort(self) -> None:
        """Delete the temporary file."""
        self._spool.close()

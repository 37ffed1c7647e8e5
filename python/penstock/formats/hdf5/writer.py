"""Writes HDF5: one chunked dataset per field, with a first axis that can grow.

h5py writes to a temporary file, because it seeks while writing. The sink gets the bytes at the end. Each dataset gets
whole chunks, always in the same order, so the bytes depend only on the records.
"""

from __future__ import annotations

import base64
import math
import os
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.batches import conform, same_columns
from penstock.columns.refusals import refuse_ragged
from penstock.columns.regroup import Regroup, record_bytes
from penstock.columns.types import is_bytes, is_fixed_tensor, is_text, storage_of
from penstock.contract.format import Writer
from penstock.errors import PenstockError, SchemaError, UnsupportedError
from penstock.formats.hdf5._file import MOST_ATTRIBUTE_BYTES, SCHEMA_ATTRIBUTE, h5py_or_error
from penstock.formats.numpy.dtypes import dtype_of, field_of
from penstock.formats.numpy.values import missing_of, values_of
from penstock.storage.base import Sink
from penstock.storage.local_sink import LocalSink, private_beside

CHUNK_BYTES = 1 << 18
VALUES_PER_CHUNK = 256
"""The records in a chunk of texts or lists of any length."""
COPY_BYTES = 1 << 20
COMPRESSIONS = ("none", "gzip", "lzf")


@dataclass(frozen=True, slots=True)
class Hdf5Options:
    """Options for writing HDF5."""

    compression: str | None = None
    """None or "none", "gzip", or "lzf", which is fast and which only h5py reads."""
    level: int = 4
    """The gzip level: 1 is fast, 9 is small."""
    shuffle: bool | None = None
    """Whether to group the bytes of numbers by significance, which compresses better. With None, they are grouped if
    the data is compressed."""
    chunk_records: int | None = None
    """The number of records in a chunk. None chooses a power of two for each field, so that a chunk has about 256
    KiB."""


def _refuse_times_inside(dtype: np.dtype[Any], field: Any) -> None:
    """Raise SchemaError for times in a struct. HDF5 has no times: a column of times is stored as opaque values, which a
    struct cannot hold."""
    fields = dtype.base.fields or {}
    for inside, *_ in fields.values():
        if inside.base.kind in "mM":
            raise SchemaError(
                f"HDF5 cannot hold times inside structs: {field.type}",
                field=field.name,
                hint="cast them to int64, leave them out (columns=), or write Parquet, Arrow or npz",
            )
        _refuse_times_inside(inside, field)


def _as_read(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype with which a structure reads back. If members hold the bits of another dtype, its name is lost,
    because members have no attributes."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((_as_read(base), shape))
    if dtype.names is None:
        return np.dtype(dtype.str)
    return np.dtype([(name, _as_read(dtype[name])) for name in dtype.names])


def _stored_as(field: Any) -> tuple[str, np.dtype[Any]]:
    """Return the kind of a field's values, and the dtype that stores them."""
    import h5py

    type_: Any = field.type if is_fixed_tensor(field.type) else storage_of(field.type)
    types = pa.types
    if is_text(type_):
        return "text", h5py.string_dtype()
    if is_bytes(type_):
        return "bytes", h5py.vlen_dtype(np.dtype("u1"))
    if types.is_list(type_) or types.is_large_list(type_):
        inner = dtype_of(pa.field(field.name, type_.value_type))
        if inner.kind not in "iufb" or inner.subdtype is not None:
            raise SchemaError(
                f"HDF5 can hold lists of numbers, not of {type_.value_type}",
                field=field.name,
                hint="cast it to lists of numbers, leave it out (columns=), or write Parquet, Arrow or npz",
            )
        return "lists", h5py.vlen_dtype(inner)
    if types.is_dictionary(type_) and types.is_string(type_.value_type):
        return "labels", dtype_of(pa.field(field.name, type_.index_type))
    dtype = dtype_of(pa.field(field.name, type_, metadata=field.metadata))
    _refuse_times_inside(dtype, field)
    if 0 in dtype.shape or not dtype.base.itemsize:
        raise SchemaError(
            f"HDF5 cannot hold values of no bytes, such as those of {type_}",
            field=field.name,
            hint="leave it out (columns=), or write Arrow or npz",
        )
    return "values", dtype


class _Dataset:
    """Writes one field."""

    def __init__(self, field: Any, options: Hdf5Options) -> None:
        self.name: str = field.name
        self._metadata: dict[bytes, bytes] = field.metadata or {}
        self._options = options
        self._names: list[str] | None = None
        self._kind, whole = _stored_as(field)
        self.dtype, self.shape = whole.base, whole.shape
        self.native = self._native()
        self.chunk_records = options.chunk_records or self._chunk_records()
        self._waiting: list[np.ndarray] = []
        self._num_waiting = 0
        self.waiting_bytes = 0
        """The bytes of values that do not fill a chunk yet."""

        self._written = 0
        self._dataset: Any = None

    def _native(self) -> Any:
        """Return the field that reads back from the file, or None if it depends on the values."""
        if self._kind == "labels":
            return None  # the type of the numbers depends on the number of names
        dtype = self.dtype if self.dtype.names is None else _as_read(self.dtype)
        kept = field_of(self.name, dtype, self.shape)
        metadata = {**self._metadata, **(kept.metadata or {})}
        return kept.with_metadata(metadata or None)

    def _chunk_records(self) -> int:
        if self.dtype.kind == "O":
            return VALUES_PER_CHUNK
        size = max(self.dtype.itemsize * math.prod(self.shape), 1)
        return 1 << max(0, (CHUNK_BYTES // size).bit_length() - 1)

    def _create(self, file: Any, chunk_records: int) -> None:
        """Create the dataset. It can be created only when the first records have arrived: they have the names of
        labels, and they may be too few for a whole chunk."""
        import h5py

        dtype: Any = self.dtype
        if self._kind == "labels":
            names = {name: n for n, name in enumerate(self._names or [])}
            dtype = h5py.enum_dtype(names, basetype=self.dtype)
        elif dtype.kind in "mM":
            dtype = h5py.opaque_dtype(dtype)
        options = self._options
        codec = options.compression or "none"
        shuffle = codec != "none" if options.shuffle is None else options.shuffle
        self._dataset = file.create_dataset(
            self.name,
            (0, *self.shape),
            dtype,
            chunks=(chunk_records, *(max(n, 1) for n in self.shape)),
            maxshape=(None, *self.shape),
            compression=None if codec == "none" else codec,
            compression_opts=options.level if codec == "gzip" else None,
            shuffle=shuffle and self.dtype.kind != "O",
            track_times=False,
        )
        for key, value in self._metadata.items():
            set_attribute(self._dataset, key, value)

    def add(self, array: Any, file: Any) -> None:
        """Add the values of a column, and write whole chunks."""
        if isinstance(array, pa.ExtensionArray) and not is_fixed_tensor(array.type):
            array = array.storage
        values = self._values(array)
        self._waiting.append(values)
        self._num_waiting += len(values)
        sizes = record_bytes(array)
        self.waiting_bytes += sizes * len(array) if isinstance(sizes, int) else int(sizes.sum())
        if self._num_waiting >= self.chunk_records:
            self._drain(file, self._num_waiting // self.chunk_records * self.chunk_records)

    def finish(self, file: Any) -> None:
        """Write the values that are left."""
        if self._kind == "labels" and self._names is None:
            self._names = []
            self._kind = "values"
        self._drain(file, self._num_waiting)

    def _drain(self, file: Any, count: int) -> None:
        if self._dataset is None:
            self._create(file, min(self.chunk_records, 1 << max(count - 1, 0).bit_length()))
        if not count:
            return
        whole = np.concatenate(self._waiting) if len(self._waiting) > 1 else self._waiting[0]
        self._waiting = [whole[count:]] if count < len(whole) else []
        self._num_waiting -= count
        self.waiting_bytes = 0  # the steps make whole chunks, so nothing is left
        assert self._dataset is not None
        self._dataset.resize(self._written + count, axis=0)
        if 0 not in self.shape:
            self._put(whole[:count])
        self._written += count

    def _put(self, values: np.ndarray) -> None:
        """Append values, without h5py guessing their meaning."""
        import h5py

        handle = self._dataset.id
        rest = self.shape
        stored = handle.get_space()
        stored.select_hyperslab((self._written, *(0 for _ in rest)), (len(values), *rest))
        memory = h5py.h5s.create_simple((len(values), *rest))
        handle.write(memory, stored, values, h5py.h5t.py_create(self._dataset.dtype))

    def _values(self, array: Any) -> np.ndarray:
        if self._kind == "values":
            return values_of(array, np.dtype((self.dtype, self.shape)), self.name)
        if array.null_count:
            record = int(np.flatnonzero(missing_of(array))[0])
            raise SchemaError(
                "the value is null, and HDF5 cannot hold nulls",
                record=record,
                field=self.name,
                hint="fill it, or write Parquet, Arrow or npz",
            )
        if self._kind == "labels":
            return self._codes(array)
        found = np.empty(len(array), self.dtype)
        if self._kind == "text":
            found[:] = self._texts(array)
        else:
            for record, part in enumerate(self._parts(array)):
                found[record] = part
        return found

    def _texts(self, array: Any) -> list[str]:
        texts: list[str] = array.to_pylist()
        for record, text in enumerate(texts):
            if "\0" in text:
                message = "the text has a NUL, which would end it in HDF5"
                hint = "cast the field to binary, which is kept as bytes"
                raise SchemaError(message, record=record, field=self.name, hint=hint)
        return texts

    def _parts(self, array: Any) -> Iterable[np.ndarray]:
        if self._kind == "bytes":
            return (np.frombuffer(data.as_buffer() or b"", np.uint8) for data in array)
        flat = array.flatten()
        values = values_of(flat, dtype_of(pa.field(self.name, flat.type)), self.name)
        ends = np.cumsum([len(one) for one in array])
        return np.split(values, ends[:-1]) if len(ends) else []

    def _codes(self, array: Any) -> np.ndarray:
        names: list[Any] = array.dictionary.to_pylist()
        if self._names is None:
            self._names = self._checked_names(names)
        codes = array.indices.cast(pa.int64()).to_numpy(zero_copy_only=False)
        if names != self._names:
            places = {name: n for n, name in enumerate(self._names)}
            new = [name for name in names if name not in places]
            if new:
                raise SchemaError(
                    f"the dictionary of the first records does not have the label {new[0]!r}",
                    field=self.name,
                    hint="use one dictionary for all batches (unify_dictionaries)",
                )
            codes = np.array([places[name] for name in names] or [0])[codes]
        return codes.astype(self.dtype)

    def _checked_names(self, names: list[Any]) -> list[str]:
        if len(set(names)) < len(names) or not all(names) or any("\0" in name for name in names):
            message = "two labels have the same name, or a name is empty or has a NUL"
            raise SchemaError(message, field=self.name)
        return names


def set_attribute(handle: Any, key: bytes, value: bytes) -> None:
    """Add metadata as a text attribute."""
    if not key or len(value) > MOST_ATTRIBUTE_BYTES - 1024:
        raise SchemaError(
            f"the metadata {key[:40]!r} has {len(value)} bytes; an attribute holds at most 63 KiB",
            hint="replace_schema_metadata, or write Parquet or Arrow",
        )
    try:
        text = value.decode()
        if "\0" in text:
            raise ValueError
        handle.attrs[key.decode()] = text
    except ValueError:
        raise SchemaError(f"the metadata {key[:40]!r} is not text", found=value[:40]) from None


class Hdf5Writer(Writer):
    """Writes one HDF5 file."""

    def __init__(self, sink: Sink, schema: pa.Schema, options: Hdf5Options) -> None:
        _check_options(options)
        h5py = h5py_or_error()
        self._sink = sink
        self._schema: Any = schema
        self._records = 0
        self._path: str | None = None
        self._file: Any = None
        self._copied = 0
        try:
            _check_names(self._schema.names)
            refuse_ragged(self._schema, "HDF5")
            self._datasets = [_Dataset(field, options) for field in self._schema]
            kept = self._kept_schema()
        except PenstockError as error:
            raise error.at(file=sink.path) from None
        # Datasets get their records in steps as long as the shortest chunk.
        step = min(dataset.chunk_records for dataset in self._datasets)
        self._regroup = Regroup(self._schema, group_records=step, group_bytes=1 << 62)
        if isinstance(sink, LocalSink):
            self._path = private_beside(sink.path)
        else:
            handle, self._path = tempfile.mkstemp(prefix="penstock-", suffix=".h5")
            os.close(handle)
        try:
            self._file = h5py.File(self._path, "w", locking=False)
            for key, value in (self._schema.metadata or {}).items():
                set_attribute(self._file, key, value)
            if kept:
                set_attribute(self._file, SCHEMA_ATTRIBUTE, kept)
        except PenstockError as error:
            self.abort()
            raise error.at(file=sink.path) from None
        except (ValueError, OSError, RuntimeError, TypeError) as error:
            self.abort()
            raise UnsupportedError(f"h5py cannot write this: {error}", file=sink.path) from error

    def _kept_schema(self) -> bytes:
        """Return Arrow's schema in Base64, or nothing if the datasets alone give the same."""
        names: list[str] = self._schema.names
        if names == sorted(names, key=lambda name: name.split("/")) and all(
            dataset.native is not None
            and dataset.native.equals(field.with_nullable(True), check_metadata=True)
            for dataset, field in zip(self._datasets, self._schema, strict=True)
        ):
            return b""
        text = base64.b64encode(self._schema.remove_metadata().serialize().to_pybytes())
        if len(text) > MOST_ATTRIBUTE_BYTES - 1024:
            raise SchemaError(
                "the schema is too large for an attribute",
                found=f"{len(text)} bytes",
                hint="use fewer fields, or types that HDF5 has",
            )
        return text

    @property
    def num_bytes(self) -> int:
        """Bytes of the file so far, and of the values that do not fill a chunk yet, uncompressed."""
        if self._file is None:
            return self._copied
        self._file.flush()
        waiting = sum(dataset.waiting_bytes for dataset in self._datasets)
        return int(self._file.id.get_filesize()) + self._regroup.bytes_waiting + waiting

    def write(self, batch: pa.RecordBatch) -> None:
        path = self._sink.path
        batch = conform(same_columns(batch, self._schema, path), self._schema, path)
        for group in self._regroup.add(batch):
            self._write(group)

    def _write(self, group: Any) -> None:
        for n, dataset in enumerate(self._datasets):
            try:
                dataset.add(group.column(n), self._file)
            except SchemaError as error:
                if error.record is not None:
                    error.record += self._records
                raise error.at(file=self._sink.path) from None
            except (ValueError, RuntimeError, TypeError) as error:
                raise UnsupportedError(
                    f"h5py cannot write this: {error}", file=self._sink.path, field=dataset.name
                ) from error
        self._records += group.num_rows

    def close(self) -> None:
        """Write the values that are left, and copy the file to the sink, which stays open."""
        if self._path is None:
            return
        for group in self._regroup.rest():
            self._write(group)
        for dataset in self._datasets:
            dataset.finish(self._file)
        self._file.close()
        self._file = None
        with open(self._path, "rb") as file:
            while part := file.read(COPY_BYTES):
                self._sink.write(part)
                self._copied += len(part)
        self.abort()

    def __del__(self) -> None:
        if getattr(self, "_path", None) is not None:
            self.abort()

    def abort(self) -> None:
        """Delete the temporary file."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._path is not None:
            os.unlink(self._path)
            self._path = None


def _check_options(options: Hdf5Options) -> None:
    codec = options.compression or "none"
    if codec not in COMPRESSIONS:
        raise ValueError(f"compression must be one of {', '.join(COMPRESSIONS)}, not {codec!r}")
    if not 0 <= options.level <= 9:
        raise ValueError(f"level must be 0 to 9, not {options.level}")
    if options.chunk_records is not None and options.chunk_records < 1:
        raise ValueError(f"chunk_records must be at least 1, not {options.chunk_records}")


def _check_names(names: list[str]) -> None:
    if not names:
        raise SchemaError("an HDF5 file cannot hold records without fields")
    for name, times in Counter(names).items():
        parts = name.split("/")
        if not all(parts) or "." in parts or "\0" in name or times > 1:
            raise SchemaError(
                "the name is not unique, or is not a path in HDF5: it has an empty part, '.' or a NUL",
                field=name,
                hint="rename it",
            )
    whole = set(names)
    for name in names:
        parts = name.split("/")
        if any("/".join(parts[:count]) in whole for count in range(1, len(parts))):
            message = "a field and a group of fields have the same name"

            raise SchemaError(message, field=name, hint="rename it")

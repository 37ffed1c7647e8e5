"""Writes WebDataset shards: one member per value, named after the record's key and the column's field.

| column | member | contents |
|---|---|---|
| encoded image | jpg, png, webp, ppm, bmp, gif, tif; img if the codec is not known | its bytes |
| binary | bin | its bytes |
| string, class label | txt | UTF-8 |
| JSON | json | the text |
| integers, bool, times | cls | the number as text |
| other numbers, tensors, lists of numbers | npy | the array in C order |
| other nested types | json | JSON, with byte strings as base64 |
| null | no member | |

The field is the column's name, with the ending from the table unless it already has an ending of that kind. Characters
that a field cannot have (upper case, spaces, slashes) are replaced. A comment at the front of the archive lists the
column and type of each field (see `_comment.py`), so that reading gives back what was written. The bytes depend only on
the records.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import _core
from penstock.columns.batches import empty_columns
from penstock.columns.types import (
    is_fixed_tensor,
    is_image,
    is_json,
    is_text,
    is_variable_tensor,
    storage_of,
)
from penstock.contract.format import Part
from penstock.errors import SchemaError
from penstock.formats.webdataset._archive_end import without_ends
from penstock.formats.webdataset._comment import (
    ARCHIVE_BYTES,
    END_BYTES,
    Stored,
    comment_of,
    folder_behind,
)
from penstock.formats.webdataset._fields import (
    IMAGES,
    JSONS,
    NPY,
    NUMBERS,
    TEXTS,
    as_json,
    holds_bytes,
    is_label,
    is_npy,
    is_number,
    is_time,
    keys,
)
from penstock.formats.webdataset._npy import files, stacked_files
from penstock.framing.index.sidecar import Index
from penstock.framing.write.output import OneStream, PlainOutput, front
from penstock.framing.write.writer import Encoded, FramedWriter
from penstock.storage.base import Sink

KEY = "__key__"
URL = "__url__"
ANY_IMAGE = "img"
"""The ending of images of any codec."""
_ANY_CODEC = (
    'its pictures are not all of one codec, so their members are named .img, which decode("pil") of webdataset leaves '
    "as bytes; convert(..., rename={{{!r}: 'jpg'}}, image_mode='jpg') writes .jpg"
)
_ARRAYS = ("npz", "npy", "mp", "msg", "cbor", "ten", "tb", "pyd", "pickle", "pkl", "pth", "pt")
_PICTURES = ("pbm", "pnm", "exr", *IMAGES)
_MOVIES = ("mp4", "ogv", "mjpeg", "avi", "mov", "h264", "mpg", "webm", "wmv")
_SOUNDS = ("flac", "mp3", "sox", "wav", "m4a", "ogg", "wma")
_BYTES = ("bin", "gz", "count", "html", "htm", *_ARRAYS, *_PICTURES, *_MOVIES, *_SOUNDS)


@dataclass(frozen=True, slots=True)
class WebDatasetWriteOptions:
    """Options for writing WebDataset shards."""

    compression: Literal["gzip"] | None = None
    level: int = 6
    """1 (fastest) to 9 (smallest)."""
    describe: bool = True
    """Whether to list the columns in a comment at the front of the archive."""
    key: str | None = None
    """A column of integers or strings whose values are the keys of the records; None uses the column `__key__` or, if
    there is none, the numbers of the records."""

    def __post_init__(self) -> None:
        if self.compression not in (None, "gzip"):
            raise ValueError(
                f"webdataset has no compression {self.compression!r}; known: None, 'gzip'"
            )
        if not 1 <= self.level <= 9:
            raise ValueError(f"level must be 1 to 9, not {self.level}")


class WebDatasetWriter(FramedWriter):
    """Writes one shard to a sink, and collects the data for its index. The caller commits or aborts the sink. Raises
    SchemaError if no member can hold values of a column's type.

    schema: the schema of the batches; None if only whole frames will be written.
    threads: how many slices are encoded in parallel; None means one per core.
    """

    def __init__(
        self,
        sink: Sink,
        schema: pa.Schema | None,
        options: WebDatasetWriteOptions,
        threads: int | None = None,
    ) -> None:
        self._options = options
        plan = RecordPlan(pa.schema([]) if schema is None else schema, options.key)
        self._plan = plan
        is_described = schema is not None and options.describe
        self._comment = comment_of(plan.stored) if is_described else None
        self._last_key: Any = None
        self._end_bytes = 0

        def encode(part: pa.RecordBatch, first_record: int) -> _core.Framed:
            return _core.encode_tar(plan.keys(part, first_record), plan.convert(part))

        super().__init__(sink, plan.stored.schema, encode, threads)

    def output(self, sink: Sink) -> PlainOutput:
        """Return the output. Compressed data is one gzip member, because Python's tarfile, and therefore webdataset,
        reads only one."""
        how = self._options
        return OneStream(sink, how.compression, how.level) if how.compression else PlainOutput(sink)

    def write(self, batch: pa.RecordBatch) -> None:
        if self._takes(batch):
            self._finishing(lambda: self._check_keys(batch))
        super().write(batch)

    def index(self) -> Index:
        index = super().index()
        zeros = _core.Buffer.from_bytes(bytes(self._end_bytes))
        starts, checksums = index.starts.copy(), index.checksums.copy()
        if len(checksums):
            # The zeros at the end of an archive belong to its last record.
            starts[-1] += np.uint64(self._end_bytes)
            checksums[-1] = zeros.crc32c(int(checksums[-1]))
        plain_bytes = index.plain_bytes + self._end_bytes
        return replace(index, plain_bytes=plain_bytes, starts=starts, checksums=checksums)

    def write_frames(
        self, frames: Sequence[Part], lengths: np.ndarray, checksums: np.ndarray
    ) -> None:
        """See FramedWriter.write_frames. Zeros at the ends of the source archives are left out."""
        super().write_frames(*without_ends(frames, lengths, checksums))

    def _take(self, frames: Encoded) -> None:
        comment, self._comment = self._comment, None
        if comment is None:
            super()._take(frames)
            return
        # The comment precedes the first record and counts as part of its frame.
        lengths, checksums = frames.lengths.copy(), frames.checksums.copy()
        checksums[0] = front(frames.parts, int(lengths[0])).crc32c(comment.crc32c())
        lengths[0] += np.uint64(len(comment))
        self._add([comment, *frames.parts], lengths, checksums)

    def _finish(self) -> None:
        self._work.drain()
        plain_bytes = sum(int(lengths.sum()) for lengths in self._lengths)
        # An archive without records gets the comment too, because its columns must match those of
        # the other shards.
        described: list[_core.Buffer] = []
        if self._comment is not None and not self._num_records:
            described = [self._comment, folder_behind()]
        front_bytes = sum(map(len, described))
        least = plain_bytes + front_bytes + END_BYTES
        self._end_bytes = -(-least // ARCHIVE_BYTES) * ARCHIVE_BYTES - plain_bytes
        zeros = _core.Buffer.from_bytes(bytes(self._end_bytes - front_bytes))
        self._output.add([*described, zeros], np.zeros(0, np.uint64))
        super()._finish()

    def _check_keys(self, batch: pa.RecordBatch) -> None:
        """Raise SchemaError if two consecutive records have the same key: they would read back as one."""
        if self._plan.key is None or not len(batch):
            return
        first = self._num_records
        names = self._plan.keys(batch, first)
        before = pa.concat_arrays([pa.array([self._last_key], names.type), names[:-1]])
        same = pc.fill_null(pc.equal(before, names), fill_value=False)
        if (row := pc.index(same, pa.scalar(value=True)).as_py()) >= 0:
            raise SchemaError(
                f"the record has the same key as the one before it, {names[row].as_py()!r}, so they "
                "would read back as one",
                record=first + row,
                field=KEY,
            )
        self._last_key = names[-1].as_py()


# -- columns --------------------------------------------------------------------------------------


class RecordPlan:
    """How the columns of a schema are encoded as members."""

    def __init__(self, schema: pa.Schema, key: str | None = None) -> None:
        self.key = _key_of(schema, key)
        if len(set(schema.names)) < len(schema.names):
            raise SchemaError("two columns have the same name")
        columns = [field for field in schema if field.name not in (KEY, URL)]
        self._fields: dict[str, str] = {}
        for column in columns:
            field = field_for(column.name, column.type)
            self._fields[column.name] = _free(field, set(self._fields.values()))
        self._columns = sorted(columns, key=lambda column: self._fields[column.name])
        self.stored = Stored(schema, self._fields)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the columns whose members are not found by webdataset as what they are."""
        images = (
            f"field {name!r}: {_ANY_CODEC.format(name)}"
            for name, field in self._fields.items()
            if field.rpartition(".")[2] == ANY_IMAGE
        )
        misnamed = (
            f"field {column.name!r}: its values are {column.type}, so its members are named "
            f".{self._fields[column.name]}, and webdataset finds no {column.name!r}"
            for column in self._columns
            if _is_misnamed(column.name, self._fields[column.name], column.type)
        )
        return (*images, *misnamed)

    def keys(self, batch: pa.RecordBatch, first: int) -> Any:
        """The keys of a batch, or the numbers of the records if they have no keys."""
        if self.key is None:
            return keys(first, batch.num_rows)
        found = batch.column(self.key)
        if not is_text(found.type):
            found = found.cast(pa.string())
        if found.null_count:
            row = pc.index(pc.is_null(found), pa.scalar(value=True)).as_py()
            raise SchemaError("the record has no key", record=first + row, field=KEY)
        return found

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a batch to columns of byte strings, named after their fields."""
        names = [self._fields[column.name] for column in self._columns]
        arrays = [_contents(batch.column(column.name), column) for column in self._columns]
        if not arrays:
            return empty_columns(len(batch))
        return pa.RecordBatch.from_arrays(arrays, names)


def _key_of(schema: pa.Schema, key: str | None) -> int | None:
    """Return the place of the column of keys; None if the records are numbered."""
    if key is None:
        if KEY not in schema.names:
            return None
        if not is_text(schema.field(KEY).type):
            raise SchemaError("the keys of records must be strings", field=KEY)
        return schema.get_field_index(KEY)
    if key not in schema.names:
        raise SchemaError(
            f"no such column for key=; there are: {', '.join(schema.names)}", field=key
        )
    type_ = schema.field(key).type
    if not (is_text(type_) or pa.types.is_integer(type_)):
        raise SchemaError(f"keys are strings or integers, not {type_}", field=key)
    return schema.get_field_index(key)


def _is_misnamed(name: str, field: str, type_: Any) -> bool:
    """Whether the name of a column promises values of another kind, so that its members have another name."""
    last = name.lower().rpartition(".")[2]
    promises = (*JSONS, *IMAGES, "cls", *(TEXTS if holds_bytes(storage_of(type_)) else ()))
    return last in promises and field.rpartition(".")[2] != last


def field_for(name: str, type_: Any) -> str:
    """Return the field for a column: its name, with an ending that shows the type of its values."""
    stem = re.sub(r"[^a-z0-9_.+-]", "_", name.lower().replace("/", "_"))
    last = stem.rsplit(".", 1)[-1]
    endings = _endings(name, type_)
    if last in endings:
        return stem
    return f"{stem}.{endings[0]}" if stem else endings[0]


# Complexity: one branch for each row of the table of types at the top.
def _endings(name: str, type_: Any) -> tuple[str, ...]:
    """Return the endings that a field with values of this type may have. A name without one of them gets the first."""
    storage = storage_of(type_)
    if is_image(type_):
        return tuple(e for e, codec in IMAGES.items() if codec == type_.codec) or (
            ANY_IMAGE,
            *IMAGES,
        )
    if is_json(type_):
        return JSONS
    if holds_bytes(storage) or pa.types.is_null(type_):
        return _BYTES
    if is_text(storage) or is_label(type_):
        return TEXTS
    if is_number(type_) or is_time(type_):
        return NUMBERS
    if is_npy(type_):
        return (NPY,)
    if isinstance(type_, pa.BaseExtensionType) or not _nests(type_):
        raise SchemaError(
            f"a member of a tar archive cannot hold values of type {type_}",
            field=name,
            hint="cast it to a number, a string, binary or a list of these, leave it out (columns=), or "
            "write Arrow",
        )
    return JSONS


def _nests(type_: Any) -> bool:
    """Whether JSON can store the values: lists, structs and maps of numbers, texts and byte strings."""
    kind = pa.types
    if kind.is_struct(type_):
        return all(_nests(field.type) for field in type_)
    if kind.is_map(type_):
        return _nests(type_.key_type) and _nests(type_.item_type)
    if kind.is_list(type_) or kind.is_large_list(type_) or kind.is_fixed_size_list(type_):
        return _nests(type_.value_type)
    floats_and_null = (kind.is_float32, kind.is_float64, kind.is_null)
    plain = (holds_bytes, is_text, is_number, *floats_and_null)
    return any(test(type_) for test in plain)


def _free(field: str, taken: set[str]) -> str:
    """Return the field's name, or a similar name if it is taken."""
    stem, dot, last = field.rpartition(".")
    found, number = field, 2
    while found in taken or found.startswith("__") or found == "none":
        found = f"{stem}-{number}.{last}" if dot else f"{field}-{number}.{field}"
        found = found.lstrip("_") if found.startswith("__") else found
        number += 1
    return found


def _contents(values: Any, column: pa.Field) -> Any:
    """Return the contents of a column's members as byte strings, with null for a record without a member."""
    type_ = column.type
    storage = storage_of(type_)
    if holds_bytes(storage) or is_text(storage):
        return values.storage if is_image(type_) or is_json(type_) else values
    if pa.types.is_null(type_):
        return pa.nulls(len(values), pa.binary())
    if is_label(type_):
        return values.cast(type_.value_type)
    if is_number(type_) or is_time(type_):
        return _integers(values).cast(pa.string())
    if is_npy(type_):
        return _files(values, column)
    try:
        texts = [as_json(value, type_) for value in values.to_pylist()]
    except ValueError as error:
        message = f"values of {type_} cannot be written as JSON: {error}"
        raise SchemaError(message, field=column.name) from None
    return pa.array(texts, pa.string())


def _integers(values: Any) -> Any:
    if pa.types.is_boolean(values.type):
        return values.cast(pa.int8())
    if is_time(values.type):
        return values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
    return values


def _files(values: Any, column: pa.Field) -> Any:
    type_: Any = column.type
    full = values.drop_null() if values.null_count else values
    if pa.types.is_floating(type_):
        found = stacked_files(full.to_numpy(zero_copy_only=False))
    elif is_fixed_tensor(type_):
        arrays = _flat(full.storage, values, column.name).reshape(len(full), *type_.shape)
        found = stacked_files(arrays)
    elif is_variable_tensor(type_):
        data, shapes = full.storage.field("data"), full.storage.field("shape")
        flat = _flat(data, values, column.name)
        found = files(flat, _ends(data), [tuple(shape) for shape in shapes.to_pylist()])
    elif pa.types.is_fixed_size_list(type_):
        flat = _flat(full, values, column.name)
        found = stacked_files(flat.reshape(len(full), type_.list_size))
    else:
        ends = _ends(full)
        flat = _flat(full, values, column.name)
        found = files(flat, ends, [(int(n),) for n in np.diff(ends)])
    if not values.null_count:
        return found
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    return found.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


def _flat(lists: Any, values: Any, name: str) -> np.ndarray:
    flat = lists.flatten()
    if flat.null_count:
        rows = [any(item is None for item in row or ()) for row in lists.to_pylist()]
        valid = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        row = int(valid[rows.index(True)])
        message = "a list has a null, which an npy file cannot hold"
        raise SchemaError(message, record=row, field=name)
    return flat.to_numpy(zero_copy_only=False)


def _ends(lists: Any) -> np.ndarray:
    """Return the offsets of lists in their concatenated values, starting with 0."""
    lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    return np.cumsum([0, *lengths])

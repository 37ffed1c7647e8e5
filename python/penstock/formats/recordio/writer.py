"""Writes RecordIO shards: byte strings, or labels and images as a pack.

| column | stored as |
|---|---|
| label: a number | flag 0 and the label, rounded to float32 |
| label: a class label (dictionary) | its number |
| label: a list of numbers, of any or fixed length; a tensor of one axis | flag: their number; then the labels |
| id, id2: integers | uint64; without such a column, id is the record's number in its shard, and id2 is 0 |
| image: binary, encoded images | the bytes |
| `data` or `record`: binary, the only column | the payload |

These raise a SchemaError that names record and field: a null, an integer label that float32 would round, an empty list
(it would read back as the label 0), a negative id, and a record of 2^29 bytes or more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import _core
from penstock.columns.losses import NO_NAMES, ROUNDED, Losses
from penstock.columns.numbers import as_arrow
from penstock.columns.types import is_bytes, is_fixed_tensor, is_image, storage_of
from penstock.errors import SchemaError
from penstock.formats.recordio._layout import DATA, PACK, RECORD
from penstock.formats.recordio._mxnet_index import MXNetIndex
from penstock.framing.write.writer import FramedWriter
from penstock.storage.base import Sink

_NULL = "is null, and RecordIO cannot hold nulls"
_HINT = (
    'columns=["label", "image"] leaves the others out; rename={"cls": "label"} renames; '
    "other columns need another format"
)


@dataclass(frozen=True, slots=True)
class RecordIOWriteOptions:
    """Options for writing RecordIO files."""

    idx: bool = True
    """Whether to write MXNet's text index, `x.idx`, next to `x.rec`."""
    exact: bool = False
    """Whether to raise an error for labels that float32 would round, and for class labels, whose names would be
    lost."""


class RecordIOWriter(FramedWriter):
    """Writes one shard to a sink, and collects its index. The caller commits or aborts the sink. Raises SchemaError if
    RecordIO cannot have these columns, or columns of these types.

    threads: how many slices are encoded in parallel; None means one per core.
    """

    def __init__(
        self,
        sink: Sink,
        schema: pa.Schema,
        options: RecordIOWriteOptions,
        threads: int | None = None,
    ) -> None:
        self.text_index = MXNetIndex() if options.idx else None
        self._losses = Losses(exact=options.exact)
        super().__init__(sink, schema, _encoder(schema, self._losses), threads)
        self._names: pa.Array | None = None
        label = schema.field("label").type if "label" in schema.names else None
        self._has_names = label is not None and pa.types.is_dictionary(label)

    def write(self, batch: pa.RecordBatch) -> None:
        if "label" in batch.schema.names and self._takes(batch):
            self._check_names(batch.column("label"))
        super().write(batch)

    @property
    def notes(self) -> tuple[str, ...]:
        return self._losses.notes

    @property
    def dictionaries(self) -> dict[str, pa.Array | None]:
        return {"label": self._names} if self._has_names else {}

    def _check_names(self, labels: pa.Array) -> None:
        """Raise SchemaError if a batch numbers its classes differently from earlier batches."""
        if not pa.types.is_dictionary(labels.type):
            return
        names = labels.dictionary
        if self._names is None or names.slice(0, len(self._names)).equals(self._names):
            self._names = names
        elif not self._names.slice(0, len(names)).equals(names):
            raise SchemaError(
                "two batches number their classes differently",
                field="label",
                hint="call unify_dictionaries() of a pyarrow.Table, or write labels as numbers",
            )


def _encoder(schema: pa.Schema, losses: Losses) -> Callable[[pa.RecordBatch, int], _core.Framed]:
    """Return a function that encodes a slice to frames. Its second argument is the number of the slice's first
    record."""
    names = schema.names
    if names in ([DATA], [RECORD]):
        _check_type(schema.field(0), _is_bytes, "bytes", hint="cast it to binary, or write Arrow")

        def encode(part: pa.RecordBatch, first_record: int) -> _core.Framed:
            del first_record
            return _core.encode_recordio(_whole(part, names[0]))

        return encode
    if len(set(names)) < len(names) or not {"label", "image"} <= set(names) <= set(PACK):
        raise SchemaError(
            "RecordIO holds label and image, with id and id2 if wanted, or one column data of bytes; "
            f"not {', '.join(names) or 'nothing'}",
            hint=_HINT,
        )
    for field in schema:
        _check_type(field, *_TYPES[field.name])
    if pa.types.is_dictionary(schema.field("label").type):
        losses.add("label", NO_NAMES)

    def encode_pack(part: pa.RecordBatch, first_record: int) -> _core.Framed:
        numbers = np.arange(first_record, first_record + part.num_rows, dtype=np.uint64)
        arrays = {
            "label": _labels(_whole(part, "label"), losses),
            "id": _ids(part, "id") if "id" in names else as_arrow(numbers),
            "id2": _ids(part, "id2") if "id2" in names else as_arrow(numbers * np.uint64(0)),
        }
        return _core.encode_recordio(_whole(part, "image"), pa.record_batch(arrays))

    return encode_pack


def _check_type(
    field: pa.Field, is_right: Callable[[pa.DataType], bool], wanted: str, hint: str
) -> None:
    if not is_right(field.type):
        message = f"RecordIO holds {wanted} here, not {field.type}"
        raise SchemaError(message, field=field.name, hint=hint)


def _is_bytes(type_: pa.DataType) -> bool:
    if isinstance(type_, pa.BaseExtensionType) and not is_image(type_):
        return False
    stored = storage_of(type_)
    return is_bytes(stored) or bool(pa.types.is_fixed_size_binary(stored))


def _is_number(type_: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(type_) or types.is_floating(type_) or types.is_boolean(type_))


def _is_label(type_: pa.DataType) -> bool:
    types = pa.types
    if is_fixed_tensor(type_):
        shape: Any = type_
        return len(shape.shape) == 1 and shape.shape[0] > 0 and _is_number(shape.value_type)
    if isinstance(type_, pa.BaseExtensionType):
        return False
    if types.is_fixed_size_list(type_):
        return type_.list_size > 0 and _is_number(type_.value_type)
    if types.is_list(type_) or types.is_large_list(type_):
        return _is_number(type_.value_type)
    return bool(types.is_dictionary(type_) or _is_number(type_))


_IMAGE_HINT = "cast it to binary, or write Arrow"
_LABEL_HINT = "cast it to numbers, dictionary_encode() it, or write Arrow"
_ID_HINT = "cast it to integers, or leave it out (columns=)"
_TYPES: dict[str, tuple[Callable[[pa.DataType], bool], str, str]] = {
    "image": (_is_bytes, "the bytes of an image file", _IMAGE_HINT),
    "label": (_is_label, "numbers, or lists of numbers", _LABEL_HINT),
    **dict.fromkeys(("id", "id2"), (pa.types.is_integer, "integers", _ID_HINT)),
}
"""A test, a description and a hint for the type of each column of a pack."""


# -- columns for the kernel -----------------------------------------------------------------------


def _whole(part: pa.RecordBatch, name: str) -> pa.Array:
    column = part.column(name)
    column = column.storage if isinstance(column, pa.ExtensionArray) else column
    if column.null_count:
        record = _first_null(column)
        raise SchemaError(_NULL, record=record, field=name)
    return column


def _ids(part: pa.RecordBatch, name: str) -> pa.Array:
    column = _whole(part, name)
    if pa.types.is_signed_integer(column.type) and len(column):
        least = pc.min(column).as_py()
        if least < 0:
            record = pc.index(column, least).as_py()
            message = f"{least} is negative, and an id is uint64"
            raise SchemaError(message, record=record, field=name)
    return column.cast(pa.uint64())


def _labels(column: pa.Array, losses: Losses) -> pa.Array:
    """Convert labels to float32, or to lists of float32."""
    if pa.types.is_dictionary(column.type):
        column = column.indices
    if not pa.types.is_nested(column.type):
        return _floats(column, lambda place: place, losses)
    lengths = _numpy(pc.list_value_length(column))
    if not lengths.all():
        raise SchemaError(
            "an empty list of labels would be read as the label 0",
            record=int(np.argmin(lengths)),
            field="label",
            hint="give each record at least one label",
        )
    ends = np.cumsum(lengths, dtype=np.int64)
    values = _floats(
        column.flatten(), lambda place: int(np.searchsorted(ends, place, "right")), losses
    )
    offsets = pa.array(np.concatenate([[0], ends]).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, values)


def _floats(values: pa.Array, record_of: Callable[[int], int], losses: Losses) -> pa.Array:
    """Convert numbers to float32. If a number does not fit, the error names its record."""
    if values.null_count:
        place = _first_null(values)
        raise SchemaError(_NULL, record=record_of(place), field="label")
    if pa.types.is_float32(values.type):
        return values
    given = _numpy(values)
    with np.errstate(over="ignore"):
        stored = given.astype(np.float32)
    if pa.types.is_floating(values.type):
        fits = np.isfinite(stored) | ~np.isfinite(given)
        reason, hint = "is beyond the range of float32", "scale the labels"
    else:
        most = 1 << 24
        fits = given <= most
        if pa.types.is_signed_integer(values.type):
            fits &= given >= -most
        reason = "is a label that float32 would round"
        hint = (
            "RecordIO stores labels as float32, which holds whole numbers up to 2^24; id is uint64"
        )
    if not fits.all():
        place = int(np.argmin(fits))
        message = f"{given[place].item()!r} {reason}"
        raise SchemaError(message, record=record_of(place), field="label", hint=hint)
    same = (stored == given) | np.isnan(stored)
    if not same.all():
        losses.add("label", ROUNDED, record_of(int(np.argmin(same))))
    return pa.array(stored)


def _first_null(column: pa.Array) -> int:
    return int(np.argmax(_numpy(column.is_null())))


def _numpy(values: pa.Array) -> np.ndarray:
    """Convert numbers without nulls to NumPy. pyarrow's conversion is not used, because it would import pandas."""
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    dtype = np.dtype(values.type.to_pandas_dtype())
    data = values.buffers()[1]
    if data is None:
        return np.zeros(0, dtype)
    return np.frombuffer(data, dtype, len(values), values.offset * dtype.itemsize)

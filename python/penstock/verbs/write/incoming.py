"""Conversion of the data passed to `write` (tables, streams, frames, dicts, bytes) to Arrow batches.

No type is guessed. If a value does not have the type of its column, the error names the record and the field. Data of
an unsupported type is a TypeError that lists the supported types.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from penstock.columns.null_slots import has_views, without_garbage
from penstock.columns.types import own_batch, own_types
from penstock.datasets.dataset import Dataset
from penstock.errors import SchemaError
from penstock.formats.numpy import dtypes
from penstock.payloads.example.plans import RECORD
from penstock.verbs.write.incoming_values import (
    SCHEMA_HINT,
    Field,
    copied,
    no_text,
    tensors,
    type_name,
    weight,
)

SAMPLE_RECORDS = 1000
"""The most dicts from which the schema is inferred, and the most dicts in a batch."""
_SAMPLE_BYTES = 32 << 20
"""The sample ends once its values have this many bytes."""
_BATCH_RECORDS = 4096
_BATCH_BYTES = 4 << 20

ACCEPTED = (
    "a pyarrow Table, RecordBatch or RecordBatchReader; anything with __arrow_c_stream__ or "
    "__arrow_c_array__ (polars, duckdb, pandas, a penstock Dataset); a dict of equally long "
    "arrays; or an iterable of record batches, of dicts (one per record) or of bytes (raw records)"
)


class Incoming(NamedTuple):
    """Records to write. All batches have the schema, or its `lent_schema` if the writer accepts views."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    num_records: int | None
    """None if the number is known only after the last batch."""
    kept: bytes = b""
    """The schema to store in sidecars, for raw records, whose batches do not have it."""


def batches_of(data: Any) -> Incoming:
    """Return the data passed to `write` as Arrow batches.

    The index of a pandas DataFrame is ignored if it has only row numbers. A NumPy array of several dimensions becomes
    a column of tensors.

    Raises:
        TypeError: the data is not of an accepted kind.
        SchemaError: a value, column or batch does not fit the others.

    Example:
        >>> schema, batches, num_records, _ = batches_of({"label": [1, 2], "name": ["a", "b"]})
        >>> schema.names, num_records
        (['label', 'name'], 2)
    """
    if isinstance(data, Incoming):
        return data
    given = _given(data)
    if any(has_views(field.type) for field in given.schema):
        given = given._replace(batches=map(without_garbage, given.batches))
    schema = own_types(given.schema)
    if schema is given.schema:
        return given
    return given._replace(schema=schema, batches=(own_batch(b, schema) for b in given.batches))


# Complexity: one branch for each kind of data.
def _given(data: Any) -> Incoming:
    if isinstance(data, pa.Table):
        return Incoming(data.schema, iter(data.to_batches()), data.num_rows)
    if isinstance(data, pa.RecordBatch):
        return Incoming(data.schema, iter([data]), data.num_rows)
    if isinstance(data, pa.RecordBatchReader):
        return Incoming(data.schema, iter(data), None)
    if isinstance(data, (pa.Array, pa.ChunkedArray)):
        return _from_array(data)
    if _module_of(data) == "pandas" and hasattr(data, "columns"):
        return _from_pandas(data)
    if isinstance(data, Mapping):
        return _from_columns(cast("Mapping[Any, Any]", data))
    if isinstance(data, Dataset):
        whole = data.complete()  # with the columns that were not selected
        return Incoming(whole.schema, whole.scan(), len(data))
    if hasattr(data, "__arrow_c_stream__"):
        return _from_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        return _from_array(pa.array(data))
    if isinstance(data, (str, bytes, bytearray, memoryview)) or not isinstance(data, Iterable):
        raise _not_accepted(data)
    return _from_iterable(cast("Iterable[Any]", data))


def _not_accepted(data: object, where: str = "") -> TypeError:
    if isinstance(data, str) and not where:
        opened = f"the records of a file are penstock.open({data!r})"
        return TypeError(f"cannot write str; {opened}; accepted: {ACCEPTED}")
    return TypeError(f"cannot write {type_name(data)}{where}; accepted: {ACCEPTED}")


def _module_of(value: object) -> str:
    return type(value).__module__.partition(".")[0]


def _from_array(array: pa.Array | pa.ChunkedArray) -> Incoming:
    """Return a struct array as record batches, or a binary array as raw records."""
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    if pa.types.is_struct(array.type):
        schema = pa.schema(list(array.type))
        batches = (pa.RecordBatch.from_struct_array(chunk) for chunk in chunks)
        return Incoming(schema, batches, len(array))
    types = pa.types
    is_binary = types.is_binary(array.type) or types.is_large_binary(array.type)
    if is_binary or types.is_binary_view(array.type):
        schema = pa.schema([(RECORD, array.type)])
        batches = (pa.RecordBatch.from_arrays([chunk], schema=schema) for chunk in chunks)
        return Incoming(schema, batches, len(array))
    raise TypeError(f'an array of {array.type} has no column name; write {{"name": array}}')


def _from_pandas(frame: Any) -> Incoming:
    try:
        table = pa.Table.from_pandas(frame, preserve_index=_tells(frame.index))
    except UnicodeError:
        # The error does not name the column, so convert each column separately.
        names = [_name(str(name)) for name in frame.columns]
        for place, name in enumerate(names):
            _column(name, frame.iloc[:, place].to_numpy())
        raise
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        message = "; ".join(str(part) for part in error.args)
        raise SchemaError(message, field=_refused_column(frame)) from None
    # Drop pandas' metadata about the index, which describes the frame, not the records.
    return batches_of(table.replace_schema_metadata(None))


def _tells(index: Any) -> bool:
    """Whether the index of a frame is more than row numbers: it has a name, or does not hold integers."""
    return any(name is not None for name in index.names) or index.dtype.kind != "i"


def _refused_column(frame: Any) -> str | None:
    for place, name in enumerate(frame.columns):
        try:
            pa.Array.from_pandas(frame.iloc[:, place])
        except pa.ArrowException:
            return str(name)
    return None


def _from_stream(data: Any) -> Incoming:
    if _module_of(data) == "polars":
        # The stream would contain the addresses of the objects.
        schema = getattr(data, "schema", {})
        objects = [str(name) for name, kind in schema.items() if str(kind) == "Object"]
        if objects:
            raise _objects(objects[0])
    # Do not read the length of a database relation, because that would run its query twice.
    is_counted = _module_of(data) == "polars" and hasattr(data, "__len__")
    num_records = len(data) if is_counted else None
    try:
        reader = pa.RecordBatchReader.from_stream(data)
    except pa.ArrowInvalid:
        # This is a stream of one column, such as a polars Series.
        return _from_array(pa.chunked_array(data))
    return Incoming(reader.schema, iter(reader), num_records)


def _objects(name: str) -> SchemaError:
    return SchemaError("a column of Python objects has no type that can be written", field=name)


def _from_columns(columns: Mapping[Any, Any]) -> Incoming:
    if not columns:
        raise ValueError("a dict without columns has no records to write")
    columns = {name: _in_numpy(str(name), values) for name, values in columns.items()}
    arrays = {_name(name): _column(str(name), values) for name, values in columns.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
        raise SchemaError(f"columns differ in length: {listed}")
    fields = [_field(name, columns[name], array) for name, array in arrays.items()]
    return batches_of(pa.table(list(arrays.values()), schema=pa.schema(fields)))


def _field(name: str, values: Any, array: pa.Array | pa.ChunkedArray) -> pa.Field:
    """Return the field of a column. If Arrow lacks the NumPy dtype, the metadata names it."""
    if isinstance(values, np.ndarray) and dtypes.lacks_type(values.dtype):
        values = dtypes.with_bits(values)
        return dtypes.field_of(name, values.dtype, values.shape[1:])
    return pa.field(name, array.type)


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a column name must be a string, not {name!r}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise SchemaError("this field name is not valid Unicode", field=name) from None
    return name


def _in_numpy(name: str, values: Any) -> Any:
    """Return another library's array, such as a torch tensor, as a NumPy array, and anything else unchanged."""
    if str(getattr(values, "dtype", "")) == "torch.bfloat16":
        values = values.float()  # NumPy has no bfloat16, and each of its values is a float32
    ways = ("__arrow_c_stream__", "__arrow_c_array__")
    is_known = isinstance(values, (np.generic, np.ndarray)) or any(hasattr(values, w) for w in ways)
    if is_known or not hasattr(values, "__array__"):
        return values
    try:
        return np.asarray(values)
    except (TypeError, RuntimeError) as error:
        message = f"{type_name(values)} cannot be converted to a NumPy array: {error}"
        raise SchemaError(message, field=name) from None


def _column(name: str, values: Any) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    try:
        if isinstance(values, np.ndarray):
            return _from_numpy(name, cast("np.ndarray[Any, Any]", values))
        if hasattr(values, "__arrow_c_stream__"):
            if _module_of(values) == "polars" and str(values.dtype) == "Object":
                raise _objects(name)
            return pa.chunked_array(values)
        if hasattr(values, "__arrow_c_array__"):
            return pa.array(values)
        if isinstance(values, (np.generic, str, bytes, bytearray, Mapping)):
            raise _scalar(name, values)
        if isinstance(values, (Sequence, Iterator)):
            return Field(name, list(cast("Iterable[Any]", values))).array()
    except UnicodeError:
        raise no_text(name, cast("Iterable[Any]", values)) from None
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise SchemaError(str(error), field=name) from None
    raise _scalar(name, values)


def _scalar(name: str, value: object) -> TypeError:
    return TypeError(
        f"column {name!r} is one {type_name(value)}; a column must be an array or list with a value "
        "for every record"
    )


def _from_numpy(name: str, values: np.ndarray[Any, Any]) -> pa.Array:
    if values.ndim == 0:
        raise _scalar(name, values)
    if not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    if isinstance(values, np.ma.MaskedArray):
        if values.ndim == 1:
            return pa.array(values.data, mask=np.ma.getmaskarray(values))
        raise SchemaError("a masked array must have one dimension", field=name)
    if dtypes.lacks_type(values.dtype):
        values = dtypes.with_bits(values)
        return dtypes.column(values, dtypes.field_of(name, values.dtype, values.shape[1:]).type)
    if values.ndim == 1:
        return Field(name, list(values)).array() if values.dtype == object else pa.array(values)
    return tensors(values)


def _from_iterable(data: Iterable[Any]) -> Incoming:
    num_records = len(data) if isinstance(data, Sequence) else None
    items = iter(data)
    first = next(items, None)
    if first is None:
        return Incoming(pa.schema([]), iter(()), 0)
    items = chain([first], items)
    if isinstance(first, Mapping):
        return _from_dicts(items, num_records, may_change=num_records is None)
    if isinstance(first, (bytes, bytearray, memoryview)):
        schema = pa.schema([(RECORD, pa.binary())])
        return Incoming(schema, _raw_batches(items, schema), num_records)
    if hasattr(first, "__arrow_c_array__") or hasattr(first, "__arrow_c_stream__"):
        return _from_batches(items)
    raise _not_accepted(first, " as one of the records")


def _from_batches(items: Iterator[Any]) -> Incoming:
    head = batches_of(next(items))

    def batches() -> Iterator[pa.RecordBatch]:
        yield from head.batches
        for number, item in enumerate(items, start=1):
            more = batches_of(item)
            if not more.schema.equals(head.schema):
                raise SchemaError(
                    f"batch {number} has another schema than the first",
                    expected=_one_line(head.schema),
                    found=_one_line(more.schema),
                )
            for batch in more.batches:
                yield pa.RecordBatch.from_arrays(batch.columns, schema=head.schema)

    return Incoming(head.schema, batches(), None)


def _one_line(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def _raw_batches(items: Iterator[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    waiting: list[bytes] = []
    held = 0

    def batch() -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array(waiting, pa.binary())], schema=schema)

    for record, item in enumerate(items):
        if not isinstance(item, (bytes, bytearray, memoryview)):
            message = f"is {type_name(item)}; the records before it are bytes"
            raise SchemaError(message, record=record)
        waiting.append(bytes(item))
        held += len(item)
        if held >= _BATCH_BYTES or len(waiting) >= _BATCH_RECORDS:
            yield batch()
            waiting, held = [], 0
    if waiting:
        yield batch()


def _from_dicts(items: Iterator[Any], num_records: int | None, *, may_change: bool) -> Incoming:
    sample = _next_dicts(items, 0, _SAMPLE_BYTES, may_change)
    names: dict[str, None] = {}
    for item in sample:
        names.update(dict.fromkeys(_name(key) for key in item))
    fields = [Field(name, [item.get(name) for item in sample]) for name in names]
    batch = _batch_of(fields, sample, 0)
    schema, first, num_sampled = batch.schema, [batch], len(sample)
    # From here on, keep the inferred types, but not the values of the sample.
    for field in fields:
        field.values = []
    del batch, sample

    def batches() -> Iterator[pa.RecordBatch]:
        yield first.pop()
        record = num_sampled
        while more := _next_dicts(items, record, _BATCH_BYTES, may_change):
            for at, item in enumerate(more):
                if not item.keys() <= names.keys():
                    new = next(key for key in item if key not in names)
                    message = f"the first {num_sampled} records do not have this field"
                    raise SchemaError(message, record=record + at, field=str(new), hint=SCHEMA_HINT)
            yield _batch_of(fields, more, record)
            record += len(more)

    return Incoming(schema, batches(), num_records)


def _next_dicts(
    items: Iterator[Any], first_record: int, most_bytes: int, may_change: bool
) -> list[Mapping[str, Any]]:
    """Return the next dicts, of about `most_bytes` at most. With `may_change` they are copied, because the iterator
    may reuse a dict, an array or a list for the next record."""
    dicts: list[Mapping[str, Any]] = []
    num_bytes = 0
    for item in items:
        _check_dict(item, first_record + len(dicts))
        kept = dict(item) if may_change else item
        dicts.append(kept)
        for name, value in kept.items():
            # Inlined for the most common types, because a call per value would be half the cost of writing.
            kind = type(value)
            if kind is str or kind is bytes:
                num_bytes += len(value)
            elif kind is int or kind is float:
                num_bytes += 8
            else:
                num_bytes += weight(value)
                if may_change:
                    kept[name] = copied(value)
        if num_bytes >= most_bytes or len(dicts) == SAMPLE_RECORDS:
            break
    return dicts


def _check_dict(item: object, record: int) -> None:
    if not isinstance(item, Mapping):
        message = f"is {type_name(item)}; the records before it are dicts"
        raise SchemaError(message, record=record)


def _batch_of(
    fields: list[Field], items: list[Mapping[str, Any]], first_record: int
) -> pa.RecordBatch:
    if not fields:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(items), pa.struct([])))
    arrays = [f.convert([item.get(f.name) for item in items], first_record) for f in fields]
    return pa.RecordBatch.from_arrays(arrays, names=[f.name for f in fields])

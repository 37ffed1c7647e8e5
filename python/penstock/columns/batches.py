"""Checks, casts and selects parts of record batches, for the formats that pyarrow reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.casts import fitted
from penstock.columns.joined import join, picked
from penstock.columns.kept_names import as_labels, names_of
from penstock.columns.null_slots import without_garbage
from penstock.columns.numbers import as_arrow, outside
from penstock.columns.selection import Projection, Selection
from penstock.columns.types import check_shapes, is_list, own_tensors, storage_of
from penstock.errors import FormatError, RecordIndexError, SchemaError


def check_columns(
    wanted: Any, found: Any, path: str, settled: frozenset[str] = frozenset()
) -> None:
    """Raise SchemaError for the first field of `wanted` that is missing from `found` (the file's schema) or appears in
    it more than once. The types of `settled` fields come from earlier files, and a float column that they would round
    is an error, too."""
    known = set(found.names)
    lacks = tuple(name for name in wanted.names if name not in known)
    if lacks:
        error = _no_column(found, lacks[0], path)
        error.lacks = lacks
        if settled:
            error.hint = 'open(..., infer_records="all") gives nulls for columns that a file lacks'
        raise error
    for field in wanted:
        own = found.field(position(found, field.name, path))
        if field.name in settled and rounds(own.type, field.type):
            raise SchemaError(
                "the values of this file would be rounded to the type of this field in the first file",
                file=path,
                field=field.name,
                expected=field.type,
                found=own.type,
                hint=f"open(..., types={{{field.name!r}: '{_innermost(own.type)}'}}), or schema= with this type",
            )


def rounds(given: Any, wanted: Any) -> bool:
    """Whether `given` has wider floats than `wanted`, also inside lists, tensors and structs."""
    given, wanted = storage_of(given), storage_of(wanted)
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        # The index is -1 for a name that is missing or not unique.
        places = ((field, wanted.get_field_index(field.name)) for field in given)
        return any(rounds(f.type, wanted.field(place).type) for f, place in places if place >= 0)
    if is_list(given) and is_list(wanted):
        return rounds(given.value_type, wanted.value_type)
    floats = pa.types.is_floating(given) and pa.types.is_floating(wanted)
    return floats and given.bit_width > wanted.bit_width


def position(schema: Any, name: str, path: str) -> int:
    """The position of a column in a schema. Raises SchemaError unless exactly one column has the name."""
    places = schema.get_all_field_indices(name)
    if len(places) == 1:
        return places[0]
    if places:
        message = f"{len(places)} columns have this name, so none can be requested by name"
        raise SchemaError(message, file=path, field=name)
    raise _no_column(schema, name, path)


def _no_column(schema: Any, name: str, path: str) -> SchemaError:
    known = ", ".join(schema.names[:20]) + (", ..." if len(schema.names) > 20 else "")
    return SchemaError(f"no such column; the file has: {known}", file=path, field=name)


def projected(schema: Any, columns: Projection, path: str) -> Any:
    """The schema of the given columns, in the given order."""
    if columns is None:
        return schema
    return pa.schema([schema.field(position(schema, c, path)) for c in columns], schema.metadata)


def conform(batch: Any, schema: Any, path: str) -> Any:
    """The columns of `schema` from a batch, cast to its types. Raises SchemaError if a cast would lose data."""
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    same = batch.schema.names == schema.names
    arrays: list[Any] = []
    for place, field in enumerate(schema):
        array = batch.column(place if same else position(batch.schema, field.name, path))
        arrays.append(_cast(array, field, path))
    if not arrays:
        return batch.select([]).replace_schema_metadata(schema.metadata)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _cast(array: Any, field: Any, path: str) -> Any:
    array = own_tensors(array, field.type)
    if array.type != field.type and pa.types.is_integer(array.type) and names_of(field) is not None:
        array = as_labels(array, field)
    if array.type != field.type:
        try:
            array = fitted(array, field.type)
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise SchemaError(
                f"a value does not fit the schema: {error}",
                file=path,
                field=field.name,
                expected=field.type,
                found=array.type,
                hint=wider_hint(field, array.type),
            ) from error
    if not field.nullable and array.null_count:
        raise SchemaError(
            f"{array.null_count} values are missing, and the schema allows none",
            file=path,
            field=field.name,
        )
    return array


def _innermost(type_: Any) -> Any:
    type_ = storage_of(type_)
    return _innermost(type_.value_type) if is_list(type_) else type_


def wider_hint(field: pa.Field, found: Any) -> str | None:
    """The hint for values that an earlier file stores in a narrower type, or in one of another kind."""
    wanted, found = (_innermost(type_) for type_ in (field.type, found))
    wider = _wider_number(wanted, found)
    if (
        wider is None
        and pa.types.is_string(found)
        and (pa.types.is_integer(wanted) or pa.types.is_floating(wanted))
    ):
        wider = found
    if wider is None:
        return None
    return f"open(..., types={{{field.name!r}: '{wider}'}}) reads all files with the wider type"


def _wider_number(wanted: Any, found: Any) -> Any:
    """A type for the numbers of two types; None if it is not wider than the first, or values may not fit it."""
    if pa.types.is_integer(wanted) and pa.types.is_floating(found):
        return pa.float64()
    if not (pa.types.is_integer(wanted) and pa.types.is_integer(found)):
        return None
    has_sign = pa.types.is_signed_integer(found) or pa.types.is_unsigned_integer(wanted)
    return found if found.bit_width > wanted.bit_width and has_sign else None


def same_columns(batch: Any, schema: Any, path: str) -> Any:
    """Return the batch. Raises SchemaError unless its column names are those of the schema. The types may differ,
    because they are cast later."""
    if batch.schema.names != schema.names:
        raise SchemaError(
            "the columns of a batch differ from those of the file",
            file=path,
            expected=schema.names,
            found=batch.schema.names,
        )
    return batch


def checked(batch: Any, path: str) -> Any:
    """Validate a batch and return it. An invalid array from a manipulated file could crash the process."""
    fault = _fault_of(batch)
    if fault is not None:
        raise FormatError(f"the batch is invalid: {fault}", file=path) from fault
    return without_garbage(batch)


class BatchCheck:
    """Validates the batches of a file. It keeps the last invalid batch, so that its valid rows can be read without
    decoding it again each time."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._kept: tuple[Any, Any] | None = None

    def kept(self, key: Any) -> Any:
        """The kept invalid batch if its key is `key`, else None."""
        kept = self._kept  # read only once, because several threads use it
        return kept[1] if kept is not None and kept[0] == key else None

    def forget(self) -> None:
        self._kept = None

    def rows(self, key: Any, batch: Any, records: Selection, first_record: int) -> Any:
        """Validate some rows of a batch, or all rows, and return them. A FormatError names the first invalid row, if
        that can be found."""
        if self.kept(key) is None:
            fault = _fault_of(batch)
            if fault is None:
                batch = without_garbage(batch)
                return batch if records is None else gather(batch, records)
            self._kept = key, batch
        if records is not None and (np.diff(records) != 1).any():
            # Selecting other than consecutive rows would use the offsets, which may be invalid.
            return checked(batch, self._path)
        start = 0 if records is None or not len(records) else int(records[0])
        rows = batch if records is None else batch.slice(start, len(records))
        fault = _fault_of(rows)
        if fault is None:
            return without_garbage(rows)
        bad = _first_unsound(rows)
        record = None if bad is None else first_record + start + bad
        raise FormatError(f"the batch is invalid: {fault}", file=self._path, record=record)


def sound_runs(
    read: Callable[[Selection], Any], records: np.ndarray, first_record: int, last_record: int
) -> Iterator[tuple[int, Any]]:
    """Yield (number of the first record, rows): the whole batch or, if one of its records is invalid, each run of
    consecutive requested records. `read` validates and returns rows of the batch (all rows for None)."""
    try:
        whole = read(None)
    except FormatError as error:
        if error.record is None:
            raise
    else:
        yield first_record, whole
        return
    asked = np.unique(records[(records >= first_record) & (records < last_record)]) - first_record
    for run in np.split(asked, np.flatnonzero(np.diff(asked) != 1) + 1):
        yield first_record + int(run[0]), read(run)


def _fault_of(batch: Any) -> Exception | None:
    try:
        batch.validate(full=True)
        for column in batch.columns:
            check_shapes(column)
    except (pa.ArrowException, ValueError) as error:
        return error
    return None


def _first_unsound(batch: Any) -> int | None:
    """The first row that is invalid by itself; None if the batch is invalid only as a whole."""
    low, high = 0, batch.num_rows
    while high - low > 1:
        middle = (low + high) // 2
        is_before = _fault_of(batch.slice(low, middle - low)) is not None
        low, high = (low, middle) if is_before else (middle, high)
    return None if high == low or _fault_of(batch.slice(low, 1)) is None else low


def gather(batch: Any, records: np.ndarray) -> Any:
    """Some records of a batch in the requested order. A run of consecutive records is not copied."""
    count = len(records)
    low, high = (int(records.min()), int(records.max())) if count else (0, -1)
    if low < 0 or high >= batch.num_rows:
        raise RecordIndexError(f"no record {low if low < 0 else high} among {batch.num_rows}")
    if high - low == count - 1 and bool(np.all(np.diff(records) == 1)):
        return batch.slice(low, count)
    if batch.num_columns == 0:
        return batch.slice(0, count) if count <= batch.num_rows else empty_columns(count)
    try:
        return picked(batch, as_arrow(np.asarray(records, np.int64)))
    except pa.ArrowNotImplementedError:
        # pyarrow's take does not support run-end encoded and view types, but slices of them can be joined.
        cuts = np.flatnonzero(np.diff(records) != 1) + 1
        runs = np.split(records, cuts)
        return join([batch.slice(int(run[0]), len(run)) for run in runs])


def refuse_nul(name: str) -> None:
    """Raise SchemaError for a name with a NUL, at which Arrow's C interface would truncate it."""
    if "\0" in name:
        raise SchemaError("the name has a NUL, which would end it", field=name, hint="rename it")


def empty_batch(schema: Any) -> Any:
    """A batch without records. `pa.array([])` does not support all types, such as unions and tensors."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, type_) for type_ in schema.types], schema=schema)


def empty_columns(num_records: int) -> Any:
    """A batch of `num_records` records without columns."""
    return pa.record_batch([pa.nulls(num_records)], names=["none"]).select([])


WHOLE = "whole"
"""Value of `Chunk.data` for a chunk that has all records of a shard. `gather_parts` selects the requested records."""


def gather_parts(
    parts: Iterator[tuple[int, Any]], records: np.ndarray, schema: Any, path: str
) -> Any:
    """Records of a shard in the requested order. `parts` yields (first record, batch) in the shard's order. Each part
    is reduced to its requested records before the next is made, so that memory holds one part and the result."""
    order, inverse = np.unique(records, return_inverse=True)
    kept: list[Any] = []
    found = 0
    for first, batch in parts:
        begin, end = np.searchsorted(order, [first, first + batch.num_rows])
        if end > begin:
            some = gather(batch, order[begin:end] - first)
            # Copied, because a slice would keep the whole part in memory.
            kept.append(some if end - begin == batch.num_rows else pa.concat_batches([some]))
            found += int(end - begin)
    if found != len(order):
        raise FormatError(f"{len(order) - found} of the requested records are missing", file=path)
    if not schema.names:
        return empty_columns(len(records)).replace_schema_metadata(schema.metadata)
    whole = join(kept) if kept else empty_batch(schema)
    return gather(whole, inverse.astype(np.int64))


def check_records(records: np.ndarray, num_records: int, path: str) -> None:
    """Raise RecordIndexError if a record number is outside the shard."""
    if outside(records.astype(np.int64, copy=False), num_records):
        wrong = records[(records < 0) | (records >= num_records)]
        raise RecordIndexError(f"there are {num_records} records", file=path, record=int(wrong[0]))

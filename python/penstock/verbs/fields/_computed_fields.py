"""New fields whose values a function computes from the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pyarrow as pa

from penstock.columns.batches import empty_batch
from penstock.datasets.dataset import Dataset
from penstock.errors import SchemaError
from penstock.verbs.fields._functions import described
from penstock.verbs.fields._values import SCALARS, NewFields, one_batch, scalar
from penstock.verbs.write.incoming import batches_of


class Computed(NewFields):
    """Values that a function computes. Its values for the first records determine the types."""

    is_computed = True

    def __init__(
        self, dataset: Dataset, fields: Any, reads: Sequence[str], unchanged: Dataset
    ) -> None:
        if not reads:
            known = ", ".join(dataset.schema.names)
            raise ValueError(
                f"reads= must name the fields that the function needs; there are: {known}"
            )
        self._fields = fields
        self._paths = dataset.paths
        first = next((b for b in unchanged.scan(list(reads), 16, threads=1) if b.num_rows), None)
        if first is None:
            wanted = pa.schema([unchanged.schema.field(name) for name in reads])
            first = empty_batch(wanted)
        self._types: dict[str, pa.DataType] = {}
        made = self._call(first, 0, 0)
        unknown = next((f.name for f in made.schema if pa.types.is_null(f.type)), None)
        if unknown is not None:
            message = (
                "the function returns only nulls for the first records, so the type is unknown"
            )
            raise SchemaError(message, field=unknown, hint="return a pyarrow array with a type")
        super().__init__(made.schema.remove_metadata(), reads)
        self._types = {field.name: field.type for field in self.schema}

    def batch(
        self, shard: int, first: int, num_records: int, old: pa.RecordBatch | None
    ) -> pa.RecordBatch:
        assert old is not None, "asked for by reads"
        made = self._call(old, shard, first)
        if made.num_rows != num_records:
            raise SchemaError(
                "the function did not return one value for each record",
                file=self._paths[shard],
                record=first,
                expected=f"{num_records} values",
                found=f"{made.num_rows} values",
            )
        extra = [name for name in made.schema.names if name not in self._types]
        if extra:
            message = "the function did not return this field for the first records"
            raise SchemaError(message, field=extra[0], file=self._paths[shard], record=first)
        arrays: list[pa.Array] = []
        for field in self.schema:
            at = made.schema.get_field_index(field.name)
            if at < 0:
                message = "the function returned this field for some records only"
                raise SchemaError(message, field=field.name, file=self._paths[shard], record=first)
            arrays.append(self._fitting(made.column(at), field, shard, first))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _fitting(self, array: pa.Array, field: pa.Field, shard: int, first: int) -> pa.Array:
        if array.type == field.type:
            return array
        try:
            if not _is_alike(array.type, field.type):
                raise pa.ArrowInvalid("another kind of value")
            return array.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise SchemaError(
                "the function returned another type than for the first records",
                file=self._paths[shard],
                record=first,
                field=field.name,
                expected=str(field.type),
                found=str(array.type),
            ) from None

    def _call(self, old: pa.RecordBatch, shard: int, first: int) -> pa.RecordBatch:
        if callable(self._fields):
            made = self._fields(old)
        else:
            made = {k: v(old) if callable(v) else v for k, v in self._fields.items()}
        if made is None:
            raise SchemaError("the function returned None", file=self._paths[shard], record=first)
        if isinstance(made, Mapping):
            made = {
                k: pa.repeat(scalar(k, v), old.num_rows) if isinstance(v, SCALARS) else v
                for k, v in cast("Mapping[str, Any]", made).items()
            }
        schema, batches, *_ = batches_of(made)
        return one_batch(pa.Table.from_batches(batches, schema=schema).combine_chunks())

    def facts(self) -> Any:
        named = [self._fields] if callable(self._fields) else list(self._fields.values())
        return [*super().facts(), [described(f) if callable(f) else repr(f) for f in named]]


def _is_alike(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a cast keeps the meaning: numbers to numbers, text or bytes to either, null to any type."""
    types = pa.types
    if types.is_null(found):
        return True
    if types.is_list(found) and types.is_list(wanted):
        return _is_alike(found.value_type, wanted.value_type)

    def is_number(type_: pa.DataType) -> bool:
        return types.is_integer(type_) or types.is_floating(type_)

    def is_text(type_: pa.DataType) -> bool:
        return types.is_string(type_) or types.is_large_string(type_) or types.is_binary(type_)

    return (is_number(found) and is_number(wanted)) or (is_text(found) and is_text(wanted))

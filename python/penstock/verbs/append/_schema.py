"""Checks that new records have the fields and types of the existing records."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.columns.batches import conform
from penstock.columns.inferred import has_no_records
from penstock.columns.types import is_list
from penstock.contract.format import Format
from penstock.errors import SchemaError
from penstock.payloads.example.inference import innermost
from penstock.payloads.example.plans import IN_LISTS_KEY, WIRE_KEY, wire_key
from penstock.verbs.write.incoming import Incoming


def in_types_of(
    incoming: Incoming, schema: pa.Schema, kind: Format, path: str, *, stored: bool = False
) -> Incoming:
    """Return the records cast to the types of the files, if the format stores types. For other formats the encoded
    records are checked later. Here, fields only move to their part of a SequenceExample, and columns of empty lists
    get the type of the files. `stored`: the records are not checked later, so they are always cast."""
    if not (stored or kind.info.lossless):
        if has_no_records(schema):
            return incoming
        fields = [_as_there(field, schema) for field in incoming.schema]
        there = pa.schema(fields, incoming.schema.metadata)
        return Incoming(there, _of_types(incoming.batches, there), incoming.num_records)
    _check_names(incoming.schema, schema, path)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in incoming.batches:
            yield conform(batch, schema, path)

    return Incoming(schema, batches(), incoming.num_records)


def _of_types(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        is_there = batch.schema.types == schema.types
        yield batch if is_there else batch.cast(schema.with_metadata(batch.schema.metadata))


def _as_there(field: pa.Field, schema: pa.Schema) -> pa.Field:
    """Return the field in the part of a SequenceExample (context or feature lists) that has its name in the files.
    A column of empty lists gets the type of the files."""
    at = schema.get_field_index(field.name)
    if at < 0:
        return field
    there = schema.field(at).type
    if is_list(field.type) and innermost(field.type) == pa.null() and is_list(there):
        field = field.with_type(there)
    parts = (IN_LISTS_KEY, WIRE_KEY)
    metadata = {k: v for k, v in (field.metadata or {}).items() if k not in parts}
    metadata |= {k: v for k, v in (schema.field(at).metadata or {}).items() if k in parts}
    return field.with_metadata(metadata or None)


def _check_names(given: pa.Schema, schema: pa.Schema, path: str) -> None:
    """Raise SchemaError for the first field that only the new or only the old records have."""
    has, gets = set(schema.names), set(given.names)
    for name in given.names:
        if name not in has:
            raise _unknown(name, schema, path)
    for name in schema.names:
        if name not in gets:
            raise _missing(name, path)


def check_features(written: pa.Schema, given: list[str], schema: pa.Schema, path: str) -> None:
    """Do the same check for encoded records. Fields are compared by key and by part (context or feature lists),
    because a key that occurs in both parts of a SequenceExample gets different field names."""
    known = {_place(field): field.name for field in schema}
    for field in written:
        in_lists, key = _place(field)
        if (in_lists, key) in known:
            continue
        if (not in_lists, key) not in known:
            raise _unknown(field.name, schema, path)
        parts = ("context", "feature lists")
        raise SchemaError(
            f"the existing records have this field in the {parts[not in_lists]}, the new records "
            f"have it in the {parts[in_lists]}",
            file=path,
            field=key,
        )
    places = {_place(field) for field in written}
    for place, name in known.items():
        if place not in places and name not in given:
            raise _missing(name, path)


def _place(field: pa.Field) -> tuple[bool, str]:
    metadata = field.metadata or {}
    return IN_LISTS_KEY in metadata, wire_key(field)


def _unknown(name: str, schema: pa.Schema, path: str) -> SchemaError:
    known = ", ".join(schema.names[:20]) + (", …" if len(schema.names) > 20 else "")
    message = f"the existing records have no such field; they have: {known}"
    return SchemaError(message, file=path, field=name)


def _missing(name: str, path: str) -> SchemaError:
    return SchemaError(
        "the existing records have this field, the new records do not",
        file=path,
        field=name,
        hint="add it, with null for missing values",
    )

"""Inference of the schema of Examples from records, and the common schema of several files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.columns.inferred import EVERYWHERE_KEY, InferredFrom, has_no_records, in_every_record
from penstock.columns.types import is_list
from penstock.errors import SchemaError
from penstock.payloads.example.plans import (
    CONTEXT_PREFIX,
    IN_LISTS_KEY,
    LISTS_PREFIX,
    RECORD,
    WIRE_KEY,
)

_KINDS = (("bytes", pa.binary()), ("float", pa.float32()), ("int64", pa.int64()))

_GOOD_FOR_BROKEN = 9
"""If there are fewer valid Examples than this for each invalid message, payloads are not treated as Examples."""


def looks_like_examples(facts: Mapping[str, Any]) -> bool:
    """Whether payloads are Examples: at least one has features and nothing else, and there are 9 such payloads for each
    invalid message, which is then assumed to be a damaged record."""
    num_examples: int = facts["num_examples"]
    return num_examples > 0 and num_examples >= _GOOD_FOR_BROKEN * facts["num_broken"]


def infer_schema(
    facts: Mapping[str, Any], seen: InferredFrom, named: Collection[str] = frozenset()
) -> pa.Schema:
    """The schema of Examples, inferred from the records that `seen` describes.

    A feature is a scalar if every record that has it has exactly one value, or else a list. It is a column of nulls if
    no record has a value for it. A `named` field, to which the caller gives a type, may have values of several kinds.

    Raises:
        SchemaError: another key has values of several kinds.
    """
    keys = facts["keys"]
    counts = Counter(entry["key"] for entry in keys)
    fields = [_inferred_field(entry, named, counts[entry["key"]] > 1) for entry in keys]
    metadata = seen.metadata
    readable = facts["num_records"] - facts["num_broken"]
    everywhere = [
        field.name
        for field, entry in zip(fields, keys, strict=True)
        if entry["present"] == readable and entry["values"] == (1, 1)
    ]
    return pa.schema(fields, metadata=metadata | everywhere_metadata(everywhere))


def everywhere_metadata(names: list[str]) -> dict[bytes, bytes]:
    """Schema metadata with the names of the fields that every record has."""
    return {EVERYWHERE_KEY: json.dumps(names).encode()} if names else {}


def in_every_record_of(schemas: Sequence[pa.Schema], names: Iterable[str]) -> list[str]:
    """The names whose fields are in every record of all these schemas."""
    known = [in_every_record(schema) for schema in schemas]
    return [name for name in names if all(name in having for having in known)]


def _inferred_field(entry: Mapping[str, Any], named: Collection[str], ambiguous: bool) -> pa.Field:
    key, in_lists = entry["key"], entry["in_lists"]
    name = (LISTS_PREFIX if in_lists else CONTEXT_PREFIX) + key if ambiguous else key
    type_ = inferred_type(entry, _value_type(entry, name, named))
    metadata = {IN_LISTS_KEY: b"1"} if in_lists else {}
    # Without the key, a single column called `record` would be treated as raw records.
    if name != key or key == RECORD or key.startswith((CONTEXT_PREFIX, LISTS_PREFIX)):
        metadata[WIRE_KEY] = key.encode()
    return pa.field(name, type_, metadata=metadata or None)


def _value_type(entry: Mapping[str, Any], name: str, named: Collection[str]) -> pa.DataType:
    kinds = [kind for kind, count in zip(_KINDS, entry["kinds"], strict=True) if count]
    if len(kinds) > 1 and name not in named:
        listed = " and ".join(kind[0] for kind in kinds)
        raise SchemaError(
            f"holds {listed} values in different records",
            field=name,
            hint=_how_to_read(name, [kind[1] for kind in kinds]),
        )
    return kinds[0][1] if kinds else pa.null()


def inferred_type(entry: Mapping[str, Any], value: pa.DataType) -> pa.DataType:
    """The type of a field whose values all have the type `value`."""
    is_single = entry["values"] == (1, 1)
    if entry["in_lists"]:
        return pa.list_(value if is_single else pa.list_(value))
    return value if is_single or pa.types.is_null(value) else pa.list_(value)


def _how_to_read(name: str, kinds: Sequence[pa.DataType], *, are_stored: bool = False) -> str:
    """A hint on the type of a field with values of several kinds. `are_stored`: each file stores its type, as Parquet
    does, and so its values are cast."""
    if all(kind in (pa.int64(), pa.float32()) for kind in kinds):
        return f"open(..., types={{{name!r}: 'float64'}})"
    if are_stored and not any(map(pa.types.is_nested, kinds)):
        return f"open(..., types={{{name!r}: 'string'}})"
    return "open(..., schema=...) without this field, and the other fields you want"


def merge_facts(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the facts of several samples, as if they were one sample."""
    total: dict[str, Any] = {"num_records": 0, "num_examples": 0, "num_broken": 0}
    keys: dict[tuple[bool, str], dict[str, Any]] = {}
    for part in parts:
        for count in ("num_records", "num_examples", "num_broken"):
            total[count] += part[count]
        for entry in part["keys"]:
            place = (entry["in_lists"], entry["key"])
            keys[place] = _merge_entries(keys[place], entry) if place in keys else dict(entry)
    total["keys"] = [keys[place] for place in sorted(keys)]
    return total


def _merge_entries(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    def widen(x: tuple[int, int] | None, y: tuple[int, int] | None) -> tuple[int, int] | None:
        if x is None or y is None:
            return x or y
        return (min(x[0], y[0]), max(x[1], y[1]))

    return {
        "key": a["key"],
        "in_lists": a["in_lists"],
        "present": a["present"] + b["present"],
        "unset": a["unset"] + b["unset"],
        "kinds": [x + y for x, y in zip(a["kinds"], b["kinds"], strict=True)],
        "values": widen(a["values"], b["values"]),
        "frames": widen(a["frames"], b["frames"]),
        "strings": [x + y for x, y in zip(a["strings"], b["strings"], strict=True)],
    }


# -- several files ----------------------------------------------------------------------------------


def in_common(
    schemas: Sequence[pa.Schema], seen: InferredFrom, named: Collection[str] = frozenset()
) -> pa.Schema:
    """A schema for the records of all files, from the schema that was inferred from each. It has every field, in the
    order of first occurrence, with a type for the values of all files. `seen` describes the records. The types of
    `named` fields, to which the caller gives a type, may have no common type.

    Raises:
        SchemaError: the types of another field have no common type.
    """
    known = [schema for schema in schemas if not has_no_records(schema)]
    if not known:
        return schemas[0]
    fields = fields_of_all(known, named)
    everywhere = in_every_record_of(known, {field.name: field for field in fields})
    return pa.schema(fields, seen.metadata | everywhere_metadata(everywhere))


def fields_of_all(
    schemas: Sequence[pa.Schema], named: Collection[str] = frozenset(), *, are_stored: bool = False
) -> list[pa.Field]:
    """The fields of all schemas, in the order of first occurrence, with types for the values of all. A field that one
    lacks may be null. Raises SchemaError if the types of a field have no common type, unless it is `named`.
    `are_stored`: the files store these schemas."""
    found: dict[str, pa.Field] = {}
    for schema in schemas:
        for field in schema:
            before = found.get(field.name)
            if before is not None:
                field = _wider(before, field, named, are_stored=are_stored)
            found[field.name] = field
    names = [set(schema.names) for schema in schemas]
    return [
        field if all(name in having for having in names) else field.with_nullable(True)
        for name, field in found.items()
    ]


def _wider(one: pa.Field, other: pa.Field, named: Collection[str], *, are_stored: bool) -> pa.Field:
    """A field that can hold the values of both. If it is `named` and there is none, one that is a list if one of them
    is."""
    if one.type == other.type:
        return one.with_nullable(one.nullable or other.nullable)
    try:
        for a, b in ((one, other), (other, one)):
            # One file has a value in each record, the other has lists.
            if pa.types.is_list(a.type) and not pa.types.is_nested(b.type):
                return a.with_type(_list_of(a.type, b))
            # One file has a value in each step of a sequence, the other has lists.
            are_lists = is_list(a.type) and is_list(b.type)
            if are_lists and is_list(a.type.value_type) and not is_list(b.type.value_type):
                steps = _list_of(a.type.value_type, b.type.value_field)
                return a.with_type(pa.list_(a.type.value_field.with_type(steps)))
        return _promoted(one, other).with_metadata(one.metadata)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        if one.name in named:
            return other if is_list(other.type) and not is_list(one.type) else one
        kinds = [innermost(one.type), innermost(other.type)]
        raise SchemaError(
            "the types of the values in different files have no common type",
            field=one.name,
            expected=one.type,
            found=other.type,
            hint=_how_to_read(one.name, kinds, are_stored=are_stored),
        ) from None


def _list_of(type_: pa.DataType, value: pa.Field) -> pa.DataType:
    """A list type for the values of a list type and of a field."""
    item = _promoted(type_.value_field, value)
    return pa.list_(item.with_name(type_.value_field.name))


def _promoted(one: pa.Field, other: pa.Field) -> pa.Field:
    """A field for the values of both, by Arrow's rules. Raises ArrowTypeError if there is none, and for the integers
    and floats of Examples, which no reader converts to one type."""
    if {innermost(one.type), innermost(other.type)} == {pa.int64(), pa.float32()}:
        raise pa.ArrowTypeError("int64 and float")
    both = [pa.schema([field.remove_metadata().with_name(one.name)]) for field in (one, other)]
    return pa.unify_schemas(both, promote_options="permissive").field(0)


def innermost(type_: pa.DataType) -> pa.DataType:
    """The type of the innermost values of nested lists."""
    while pa.types.is_list(type_):
        type_ = type_.value_type
    return type_

"""Column names that contain a part of a SequenceExample: `context/key` and `feature_lists/key`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from penstock import _core
from penstock.errors import SchemaError
from penstock.payloads.example.plans import (
    CONTEXT_PREFIX,
    IN_LISTS_KEY,
    LISTS_PREFIX,
    WIRE_KEY,
    FieldPlan,
)

_LOOKED_RECORDS = 1000
"""If a column has no values, this many records are searched for values in the other part."""


def part_and_key(name: str) -> tuple[bool, str] | None:
    """Split a column's name: whether its part is the feature lists, and the key. None if the name has no such
    prefix."""
    for prefix, in_lists in ((CONTEXT_PREFIX, False), (LISTS_PREFIX, True)):
        if name.startswith(prefix) and name != prefix:
            return in_lists, name.removeprefix(prefix)
    return None


def names_of_parts(names: Iterable[str], facts: Callable[[], Mapping[str, Any]]) -> set[str]:
    """The names that consist of a part of a SequenceExample and a key in it, unless the whole name is a key in the
    records. `facts` returns facts about the records, and is called only if a name has such a prefix."""
    prefixed = {name for name in names if part_and_key(name) is not None}
    return prefixed - {entry["key"] for entry in facts()["keys"]} if prefixed else prefixed


def with_parts(schema: pa.Schema, facts: Callable[[], Mapping[str, Any]]) -> pa.Schema:
    """The schema, with metadata for fields whose names consist of a part and a key (see `names_of_parts`): the metadata
    has the two separately."""
    own = (field.name for field in schema if WIRE_KEY not in (field.metadata or {}))
    parts = names_of_parts(own, facts)
    fields = [_of_part(field) if field.name in parts else field for field in schema]
    return pa.schema(fields, metadata=schema.metadata)


def _of_part(field: pa.Field) -> pa.Field:
    part = part_and_key(field.name)
    assert part is not None, "the name has a prefix"
    in_lists, key = part
    metadata = {**(field.metadata or {}), WIRE_KEY: key.encode()}
    return field.with_metadata({**metadata, IN_LISTS_KEY: b"1"} if in_lists else metadata)


def check_parts(
    batch: pa.RecordBatch, fields: Mapping[str, FieldPlan], frames: _core.Frames
) -> None:
    """Raise SchemaError for a column without values whose key has values in the other part of a SequenceExample,
    because nulls would be misleading."""
    lacking = [fields[name] for name in without_values(batch, fields)]
    if not lacking:
        return
    keys = frames[:_LOOKED_RECORDS].infer()["keys"]
    present = {(entry["in_lists"], entry["key"]) for entry in keys if entry["present"]}
    for plan in lacking:
        wire = plan.wires[0]
        if (not wire.in_lists, wire.key) not in present or (wire.in_lists, wire.key) in present:
            continue
        name = plan.field.name
        if wire.in_lists:
            message, prefix = "is a feature of the context, not a feature list", CONTEXT_PREFIX
            hint = f"a list of values, or the name {prefix + name!r}"
        else:
            message, prefix = "is a feature list, not a feature of the context", LISTS_PREFIX
            hint = (
                f"a list of lists, penstock.features.Sequence(...), or the name {prefix + name!r}, "
                "which may be a list of values if each frame has one"
            )
        raise SchemaError(message, field=name, hint=hint)


def without_values(batch: pa.RecordBatch, fields: Mapping[str, FieldPlan]) -> list[str]:
    """The columns that have only nulls and are not marked with a part of a SequenceExample."""
    if not batch.num_rows:
        return []
    return [
        name
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        if column.null_count == len(column)
        and fields[name].wires[0].kind is not None
        and not {WIRE_KEY, IN_LISTS_KEY} & (fields[name].field.metadata or {}).keys()
    ]

"""`types=` of `open`: sets the types of some fields. The other fields keep the types that were found."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock.columns.types import is_list
from penstock.conditions import type_of
from penstock.errors import SchemaError

_LIST = re.compile(r"list<(.+)>")


def schema_with(schema: pa.Schema, types: Mapping[str, Any]) -> pa.Schema:
    """Return a schema with other types for some fields. For a field of lists, the given type is the type of the values
    in the lists.

    Raises:
        SchemaError: there is no such field.
        ValueError: a string is not the name of a type.
        TypeError: a type is neither a string nor a pyarrow type.
    """
    if not isinstance(types, Mapping):
        raise TypeError(f"types is a dict, {{field: type}}, not {types!r}")
    unknown = [name for name in types if name not in schema.names]
    if unknown:
        known = ", ".join(schema.names)
        raise SchemaError(f"no such field; there are: {known}", field=unknown[0])
    fields = [
        field.with_type(_type_for(field.type, _parsed(types[field.name])))
        if field.name in types
        else field
        for field in schema
    ]
    return pa.schema(fields)


def with_fields(schema: pa.Schema, others: pa.Schema) -> pa.Schema:
    """Return a schema with some fields replaced by those of the same name."""
    replaced = {field.name: field for field in others}
    return pa.schema([replaced.get(field.name, field) for field in schema])


def _parsed(given: Any) -> pa.DataType:
    if isinstance(given, pa.DataType):
        return given
    if not isinstance(given, str):
        raise TypeError(f'types= takes names such as "int32" and pyarrow types, not {given!r}')
    listed = _LIST.fullmatch(given.strip())
    if given.strip() == "json":
        return pa.json_()
    return pa.list_(_parsed(listed[1])) if listed else type_of(given.strip())


def _type_for(found: Any, wanted: Any) -> pa.DataType:
    """Return the wanted type for a field: within its lists or its tensor, if it has any."""
    if isinstance(found, pa.FixedShapeTensorType) and not isinstance(wanted, pa.BaseExtensionType):
        if is_list(wanted):
            return wanted
        return pa.fixed_shape_tensor(wanted, found.shape, found.dim_names, found.permutation)
    if not is_list(found) or is_list(wanted):
        return wanted
    inner = _type_for(found.value_type, wanted)
    if pa.types.is_fixed_size_list(found):
        return pa.list_(inner, found.list_size)
    return pa.large_list(inner) if pa.types.is_large_list(found) else pa.list_(inner)

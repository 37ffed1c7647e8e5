"""Evaluates a condition on the records of a batch with Arrow's kernels, one column at a time.

Nulls work as in SQL: a comparison with null is null, and `and` and `or` follow Kleene's logic. A record is chosen only
if the whole condition is true.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute

from penstock.columns.types import is_bytes, is_text
from penstock.conditions._grammar import (
    COMPARISONS,
    Call,
    Field,
    IsIn,
    IsNull,
    Literal,
    Node,
    Not,
    Operation,
    fields_of,
    type_of,
)
from penstock.conditions._json import json_field
from penstock.errors import SchemaError

_COMPARED = {
    "==": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
_ARITHMETIC = {"+": "add_checked", "-": "subtract_checked", "*": "multiply_checked"}
_PYTHON = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARROW_ERRORS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, OverflowError)
_CANNOT = "the condition cannot be computed: "


def holds(condition: Node, batch: pa.RecordBatch) -> np.ndarray:
    """Whether a condition is true for each record, bool[num_rows]. SchemaError: a field is missing, or its type does
    not support the operation."""
    found = _as_array(_truth(condition, batch), batch.num_rows)
    return compute.fill_null(found, False).to_numpy(zero_copy_only=False)


def values_of(expression: Node, text: str, batch: pa.RecordBatch) -> pa.Array:
    """The value of an expression, written `text`, for each record. A field keeps its type. SchemaError as for `holds`."""
    if isinstance(expression, Field):
        return field_of(expression.name, batch)
    try:
        return _array(expression, batch)
    except SchemaError as error:
        error.message = f"{text} cannot be computed: {error.message.removeprefix(_CANNOT)}"
        raise


def _value(node: Node, batch: pa.RecordBatch) -> Any:
    """The value of a node, as an Arrow array of plain types or as a Literal."""
    if isinstance(node, Literal):
        return node
    if isinstance(node, Field):
        return _plain(field_of(node.name, batch))
    try:
        return _computed(node, batch)
    except _ARROW_ERRORS as error:
        raise SchemaError(f"{_CANNOT}{error}", field=_only_field(node)) from None
    except SchemaError as error:
        error.at(field=_only_field(node))
        raise


def _only_field(node: Node) -> str | None:
    fields = fields_of(node)
    return fields[0] if len(fields) == 1 else None


def _computed(node: Node, batch: pa.RecordBatch) -> Any:
    if isinstance(node, Operation):
        return _operation(node, batch)
    if isinstance(node, Not):
        truth = _truth(node.operand, batch)
        if isinstance(truth, Literal):
            return Literal(None if truth.value is None else not truth.value)
        return compute.invert(truth)
    if isinstance(node, IsNull):
        value = _value(node.operand, batch)
        return Literal(value.value is None) if isinstance(value, Literal) else value.is_null()
    assert isinstance(node, (IsIn, Call)), "the only other kinds of nodes"
    values = _array(node.operand, batch)
    return _is_in(values, node.values) if isinstance(node, IsIn) else _call(node, values)


def _array(node: Node, batch: pa.RecordBatch) -> pa.Array:
    return _as_array(_value(node, batch), batch.num_rows)


def _as_array(value: Any, length: int) -> pa.Array:
    if not isinstance(value, Literal):
        return value
    scalar = pa.scalar(value.value) if value.value is not None else pa.scalar(None, pa.bool_())
    return pa.repeat(scalar, length)


def _truth(node: Node, batch: pa.RecordBatch) -> Any:
    """The value of a node, which must be boolean."""
    found = _value(node, batch)
    if isinstance(found, Literal):
        if found.value is not None and not isinstance(found.value, bool):
            raise SchemaError(f"{found.value!r} is not a boolean; compare it with something")
        return found
    if pa.types.is_null(found.type):
        return Literal(None)
    if not pa.types.is_boolean(found.type):
        message = (
            f"values of type {found.type} are not booleans; compare them, for example with > 0"
        )
        raise SchemaError(message, field=_only_field(node))
    return found


# -- fields ------------------------------------------------------------------------------------


def column_of(name: str, columns: list[str]) -> tuple[str, list[str]]:
    """The column for a name, and the path inside the column. `a.b` is the column with that name if it exists, and
    otherwise the field b of the struct a, or of the JSON in a."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        if (column := ".".join(parts[:end])) in columns:
            return column, parts[end:]
    raise SchemaError(f"no such column; there are: {', '.join(columns)}", field=name)


def field_of(name: str, batch: pa.RecordBatch) -> pa.Array:
    column, path = column_of(name, batch.schema.names)
    values = batch.column(column)
    for place, part in enumerate(path):
        type_ = values.type
        if isinstance(type_, pa.JsonType):
            return json_field(values, path[place:], name)
        if not pa.types.is_struct(type_) or type_.get_field_index(part) < 0:
            inside = ".".join([column, *path[:place]])
            hint = None
            if not place and (is_text(type_) or pa.types.is_binary(type_)):
                hint = f'open(..., types={{"{column}": "json"}}), if its values are JSON'
            raise SchemaError(f"{inside} has no field {part}: it is {type_}", field=name, hint=hint)
        values = compute.struct_field(values, type_.get_field_index(part))
    return values


def _plain(values: pa.Array) -> pa.Array:
    """Convert values to types that Arrow can compare: no extension types, dictionaries or views."""
    if isinstance(values.type, pa.BaseExtensionType):
        if isinstance(values.type, pa.FixedShapeTensorType):
            return values
        values = values.storage
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if values.type == pa.binary_view() or pa.types.is_fixed_size_binary(values.type):
        return values.cast(pa.binary())
    return values.cast(pa.string()) if values.type == pa.string_view() else values


# -- operations --------------------------------------------------------------------------------


def _operation(node: Operation, batch: pa.RecordBatch) -> Any:
    if node.operator in ("and", "or"):
        left, right = (
            _as_array(_truth(side, batch), batch.num_rows) for side in (node.left, node.right)
        )
        return getattr(compute, f"{node.operator}_kleene")(left, right)
    left, right = _value(node.left, batch), _value(node.right, batch)
    if isinstance(left, Literal) and isinstance(right, Literal):
        return _of_literals(node.operator, left.value, right.value)
    if any(isinstance(side, Literal) and side.value is None for side in (left, right)):
        return Literal(None)
    if node.operator in COMPARISONS:
        return _compared(node.operator, left, right)
    return _arithmetic(node.operator, left, right)


def _of_literals(sign: str, left: Any, right: Any) -> Literal:
    if left is None or right is None:
        return Literal(None)
    try:
        if sign == "/":
            return Literal(left / right if right else None)
        if sign == "%":
            return Literal(np.fmod(left, right).item() if right else None)
        return Literal(_PYTHON[sign](left, right))
    except TypeError:
        raise SchemaError(f"{left!r} {sign} {right!r} cannot be computed") from None


_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _compared(sign: str, left: Any, right: Any) -> Any:
    if isinstance(left, Literal):
        left, right, sign = right, left, _MIRRORED.get(sign, sign)
    if pa.types.is_null(left.type):
        return Literal(None)
    if isinstance(right, Literal):
        if beyond := _beyond(right.value, left.type):
            # The number is above or below all values that the type can have.
            answer = sign in ("!=", *(("<", "<=") if beyond > 0 else (">", ">=")))
            return compute.if_else(left.is_valid(), answer, None)
        right = _scalar(right.value, left.type)
    elif pa.types.is_null(right.type):
        return Literal(None)
    else:
        left, right = _comparable(left, right)
    try:
        return getattr(compute, _COMPARED[sign])(left, right)
    except _ARROW_ERRORS:
        other = repr(right.as_py()) if isinstance(right, pa.Scalar) else right.type
        raise SchemaError(f"{left.type} cannot be compared with {other}") from None


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _beyond(value: Any, type_: pa.DataType) -> int:
    """1 if a whole number is above the range of an integer type, -1 if it is below, otherwise 0."""
    if not (pa.types.is_integer(type_) and _is_whole(value)):
        return 0
    bits = type_.bit_width
    signed = pa.types.is_signed_integer(type_)
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return (value > most) - (value < least)


def _is_outside(value: Any, type_: pa.DataType) -> bool:
    has_part = isinstance(value, float) and not value.is_integer()
    return bool(_beyond(value, type_)) or (has_part and pa.types.is_integer(type_))


def _scalar(value: Any, type_: pa.DataType) -> pa.Scalar:
    """Convert a literal to a scalar that Arrow can compare with values of a type."""
    if _is_whole(value):
        if pa.types.is_floating(type_):
            return pa.scalar(float(value))
        return pa.scalar(value, type_) if pa.types.is_uint64(type_) else pa.scalar(value)
    if isinstance(value, str):
        if is_bytes(type_):
            return pa.scalar(value.encode(), type_)
        if pa.types.is_temporal(type_):
            return pa.scalar(value).cast(type_)
    return pa.scalar(value)


def _comparable(left: pa.Array, right: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Convert two columns to types that Arrow can compare: text and bytes to bytes, uint64 and int64 to decimals."""
    types = (left.type, right.type)
    if any(map(is_text, types)) and any(map(is_bytes, types)):
        return left.cast(pa.large_binary()), right.cast(pa.large_binary())
    is_mixed = pa.types.is_uint64(types[0]) != pa.types.is_uint64(types[1])
    if is_mixed and all(map(pa.types.is_integer, types)):
        return left.cast(pa.decimal128(20)), right.cast(pa.decimal128(20))
    return left, right


def _arithmetic(sign: str, left: Any, right: Any) -> Any:
    """Compute with 64-bit numbers. Integer overflow is an error, `/` gives float64, and division by zero gives null."""
    left, right = _number(left), _number(right)
    if sign in _ARITHMETIC:
        return getattr(compute, _ARITHMETIC[sign])(left, right)
    right = compute.if_else(compute.equal(right, 0), None, right)
    if sign == "/":
        return compute.divide(left.cast(pa.float64()), right.cast(pa.float64()))
    # Arrow has no kernel for the remainder.
    count = len(left if isinstance(left, pa.Array) else right)
    sides = [one if isinstance(one, pa.Array) else pa.repeat(one, count) for one in (left, right)]
    numbers = [compute.fill_null(side, 1).to_numpy() for side in sides]
    missing = compute.or_(*(side.is_null() for side in sides))
    with np.errstate(all="ignore"):
        return pa.array(np.fmod(*numbers), mask=missing.to_numpy(zero_copy_only=False))


def _number(value: Any) -> Any:
    if isinstance(value, Literal):
        if isinstance(value.value, (bool, str)):
            raise SchemaError(f"{value.value!r} is not a number")
        return pa.scalar(value.value)
    type_ = value.type
    if pa.types.is_integer(type_):
        return value.cast(pa.int64())
    if not pa.types.is_floating(type_):
        raise SchemaError(f"values of type {type_} are not numbers")
    return value.cast(pa.float64())


def _is_in(values: pa.Array, members: tuple[Any, ...]) -> Any:
    """`in` with Kleene's logic: null for a null, and also if the value is not found but a member is null."""
    if pa.types.is_null(values.type):
        return Literal(None)
    given = [one for one in members if one is not None]
    known = [one for one in given if not _is_outside(one, values.type)]
    if not known:
        found = pa.repeat(pa.scalar(False), len(values))
    else:
        for one in known:
            _compared("==", values[:0], Literal(one))  # raises if the types cannot be compared
        scalars = [_scalar(one, values.type).cast(values.type) for one in known]
        found = compute.is_in(values, pa.array(scalars, values.type))
    if len(given) < len(members):
        found = compute.if_else(found, True, None)
    return compute.if_else(values.is_valid(), found, None)


# -- functions ---------------------------------------------------------------------------------


def _call(node: Call, values: pa.Array) -> Any:
    if pa.types.is_null(values.type):
        return Literal(None)
    if node.function == "len":
        return _length(values)
    if node.function == "cast":
        return _cast(values, type_of(node.argument))
    if node.function == "lookup":
        return _looked_up(values, node.argument)
    if node.function == "contains" and _is_list(values.type):
        return _has(values, node.argument)
    kernels = {
        "startswith": "starts_with",
        "contains": "match_substring",
        "matches": "match_substring_regex",
    }
    if not (is_text(values.type) or is_bytes(values.type)) or not isinstance(node.argument, str):
        wanted = "a text, bytes or a list" if node.function == "contains" else "a text or bytes"
        raise SchemaError(
            f"{node.function} looks for {node.argument!r} in {wanted}, not in {values.type}"
        )
    return getattr(compute, kernels[node.function])(values, node.argument)


def _is_list(type_: pa.DataType) -> bool:
    kinds = pa.types
    return (
        kinds.is_list(type_)
        or kinds.is_large_list(type_)
        or kinds.is_fixed_size_list(type_)
        or isinstance(type_, pa.FixedShapeTensorType)
    )


def _length(values: pa.Array) -> pa.Array:
    """The number of characters of text, bytes of binary or values of a list, or a tensor's first dimension."""
    type_: Any = values.type
    if isinstance(type_, pa.FixedShapeTensorType):
        return compute.if_else(values.is_valid(), pa.scalar(type_.shape[0], pa.int64()), None)
    if is_text(type_):
        return compute.utf8_length(values)
    if is_bytes(type_):
        return compute.binary_length(values)
    if pa.types.is_map(type_):
        values = values.cast(pa.list_(pa.struct([type_.key_field, type_.item_field])))
    elif not _is_list(type_):
        raise SchemaError(f"values of type {type_} have no length")
    return compute.list_value_length(values)


def _cast(values: pa.Array, type_: pa.DataType) -> pa.Array:
    if is_bytes(values.type) and not is_bytes(type_):
        values = values.cast(pa.string())
    return values.cast(type_)


def _looked_up(values: pa.Array, table: list[Any] | dict[str, Any]) -> pa.Array:
    """The entry of a table for each value: of a list, the entry with this number; of a dict, the one with this key. A
    value without an entry is an error, because a null or another entry would be a wrong one."""
    if isinstance(table, list):
        if not pa.types.is_integer(values.type):
            raise SchemaError(f"lookup in a list needs whole numbers, not {values.type}")
        keys, entries = pa.array(range(len(table))), table
        values = values.cast(keys.type)
    else:
        if not (is_text(values.type) or is_bytes(values.type)):
            raise SchemaError(f"lookup by name needs texts or bytes, not {values.type}")
        keys, entries = pa.array(list(table)), list(table.values())
        keys = keys.cast(values.type)
    places = compute.index_in(values, keys)
    if places.null_count > values.null_count:
        lost = values.filter(compute.and_(values.is_valid(), places.is_null()))[0].as_py()
        known = f"0 to {len(table) - 1}" if isinstance(table, list) else f"{len(table)} names"
        raise SchemaError(f"lookup has no entry for {lost!r}, only for {known}")
    return pa.array(entries).take(places)


def _has(values: pa.Array, member: Any) -> pa.Array:
    """Whether each list contains a value."""
    values = values.storage if isinstance(values, pa.ExtensionArray) else values
    flat = _plain(compute.list_flatten(values))
    if _is_list(flat.type):
        raise SchemaError("contains searches lists of values, not lists of lists")
    if member is None:
        raise SchemaError("contains cannot look for null")
    equal = _as_array(_compared("==", flat, Literal(member)), len(flat))
    parents = compute.list_parent_indices(values).to_numpy()
    found = np.zeros(len(values), bool)
    found[parents[compute.fill_null(equal, False).to_numpy(zero_copy_only=False)]] = True
    return pa.array(found, mask=values.is_null().to_numpy(zero_copy_only=False))

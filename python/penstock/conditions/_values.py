"""Evaluates a condition on the records of a batch with Arrow's kernels, one column at a time.

Nulls work as in SQL: a comparison with null is null, and `and` and `or` follow Kleene's logic. A record is chosen only
if the whole condition is true.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute

from penstock import describe
from penstock.columns.batches import gather
from penstock.columns.types import is_text
from penstock.conditions._comparing import ARROW_ERRORS, as_array, compared, is_in, plain
from penstock.conditions._functions import CASTS, called, json_cast
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
    hint_on_capitals,
)
from penstock.conditions._joining import joined
from penstock.conditions._json import json_field
from penstock.conditions._numbers import ARITHMETIC, as_floats, of_decimals, of_literals
from penstock.errors import SchemaError

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
_SHOWN = 100
"""The most characters of an expression in an error."""
_CANNOT = "the condition cannot be computed: "


def holds(condition: Node, batch: pa.RecordBatch) -> np.ndarray:
    """Whether a condition is true for each record, bool[num_rows]. SchemaError: a field is missing, or its type does
    not support the operation."""
    found = as_array(_truth(condition, batch), batch.num_rows)
    return compute.fill_null(found, False).to_numpy(zero_copy_only=False)


def values_of(expression: Node, text: str, batch: pa.RecordBatch) -> pa.Array:
    """The value of an expression, written `text`, for each record. A field keeps its type. SchemaError as for `holds`."""
    if isinstance(expression, Field):
        return field_of(expression.name, batch)
    try:
        return _narrow(_array(expression, batch), batch)
    except SchemaError as error:
        error.message = f"{describe.cut(text, _SHOWN)} cannot be computed: {error.message.removeprefix(_CANNOT)}"
        raise


def _narrow(values: pa.Array, batch: pa.RecordBatch) -> pa.Array:
    """Decimals with more than 38 digits, which few programs read, as float64, if no column has such decimals."""
    is_wide = pa.types.is_decimal256(values.type)
    if not is_wide or any(map(pa.types.is_decimal256, batch.schema.types)):
        return values
    return as_floats(values)


def _value(node: Node, batch: pa.RecordBatch) -> Any:
    """The value of a node, as an Arrow array of plain types or as a Literal."""
    if isinstance(node, Literal):
        return node
    if isinstance(node, Field):
        return plain(field_of(node.name, batch))
    try:
        return _computed(node, batch)
    except ARROW_ERRORS as error:
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
    if isinstance(node, IsIn):
        return is_in(_array(node.operand, batch), node.values)
    assert isinstance(node, Call), "the only other kind of node"
    if node.function == "if":
        return _if(node.operands, batch)
    if node.function == "coalesce":
        return _coalesced(node.operands, batch)
    operand = node.operands[0]
    if node.function in CASTS and isinstance(operand, Field):
        values, keys = inside(operand.name, batch)
        if keys:
            return json_cast(node, values, keys, operand.name)
    return called(node, _array(operand, batch))


def _if(nodes: Sequence[Node], batch: pa.RecordBatch) -> pa.Array:
    condition, then, otherwise = nodes
    mask = holds(condition, batch)
    return joined(mask, _value_where(mask, then, batch), _value_where(~mask, otherwise, batch))


def _coalesced(nodes: Sequence[Node], batch: pa.RecordBatch) -> pa.Array:
    """The first value that is not null."""
    found = _array(nodes[0], batch)
    for node in nodes[1:]:
        is_known = found.is_valid().to_numpy(zero_copy_only=False)
        known = found.filter(pa.array(is_known))
        found = joined(is_known, known, _value_where(~is_known, node, batch))
    return found


def _value_where(mask: np.ndarray, node: Node, batch: pa.RecordBatch) -> Any:
    """The value of a node for the records where the mask is true, as `_value` returns it. It is not computed for the
    other records, so it may be impossible there."""
    columns = [column_of(name, batch.schema.names)[0] for name in fields_of(node)]
    if not columns:
        found = _value(node, batch)
        return found if isinstance(found, Literal) else found.filter(pa.array(mask))
    chosen = batch.select(list(dict.fromkeys(columns)))
    return _value(node, chosen if mask.all() else gather(chosen, np.flatnonzero(mask)))


def _array(node: Node, batch: pa.RecordBatch) -> pa.Array:
    value = _value(node, batch)
    if isinstance(value, Literal) and value.value is None:
        return pa.nulls(batch.num_rows)
    return as_array(value, batch.num_rows)


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
    hint = hint_on_capitals(name) or _hint_on_operators(name, columns)
    raise SchemaError(f"no such column; there are: {', '.join(columns)}", field=name, hint=hint)


def _hint_on_operators(name: str, columns: list[str]) -> str | None:
    """i/2 is a name, and may be meant as a division."""
    first, sign, _ = name.partition("/")
    if not sign:
        first, sign, _ = name.partition("-")
    is_meant = sign and first in columns
    return (
        f"write blanks on both sides of an operator, as in {name.replace(sign, f' {sign} ', 1)}"
        if is_meant
        else None
    )


def field_of(name: str, batch: pa.RecordBatch) -> pa.Array:
    values, keys = inside(name, batch)
    return json_field(values, keys, name) if keys else values


def inside(name: str, batch: pa.RecordBatch) -> tuple[pa.Array, list[str]]:
    """The values of a column or of a field of a struct, and the path of keys that follows in JSON."""
    column, path = column_of(name, batch.schema.names)
    values = batch.column(column)
    for place, part in enumerate(path):
        type_ = values.type
        if isinstance(type_, pa.JsonType):
            return values, path[place:]
        if not pa.types.is_struct(type_) or type_.get_field_index(part) < 0:
            inside = ".".join([column, *path[:place]])
            hint = None
            if not place and (is_text(type_) or pa.types.is_binary(type_)):
                hint = f'open(..., types={{"{column}": "json"}}), if its values are JSON'
            raise SchemaError(f"{inside} has no field {part}: it is {type_}", field=name, hint=hint)
        values = compute.struct_field(values, type_.get_field_index(part))
    return values, []


# -- operations --------------------------------------------------------------------------------


def _operation(node: Operation, batch: pa.RecordBatch) -> Any:
    if node.operator in ("and", "or"):
        left, right = (
            as_array(_truth(side, batch), batch.num_rows) for side in (node.left, node.right)
        )
        return getattr(compute, f"{node.operator}_kleene")(left, right)
    left, right = _value(node.left, batch), _value(node.right, batch)
    if isinstance(left, Literal) and isinstance(right, Literal):
        return _of_literals(node.operator, left.value, right.value)
    if any(isinstance(side, Literal) and side.value is None for side in (left, right)):
        return Literal(None)
    if node.operator in COMPARISONS:
        return compared(node.operator, left, right)
    return _arithmetic(node.operator, left, right)


def _of_literals(sign: str, left: Any, right: Any) -> Literal:
    if left is None or right is None:
        return Literal(None)
    exact = of_literals(sign, left, right)
    if exact is not None:
        return Literal(exact)
    try:
        if sign == "/":
            return Literal(left / right if right else None)
        if sign == "%":
            return Literal(np.fmod(left, right).item() if right else None)
        return Literal(_PYTHON[sign](left, right))
    except TypeError:
        raise SchemaError(f"{left!r} {sign} {right!r} cannot be computed") from None


def _arithmetic(sign: str, left: Any, right: Any) -> Any:
    """Compute with 64-bit numbers, or with decimals (`of_decimals`). Integer overflow is an error, `/` gives float64, and
    division by zero gives null."""
    exact = of_decimals(sign, left, right)
    if exact is not None:
        return exact
    left, right = _numbers(left, right)
    if sign in ARITHMETIC:
        return getattr(compute, ARITHMETIC[sign])(left, right)
    right = compute.if_else(compute.equal(right, 0), None, right)
    if sign == "/":
        return compute.divide(as_floats(left), as_floats(right))
    # Arrow has no kernel for the remainder.
    count = len(left if isinstance(left, pa.Array) else right)
    sides = [one if isinstance(one, pa.Array) else pa.repeat(one, count) for one in (left, right)]
    numbers = [compute.fill_null(side, 1).to_numpy() for side in sides]
    missing = compute.or_(*(side.is_null() for side in sides))
    with np.errstate(all="ignore"):
        return pa.array(np.fmod(*numbers), mask=missing.to_numpy(zero_copy_only=False))


def _numbers(left: Any, right: Any) -> tuple[Any, Any]:
    """Both sides as int64, or as float64 if one is a float."""
    left, right = _number(left), _number(right)
    if left.type == right.type:
        return left, right
    return as_floats(left), as_floats(right)


def _number(value: Any) -> Any:
    if isinstance(value, Literal):
        if isinstance(value.value, (bool, str)):
            raise SchemaError(f"{value.value!r} is not a number")
        return pa.scalar(value.value)
    type_ = value.type
    if pa.types.is_integer(type_):
        return value.cast(pa.int64())
    if not (pa.types.is_floating(type_) or pa.types.is_decimal(type_)):
        raise SchemaError(f"values of type {type_} are not numbers")
    return as_floats(value)

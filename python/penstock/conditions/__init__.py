"""Conditions on records, for `where=`. A condition is a text such as `label >= 3 and split == "train"`, an
expression of pyarrow.compute, or a function of a batch. `_grammar` parses the text, `_values` evaluates it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.conditions._grammar import (
    Field,
    IsIn,
    Literal,
    Node,
    Operation,
    fields_of,
    parse,
    type_of,
)

__all__ = ["Bound", "Filter", "Where", "columns_of_expression", "filter_of", "parse", "type_of"]

Where = Any
"""A condition: a text, a pyarrow.compute.Expression, or a function that takes a batch and returns bool[num_rows]."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A comparison of a column with a value that is true for each chosen record: `field operator value`."""

    field: str
    operator: str
    """One of == < <= > >=."""
    value: int | float | str

    def may_hold(self, low: Any, high: Any) -> bool:
        """Whether a column with this minimum and maximum (None: with only nulls) may have a value for which the
        comparison is true. True for types that are not compared here."""
        if low is None or high is None:
            return False
        if not isinstance(low, (int, float, str)):
            return True  # times and decimals
        try:
            if isinstance(self.value, float) and isinstance(low, int):
                low, high = float(low), float(high)  # as Arrow compares them
            return bool(_MAY_HOLD[self.operator](low, high, self.value))
        except (TypeError, ValueError, OverflowError):
            return True  # evaluating the condition reports that the types do not compare


_MAY_HOLD: dict[str, Callable[[Any, Any, Any], bool]] = {
    "==": lambda low, high, value: low <= value <= high,
    "<": lambda low, _, value: low < value,
    "<=": lambda low, _, value: low <= value,
    ">": lambda _, high, value: high > value,
    ">=": lambda _, high, value: high >= value,
}


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition that can be evaluated on batches."""

    holds: Callable[[pa.RecordBatch], np.ndarray]
    """Whether the condition is true for each record of a batch: bool[num_rows]."""
    columns: list[str] | None
    """The columns that the condition reads; None for all."""
    bounds: tuple[Bound, ...] = ()
    """Statistics that contradict one of these exclude all records."""


def filter_of(where: Where, names: Sequence[str], reads: Sequence[str] | None = None) -> Filter:
    """The filter for a value of `where=`.

    Args:
        names: the columns of the data.
        reads: the columns that a function or an expression reads; None for all.

    Raises:
        ValueError: the text is not a condition.
        SchemaError: the text names an unknown column.
        TypeError: `where` is neither a text, an expression, nor a function.
    """
    if isinstance(where, str):
        from penstock.conditions._values import column_of, holds

        tree = parse(where)
        read = [column_of(name, list(names))[0] for name in fields_of(tree)]
        bounds = tuple(one for one in _bounds(tree) if one.field in names)
        return Filter(lambda batch: holds(tree, batch), list(dict.fromkeys(read)), bounds)
    from pyarrow import compute  # the import costs 20 ms, and only filters need it

    columns = None if reads is None else list(reads)
    if isinstance(where, compute.Expression):
        columns = columns_of_expression(where, names) if columns is None else columns
        return Filter(lambda batch: _by_expression(where, batch), columns)
    if not callable(where):
        kind = type(where).__name__
        raise TypeError(f"where= takes a text, an expression or a function of a batch, not {kind}")

    return Filter(lambda batch: _by_function(where, batch), columns)


def columns_of_expression(expression: Any, names: Sequence[str]) -> list[str]:
    """Return the columns that an expression of pyarrow.compute may read: those whose name is a word in its text."""
    text = str(expression)
    if "FieldPath(" in text:  # columns by number
        return list(names)
    return [name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)]


_MIRRORED = {"==": "==", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _bounds(node: Node) -> list[Bound]:
    """Return comparisons of columns with values that hold wherever the condition holds."""
    if isinstance(node, IsIn):
        return _bounds_of_list(node)
    if not isinstance(node, Operation):
        return []
    if node.operator == "and":
        return _bounds(node.left) + _bounds(node.right)
    left, right, sign = node.left, node.right, node.operator
    if isinstance(left, Literal):
        left, right, sign = right, left, _MIRRORED.get(sign, "")
    if sign not in _MIRRORED or not (isinstance(left, Field) and isinstance(right, Literal)):
        return []
    is_plain = _are([right.value], int, float) or isinstance(right.value, str)
    return [Bound(left.name, sign, right.value)] if is_plain else []


def _bounds_of_list(node: IsIn) -> list[Bound]:
    values = list(node.values)
    is_plain = _are(values, int, float) or _are(values, str)
    if not values or not is_plain or not isinstance(node.operand, Field):
        return []
    name = node.operand.name
    return [Bound(name, ">=", min(values)), Bound(name, "<=", max(values))]


def _are(values: list[Any], *types: type) -> bool:
    return all(isinstance(one, types) and not isinstance(one, bool) for one in values)


def _by_function(function: Callable[[pa.RecordBatch], Any], batch: pa.RecordBatch) -> np.ndarray:
    mask = np.asarray(function(batch))
    if mask.dtype != np.bool_ or mask.shape != (batch.num_rows,):
        raise TypeError(
            f"the function in where= returned {mask.dtype}{list(mask.shape)} for {batch.num_rows} records, "
            "not one boolean for each record; it is called with a record batch"
        )
    return mask


def _by_expression(expression: Any, batch: pa.RecordBatch) -> np.ndarray:
    from pyarrow.acero import Declaration, ProjectNodeOptions, TableSourceNodeOptions

    from penstock.errors import SchemaError

    table = TableSourceNodeOptions(pa.Table.from_batches([batch]))
    steps = [
        Declaration("table_source", table),
        Declaration("project", ProjectNodeOptions([expression], ["holds"])),
    ]
    try:
        found = Declaration.from_sequence(steps).to_table(use_threads=False)["holds"]
        found = found.cast(pa.bool_()).fill_null(False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise SchemaError(f"the expression cannot be computed: {error}") from None
    return found.to_numpy()

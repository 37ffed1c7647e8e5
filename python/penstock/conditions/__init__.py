"""Conditions on records, for `where=`. A condition is a text such as `label >= 3 and split == "train"`, an
expression of pyarrow.compute, or a function of a batch. `_grammar` parses the text, `_values` evaluates it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.conditions._bounds import Bound, Comparison, Part, PartOfExpression, bounds_of_text
from penstock.conditions._grammar import Node, fields_of, parse, type_of
from penstock.conditions._simple import all_hold, parts_of

__all__ = [
    "Bound",
    "Comparison",
    "Expression",
    "Filter",
    "Part",
    "Where",
    "columns_of_expression",
    "expression_of",
    "fields_of",
    "filter_of",
    "holds_of_shard",
    "parse",
    "type_of",
]

Where = Any
"""A condition: a text, a pyarrow.compute.Expression, or a function that takes a batch and returns bool[num_rows]."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition that can be evaluated on batches."""

    holds: Callable[[pa.RecordBatch], np.ndarray]
    """Whether the condition is true for each record of a batch: bool[num_rows]."""
    columns: list[str] | None
    """The columns that the condition reads; None for all."""
    bounds: tuple[Bound, ...] = ()
    """Statistics that contradict one of these exclude all records."""
    warn: Callable[[], None] = lambda: None
    """Called when the condition was evaluated on all records. It warns of keys in JSON that no record has."""

    @property
    def names(self) -> list[str] | None:
        """The columns that it reads, and those of its bounds; None for all."""
        if self.columns is None:
            return None
        return list(dict.fromkeys([*self.columns, *(bound.field for bound in self.bounds)]))


@dataclass(frozen=True, slots=True)
class Expression:
    """A value that is computed for each record, such as `json.caption` or `width / height`. It can be pickled."""

    text: str
    tree: Node
    columns: list[str]
    """The columns that it reads."""

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        """The value for each record of a batch. SchemaError: a value cannot be computed."""
        from penstock.conditions._values import values_of

        return values_of(self.tree, self.text, batch)


def expression_of(text: str, names: Sequence[str]) -> Expression:
    """Parse an expression in the language of conditions. `names` are the columns of the data.

    Raises:
        ValueError: the text is not an expression.
        SchemaError: it names an unknown column.
    """
    from penstock.conditions._values import column_of

    tree = parse(text)
    read = [column_of(name, list(names))[0] for name in fields_of(tree)]
    return Expression(text, tree, list(dict.fromkeys(read)))


def holds_of_shard(
    found: Filter, batch: pa.RecordBatch, file: str | None, numbers: Callable[[], np.ndarray]
) -> np.ndarray:
    """`Filter.holds`, with errors that name the file and the record. `numbers` returns those of the records in the
    file."""
    from penstock.errors import SchemaError

    try:
        return found.holds(batch)
    except SchemaError as error:  # of broken JSON, too
        error.at(file=file)
        row = _failing_row(found, batch, type(error))
        if row is not None and numbers()[row] >= 0:
            error.at(record=int(numbers()[row]))
        raise


def holds_where_readable(
    found: Filter, batch: pa.RecordBatch, skip: Callable[[int, str], None]
) -> np.ndarray:
    """`Filter.holds`, and False for records with broken JSON or pictures. `skip` is called with the row and the reason."""
    from penstock.conditions._json import BrokenValue

    holds, start = np.zeros(batch.num_rows, bool), 0
    while start < batch.num_rows:
        rest = batch.slice(start)
        try:
            holds[start:] = found.holds(rest)
            break
        except BrokenValue as error:
            row = _failing_row(found, rest, BrokenValue)
            if row is None:
                raise
            holds[start : start + row] = found.holds(rest.slice(0, row))
            skip(start + row, error.message)
            start += row + 1
    return holds


def _failing_row(found: Filter, batch: pa.RecordBatch, kind: type[Exception]) -> int | None:
    """The first row that alone raises an error of this kind. None if the error is about the columns, not about a
    record."""
    first, end = 0, batch.num_rows
    if _fails(found, batch.slice(0, 0), kind):
        return None
    while end - first > 1:
        middle = (first + end) // 2
        is_before = _fails(found, batch.slice(first, middle - first), kind)
        first, end = (first, middle) if is_before else (middle, end)
    return first if _fails(found, batch.slice(first, end - first), kind) else None


def _fails(found: Filter, batch: pa.RecordBatch, kind: type[Exception]) -> bool:
    from penstock.errors import SchemaError

    try:
        found.holds(batch)
    except SchemaError as error:
        return type(error) is kind
    return False


def filter_of(
    where: Where,
    names: Sequence[str],
    reads: Sequence[str] | None = None,
    schema: pa.Schema | None = None,
) -> Filter:
    """The filter for a value of `where=`. A filter is returned as it is.

    Args:
        names: the columns of the data.
        reads: the columns that a function or an expression reads; None for all.
        schema: the types of the columns. With it, statistics are used for an expression, too.

    Raises:
        ValueError: the text is not a condition.
        SchemaError: the text names an unknown column.
        TypeError: `where` is neither a text, an expression, nor a function.
    """
    if isinstance(where, Filter):
        return where
    if isinstance(where, str):
        return _of_text(where, names)
    from pyarrow import compute  # the import costs 20 ms, and only filters need it

    columns = None if reads is None else list(reads)
    if isinstance(where, compute.Expression):
        columns = columns_of_expression(where, names) if columns is None else columns
        if schema is not None and (parts := parts_of(where, schema)):
            own = tuple(bound for part in parts for bound in part.bounds())
            return Filter(lambda batch: all_hold(parts, batch), columns, own)
        known = () if schema is None else columns or ()
        bounds = tuple(PartOfExpression(name, name, where, schema) for name in known)
        return Filter(lambda batch: _by_expression(where, batch), columns, bounds)
    if not callable(where):
        kind = type(where).__name__
        raise TypeError(
            f"where= takes a text, an expression or a function of a batch, not {kind};"
            " Dataset.subset takes the numbers of records"
        )

    return Filter(lambda batch: _by_function(where, batch), columns)


def _of_text(where: str, names: Sequence[str]) -> Filter:
    from penstock.conditions._keys import Keys
    from penstock.conditions._values import column_of, holds

    tree = parse(where)
    keys = Keys(tree)

    def evaluated(batch: pa.RecordBatch) -> np.ndarray:
        found = holds(tree, batch)
        keys.look(batch)
        return found

    read = [column_of(name, list(names))[0] for name in fields_of(tree)]
    if not read:
        raise ValueError(
            f"{where!r} names no column: write names without quotes, or in backquotes, as in `my name` == 3"
        )
    bounds = tuple(one for one in bounds_of_text(tree) if one.field in names)
    return Filter(evaluated, list(dict.fromkeys(read)), bounds, keys.warn)


def columns_of_expression(expression: Any, names: Sequence[str]) -> list[str]:
    """Return the columns that an expression of pyarrow.compute may read: those whose name is a word in its text."""
    text = str(expression)
    if "FieldPath(" in text:  # columns by number
        return list(names)
    return [name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)]


def _by_function(function: Callable[[pa.RecordBatch], Any], batch: pa.RecordBatch) -> np.ndarray:
    from penstock.errors import FormatError, SchemaError

    try:
        found = function(batch)
    except FormatError as error:
        # As damage of the file it would be skipped, with all records of the batch behind it.
        raise SchemaError(f"the function in where= raised an error: {error}") from error
    if isinstance(found, (pa.Array, pa.ChunkedArray)):
        found = _without_nulls(found)
    mask = np.asarray(found)
    if mask.dtype != np.bool_ or mask.shape != (batch.num_rows,):
        raise TypeError(
            f"the function in where= returned {mask.dtype}{list(mask.shape)} for {batch.num_rows} records, "
            "not one boolean for each record; it is called with a record batch"
        )
    return mask


def _without_nulls(found: Any) -> Any:
    """A null is not true, as in the other conditions."""
    return found.fill_null(False) if found.null_count and pa.types.is_boolean(found.type) else found


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
        if found.type != pa.bool_() or found.null_count:
            found = found.cast(pa.bool_()).fill_null(False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise SchemaError(f"the expression cannot be computed: {error}") from None
    return found.to_numpy()

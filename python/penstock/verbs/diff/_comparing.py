"""The comparison of some records of two datasets: in threads of this process, or in a task on a cluster.

They are split into pairs of batches of the same length. `alike` defines which values are equal; `payloads` reads
Examples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import describe
from penstock.columns.types import is_list
from penstock.verbs.diff.differences import ValueDiff
from penstock.verbs.fields.keys import Matched
from penstock.verbs.fields.payloads import NewColumn, Values, same_payloads

_MOST_EXAMPLES = 3
_VALUE_WIDTH = 60


@dataclass(frozen=True, slots=True)
class Pair:
    """Records of a and b to compare, with their numbers; or records that only one side has."""

    a: pa.RecordBatch | None
    b: pa.RecordBatch | None
    numbers_a: np.ndarray
    numbers_b: np.ndarray


def pairs(
    left: Iterator[pa.RecordBatch],
    right: Iterator[pa.RecordBatch],
    matched: Matched | None = None,
    first: int = 0,
) -> Iterator[Pair]:
    """Split two streams into pairs of batches of the same length, at the ends of the batches of both. `first` is the
    number of the first record."""
    done = first
    a = b = None
    while True:
        a = _next(left) if a is None else a
        b = _next(right) if b is None else b
        if a is None and b is None:
            return
        rows = min(x.num_rows for x in (a, b) if x is not None)
        here = np.arange(done, done + rows)
        numbers = (
            (here, here) if matched is None else (matched.order_a[here], matched.order_b[here])
        )
        yield Pair(_head(a, rows), _head(b, rows), *numbers)
        a, b = _rest(a, rows), _rest(b, rows)
        done += rows


def _next(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    return next((batch for batch in batches if batch.num_rows), None)


def _head(batch: pa.RecordBatch | None, rows: int) -> pa.RecordBatch | None:
    return None if batch is None else batch.slice(0, rows)


def _rest(batch: pa.RecordBatch | None, rows: int) -> pa.RecordBatch | None:
    return None if batch is None or batch.num_rows == rows else batch.slice(rows)


@dataclass(slots=True)
class FieldSeen:
    """The types of a field on both sides, and the records in which it differs."""

    type_a: pa.DataType | None = None
    type_b: pa.DataType | None = None
    is_unlike: bool = False
    num_records: int = 0
    num_only_in_a: int = 0
    num_only_in_b: int = 0
    examples: list[ValueDiff] = field(default_factory=list)

    def merge(self, other: FieldSeen) -> None:
        self.type_a = _wider(self.type_a, other.type_a)
        self.type_b = _wider(self.type_b, other.type_b)
        self.is_unlike |= other.is_unlike
        self.num_records += other.num_records
        self.num_only_in_a += other.num_only_in_a
        self.num_only_in_b += other.num_only_in_b
        self.examples += other.examples[: _MOST_EXAMPLES - len(self.examples)]


def _wider(known: pa.DataType | None, other: pa.DataType | None) -> pa.DataType | None:
    """Return the more general type, if one type is a list of the other or is null."""
    if known is None or other is None or known == other:
        return known if other is None else other
    if pa.types.is_null(known):
        return other
    return other if is_list(other) and other.value_type == known else known


@dataclass(slots=True)
class PartSeen:
    """The differences of some records."""

    num_a: int = 0
    num_b: int = 0
    num_compared: int = 0
    num_differ: int = 0
    num_unparsed: int = 0
    first_differ: int | None = None
    fields: dict[str, FieldSeen] = field(default_factory=dict)

    @property
    def num_records(self) -> int:
        return max(self.num_a, self.num_b)

    def add(self, other: PartSeen) -> None:
        """Add the differences of later records."""
        for name in ("num_a", "num_b", "num_compared", "num_differ", "num_unparsed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if self.first_differ is None:
            self.first_differ = other.first_differ
        for name, found in other.fields.items():
            self.fields.setdefault(name, FieldSeen()).merge(found)


def compare(sides: tuple[Values, Values], pair: Pair) -> Iterator[PartSeen]:
    a, b = pair.a, pair.b
    seen = PartSeen(0 if a is None else a.num_rows, 0 if b is None else b.num_rows)
    if a is not None and b is not None:
        seen.num_compared = a.num_rows
        rows = _unequal_payloads(sides, a, b)
        if rows is not None:
            seen.num_unparsed = a.num_rows - len(rows)
        if rows is None or len(rows):
            left, right = _columns(sides, a, b, pair, rows)
            numbers = [pair.numbers_a, pair.numbers_b]
            if rows is not None:
                numbers = [side[rows] for side in numbers]
            _compare_columns(seen, left, right, numbers)
    yield seen


def _unequal_payloads(
    sides: tuple[Values, Values], a: pa.RecordBatch, b: pa.RecordBatch
) -> np.ndarray | None:
    """Return the rows whose payloads differ, or None unless both sides are payloads of the same dialect."""
    if not all(side.has_payloads for side in sides):
        return None
    if len({side.dialect for side in sides}) > 1:
        return None
    wrong = same_payloads(a.column(0), b.column(0))
    return np.zeros(0, np.int64) if wrong is None else np.flatnonzero(wrong)


def _columns(
    sides: tuple[Values, Values],
    a: pa.RecordBatch,
    b: pa.RecordBatch,
    pair: Pair,
    rows: np.ndarray | None,
) -> tuple[dict[str, NewColumn], dict[str, NewColumn]]:
    left = sides[0].columns(a, rows, pair.numbers_a, sides[1].names)
    right = sides[1].columns(b, rows, pair.numbers_b, list(left))
    if any(side.has_features for side in sides):
        left = left if sides[0].is_inferred else _features(left)
        right = right if sides[1].is_inferred else _features(right)
    return left, right


def _compare_columns(
    seen: PartSeen,
    left: dict[str, NewColumn],
    right: dict[str, NewColumn],
    numbers: list[np.ndarray],
) -> None:
    any_differs = np.zeros(len(numbers[0]), bool)
    for name in {**left, **right}:
        found, mask = _compare_field(left.get(name), right.get(name), numbers)
        seen.fields[name] = found
        any_differs |= mask
    seen.num_differ = int(any_differs.sum())
    if seen.num_differ:
        seen.first_differ = int(numbers[0][np.argmax(any_differs)])


def _features(columns: dict[str, NewColumn]) -> dict[str, NewColumn]:
    """Return structs as features of an Example: one feature per field, called `parent/child`."""
    found: dict[str, NewColumn] = {}
    for name, column in columns.items():
        if not pa.types.is_struct(column.type):
            found[name] = column
            continue
        children = zip(column.type, column.values.flatten(), strict=True)
        inner = {f"{name}/{c.name}": NewColumn(values, c.type) for c, values in children}
        found |= _features(inner)
    return found


def _compare_field(
    left: NewColumn | None, right: NewColumn | None, numbers: list[np.ndarray]
) -> tuple[FieldSeen, np.ndarray]:
    count = len(numbers[0])
    x = left or NewColumn(pa.nulls(count), pa.null())
    y = right or NewColumn(pa.nulls(count), pa.null())
    mask = x.differs_from(y)
    found = FieldSeen(None if left is None else left.type, None if right is None else right.type)
    found.is_unlike = left is not None and right is not None and not x.is_like(y)
    if mask.any():
        missing = [side.values.is_null().to_numpy(zero_copy_only=False) for side in (x, y)]
        found.num_records = int(mask.sum())
        found.num_only_in_b, found.num_only_in_a = (int((mask & m).sum()) for m in missing)
        for row in np.flatnonzero(mask)[:_MOST_EXAMPLES]:
            found.examples.append(_example(x, y, int(row), numbers))
    return found, mask


def _example(x: NewColumn, y: NewColumn, row: int, numbers: list[np.ndarray]) -> ValueDiff:
    scalars = [_shown(side, row) for side in (x, y)]
    texts = [describe.value(scalar, _VALUE_WIDTH) for scalar in scalars]
    place = _place(*scalars)
    return ValueDiff(int(numbers[0][row]), int(numbers[1][row]), *texts, place=place)


def _shown(column: NewColumn, row: int) -> pa.Scalar:
    """Return a value in the field's type. A list of one value becomes a scalar if the field holds scalars."""
    scalar = column.values[row]
    is_single = column.layout == "feature" and not is_list(column.type)
    if is_single and scalar.is_valid and len(scalar.values) == 1:
        return scalar.values[0]
    return scalar


def _place(a: Any, b: Any) -> int | None:
    if not (a.is_valid and b.is_valid):
        return None
    if hasattr(a, "as_buffer") and hasattr(b, "as_buffer"):
        x, y = (np.frombuffer(describe.data_of(s), np.uint8) for s in (a, b))
        size = min(len(x), len(y))
        wrong = np.flatnonzero(x[:size] != y[:size])
    elif is_list(a.type) and is_list(b.type):
        columns = [NewColumn(s.values, s.type.value_type) for s in (a, b)]
        size = min(len(c.values) for c in columns)
        x, y = (NewColumn(c.values.slice(0, size), c.type) for c in columns)
        wrong = np.flatnonzero(x.differs_from(y))
    else:
        return None
    return int(wrong[0]) if len(wrong) else size

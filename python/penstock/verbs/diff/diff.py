"""`diff` finds the fields and records in which two datasets differ, by content and in bounded memory.

Both datasets are read in order, or matched by a key. They are split into pairs of batches of the same length, which
are compared in parallel. Results are merged in order, so they do not depend on the number of threads. `alike` defines
which values are equal; `payloads` reads Examples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from penstock import describe
from penstock.columns.types import is_list
from penstock.datasets.dataset import Dataset
from penstock.datasets.open import opened
from penstock.engine.cluster import refuse
from penstock.engine.pipeline import in_order
from penstock.errors import SchemaError
from penstock.verbs.diff.differences import Diff, FieldDiff, RecordsDiff, ValueDiff
from penstock.verbs.fields.keys import Matched, match
from penstock.verbs.fields.payloads import NewColumn, Side, read_alike, same_payloads
from penstock.verbs.progress import Progress, meter_of

_MOST_EXAMPLES = 3
_VALUE_WIDTH = 60


def diff(
    a: Any,
    b: Any,
    *,
    columns: Sequence[str] | None = None,
    by: str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    on: None = None,
    storage: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Diff:
    """Find the fields and records in which two datasets differ, by content. Their formats may differ.

    Values are compared, not their encodings, so different types can be equal. An int32 equals an int64, a string
    equals binary with its bytes, and a list equals a fixed-size list or a tensor of that shape. A float32 equals a
    float64 of exactly its value, and NaN equals any NaN, but 0.0 does not equal -0.0. Null equals an absent field. An
    Example stores no shapes, and does not distinguish a value from a list of one value. Columns of other formats are
    compared with Examples in the form in which `write` would store them, with structs as features `parent/child`, but
    floats are compared to the last bit.

    Every record of both datasets is read, in bounded memory. If the fields of Examples are inferred from a sample,
    payloads with the same bytes are not parsed, so equal files are compared about as fast as they are read. If a
    sidecar keeps their schema, Examples are read with it.

    Args:
        a: a Dataset, or anything that `penstock.open` takes.
        b: the other dataset, as for `a`. Damage is an error, unless a Dataset was opened to skip it. Examples are then
            compared by the fields of its schema.
        columns: the fields to compare; None for all, except `__url__`, a record's path in a tar archive.
        by: match records, in any order, by this field of integers, strings or bytes. Its values are held in memory,
            and the records of b are read at random.
        threads: the number of threads; None for all cores.
        progress: called with the records done, the bytes done (estimated from the records) and the total bytes. With
            `progress`, the records are counted first.
        on: must be None: the two datasets are read in step.
        storage, storage_options: where both are, as for `open`. If they are in different places, open them.

    Returns:
        Diff: `equal`, the `fields` that differ, and the `records`.

    Raises:
        PenstockError: damaged data.
        UnsupportedError: `on` is given.
        SchemaError: `columns` or `by` names an unknown field, or the field of `by` cannot be a key.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [1, 2, 3], "x": [5, 6, 7]}, "a.tfrecord", overwrite=True)
        >>> _ = ps.write({"id": [1, 2, 3], "x": [5, 0, 7]}, "b.parquet", overwrite=True)
        >>> found = ps.diff("a.tfrecord", "b.parquet")
        >>> found.equal, found.records.num_differ, found.fields[0].name
        (False, 1, 'x')
        >>> print(found.fields[0].examples[0])
        ValueDiff(record_a=1, record_b=1, a='6', b='0', place=None)
    """
    refuse(
        on,
        "two datasets are read in step",
        "stats(..., on=...) of both, which compares their figures; or leave out on=",
    )
    sources = [x if isinstance(x, Dataset) else opened(x, storage, storage_options) for x in (a, b)]
    if columns is None:
        _check_whole(sources)
    without = _places(sources) if columns is None else frozenset[str]()
    sides = (Side(sources[0], columns, without), Side(sources[1], columns, without))
    _check_columns(sides, columns)
    read_alike(sides)
    matched = None if by is None else match(sides[0].dataset, sides[1].dataset, by, threads)
    if matched is None:
        streams = tuple(side.batches(threads) for side in sides)
    else:
        orders = (matched.order_a, matched.order_b)
        streams = tuple(
            side.picked(order, threads) for side, order in zip(sides, orders, strict=True)
        )
    seen = _Seen(sides)
    meter = meter_of(progress, *(side.dataset for side in sides))
    pairs = partial(_pairs, streams[0], streams[1], matched)
    try:
        # The reading threads must end first, because a stream in use cannot be closed.
        with closing(
            in_order([pairs], partial(_compare, sides), lambda seen: 0, threads)
        ) as results:
            for result in results:
                seen.add(result)
                meter.reach(seen.num_done)
    finally:
        for stream in streams:
            stream.close()
    return Diff(seen.fields(threads), seen.records(matched))


def _places(opened: Sequence[Dataset]) -> frozenset[str]:
    """Return the added fields that describe the place of a record, not its contents: `__url__` of tar archives."""
    added = ((d, name) for d in opened if d.paths for name in d.files.info(0).added_columns)
    return frozenset(name for d, name in added if name in d.schema.names)


def _check_whole(opened: Sequence[Dataset]) -> None:
    """Raise SchemaError if a file stores columns that its dataset does not have, because they would not be compared."""
    for dataset in opened:
        if dataset.columns is None:
            for shard in range(len(dataset.paths)):
                dataset.files.check_whole(shard)


def _check_columns(sides: tuple[Side, Side], columns: Sequence[str] | None) -> None:
    if isinstance(columns, str):
        raise TypeError(f"columns takes a list of names, such as [{columns!r}]")
    known = dict.fromkeys(name for side in sides for name in side.dataset.schema.names)
    for name in columns or ():
        if name not in known:
            raise SchemaError(f"no such column; there are: {', '.join(known)}", field=name)


@dataclass(frozen=True, slots=True)
class _Pair:
    """Records of a and b to compare, with their numbers; or records that only one side has."""

    a: pa.RecordBatch | None
    b: pa.RecordBatch | None
    numbers_a: np.ndarray
    numbers_b: np.ndarray


def _pairs(
    left: Iterator[pa.RecordBatch], right: Iterator[pa.RecordBatch], matched: Matched | None
) -> Iterator[_Pair]:
    """Split two streams into pairs of batches of the same length, at the ends of the batches of both."""
    done = 0
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
        yield _Pair(_head(a, rows), _head(b, rows), *numbers)
        a, b = _rest(a, rows), _rest(b, rows)
        done += rows


def _next(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    return next((batch for batch in batches if batch.num_rows), None)


def _head(batch: pa.RecordBatch | None, rows: int) -> pa.RecordBatch | None:
    return None if batch is None else batch.slice(0, rows)


def _rest(batch: pa.RecordBatch | None, rows: int) -> pa.RecordBatch | None:
    return None if batch is None or batch.num_rows == rows else batch.slice(rows)


@dataclass(slots=True)
class _FieldSeen:
    """The types of a field on both sides, and the records in which it differs."""

    type_a: pa.DataType | None = None
    type_b: pa.DataType | None = None
    is_unlike: bool = False
    num_records: int = 0
    num_only_in_a: int = 0
    num_only_in_b: int = 0
    examples: list[ValueDiff] = field(default_factory=list)

    def merge(self, other: _FieldSeen) -> None:
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
class _PairSeen:
    num_a: int
    num_b: int
    num_compared: int = 0
    num_differ: int = 0
    num_unparsed: int = 0
    first_differ: int | None = None
    fields: dict[str, _FieldSeen] = field(default_factory=dict)


def _compare(sides: tuple[Side, Side], pair: _Pair) -> Iterator[_PairSeen]:
    a, b = pair.a, pair.b
    seen = _PairSeen(0 if a is None else a.num_rows, 0 if b is None else b.num_rows)
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
    sides: tuple[Side, Side], a: pa.RecordBatch, b: pa.RecordBatch
) -> np.ndarray | None:
    """Return the rows whose payloads differ, or None unless both sides are payloads of the same dialect."""
    if not all(side.has_payloads for side in sides):
        return None
    if len({side.dataset.options.dialect for side in sides}) > 1:
        return None
    wrong = same_payloads(a.column(0), b.column(0))
    return np.zeros(0, np.int64) if wrong is None else np.flatnonzero(wrong)


def _columns(
    sides: tuple[Side, Side],
    a: pa.RecordBatch,
    b: pa.RecordBatch,
    pair: _Pair,
    rows: np.ndarray | None,
) -> tuple[dict[str, NewColumn], dict[str, NewColumn]]:
    left = sides[0].columns(a, rows, pair.numbers_a, sides[1].names)
    right = sides[1].columns(b, rows, pair.numbers_b, list(left))
    if any(side.has_features for side in sides):
        left = left if sides[0].is_inferred else _features(left)
        right = right if sides[1].is_inferred else _features(right)
    return left, right


def _compare_columns(
    seen: _PairSeen,
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
) -> tuple[_FieldSeen, np.ndarray]:
    count = len(numbers[0])
    x = left or NewColumn(pa.nulls(count), pa.null())
    y = right or NewColumn(pa.nulls(count), pa.null())
    mask = x.differs_from(y)
    found = _FieldSeen(None if left is None else left.type, None if right is None else right.type)
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


class _Seen:
    def __init__(self, sides: tuple[Side, Side]) -> None:
        self._sides = sides
        self._total = _PairSeen(0, 0)
        self._fields: dict[str, _FieldSeen] = {}
        as_features = any(side.has_features for side in sides)
        for place, side in enumerate(sides):
            for name, type_ in side.types(as_features=as_features).items():
                setattr(self._fields.setdefault(name, _FieldSeen()), f"type_{'ab'[place]}", type_)

    @property
    def num_done(self) -> int:
        return max(self._total.num_a, self._total.num_b)

    def add(self, pair: _PairSeen) -> None:
        total = self._total
        for name in ("num_a", "num_b", "num_compared", "num_differ", "num_unparsed"):
            setattr(total, name, getattr(total, name) + getattr(pair, name))
        if total.first_differ is None:
            total.first_differ = pair.first_differ
        for name, found in pair.fields.items():
            self._fields.setdefault(name, _FieldSeen()).merge(found)

    def records(self, matched: Matched | None) -> RecordsDiff:
        total = self._total
        facts = (total.num_compared, total.num_differ, total.first_differ)
        if matched is None:
            only = (total.num_a - total.num_compared, total.num_b - total.num_compared)
            return RecordsDiff(total.num_a, total.num_b, *facts, *only)
        a, b = matched.a, matched.b
        return RecordsDiff(
            a.num_records,
            b.num_records,
            *facts,
            a.num_only,
            b.num_only,
            a.num_repeated,
            b.num_repeated,
            a.keys_only,
            b.keys_only,
            a.keys_repeated,
            b.keys_repeated,
        )

    def fields(self, threads: int | None) -> tuple[FieldDiff, ...]:
        self._look_again(threads)
        return tuple(self._differences())

    def _look_again(self, threads: int | None) -> None:
        """Find the types of fields that only one side had in the parsed payloads. The other side may have them in equal
        payloads, which were not parsed, or in its schema, which needs no search."""
        if not self._total.num_unparsed:
            return
        for place, side in enumerate(self._sides):
            word = f"type_{'ab'[place]}"
            missing = {n for n, found in self._fields.items() if getattr(found, word) is None}
            for name in missing & set(side.sampled_names):
                setattr(self._fields[name], word, side.dataset.schema.field(name).type)
                missing.discard(name)
            for name, type_ in side.find(missing, list(self._fields), threads).items():
                setattr(self._fields[name], word, type_)

    def _differences(self) -> Iterator[FieldDiff]:
        for name, found in self._fields.items():
            kind: Literal["only in a", "only in b", "type", "values"] = "values"
            if found.type_b is None:
                kind = "only in a"
            elif found.type_a is None:
                kind = "only in b"
            elif found.is_unlike:
                kind = "type"
            elif not found.num_records:
                continue
            yield FieldDiff(
                name,
                kind,
                found.type_a,
                found.type_b,
                found.num_records,
                found.num_only_in_a,
                found.num_only_in_b,
                tuple(found.examples),
            )

"""`diff` finds the fields and records in which two datasets differ, by content and in bounded memory.

Both datasets are read in order, or matched by a key. They are split into pairs of batches of the same length, which
are compared in parallel (`_comparing`), or ranges of records are compared by tasks on a cluster (`_on_machines`). Results
are merged in order, so they do not depend on the number of threads or machines. `alike` defines which values are equal;
`payloads` reads Examples.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Literal

import pyarrow as pa

from penstock.datasets.dataset import Dataset
from penstock.datasets.open import opened
from penstock.engine.pipeline import in_order
from penstock.errors import SchemaError, UnsupportedError
from penstock.verbs.diff._comparing import FieldSeen, PartSeen, compare, pairs
from penstock.verbs.diff._on_machines import compared_on, types_on
from penstock.verbs.diff.differences import Diff, FieldDiff, RecordsDiff
from penstock.verbs.fields.keys import Matched, match
from penstock.verbs.fields.payloads import Misfit, Side, read_alike
from penstock.verbs.progress import Meter, Progress, meter_of


def diff(
    a: Any,
    b: Any,
    *,
    columns: Sequence[str] | None = None,
    by: str | None = None,
    all_keys: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    on: Any = None,
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
        all_keys: list all keys that only one side has or that repeat, in full, and not only the first three of each.
        threads: the number of threads; None for all cores.
        progress: called with the records done, the bytes done (estimated from the records) and the total bytes. With
            `progress`, the records are counted first.
        on: where the records are compared: None for this process, "ray", "ray://host:port" or a `penstock.ray.Cluster`
            for the machines of a cluster. A task compares about 128 MiB of the larger dataset with the same records of
            the other, with `threads` threads; None for the cores of the task. Files that have no index are counted
            first, by this process.
        storage, storage_options: where both are, as for `open`. If they are in different places, open them.

    Returns:
        Diff: `equal`, the `fields` that differ, and the `records`.

    Raises:
        PenstockError: damaged data.
        UnsupportedError: `on` is given, and so is `by`, or damage is skipped.
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
    if all_keys and by is None:
        raise ValueError("all_keys=True lists keys, but by= names no key")
    sources = [x if isinstance(x, Dataset) else opened(x, storage, storage_options) for x in (a, b)]
    if on is not None:
        _refuse_on(sources, by)
    if columns is None:
        _check_whole(sources)
        # Without types=, Examples are compared as payloads, with all their fields.
        sources = [x if x.options.retyped is None else x.complete() for x in sources]
    without = _places(sources) if columns is None else frozenset[str]()
    sides = Side(sources[0], columns, without, 0), Side(sources[1], columns, without, 1)
    _check_columns(sides, columns)
    read_alike(sides)
    matched = (
        None
        if by is None
        else match(sides[0].dataset, sides[1].dataset, by, threads, all_keys=all_keys)
    )
    if on is None:
        compared, find = _compared(sides, matched, threads), partial(_types, threads)
    else:
        compared, find = compared_on(on, sides, threads), partial(types_on, on, threads)
    seen = _Seen(sides)
    try:
        seen.add(compared, meter_of(progress, *(side.dataset for side in sides)))
        return Diff(seen.fields(find), seen.records(matched))
    except Misfit as misfit:
        raise sides[misfit.place].located(misfit) from None


def _compared(
    sides: tuple[Side, Side], matched: Matched | None, threads: int | None
) -> Generator[PartSeen]:
    """Compare the records in threads of this process, and yield the differences in the order of the records."""
    if matched is None:
        streams = tuple(side.batches(threads) for side in sides)
    else:
        orders = (matched.order_a, matched.order_b)
        streams = tuple(
            side.picked(order, threads) for side, order in zip(sides, orders, strict=True)
        )
    values = sides[0].values, sides[1].values
    found = partial(pairs, streams[0], streams[1], matched)
    try:
        # The reading threads must end first, because a stream in use cannot be closed.
        with closing(in_order([found], partial(compare, values), lambda seen: 0, threads)) as done:
            yield from done
    finally:
        for stream in streams:
            stream.close()


def _types(
    threads: int | None, side: Side, names: Collection[str], known: Collection[str]
) -> Generator[dict[str, pa.DataType]]:
    """The types of fields in each batch of a side."""
    with closing(side.batches(threads)) as batches:
        for batch in batches:
            yield side.values.types_in(batch, names, known)


Find = Callable[[Side, Collection[str], Collection[str]], Generator[dict[str, pa.DataType]]]
"""Yields the types of some fields, as they are found in the payloads of a side, in order. The last argument has the names
of all fields."""


def _places(opened: Sequence[Dataset]) -> frozenset[str]:
    """Return the added fields that describe the place of a record, not its contents: `__url__` of tar archives."""
    added = ((d, name) for d in opened if d.paths for name in d.files.info(0).added_columns)
    return frozenset(name for d, name in added if name in d.schema.names)


def _refuse_on(opened: Sequence[Dataset], by: str | None) -> None:
    if by is not None:
        raise UnsupportedError(
            "records that are matched by a key are read at random, so on= cannot be used with by=",
            hint="leave out on=; or penstock.sort both by the key, if both have the same keys, and leave out by=",
        )
    for dataset in opened:
        if dataset.options.damage != "error":
            raise UnsupportedError(
                f"damage={dataset.options.damage!r} hides which records a task has, so on= cannot be used with it",
                hint="run penstock repair first, or leave out on=",
            )


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


class _Seen:
    def __init__(self, sides: tuple[Side, Side]) -> None:
        self._sides = sides
        self.total = PartSeen()
        as_features = any(side.values.has_features for side in sides)
        fields = self.total.fields
        for place, side in enumerate(sides):
            for name, type_ in side.types(as_features=as_features).items():
                setattr(fields.setdefault(name, FieldSeen()), f"type_{'ab'[place]}", type_)

    def add(self, compared: Generator[PartSeen], meter: Meter) -> None:
        with closing(compared):
            for part in compared:
                self.total.add(part)
                meter.reach(self.total.num_records)

    def records(self, matched: Matched | None) -> RecordsDiff:
        total = self.total
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

    def fields(self, find: Find) -> tuple[FieldDiff, ...]:
        self._look_again(find)
        return tuple(self._differences())

    def _look_again(self, find: Find) -> None:
        """Find the types of fields that only one side had in the parsed payloads. The other side may have them in equal
        payloads, which were not parsed, or in its schema, which needs no search."""
        if not self.total.num_unparsed:
            return
        fields = self.total.fields
        for place, side in enumerate(self._sides):
            word = f"type_{'ab'[place]}"
            missing = {n for n, found in fields.items() if getattr(found, word) is None}
            for name in missing & set(side.sampled_names):
                setattr(fields[name], word, side.dataset.schema.field(name).type)
                missing.discard(name)
            for name, type_ in _found(find, side, missing, list(fields)).items():
                setattr(fields[name], word, type_)

    def _differences(self) -> Iterator[FieldDiff]:
        for name, found in self.total.fields.items():
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


def _found(
    find: Find, side: Side, names: Collection[str], known: Collection[str]
) -> dict[str, pa.DataType]:
    """Return the types of the given fields that occur in the records. Reading stops when all are found."""
    found: dict[str, pa.DataType] = {}
    if names and side.values.is_inferred:
        with closing(find(side, names, known)) as parts:
            for part in parts:
                found |= part
                if len(found) == len(names):
                    break
    return found

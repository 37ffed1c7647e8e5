"""Combines the user's `map` and `map_records` into one function. Worker processes import this module."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.errors import SchemaError
from penstock.loader._columns import Structs
from penstock.loader._made_lists import MadeLists
from penstock.loader._padding import ArrayOptions

Batch = dict[str, Any]


@dataclass(frozen=True)
class UserCode:
    map: Callable[..., Any] | None
    map_records: Callable[..., dict[str, Any]] | None
    arrays: ArrayOptions
    """How the lists that they make become arrays."""

    @property
    def is_any(self) -> bool:
        return self.map is not None or self.map_records is not None

    @property
    def wants_keys(self) -> bool:
        """Whether a function has the parameter `keys`."""
        return any(_takes_keys(f) for f in (self.map, self.map_records) if f is not None)

    def __call__(
        self,
        batch: Batch,
        keys: np.ndarray | None,
        numbers: np.ndarray,
        real: np.ndarray | None = None,
    ) -> Batch:
        """Call the functions. Errors have a note that names the records; `numbers` are those of the batch, int64[n].
        `real`, bool[n]: which records do not only fill the batch."""
        lists = MadeLists(self.arrays, batch, numbers, real)
        if self.map_records is not None:
            batch = _by_record(batch, self.map_records, keys, numbers, lists)
        found = batch
        if self.map is not None:
            with in_the_batch("map=", numbers):
                found = self.map(batch, keys=keys) if _takes_keys(self.map) else self.map(batch)
                if found is None:
                    raise SchemaError(
                        "map returned None; it must return the batch, even if it changed it in place"
                    )
                _check_rows(batch, found)
                found = _with_lists_padded(found, lists)
        lists.check_all_came(found)
        return found


def _with_lists_padded(found: Any, lists: MadeLists) -> Any:
    """Pad the lists in what `map` returned: in columns that are lists of lists, and in any that the options name."""
    if not isinstance(found, Mapping):
        return found
    columns: Mapping[str, Any] = found
    padded: Batch = {}
    for name, column in columns.items():
        if isinstance(column, list) or (lists.waits_for(name) and _has_rows(column)):
            rows = [_value(column, row) for row in range(_length({name: column}))]
            lists.put(padded, name, rows, "map=", columns)
    return {**columns, **padded} if padded else columns


@contextmanager
def in_the_batch(which: str, numbers: np.ndarray) -> Generator[None]:
    """Name the records of a batch in errors of one of the user's functions, unless a note names them already."""
    try:
        yield
    except Exception as error:
        if not any(" of a loader, " in note for note in getattr(error, "__notes__", ())):
            shown = ", ".join(map(str, numbers[:3].tolist()))
            more = ", …" if len(numbers) > 3 else ""
            error.add_note(f"raised in {which} of a loader, in the batch of records {shown}{more}")
        raise


def _check_rows(batch: Batch, found: Any) -> None:
    """Raise an error if the columns that `map` kept no longer have the same number of rows.

    `map` may leave out or add records, in all columns alike. Columns that the user added, or whose kind changed, are
    not checked.
    """
    if not isinstance(found, Mapping):
        return
    columns: Mapping[str, Any] = found
    kept = [name for name in batch if name in columns and _is_alike(batch[name], columns[name])]
    rows = {name: _length({name: columns[name]}) for name in kept}
    if len(set(rows.values())) > 1:
        few, many = min(rows, key=rows.__getitem__), max(rows, key=rows.__getitem__)
        raise SchemaError(
            f"map returned {rows[few]} rows of {few!r} and {rows[many]} of {many!r}; if it leaves out or adds records,"
            " it must do so in every column"
        )


def _has_rows(column: Any) -> bool:
    return isinstance(column, tuple) or len(getattr(column, "shape", ())) > 0


def _is_alike(before: Any, after: Any) -> bool:
    if isinstance(before, np.ndarray):
        return len(getattr(after, "shape", ())) > 0
    return isinstance(after, (tuple, list)) and type(before) is type(after)


def _takes_keys(function: Callable[..., Any]) -> bool:
    try:
        return "keys" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a builtin without a signature
        return False


def _by_record(
    batch: Batch,
    function: Callable[..., dict[str, Any]],
    keys: np.ndarray | None,
    numbers: np.ndarray,
    lists: MadeLists,
) -> Batch:
    """Call a function for each record of a batch, and convert its results back to columns."""
    if not _takes_keys(function):
        keys = None
    done: list[dict[str, Any]] = []
    for n in range(_length(batch)):
        record = {name: _value(column, n) for name, column in batch.items()}
        try:
            one = function(record) if keys is None else function(record, keys=keys[n])
            _check_record(one, done)
        except Exception as error:
            error.add_note(f"raised in map_records= of a loader, for record {numbers[n]}")
            raise
        done.append(one)
    if not done:
        return batch
    made: Batch = {}
    for name in done[0]:
        column = [one[name] for one in done]
        if not lists.put(made, name, column, "map_records=", done[0]):
            made[name] = _stacked(column)
    return made


def _check_record(found: Any, before: list[dict[str, Any]]) -> None:
    if not isinstance(found, Mapping):
        kind = "None" if found is None else type(found).__name__
        raise SchemaError(f"map_records returned {kind}; it must return the record, a dict")
    if before and set(found) != set(before[0]):
        raise SchemaError(
            f"map_records returned the names {list(found)}, and {list(before[0])} for the first record of the batch; it"
            " must return the same names for every record"
        )


def _length(batch: Mapping[str, Any]) -> int:
    for column in batch.values():
        if isinstance(column, tuple):
            return len(column[-1]) - 1
        return _length(column) if isinstance(column, Mapping) else len(column)
    return 0


def _value(column: Any, row: int) -> Any:
    """Return the value of one record in a column: a list of arrays for lists of lists, a list of dicts for lists of
    structs."""
    if isinstance(column, tuple):
        values, *levels = list[np.ndarray](column)
        start, stop = levels[-1][row : row + 2]
        if len(levels) == 1:
            return values[start:stop]
        return [_value((values, *levels[:-1]), n) for n in range(start, stop)]
    if not isinstance(column, Mapping):
        return column[row]
    offsets = _offsets(column) if isinstance(column, Structs) else None
    if offsets is None:
        return {name: _value(part, row) for name, part in column.items()}
    inside = _inside(column)
    return [_value(inside, n) for n in range(offsets[row], offsets[row + 1])]


def _offsets(column: Structs) -> np.ndarray | None:
    """Return the offsets that all fields of lists of structs share. None if a field is padded or is a list of
    arrays."""
    found = [_offsets_of_field(one) for one in column.values()]
    is_ragged = found and found[0] is not None and all(one is found[0] for one in found)
    return found[0] if is_ragged else None


def _offsets_of_field(part: Any) -> np.ndarray | None:
    if isinstance(part, Structs):
        return _offsets(part)
    return part[-1] if isinstance(part, tuple) else None


def _inside(column: Any) -> Any:
    """Return a column without its outermost lists: the values in them, as a column."""
    if isinstance(column, tuple):
        values, *levels = list[np.ndarray](column)
        return (values, *levels[:-1]) if len(levels) > 1 else values
    fields = {name: _inside(part) for name, part in column.items()}
    if column.depth == 1:
        return fields
    return Structs(fields, column.depth - 1)


def _stacked(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, (str, bytes)) or first is None:
        column = np.empty(len(values), object)
        column[:] = values
        return column
    if isinstance(first, Mapping):
        return {key: _stacked([value[key] for value in values]) for key in first}
    if any(isinstance(value, list) and _has_parts(value) for value in values):
        return values
    arrays = [np.asarray(value) for value in values]
    if any(array.shape != arrays[0].shape for array in arrays):
        return arrays
    return np.stack(arrays)


def _has_parts(value: list[Any]) -> bool:
    return any(isinstance(one, (Mapping, np.ndarray)) for one in value)

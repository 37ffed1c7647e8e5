"""Combines the user's `map` and `map_records` into one function. Worker processes import this module."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.errors import SchemaError

Batch = dict[str, Any]


@dataclass(frozen=True)
class UserCode:
    map: Callable[..., Any] | None
    map_records: Callable[..., dict[str, Any]] | None

    @property
    def is_any(self) -> bool:
        return self.map is not None or self.map_records is not None

    @property
    def wants_keys(self) -> bool:
        """Whether a function has the parameter `keys`."""
        return any(_takes_keys(f) for f in (self.map, self.map_records) if f is not None)

    def __call__(self, batch: Batch, keys: np.ndarray | None) -> Batch:
        if self.map_records is not None:
            batch = _by_record(batch, self.map_records, keys)
        if self.map is None:
            return batch
        found = self.map(batch, keys=keys) if _takes_keys(self.map) else self.map(batch)
        if found is None:
            raise SchemaError(
                "map returned None; it must return the batch, even if it changed it in place"
            )
        return found


def _takes_keys(function: Callable[..., Any]) -> bool:
    try:
        return "keys" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a builtin without a signature
        return False


def _by_record(
    batch: Batch, function: Callable[..., dict[str, Any]], keys: np.ndarray | None
) -> Batch:
    """Call a function for each record of a batch, and convert its results back to columns."""
    if not _takes_keys(function):
        keys = None
    done: list[dict[str, Any]] = []
    for n in range(_length(batch)):
        record = {name: _value(column, n) for name, column in batch.items()}
        done.append(function(record) if keys is None else function(record, keys=keys[n]))
    if not done:
        return batch
    for one in done:
        if not isinstance(one, Mapping) or set(one) != set(done[0]):
            raise SchemaError(
                f"map_records returned {_returned(one)} for a record, and {_returned(done[0])} for the"
                " first; it must return a dict with the same names for every record"
            )
    return {name: _stacked([one[name] for one in done]) for name in done[0]}


def _returned(value: Any) -> str:
    return str(list(value)) if isinstance(value, Mapping) else type(value).__name__


def _length(batch: Mapping[str, Any]) -> int:
    for column in batch.values():
        if isinstance(column, tuple):
            return len(column[-1]) - 1
        return _length(column) if isinstance(column, Mapping) else len(column)
    return 0


def _value(column: Any, row: int) -> Any:
    if isinstance(column, tuple):
        values, *levels = list[np.ndarray](column)
        if len(levels) > 1:
            raise SchemaError('map_records takes lists of lists only with ragged="list"')
        (offsets,) = levels
        return values[offsets[row] : offsets[row + 1]]
    if isinstance(column, Mapping):
        return {name: _value(part, row) for name, part in column.items()}
    return column[row]


def _stacked(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, (str, bytes)) or first is None:
        column = np.empty(len(values), object)
        column[:] = values
        return column
    if isinstance(first, Mapping):
        return {key: _stacked([value[key] for value in values]) for key in first}
    arrays = [np.asarray(value) for value in values]
    if any(array.shape != arrays[0].shape for array in arrays):
        return arrays
    return np.stack(arrays)

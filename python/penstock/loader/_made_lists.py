"""Pads the lists that the user's `map` and `map_records` make. Lists nest; the inner shape of an array is fixed."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np

from penstock.errors import SchemaError
from penstock.loader._columns import padded_levels, put
from penstock.loader._padding import ArrayOptions, ColumnOptions, lengths_for


class MadeLists:
    """The lists that the functions make for one batch.

    Args:
        options: the checked keywords of the loader.
        given: the batch before the functions.
        numbers: the numbers of its records, int64[n].
        real: which of its records are real, bool[n]; None: all.
    """

    def __init__(
        self,
        options: ArrayOptions,
        given: Mapping[str, Any],
        numbers: np.ndarray,
        real: np.ndarray | None,
    ) -> None:
        self._options = options
        self._numbers = numbers
        self._real = real
        self._waiting = set(options.made)
        # Images and tensors of several shapes are lists of arrays already, and stay so.
        self._as_given = {name for name, column in given.items() if isinstance(column, list)}

    def waits_for(self, name: str) -> bool:
        """Whether the options name this column, and no function has made it yet."""
        return name in self._waiting

    def put(
        self,
        found: dict[str, Any],
        name: str,
        rows: list[Any],
        which: str,
        beside: Collection[str],
    ) -> bool:
        """Add a column to a batch, padded, and what `Pad` adds for it. False, and nothing is added, unless the column
        holds lists that are padded. `which` function made it, `beside` which columns."""
        how = self._options.of(name)
        is_named = self.waits_for(name)
        if not is_named and (how.ragged != "pad" or how.lengths or name in self._as_given):
            return False
        if not _are_lists(rows) or not (is_named or _are_plain(rows)):
            return False
        try:
            values, levels = flattened(rows)
        except ValueError as error:
            if not is_named:
                return False
            raise SchemaError(
                f"the lists that {which} made cannot be padded: {error}", field=name
            ) from None
        real = self._real
        if real is not None and len(real) == len(rows):
            how = how._replace(given=how.given._replace(real=real))
        _check(how, name, values, levels, beside)
        with self._located(name, which, len(rows)):
            put(found, name, padded_levels(values, levels, how))
        self._waiting.discard(name)
        return True

    @contextmanager
    def _located(self, name: str, which: str, count: int) -> Generator[None]:
        """Name the record of an error in a note, as for errors of the function itself."""
        try:
            yield
        except SchemaError as error:
            if error.record is not None and count == len(self._numbers):
                number = self._numbers[error.record]
                error.add_note(f"made by {which} of a loader, for record {number}")
            error.record = None
            raise error.at(field=name) from None

    def check_all_came(self, found: Any) -> None:
        """Raise SchemaError if no function made the lists that the options name."""
        if self._waiting and len(self._numbers):
            names = ", ".join(map(str, found)) if isinstance(found, Mapping) else "no dict"
            raise SchemaError(
                "pad_to= or ragged= names this column, but neither the data nor map= or map_records= has lists of this"
                f" name; the functions returned {names}",
                field=min(self._waiting),
            )


def _check(
    how: ColumnOptions,
    name: str,
    values: np.ndarray,
    levels: list[np.ndarray],
    beside: Collection[str],
) -> None:
    """Refuse options that do not fit the lists of a column. Levels that an empty batch does not show are added."""
    lengths, pad = how.lengths, how.pad
    while lengths is not None and len(levels) < len(lengths) and not len(values):
        levels.append(np.zeros(1, np.int64))
    if lengths is not None and len(levels) != len(lengths):
        raise SchemaError(
            f"holds lists of {len(levels)} levels, and pad_to= has {len(lengths)} lengths for them",
            field=name,
            hint=f"pad_to={{{name!r}: {lengths_for(len(levels))}}}",
        )
    if not _fits(pad.value, values.dtype):
        raise SchemaError(f"the value {pad.value!r} of Pad does not fit {values.dtype}", field=name)
    for added in [f"{name}_mask"] * pad.mask + [f"{name}_length"] * pad.lengths:
        if added in beside:
            raise SchemaError(
                f"Pad adds {added!r}, and the functions made a column of this name", field=name
            )


def _fits(value: Any, dtype: np.dtype) -> bool:
    if value is None or dtype.kind not in "iub":
        return True
    try:
        return bool(np.asarray(value).astype(dtype) == value)
    except (TypeError, ValueError, OverflowError):
        return False


def flattened(rows: Iterable[Any]) -> tuple[np.ndarray, list[np.ndarray]]:
    """The values of lists, and the start of each list, int64[lists + 1], by level, outermost first. None is an empty
    list.

    Raises:
        ValueError: values at different depths, arrays of different inner shapes, or dicts.

    Example:
        >>> from penstock.loader._made_lists import flattened
        >>> values, levels = flattened([[[1, 2], [3]], []])
        >>> values.tolist(), [level.tolist() for level in levels]
        ([1, 2, 3], [[0, 2, 2], [0, 2, 3]])
    """
    levels: list[np.ndarray] = []
    inside = list(rows)
    while True:
        inside = [() if row is None else row for row in inside]
        levels.append(np.cumsum([0, *map(len, inside)], dtype=np.int64))
        if not all(isinstance(row, (list, tuple)) for row in inside):
            arrays = [np.asarray(row) for row in inside]
            return np.concatenate([array for array in arrays if len(array)] or arrays), levels
        inside = list(chain.from_iterable(inside))
        if not any(map(_is_list, inside)):
            return _values(inside), levels
        if not _are_lists(inside):
            raise ValueError("they have values and lists side by side")


def _values(values: list[Any]) -> np.ndarray:
    if any(isinstance(value, Mapping) for value in values):
        raise ValueError("they hold dicts")
    if any(isinstance(value, (str, bytes)) for value in values):
        found = np.empty(len(values), object)
        found[:] = values
        return found
    return np.asarray(values)


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or len(getattr(value, "shape", ())) > 0


def _are_lists(rows: list[Any]) -> bool:
    return any(map(_is_list, rows)) and all(row is None or _is_list(row) for row in rows)


def _are_plain(rows: list[Any]) -> bool:
    """Whether lists are padded without being named: not if they are arrays of several dimensions, such as images."""
    return all(len(getattr(row, "shape", ())) <= 2 for row in rows)

"""What `ragged=`, `pad_to=` and `fill=` of a loader mean for each column, and for each field of its structs.

A field of a struct, or of structs in lists, has a path such as `objects.box`. An option given for a column applies to
all its fields, except to fields for which it is given separately.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.columns.types import is_fixed_tensor, is_variable_tensor
from penstock.errors import SchemaError
from penstock.limits import checked_count

RAGGED = ("offsets", "pad", "list")


class ArrayOptions(NamedTuple):
    """How the columns of a batch become arrays: the checked keywords of `Loader`."""

    ragged: str | Mapping[str, str] = "offsets"
    fill: Mapping[str, Any] = {}
    pad_to: Mapping[str, tuple[int, ...]] = {}
    """Lengths of lists by path, outermost first."""
    truncate: bool = False

    def of(self, column: str) -> ColumnOptions:
        """The options of a column."""
        ragged = self.ragged if isinstance(self.ragged, str) else "offsets"
        return ColumnOptions(self, column, ragged, None, None).told()


class ColumnOptions(NamedTuple):
    """How one column becomes an array, or one field of its structs."""

    given: ArrayOptions
    path: str
    ragged: str
    fill: Any
    lengths: tuple[int, ...] | None

    def field(self, name: str) -> ColumnOptions:
        """The options of a field of the structs at this path."""
        return self._replace(path=f"{self.path}.{name}").told()

    def told(self) -> ColumnOptions:
        """These options, replaced by those that were given for exactly this path."""
        ragged, fill, pad_to, _ = self.given
        return self._replace(
            ragged=self.ragged if isinstance(ragged, str) else ragged.get(self.path, self.ragged),
            fill=fill.get(self.path, self.fill),
            lengths=pad_to.get(self.path, self.lengths),
        )


class Place(NamedTuple):
    """A column, or a field of its structs."""

    paths: tuple[str, ...]
    """The paths of its column, of the structs around it, and last of the place itself."""
    levels: int
    """How many lists are around a value, including lists around its structs."""
    is_struct: bool

    def last(self, given: Collection[str]) -> str | None:
        """Return the given path whose option applies to this place: its own path, or the nearest one around it. None if
        there is none."""
        return next((path for path in reversed(self.paths) if path in given), None)


def places(schema: pa.Schema) -> Iterator[Place]:
    """All columns of a schema, and the fields of their structs."""
    for field in schema:
        yield from _within((field.name,), field.type, 0)


def _within(paths: tuple[str, ...], type_: Any, levels: int) -> Iterator[Place]:
    type_ = _stored_type(type_)
    while has_offsets(type_):
        levels += 1
        type_ = _stored_type(type_.value_type)
    is_struct = pa.types.is_struct(type_)
    yield Place(paths, levels, is_struct)
    for field in type_ if is_struct else ():
        yield from _within((*paths, f"{paths[-1]}.{field.name}"), field.type, levels)


def _stored_type(type_: Any) -> Any:
    while isinstance(type_, pa.BaseExtensionType) and not is_tensor(type_):
        type_ = type_.storage_type
    return type_


def is_tensor(type_: Any) -> bool:
    return is_fixed_tensor(type_) or is_variable_tensor(type_)


def has_offsets(type_: pa.DataType) -> bool:
    return pa.types.is_list(type_) or pa.types.is_large_list(type_)


def check_paths(schema: pa.Schema, **by_path: Any) -> None:
    """Refuse arguments that name an unknown path. Each is a dict by path, or one value for all columns."""
    known = {place.paths[-1] for place in places(schema)}
    for word, given in by_path.items():
        for path in given if isinstance(given, Mapping) else ():
            if path not in known:
                raise _unknown(word, path, schema)


def _unknown(word: str, path: str, schema: pa.Schema) -> SchemaError:
    known = ", ".join(schema.names)
    return SchemaError(f"no such column for {word}=; there are: {known}", field=path)


def lengths_of(
    pad_to: Mapping[str, Any] | None, schema: pa.Schema, decode: Collection[str] | None = None
) -> dict[str, tuple[int, ...]]:
    """Check `pad_to` against the schema, and return the lengths for each path, outermost first."""
    if pad_to is not None and not isinstance(pad_to, Mapping):
        raise TypeError(f"pad_to is a dict, {{column: length}}, not {pad_to!r}")
    found: dict[str, tuple[int, ...]] = {}
    for path, value in (pad_to or {}).items():
        given = [value] if isinstance(value, (int, np.integer)) else list(value)
        found[path] = tuple(checked_count(f"pad_to of {path!r}", length, 1) for length in given)
    if found:
        check_paths(schema, pad_to=found)
        every = list(places(schema))
        for path in found:
            _check_levels(path, every, found, decode or ())
    return found


def _check_levels(
    path: str, every: list[Place], given: Mapping[str, tuple[int, ...]], decode: Collection[str]
) -> None:
    """Raise SchemaError unless a path has one length for each level of the lists that it applies to."""
    fields = [one for one in every if one.last(given) == path and not one.is_struct]
    lists = [one for one in fields if one.levels]
    if not lists or lists[0].paths[0] in decode:
        why = "is decoded" if lists else "does not hold lists of variable length"
        raise SchemaError(f"pad_to= is for lists, and this column {why}", field=path)
    for one in lists:
        if one.levels != len(given[path]):
            raise _other_levels(one, lists, len(given[path]))


def _other_levels(wrong: Place, lists: list[Place], count: int) -> SchemaError:
    each = (f"{one.paths[-1]!r}: {_lengths_for(one.levels)}" for one in lists)
    return SchemaError(
        f"holds lists of {wrong.levels} levels, and pad_to= has {count} lengths for them",
        field=wrong.paths[-1],
        hint=f"pad_to={{{', '.join(each)}}}",
    )


def _lengths_for(levels: int) -> str:
    return "length" if levels == 1 else f"({', '.join(['length'] * levels)})"


def padded_paths(
    schema: pa.Schema, options: ArrayOptions, decode: Collection[str]
) -> Iterator[str]:
    """The paths of the lists that are padded to the longest list of each batch."""
    for place in places(schema):
        is_list = place.levels > 0 and not place.is_struct and place.paths[0] not in decode
        if is_list and place.last(options.pad_to) is None:
            ragged = options.ragged
            if not isinstance(ragged, str):
                ragged = ragged.get(place.last(ragged) or "", "offsets")
            if ragged == "pad":
                yield place.paths[-1]

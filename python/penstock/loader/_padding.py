"""What `ragged=`, `pad_to=` and `fill=` of a loader mean for each column, and for each field of its structs.

A field of a struct, or of structs in lists, has a path such as `objects.box`. An option given for a column applies to
all its fields, except to fields for which it is given separately.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.columns.types import is_fixed_tensor, is_variable_tensor
from penstock.errors import SchemaError
from penstock.limits import checked_count
from penstock.loader.padding import Pad

RAGGED = ("offsets", "pad", "list")


class ArrayOptions(NamedTuple):
    """How the columns of a batch become arrays: the checked keywords of `Loader`."""

    ragged: str | Mapping[str, str] = "offsets"
    fill: Mapping[str, Any] = {}
    pad_to: Mapping[str, tuple[int, ...]] = {}
    """Lengths of lists by path, outermost first."""
    truncate: bool = False
    pads: Mapping[str, Pad] = {}
    real: np.ndarray | None = None
    """Which records of a batch are real, bool[n]; the others only fill it. None: all."""
    others: str = "offsets"
    """`ragged` of columns that it does not name."""
    made: frozenset[str] = frozenset()
    """The columns named in `pad_to` and `ragged` whose lists the user's functions have to make."""

    def of(self, column: str) -> ColumnOptions:
        """The options of a column."""
        ragged = self.ragged if isinstance(self.ragged, str) else self.others
        return ColumnOptions(self, column, ragged, None, None, Pad()).told()


class ColumnOptions(NamedTuple):
    """How one column becomes an array, or one field of its structs."""

    given: ArrayOptions
    path: str
    ragged: str
    fill: Any
    lengths: tuple[int, ...] | None
    pad: Pad

    def field(self, name: str) -> ColumnOptions:
        """The options of a field of the structs at this path."""
        return self._replace(path=f"{self.path}.{name}").told()

    def told(self) -> ColumnOptions:
        """These options, replaced by those that were given for exactly this path."""
        given, ragged = self.given, self.given.ragged
        return self._replace(
            ragged=self.ragged if isinstance(ragged, str) else ragged.get(self.path, self.ragged),
            fill=given.fill.get(self.path, self.fill),
            lengths=given.pad_to.get(self.path, self.lengths),
            pad=given.pads.get(self.path, self.pad),
        )

    @property
    def is_padded(self) -> bool:
        """Whether lists are padded: to given lengths, or to the longest list."""
        return self.ragged == "pad" or self.lengths is not None


class Place(NamedTuple):
    """A column, or a field of its structs."""

    paths: tuple[str, ...]
    """The paths of its column, of the structs around it, and last of the place itself."""
    levels: int
    """How many lists are around a value, including lists around its structs."""
    type: Any
    """Its type inside all lists."""

    @property
    def is_struct(self) -> bool:
        return pa.types.is_struct(self.type)

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
    place = Place(paths, levels, type_)
    yield place
    for field in type_ if place.is_struct else ():
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


def array_options(
    schema: pa.Schema,
    decode: Collection[str],
    *,
    ragged: Any,
    fill: Mapping[str, Any],
    pad_to: Any,
    buckets: Mapping[str, tuple[int, ...]],
    truncate: bool,
    makes_more: bool = False,
) -> ArrayOptions:
    """Check keywords of `Loader` against the schema. `buckets`: the lengths of the largest bucket. `makes_more`: the
    user's functions may make other columns."""
    if pad_to is not None and not isinstance(pad_to, Mapping):
        raise TypeError(f"pad_to is a dict, {{column: length}}, not {pad_to!r}")
    given: Mapping[str, Any] = pad_to or {}
    is_by_name = isinstance(ragged, Mapping)
    made = _made(schema, given, ragged) if makes_more else frozenset[str]()
    check_paths(schema, fill=fill, ragged=_without(ragged, made) if is_by_name else ragged)
    pads = {path: one for path, one in given.items() if isinstance(one, Pad)}
    lengths = {**given, **{path: pad.length for path, pad in pads.items()}, **buckets}
    checked = lengths_of(lengths, schema, decode, made)
    check_paths(schema, pad_to=_without(pads, made))
    check_pads(_without(pads, made), schema, decode)
    others = "offsets" if is_by_name else ragged
    if pads:
        by_path = ragged if is_by_name else dict.fromkeys(schema.names, ragged)
        ragged = {**by_path, **dict.fromkeys(pads, "pad")}
    return ArrayOptions(ragged, fill, checked, truncate, pads, others=others, made=made)


def _without(given: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name not in names}


def _made(schema: pa.Schema, pad_to: Mapping[str, Any], ragged: Any) -> frozenset[str]:
    """The named columns that are not lists in the data."""
    lists = {path for place in places(schema) if place.levels for path in place.paths}
    by_name: Mapping[str, str] = ragged if isinstance(ragged, Mapping) else {}
    named = {*pad_to, *(path for path, way in by_name.items() if way == "pad")}
    fields = {path for path in named if "." in path and path.split(".")[0] in schema.names}
    return frozenset(named - lists - (fields - {*schema.names}))


def check_pads(pads: Mapping[str, Pad], schema: pa.Schema, decode: Collection[str]) -> None:
    """Check `Pad`s against the schema."""
    every = list(places(schema))
    known = {one.paths[-1] for one in every}
    for path, pad in pads.items():
        fields = [one for one in every if one.last(pads) == path and not one.is_struct]
        for one in _lists_of(fields, decode, path):
            _check_value(pad.value, one)
        added = [f"{path}_mask"] * pad.mask + [f"{path}_length"] * pad.lengths
        for name in known.intersection(added):
            raise SchemaError(
                f"Pad adds {name!r}, and the data has a column of this name",
                field=path,
                hint="penstock.rename_fields, or mask=False and lengths=False of Pad",
            )


def _check_value(value: Any, place: Place) -> None:
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    if value is None or not any(is_kind(place.type) for is_kind in kinds):
        return
    try:
        pa.scalar(value).cast(place.type)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise SchemaError(
            f"the value {value!r} of Pad does not fit {place.type}",
            field=place.paths[-1],
            hint=_fitting(value, place),
        ) from error


def _fitting(value: Any, place: Place) -> str | None:
    """A hint with a type that holds the value and the numbers of a column."""
    if len(place.paths) != 1 or not isinstance(value, int) or not pa.types.is_integer(place.type):
        return None
    is_small = place.type.bit_width < 32 and -(1 << 31) <= value < 1 << 31
    if not is_small and not -(1 << 63) <= value < 1 << 63:
        return None
    return f'open(..., types={{"{place.paths[0]}": "{"int32" if is_small else "int64"}"}})'


def lengths_of(
    pad_to: Mapping[str, Any],
    schema: pa.Schema,
    decode: Collection[str],
    made: Collection[str] = (),
) -> dict[str, tuple[int, ...]]:
    """Check the lengths of `pad_to` against the schema, except those of columns that the user's functions make, and
    return them for each path, outermost first."""
    found: dict[str, tuple[int, ...]] = {}
    for path, value in pad_to.items():
        if value is None:  # a Pad without a length
            continue
        given = [value] if isinstance(value, (int, np.integer)) else list(value)
        found[path] = tuple(checked_count(f"pad_to of {path!r}", length, 1) for length in given)
    of_data = _without(found, made)
    if of_data:
        check_paths(schema, pad_to=of_data)
        every = list(places(schema))
        for path in of_data:
            _check_levels(path, every, of_data, decode)
    return found


def _check_levels(
    path: str, every: list[Place], given: Mapping[str, tuple[int, ...]], decode: Collection[str]
) -> None:
    """Raise SchemaError unless a path has one length for each level of the lists that it applies to."""
    fields = [one for one in every if one.last(given) == path and not one.is_struct]
    lists = _lists_of(fields, decode, path)
    for one in lists:
        if one.levels != len(given[path]):
            raise _other_levels(one, lists, len(given[path]))


def _lists_of(fields: Sequence[Place], decode: Collection[str], path: str) -> list[Place]:
    lists = [one for one in fields if one.levels]
    if not lists or lists[0].paths[0] in decode:
        why = "is decoded" if lists else "does not hold lists of variable length"
        raise SchemaError(f"pad_to= is for lists, and this column {why}", field=path)
    return lists


def _other_levels(wrong: Place, lists: list[Place], count: int) -> SchemaError:
    each = (f"{one.paths[-1]!r}: {lengths_for(one.levels)}" for one in lists)
    return SchemaError(
        f"holds lists of {wrong.levels} levels, and pad_to= has {count} lengths for them",
        field=wrong.paths[-1],
        hint=f"pad_to={{{', '.join(each)}}}",
    )


def lengths_for(levels: int) -> str:
    """The value of `pad_to` for lists with this many levels, for a hint."""
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

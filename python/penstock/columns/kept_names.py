"""Restores class labels that a file stores as numbers, from the class names in the schema of the file's sidecar."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import pyarrow as pa

from penstock.columns.facts import is_text as is_unicode
from penstock.columns.facts import parsed
from penstock.columns.types import is_text
from penstock.errors import FormatError, LimitError, SchemaError

NAMES_KEY = b"penstock.class_names"
"""Key in a field's metadata for the class names, a JSON list. A label's number is the index of its name."""
MOST_NAMES = 65_536
_MOST_BYTES = 4 << 20
Names = tuple[str, ...]


def is_label(type_: Any) -> bool:
    """Whether a type is a class label, which is a dictionary of texts."""
    return pa.types.is_dictionary(type_) and is_text(type_.value_type)


def named(field: pa.Field, names: Names | None) -> pa.Field:
    """The field with these class names in its metadata, or without names for None."""
    metadata = {k: v for k, v in (field.metadata or {}).items() if k != NAMES_KEY}
    if names is not None:
        metadata[NAMES_KEY] = json.dumps(names).encode()
    return field.with_metadata(metadata) if metadata else field.remove_metadata()


def names_of(field: pa.Field) -> Names | None:
    """The class names in a field's metadata; None if there is no valid list."""
    stored = (field.metadata or {}).get(NAMES_KEY)
    if stored is None or not is_label(field.type):
        return None
    try:
        found = parsed(stored, _MOST_BYTES)
    except (FormatError, LimitError):
        return None
    return _checked(found)


def as_names(dictionary: Any) -> Names | None:
    """The values of a dictionary as class names; None if they are not names, or too many to store."""
    if dictionary is None or not is_text(dictionary.type) or len(dictionary) > MOST_NAMES:
        return None
    names = _checked(dictionary.to_pylist())
    return names if names is not None and sum(map(len, names)) <= _MOST_BYTES // 16 else None


def _checked(names: Any) -> Names | None:
    if not isinstance(names, list):
        return None
    listed = cast("list[Any]", names)
    is_short = len(listed) <= MOST_NAMES
    if not is_short or not all(map(is_unicode, listed)) or len(set(listed)) < len(listed):
        return None
    return tuple(listed)


def finished(schema: pa.Schema, numbers: pa.DataType, known: Mapping[str, Any] | None) -> pa.Schema:
    """The schema to store for a file that keeps class labels as numbers. Each label field lists its names, or becomes a
    field of numbers if the names are unknown.

    Args:
        numbers: the type of the numbers in the file.
        known: the dictionary that the writer has seen for each column; None for a column without values. It is not used
            for a field that already lists its names.
    """
    fields: list[pa.Field] = []
    for field in schema:
        names = names_of(field)
        if is_label(field.type) and names is None and known is not None and field.name in known:
            dictionary = known[field.name]
            names = () if dictionary is None else as_names(dictionary)
        if pa.types.is_dictionary(field.type) and names is None:
            field = named(field, None).with_type(numbers)
        fields.append(named(field, names))
    return pa.schema(fields)


def in_common(one: pa.Schema, other: pa.Schema) -> pa.Schema | None:
    """Merge two schemas that differ only in class names. None if they also differ in something else, or if neither list
    of names begins with the other."""
    if one.names != other.names:
        return None
    fields: list[pa.Field] = []
    for mine, its in zip(one, other, strict=True):
        shorter, longer = names_of(mine), names_of(its)
        if shorter is not None and longer is not None:
            shorter, longer = sorted((shorter, longer), key=len)
            if longer[: len(shorter)] != shorter:
                return None
            mine, its = named(mine, longer), named(its, longer)
        if not mine.equals(its, check_metadata=True):
            return None
        fields.append(mine)
    return pa.schema(fields)


def as_labels(array: Any, field: pa.Field) -> Any:
    """Convert a column of numbers to class labels. Raises SchemaError if a number is not the index of a name."""
    names = names_of(field)
    assert names is not None, "the field lists them"
    try:
        places = array.cast(pa.int64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(f"the values are not class numbers: {error}", field=field.name) from None
    numbers = places.drop_null().to_numpy()
    wrong = numbers[(numbers < 0) | (numbers >= len(names))]
    if len(wrong):
        message = (
            f"there is no class number {wrong[0]}: the {len(names)} classes are numbered from 0"
        )
        raise SchemaError(message, field=field.name)
    return _labels(places, names, field.type)


def _labels(places: Any, names: Names, type_: Any) -> Any:
    values = pa.array(names, type_.value_type)
    try:
        codes = places.cast(type_.index_type)
    except pa.ArrowInvalid:
        message = f"{len(names)} classes are too many for numbers of the type {type_.index_type}"
        raise SchemaError(message) from None
    return pa.DictionaryArray.from_arrays(codes, values, ordered=type_.ordered)


class Renumbered:
    """Changes the numbers of class labels in batches to those that a file uses. A new name gets the next number."""

    def __init__(self, names: Names, type_: pa.DataType) -> None:
        self._numbers = {name: number for number, name in enumerate(names)}
        self.type = type_

    def __call__(self, array: Any) -> Any:
        """Convert a column of class labels or texts."""
        labels = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
        used = labels.dictionary.take(labels.indices.drop_null().unique()).to_pylist()
        for name in used:
            self._numbers.setdefault(name, len(self._numbers))
        places = [self._numbers.get(name) for name in labels.dictionary.to_pylist()]
        numbers = pa.array(places, pa.int64()).take(labels.indices)
        return _labels(numbers, tuple(self._numbers), self.type)


def strip(schema: pa.Schema) -> pa.Schema:
    """The schema without the class names in its fields."""
    if not any(NAMES_KEY in (field.metadata or {}) for field in schema):
        return schema
    return pa.schema([named(field, None) for field in schema], schema.metadata)

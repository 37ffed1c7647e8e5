"""Small JSON out of files that anybody may have written: journals, overlays, metadata of types, indexes of others.

What stands there is a claim. It is read here with bounds, and each value is asked for by the type that it must
have, so that whatever it is ends in a `FormatError` or is as expected.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, TypeGuard, cast

from penstock.errors import FormatError, LimitError

MOST_BYTES = 1 << 20
MOST_VALUES = 4 << 20
"""Of short values a text of JSON has many, and Python takes about 70 bytes for each."""
COUNT_END = 1 << 63
"""Counts and places are smaller than this."""


def parsed(text: bytes | str, most_bytes: int = MOST_BYTES) -> Any:
    """What JSON says.

    Raises:
        LimitError: it is longer than `most_bytes`, or has very many values.
        FormatError: it is no JSON, or nests too deep to be read.

    Example:
        >>> from penstock.columns.facts import parsed
        >>> parsed(b'{"a": 1}')
        {'a': 1}
    """
    if len(text) > most_bytes:
        raise LimitError(f"{len(text)} bytes of JSON where at most {most_bytes} are read")
    _check_values(text)
    try:
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise FormatError("JSON that nests too deep to be read") from None
    except ValueError as error:
        raise FormatError(f"is no JSON: {error}") from None


def _check_values(text: bytes | str) -> None:
    """Each value stands behind one of these marks, of which texts may have more."""
    if isinstance(text, str):
        marks = sum(map(text.count, ("[", "{", ":", ",")))
    else:
        marks = sum(map(text.count, (b"[", b"{", b":", b",")))
    if marks > MOST_VALUES:
        raise LimitError(f"JSON of up to {marks} values where at most {MOST_VALUES} are read")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no value of JSON")


def parsed_object(text: bytes | str, most_bytes: int = MOST_BYTES) -> Facts:
    """What a JSON object says.

    Raises:
        LimitError, FormatError: as `parsed`; or it is another value than an object.
    """
    return Facts.of(parsed(text, most_bytes), "JSON")


class Facts:
    """A JSON object. Each method raises FormatError where the key is missing or its value is of another type.

    Example:
        >>> from penstock.columns.facts import parsed_object
        >>> facts = parsed_object('{"size": 3, "names": ["a"]}')
        >>> facts.count("size"), facts.texts("names")
        (3, ['a'])
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    @classmethod
    def of(cls, value: Any, what: str) -> Facts:
        """A value that must be an object; `what` names it in the error."""
        if not isinstance(value, dict):
            raise FormatError(f"{what} is no object")
        return cls(cast("dict[str, Any]", value))

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def any(self, key: str) -> Any:
        """A value of any type."""
        if key not in self._values:
            raise FormatError(f"{key!r} is missing")
        return self._values[key]

    def count(self, key: str, end: int = COUNT_END) -> int:
        """A whole number from 0 on, below `end`."""
        value = self.any(key)
        if not is_count(value, end):
            raise FormatError(f"{key!r} is no count")
        return value

    def text(self, key: str) -> str:
        """A text that is Unicode."""
        value = self.any(key)
        if not is_text(value):
            raise FormatError(f"{key!r} is no text")
        return value

    def list(self, key: str) -> list[Any]:
        """A list of anything."""
        value = self.any(key)
        if not isinstance(value, list):
            raise FormatError(f"{key!r} is no list")
        return cast("list[Any]", value)

    def texts(self, key: str) -> list[str]:
        """A list of texts."""
        values = self.list(key)
        if not all(is_text(value) for value in values):
            raise FormatError(f"{key!r} is no list of texts")
        return values

    def paths(self, key: str) -> list[str]:
        """A list of texts that can be paths: none has a NUL."""
        values = self.texts(key)
        if not all(map(is_path, values)):
            raise FormatError(f"{key!r} is no list of paths")
        return values

    def facts(self, key: str) -> Facts:
        """An object inside."""
        return Facts.of(self.any(key), repr(key))


def is_count(value: Any, end: int = COUNT_END) -> bool:
    """Whether a value of JSON is a whole number from 0 on, below `end`."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < end


def is_path(value: Any) -> TypeGuard[str]:
    """Whether a value of JSON is a text that can be a path: it has no NUL."""
    return is_text(value) and "\0" not in value


def is_text(value: Any) -> TypeGuard[str]:
    """Whether a value of JSON is a text; a half of a surrogate pair, which JSON can hold, is none."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True

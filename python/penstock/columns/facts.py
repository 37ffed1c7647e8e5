"""Reads small JSON texts from untrusted files: journals, overlays, type metadata, foreign indexes.

The texts may be wrong or malicious. Reading is bounded in size, and every value is read by its expected type, so
any unexpected content raises `FormatError`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, TypeGuard, cast

from penstock.errors import FormatError, LimitError

MOST_BYTES = 1 << 20
MOST_VALUES = 4 << 20
"""A text of short values can hold very many, and Python needs about 70 bytes for each."""
COUNT_END = 1 << 63
"""Exclusive upper limit for counts and positions."""


def parsed(text: bytes | str, most_bytes: int = MOST_BYTES) -> Any:
    """Parse a JSON text.

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
    """Estimate the number of values from the marks that precede them. Strings may contain more marks."""
    if isinstance(text, str):
        marks = sum(map(text.count, ("[", "{", ":", ",")))
    else:
        marks = sum(map(text.count, (b"[", b"{", b":", b",")))
    if marks > MOST_VALUES:
        raise LimitError(f"JSON of up to {marks} values where at most {MOST_VALUES} are read")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no value of JSON")


def parsed_object(text: bytes | str, most_bytes: int = MOST_BYTES) -> Facts:
    """Parse a JSON text that must be an object.

    Raises:
        LimitError, FormatError: as `parsed`; or it is another value than an object.
    """
    return Facts.of(parsed(text, most_bytes), "JSON")


class Facts:
    """A JSON object. Each method raises FormatError if the key is missing or its value has the wrong type.

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
        """Wrap a value that must be an object. `what` names it in the error."""
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
        """A whole number of at least 0 and less than `end`."""
        value = self.any(key)
        if not is_count(value, end):
            raise FormatError(f"{key!r} is no count")
        return value

    def text(self, key: str) -> str:
        """A text that is valid Unicode."""
        value = self.any(key)
        if not is_text(value):
            raise FormatError(f"{key!r} is no text")
        return value

    def list(self, key: str) -> list[Any]:
        """A list of values of any type."""
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
        """A list of texts without NULs, which can be paths."""
        values = self.texts(key)
        if not all(map(is_path, values)):
            raise FormatError(f"{key!r} is no list of paths")
        return values

    def facts(self, key: str) -> Facts:
        """A nested object."""
        return Facts.of(self.any(key), repr(key))


def is_count(value: Any, end: int = COUNT_END) -> bool:
    """Whether a JSON value is a whole number of at least 0 and less than `end`."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < end


def is_path(value: Any) -> TypeGuard[str]:
    """Whether a JSON value is a text without NULs, which can be a path."""
    return is_text(value) and "\0" not in value


def is_text(value: Any) -> TypeGuard[str]:
    """Whether a JSON value is a valid Unicode text. JSON can also hold half of a surrogate pair, which is not."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True

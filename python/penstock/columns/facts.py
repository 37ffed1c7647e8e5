"""Reads small JSON texts from untrusted files: journals, overlays, type metadata, index files of other programs.

Sizes are limited, and the type of every value is checked, so unexpected content raises `FormatError`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, TypeGuard, cast

from penstock.errors import FormatError, LimitError

MOST_BYTES = 1 << 20
MOST_VALUES = 4 << 20
"""A text may hold very many short values, and Python needs about 70 bytes for each."""
COUNT_END = 1 << 63
"""Exclusive upper limit for counts and positions."""


def parsed(text: bytes | str, most_bytes: int = MOST_BYTES) -> Any:
    """Parse a JSON text.

    Raises:
        LimitError: the text is longer than `most_bytes`, or has too many values.
        FormatError: the text is not JSON, or is nested too deeply.

    Example:
        >>> from penstock.columns.facts import parsed
        >>> parsed(b'{"a": 1}')
        {'a': 1}
    """
    if len(text) > most_bytes:
        raise LimitError(f"the JSON has {len(text)} bytes, and at most {most_bytes} are read")
    _check_values(text)
    try:
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise FormatError("the JSON is nested too deeply") from None
    except ValueError as error:
        raise FormatError(f"is not JSON: {error}") from None


def _check_values(text: bytes | str) -> None:
    """Limit the number of values. It is estimated by counting the characters that can precede a value."""
    if isinstance(text, str):
        marks = sum(map(text.count, ("[", "{", ":", ",")))
    else:
        marks = sum(map(text.count, (b"[", b"{", b":", b",")))
    if marks > MOST_VALUES:
        raise LimitError(f"the JSON may have {marks} values, and at most {MOST_VALUES} are read")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def parsed_object(text: bytes | str, most_bytes: int = MOST_BYTES) -> Facts:
    """Parse a JSON text that must be an object. Raises the errors of `parsed`, and FormatError for any other value."""
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
            raise FormatError(f"{what} is not an object")
        return cls(cast("dict[str, Any]", value))

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def any(self, key: str) -> Any:
        if key not in self._values:
            raise FormatError(f"{key!r} is missing")
        return self._values[key]

    def count(self, key: str, end: int = COUNT_END) -> int:
        """A whole number of at least 0 and less than `end`."""
        value = self.any(key)
        if not is_count(value, end):
            raise FormatError(f"{key!r} is not a count")
        return value

    def text(self, key: str) -> str:
        value = self.any(key)
        if not is_text(value):
            raise FormatError(f"{key!r} is not a text")
        return value

    def list(self, key: str) -> list[Any]:
        value = self.any(key)
        if not isinstance(value, list):
            raise FormatError(f"{key!r} is not a list")
        return cast("list[Any]", value)

    def texts(self, key: str) -> list[str]:
        values = self.list(key)
        if not all(is_text(value) for value in values):
            raise FormatError(f"{key!r} is not a list of texts")
        return values

    def paths(self, key: str) -> list[str]:
        """A list of texts without NULs, which can be paths."""
        values = self.texts(key)
        if not all(map(is_path, values)):
            raise FormatError(f"{key!r} is not a list of paths")
        return values

    def facts(self, key: str) -> Facts:
        return Facts.of(self.any(key), repr(key))


def is_count(value: Any, end: int = COUNT_END) -> bool:
    """Whether a JSON value is a whole number of at least 0 and less than `end`."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < end


def is_path(value: Any) -> TypeGuard[str]:
    """Whether a JSON value is a text without NULs, which can be a path."""
    return is_text(value) and "\0" not in value


def is_text(value: Any) -> TypeGuard[str]:
    """Whether a JSON value is a text of valid Unicode. JSON also allows texts with unpaired surrogates, which are
    invalid."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True

"""Builds the options of a format from the keywords of a call."""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache
from numbers import Real
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

T = TypeVar("T")
_INSTEAD = {
    "text": (
        'types={"caption": "string"} reads bytes as text, and convert(…, text="auto") finds all columns of text'
    ),
    "where": 'penstock.open(…).filter("label == 3") chooses records',
    "rename": 'penstock.open(…).rename({"old": "new"}) renames columns',
}
"""What to use instead of keywords that belong to other calls."""


def options_from(kind: type[T], given: dict[str, Any], format_name: str) -> T:
    """Build a format's options dataclass. Raises TypeError for an unknown option or a value of a wrong type, and
    ValueError for a value that is not one of the choices of a `Literal`."""
    assert is_dataclass(kind)
    known = [f.name for f in fields(kind)]
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            listed = ", ".join(known) if known else "none"
            message = f"{format_name} has no option {name!r}; its options: {listed}"
            raise TypeError(f"{message}. {_INSTEAD[name]}" if name in _INSTEAD else message)
        types = _types_of(kind).get(name, ())
        values[name] = _value_of(value, types, format_name, name)
    return kind(**values)


@cache
def _types_of(kind: type) -> dict[str, tuple[Any, ...]]:
    """The allowed types of each option's value, from its annotation. Empty for types that are not checked, which
    formats of other packages may use."""
    names: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        names |= vars(sys.modules.get(base.__module__, object))
    found: dict[str, tuple[Any, ...]] = {}
    for option in fields(kind):
        holder = SimpleNamespace(__annotations__={option.name: option.type})
        try:
            type_ = get_type_hints(holder, names)[option.name]
        except NameError:
            continue  # the annotation uses a name that is imported only for type checkers
        types = get_args(type_) if get_origin(type_) in (Union, UnionType) else (type_,)
        found[option.name] = types if all(map(_is_checked, types)) else ()
    return found


def _is_checked(type_: Any) -> bool:
    return get_origin(type_) is Literal or type_ in _VALUES


def _value_of(value: Any, types: tuple[Any, ...], format_name: str, name: str) -> Any:
    """Convert an option's value to a built-in type: NumPy numbers to Python numbers, paths to text."""
    if not types:
        return value
    for type_ in types:
        with suppress(TypeError):
            return _converted(value, type_)
    choices = [choice for type_ in types for choice in _choices(type_)]
    if type(value) in {type(choice) for choice in choices}:  # a word, but an unknown one
        known = ", ".join(_described(type_, ", ") for type_ in types)
        raise ValueError(f"{format_name}: unknown {name} {value!r}; known: {known}")
    expected = " or ".join(_described(type_, " or ") for type_ in types)
    raise TypeError(f"{format_name}: option {name} is {expected}, not {value!r}")


def _choices(type_: Any) -> tuple[Any, ...]:
    return get_args(type_) if get_origin(type_) is Literal else ()


def _described(type_: Any, between: str) -> str:
    return between.join(map(repr, _choices(type_))) or _VALUES[type_][0]


def _converted(value: Any, type_: Any) -> Any:
    """Raises TypeError if the value is not of the type."""
    if get_origin(type_) is not Literal:
        return _VALUES[type_][1](value)
    for choice in _choices(type_):
        with suppress(TypeError):
            if _VALUES[type(choice)][1](value) == choice:
                return choice
    raise TypeError


def _none(value: Any) -> None:
    if value is not None:
        raise TypeError


def _truth(value: Any) -> bool:
    if not isinstance(value, np.bool_) and operator.index(value) not in (0, 1):
        raise TypeError
    return bool(value)


def _whole(value: Any) -> int:
    if isinstance(value, (bool, np.bool_)):
        raise TypeError
    return operator.index(value)


def _real(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError
    return float(value)


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        raise TypeError
    return os.fspath(value)


def _names(value: Any) -> list[str]:
    if isinstance(value, (str, Mapping)):
        raise TypeError
    return [_text(name) for name in value]


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise TypeError
    return {_text(name): _text(one) for name, one in value.items()}


_VALUES: dict[Any, tuple[str, Callable[[Any], Any]]] = {
    NoneType: ("None", _none),
    bool: ("true or false", _truth),
    int: ("a whole number", _whole),
    float: ("a number", _real),
    str: ("text", _text),
    Sequence[str]: ("a list of names", _names),
    dict[str, str]: ("a mapping of names to text", _texts),
}
"""For each type, its name and a function that converts a value to it or raises TypeError."""

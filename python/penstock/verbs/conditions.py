"""Conditions on records in words: `label >= 3 and split == "train"`.

```
condition   = comparison { "and" comparison }
comparison  = field op value | field "in" list | field "is null" | field "is not null"
op          = "==" | "!=" | "<" | "<=" | ">" | ">="
field       = letters, digits, _ . / - | "`" anything but ` "`"
value       = a JSON number, string, true or false        list = a JSON array of them
```

Nothing is evaluated but these comparisons. What is more than that is a function of batches.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import SchemaError

_FIELD = re.compile(r"\s*(?:`(?P<quoted>[^`]+)`|(?P<plain>[A-Za-z_][\w./-]*))\s*")
_OPERATOR = re.compile(r"(==|!=|<=|>=|<|>|in\b|is\s+not\s+null\b|is\s+null\b)\s*")
_AND = re.compile(r"\s*\band\s+")
_FUNCTIONS = {
    "==": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One field compared with one value."""

    field: str
    operator: str
    value: Any = None

    def mask(self, column: pa.Array) -> pa.Array:
        """Which values it holds for; a null fulfils nothing but `is null`."""
        from pyarrow import compute  # costs 20 ms, and only filters need it

        if isinstance(column.type, pa.BaseExtensionType):
            column = column.storage
        if self.operator in ("is null", "is not null"):
            return getattr(compute, self.operator.replace(" ", "_").replace("not_null", "valid"))(
                column
            )
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_binary(column.type) or column.type == pa.binary_view():
            column = column.cast(pa.binary())
        try:
            if self.operator == "in":
                values = [value for value in self.value if not _beyond(value, column.type)]
                if not values:
                    return pa.array(np.zeros(len(column), bool))
                values = pa.array([_as(value, column.type) for value in values])
                return compute.and_(
                    compute.is_in(column, values.cast(column.type)), compute.is_valid(column)
                )
            if beyond := _beyond(self.value, column.type):
                holds = self.operator in ("!=", *(("<", "<=") if beyond > 0 else (">", ">=")))
                return compute.and_(compute.is_valid(column), holds)
            value = pa.scalar(_as(self.value, column.type))
            function = getattr(compute, _FUNCTIONS[self.operator])
            return compute.fill_null(function(column, value), False)
        except (
            pa.ArrowInvalid,
            pa.ArrowNotImplementedError,
            pa.ArrowTypeError,
            OverflowError,
        ) as error:
            message = f"{column.type} cannot be compared with {self.value!r}: {error}"
            raise SchemaError(message, field=self.field) from None


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _beyond(value: Any, type_: pa.DataType) -> int:
    """1 for a whole number above all that an integer type holds, -1 for one below, else 0."""
    if not (pa.types.is_integer(type_) and _is_whole(value)):
        return 0
    bits = type_.bit_width
    signed = pa.types.is_signed_integer(type_)
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return (value > most) - (value < least)


def _as(value: Any, type_: pa.DataType) -> Any:
    """A value as one that Arrow compares with those of a type."""
    if _is_whole(value):
        if pa.types.is_floating(type_):
            return float(value)
        return pa.scalar(value, type_) if pa.types.is_uint64(type_) else value
    return value.encode() if isinstance(value, str) and pa.types.is_binary(type_) else value


def parse(text: str) -> list[Comparison]:
    """The comparisons of a condition.

    Raises:
        ValueError: it is none; says where and what can stand there.

    Example:
        >>> from penstock.verbs.conditions import parse
        >>> parse('label >= 3 and `my name` in ["a", "b"]')[1].field
        'my name'
    """
    found: list[Comparison] = []
    at = 0
    while True:
        field = _FIELD.match(text, at)
        operator = None if field is None else _OPERATOR.match(text, field.end())
        if field is None or operator is None:
            raise ValueError(
                f"{text!r}: at {text[at:]!r} a comparison should stand, such as label >= 3, "
                'name == "cat", label in [1, 2], or score is not null'
            )
        name = field["quoted"] or field["plain"]
        word, at = " ".join(operator[1].split()), operator.end()
        if word.startswith("is"):
            found.append(Comparison(name, word))
        else:
            try:
                value, at = json.JSONDecoder().raw_decode(text, at)
            except ValueError:
                raise ValueError(
                    f"{text!r}: at {text[at:]!r} a JSON value should stand, such as 3, "
                    '"cat" or [1, 2]'
                ) from None
            if isinstance(value, list) != (word == "in") or isinstance(value, dict):
                raise ValueError(
                    f"{text!r}: {word} takes {'a list' if word == 'in' else 'a value'}"
                )
            found.append(Comparison(name, word, value))
        if not text[at:].strip():
            return found
        joined = _AND.match(text, at)
        if joined is None:
            raise ValueError(f"{text!r}: at {text[at:]!r} an `and` should stand, or the end")
        at = joined.end()


Where = str | Callable[[pa.RecordBatch], Any]


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition, and the columns that it reads (None for all)."""

    holds: Callable[[pa.RecordBatch], np.ndarray]
    columns: list[str] | None


def filter_of(where: Where, reads: list[str] | None) -> Filter:
    """A condition in words, or a function of a batch that gives a truth value for each record."""
    if callable(where):

        def asked(batch: pa.RecordBatch) -> np.ndarray:
            mask = np.asarray(where(batch))
            if mask.dtype != np.bool_ or mask.shape != (batch.num_rows,):
                raise TypeError(
                    f"where= gave {mask.dtype}{list(mask.shape)} for {batch.num_rows} records, "
                    "not a truth value for each"
                )
            return mask

        return Filter(asked, reads)
    comparisons = parse(where)

    def holds(batch: pa.RecordBatch) -> np.ndarray:
        mask = np.ones(batch.num_rows, dtype=bool)
        for one in comparisons:
            mask &= one.mask(batch.column(one.field)).to_numpy(zero_copy_only=False)
        return mask

    return Filter(holds, list(dict.fromkeys(one.field for one in comparisons)))

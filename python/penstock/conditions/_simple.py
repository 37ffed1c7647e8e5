"""Comparisons of columns with values, joined by `and`, that pyarrow.compute expressions consist of.

Engines send mostly such expressions. An expression cannot be taken apart, and evaluating one takes Arrow longer than
comparing ten thousand numbers. So the parts are read from its text, and the expression that is made of them again must
equal it.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.conditions._bounds import Bound, Comparison

_MOST = 16
_PART = re.compile(r"\((\w+) (==|!=|<=|>=|<|>) ((?:[^()\"]|\"(?:[^\"\\]|\\.)*\")*)\)")
_SIGNS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "==": (operator.eq, "equal"),
    "!=": (operator.ne, "not_equal"),
    "<": (operator.lt, "less"),
    "<=": (operator.le, "less_equal"),
    ">": (operator.gt, "greater"),
    ">=": (operator.ge, "greater_equal"),
}


@dataclass(frozen=True, slots=True)
class Part:
    """A comparison of a column with a value, a pa.Scalar."""

    name: str
    sign: str
    value: Any

    def expression(self) -> Any:
        from pyarrow import compute

        return _SIGNS[self.sign][0](compute.field(self.name), compute.scalar(self.value))

    def holds(self, batch: pa.RecordBatch) -> Any:
        from pyarrow import compute

        return getattr(compute, _SIGNS[self.sign][1])(batch.column(self.name), self.value)

    def bounds(self) -> Iterator[Bound]:
        """What it requires of statistics. These leave out NaN, which is the largest number to the engines."""
        if self.sign == "!=":
            return
        with suppress(ValueError):  # nanoseconds, which Python's times leave out
            value = self.value.as_py()
            if not isinstance(value, float):
                yield Comparison(self.name, self.sign, value)


def parts_of(expression: Any, schema: pa.Schema) -> list[Part]:
    """The comparisons, of which all must hold where the expression holds; none if it has other parts, too."""
    texts = _PART.findall(str(expression))
    if not 0 < len(texts) <= _MOST:
        return []
    # Engines write values of the column's type, people write Python's.
    for value_of in (_value, _own_value):
        found = [Part(name, sign, value_of(text, schema, name)) for name, sign, text in texts]
        if all(one.value is not None for one in found):
            made = reduce(operator.and_, [one.expression() for one in found])
            if made.equals(expression):
                return found
    return []


def all_hold(parts: list[Part], batch: pa.RecordBatch) -> np.ndarray:
    """Whether all comparisons are true, for each record of a batch."""
    from pyarrow import compute

    found = reduce(compute.and_, [one.holds(batch) for one in parts])
    if found.null_count:
        found = found.fill_null(False)
    return found.to_numpy(zero_copy_only=False)


def _value(text: str, schema: pa.Schema, name: str) -> pa.Scalar | None:
    """The value that Arrow writes as this text, if its type is that of the column."""
    place = schema.get_field_index(name)
    if place < 0:
        return None
    type_ = schema.field(place).type
    if not (pa.types.is_primitive(type_) or pa.types.is_string(type_)):
        return None
    try:
        if pa.types.is_timestamp(type_) and type_.tz is not None:
            text = text.removesuffix("Z")
            return pa.scalar(text).cast(pa.timestamp(type_.unit)).cast(pa.int64()).cast(type_)
        plain = json.loads(text) if pa.types.is_string(type_) else text
        return pa.scalar(plain).cast(type_)
    except (ValueError, pa.ArrowNotImplementedError):
        return None


def _own_value(text: str, schema: pa.Schema, name: str) -> pa.Scalar | None:
    """The value if it is an integer of Python, whatever the type of the column's numbers."""
    place = schema.get_field_index(name)
    if place < 0 or not re.fullmatch(r"-?\d{1,18}", text):
        return None
    type_ = schema.field(place).type
    is_number = pa.types.is_integer(type_) or pa.types.is_floating(type_)
    return pa.scalar(int(text)) if is_number else None

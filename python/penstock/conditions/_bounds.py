"""What a condition requires of the values of one column. Statistics, and the names of folders, show from it which
records need not be read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import reduce
from operator import and_
from types import NoneType
from typing import Any

import pyarrow as pa

from penstock.conditions._grammar import Field, IsIn, Literal, Node, Operation, Written, fields_of


@dataclass(frozen=True)
class Bound(ABC):
    """A condition on one column that is true for each chosen record."""

    field: str
    """The column."""

    @abstractmethod
    def may_hold(self, low: Any, high: Any, *, has_nulls: bool = True) -> bool:
        """Whether a column with this minimum and maximum, and nulls if it `has_nulls`, may have a value for which the
        condition is true. None stands for a column with only nulls."""
        ...


@dataclass(frozen=True)
class Comparison(Bound):
    """A comparison of a column with a value: `field operator value`."""

    operator: str
    """One of == < <= > >=."""
    value: int | float | str | date
    orders_texts: bool = False
    """Whether the value was chosen as the least or last of several texts, so that it says nothing about times."""

    def may_hold(self, low: Any, high: Any, *, has_nulls: bool = True) -> bool:
        """See Bound. True for types that are not compared here."""
        if low is None or high is None:
            return False
        value: Any = self.value
        try:
            if isinstance(low, date):
                if self.orders_texts:
                    return True
                value = _time_of(value, low)
                low, high = _widened(low, high)
            elif not isinstance(low, (int, float, str)):
                return True  # decimals and times of day
            elif isinstance(low, int) and isinstance(value, Written):
                value = value.exact
            elif isinstance(low, int) and isinstance(value, float):
                low, high = float(low), float(high)  # as engines compare them
            elif isinstance(low, float) and isinstance(value, int):
                value = float(value)
            return bool(_MAY_HOLD[self.operator](low, high, value))
        except (TypeError, ValueError, OverflowError, pa.ArrowNotImplementedError):
            return True  # evaluating the condition reports that the types do not compare


def _time_of(value: Any, like: date) -> Any:
    """A text as a date or a time, as it is compared with a column of these."""
    if not isinstance(value, str):
        return value
    from penstock.conditions._comparing import scalar

    return scalar(value, pa.scalar(like).type).as_py()


def _widened(low: date, high: date) -> tuple[date, date]:
    """Bounds of times that hold for the nanoseconds, too, which Python's times leave out."""
    if not isinstance(low, datetime):
        return low, high
    step = timedelta(microseconds=1)
    return low - step, high + step


_MAY_HOLD: dict[str, Callable[[Any, Any, Any], bool]] = {
    "==": lambda low, high, value: low <= value <= high,
    "<": lambda low, _, value: low < value,
    "<=": lambda low, _, value: low <= value,
    ">": lambda _, high, value: high > value,
    ">=": lambda _, high, value: high >= value,
}


@dataclass(frozen=True)
class Part(Bound):
    """Any condition on one column. It is decided only for a column whose values are all the same."""

    name: str
    """The column's name in the condition."""
    holds: Callable[[pa.RecordBatch], Any]

    def may_hold(self, low: Any, high: Any, *, has_nulls: bool = True) -> bool:
        """See Bound."""
        if low != high or not isinstance(low, (int, str, NoneType)):
            return True
        try:
            values = [low, None] if has_nulls else [low]
            batch = pa.record_batch([pa.array(values)], names=[self.name])
            return bool(self.holds(batch).any())
        except Exception:  # noqa: BLE001  evaluating the condition reports what is wrong
            return True


@dataclass(frozen=True)
class PartOfExpression(Bound):
    """What a pyarrow.compute expression requires of one column. Arrow simplifies the expression for given values."""

    name: str
    """The column's name in the expression."""
    expression: Any
    schema: pa.Schema

    def may_hold(self, low: Any, high: Any, *, has_nulls: bool = True) -> bool:
        """See Bound. True for floats, because statistics leave NaN out."""
        from pyarrow import compute, dataset, fs

        own = compute.field(self.name)
        known = own.is_null()
        kind, files = dataset.IpcFileFormat(), fs.LocalFileSystem()  # nothing is opened
        try:
            if low is not None and high is not None:
                if not (isinstance(low, (int, str, date)) and isinstance(high, (int, str, date))):
                    return True
                if isinstance(low, date) and isinstance(high, date):
                    type_ = self.schema.field(self.name).type
                    low, high = [pa.scalar(one, type_) for one in _widened(low, high)]
                # Arrow knows what to do with a guarantee of this form.
                parts = [own >= low, own <= high, *([own == low] if low == high else [])]
                known = reduce(and_, [part | known for part in parts] if has_nulls else parts)
            one = kind.make_fragment("", files, partition_expression=known)
            found = dataset.FileSystemDataset([one], self.schema, kind, files)
            return any(True for _ in found.get_fragments(filter=self.expression))
        except (
            ValueError,
            KeyError,
            OverflowError,
            pa.ArrowNotImplementedError,
            pa.ArrowTypeError,
        ):
            return True  # evaluating the expression reports what is wrong


_MIRRORED = {"==": "==", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def bounds_of_text(node: Node) -> list[Bound]:
    """Return conditions on single columns that hold wherever the condition holds."""
    if isinstance(node, Operation) and node.operator == "and":
        return bounds_of_text(node.left) + bounds_of_text(node.right)
    if found := _compared(node):
        return found
    names = fields_of(node)
    return [_part(names[0], node)] if len(names) == 1 else []


def _part(name: str, node: Node) -> Part:
    from penstock.conditions._values import holds

    return Part(name, name, lambda batch: holds(node, batch))


def _compared(node: Node) -> list[Bound]:
    """Return a comparison of a column with a value, or with a list of values, as bounds."""
    if isinstance(node, IsIn):
        return _compared_with_list(node)
    if not isinstance(node, Operation):
        return []
    left, right, sign = node.left, node.right, node.operator
    if isinstance(left, Literal):
        left, right, sign = right, left, _MIRRORED.get(sign, "")
    if sign not in _MIRRORED or not (isinstance(left, Field) and isinstance(right, Literal)):
        return []
    is_plain = _are([right.value], int, float) or isinstance(right.value, str)
    return [Comparison(left.name, sign, right.value)] if is_plain else []


def _compared_with_list(node: IsIn) -> list[Bound]:
    values = list(node.values)
    is_plain = _are(values, int, float) or _are(values, str)
    if not values or not is_plain or not isinstance(node.operand, Field):
        return []
    name = node.operand.name
    least = Comparison(name, ">=", min(values, key=_exact), orders_texts=True)
    most = Comparison(name, "<=", max(values, key=_exact), orders_texts=True)
    return [least, most, _part(name, node)]


def _exact(value: Any) -> Any:
    return value.exact if isinstance(value, Written) else value


def _are(values: list[Any], *types: type) -> bool:
    return all(isinstance(one, types) and not isinstance(one, bool) for one in values)

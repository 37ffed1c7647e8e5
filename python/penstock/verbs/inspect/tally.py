"""Figures that are updated batch by batch and merged exactly: ranges, histograms, counts of values. They do not depend
on how the values were split into batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.casts import in_microseconds
from penstock.columns.numbers import as_arrow
from penstock.describe import text_of

DISTINCT_LIMIT = 4096
"""The most distinct values that are counted."""
DISTINCT_BYTES = 256
"""The length in bytes of the longest value that is counted."""
BINS = 32
"""The most bins of a histogram."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The range and mean of `count` numbers. `min` and `max` have the Python type of the field's values (a datetime for
    a timestamp). `mean` is None if that type has no mean, or if the mean is beyond float64."""

    count: int
    min: Any
    mean: float | None
    max: Any

    def text(self, show: Callable[[Any], str] = str) -> str:
        """The minimum, maximum and mean as text, or one number if all are equal. `show` turns a number into text."""
        if self.min == self.max:
            return f"{show(self.min)} each" if self.count > 1 else show(self.min)
        return f"{show(self.min)} … {show(self.max)}, mean {show(self.mean)}"


@dataclass(frozen=True, slots=True)
class Histogram:
    """The numbers of values in up to 32 bins of the same width. Bin i counts the values from `start + i * bin_width` up
    to the next bin's start. `of` is "values", "sizes" or "lengths"."""

    of: str
    start: float
    bin_width: float
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Exact:
    """The range and the sum of decimals, which floats are too coarse for."""

    min: Decimal
    max: Decimal
    sum: Fraction

    @staticmethod
    def of(values: Any) -> Exact:
        """The figures of an array of decimals without nulls, of which there is at least one."""
        import pyarrow.compute as pc

        ends = pc.min_max(values)
        type_ = values.type
        try:
            wide = values.cast(pa.decimal256(76, max(type_.scale, 0)))
            total = Fraction(pc.sum(wide).as_py()) if type_.precision <= _SUMMED else None
        except pa.ArrowInvalid:
            total = None  # the digits before and after the point are too many
        if total is None:
            total = sum(map(Fraction, values.to_pylist()), Fraction())
        return Exact(ends["min"].as_py(), ends["max"].as_py(), total)


_SUMMED = 56
"""Arrow's decimals hold the sum of 10**20 numbers with so many digits."""


class Range:
    """The count, minimum, maximum and sum of numbers; exact for integers and decimals."""

    def __init__(self) -> None:
        self.count = 0
        self.min: Any = None
        self.max: Any = None
        self._sum: Any = 0
        """An int, or a Fraction: exact, so that the order and the grouping of the batches do not matter."""
        self._is_beyond = False
        """Whether the sum of a batch is beyond float64."""
        self.bins = Bins()

    def add(self, numbers: np.ndarray, exact: Exact | None = None) -> None:
        """Add the numbers of an int64, uint64 or finite float64 array. `exact` has the figures of decimals, of which
        these are the nearest floats."""
        if not len(numbers):
            return
        low, high = numbers.min().item(), numbers.max().item()
        if exact is not None:
            self._widen(len(numbers), exact.min, exact.max)
            self._sum += exact.sum
        else:
            self._widen(len(numbers), low, high)
            self._add_to_sum(numbers)
        self.bins.add(numbers, low, high)

    def _add_to_sum(self, numbers: np.ndarray) -> None:
        if numbers.dtype.kind in "iu":
            # Sum the upper and lower halves separately, because the sum of many int64 may overflow.
            upper = int((numbers >> 32).sum())
            self._sum += (upper << 32) + int((numbers & 0xFFFFFFFF).sum())
        else:
            with np.errstate(over="ignore"):
                total = float(numbers.sum())
            if math.isfinite(total):
                self._sum += Fraction(total)
            else:
                self._is_beyond = True

    def merge(self, other: Range) -> None:
        if other.count:
            self._widen(other.count, other.min, other.max)
            self._sum += other._sum
            self._is_beyond |= other._is_beyond
            self.bins.merge(other.bins)

    def _widen(self, count: int, low: Any, high: Any) -> None:
        self.min = low if self.count == 0 else min(self.min, low)
        self.max = high if self.count == 0 else max(self.max, high)
        self.count += count

    def _total(self) -> Any:
        try:
            is_whole = isinstance(self._sum, int)
            return math.nan if self._is_beyond else self._sum if is_whole else float(self._sum)
        except OverflowError:
            return math.nan  # the sum is beyond float64

    def spread(self, type_: pa.DataType | None = None) -> Spread | None:
        if not self.count:
            return None
        if type_ is not None and pa.types.is_temporal(type_):
            return Spread(self.count, _moment(self.min, type_), None, _moment(self.max, type_))
        if type_ is not None and pa.types.is_boolean(type_):
            return Spread(self.count, bool(self.min), self._total() / self.count, bool(self.max))
        return Spread(self.count, self.min, self._mean(), self.max)

    def _mean(self) -> float | None:
        """The nearest float."""
        return None if math.isnan(self._total()) else float(self._sum / self.count)


def _moment(value: int, type_: pa.DataType) -> Any:
    number = as_arrow(np.array([value], np.int64))
    storage = number.cast(pa.int32()) if type_.bit_width == 32 else number
    scalar = in_microseconds(storage.view(type_))[0]
    try:
        return scalar.as_py()
    except (ValueError, OverflowError, LookupError, ImportError):
        return text_of(scalar)


class Bins:
    """A histogram of numbers whose range is not known beforehand.

    The width of the bins is a power of two, and bins start at multiples of it. So two neighbours can be joined exactly
    to a bin of twice the width. The width is the smallest with which `BINS` bins cover the range, so it does not depend
    on the order of the numbers.
    """

    def __init__(self) -> None:
        self._counts: np.ndarray | None = None
        self._exponent = 0
        self._first = 0
        self._low: Any = 0
        self._high: Any = 0

    def add(self, numbers: np.ndarray, low: Any, high: Any) -> None:
        exponent = _exponent(low, high)
        places = _places(numbers, exponent)
        first = int(places.min())
        counts = np.bincount((places - first).astype(np.int64)).astype(np.int64)
        self._join(exponent, first, counts, low, high)

    def merge(self, other: Bins) -> None:
        if other._counts is not None:
            self._join(other._exponent, other._first, other._counts, other._low, other._high)

    def _join(self, exponent: int, first: int, counts: np.ndarray, low: Any, high: Any) -> None:
        if self._counts is None:
            self._exponent, self._first, self._counts = exponent, first, counts
            self._low, self._high = low, high
            return
        self._low, self._high = min(self._low, low), max(self._high, high)
        wide = _exponent(self._low, self._high)
        mine = _coarser(self._first, self._counts, wide - self._exponent)
        theirs = _coarser(first, counts, wide - exponent)
        start = min(mine[0], theirs[0])
        total = np.zeros(max(f + len(c) for f, c in (mine, theirs)) - start, np.int64)
        for place, part in (mine, theirs):
            total[place - start : place - start + len(part)] += part
        self._exponent, self._first, self._counts = wide, start, total

    def histogram(self, of: str) -> Histogram | None:
        """Return the bins in ascending order, or None if there are fewer than two bins."""
        if self._counts is None or len(self._counts) < 2:
            return None
        width: float = 1 << self._exponent if self._exponent >= 0 else math.ldexp(1, self._exponent)
        counts = tuple(int(count) for count in self._counts)
        return Histogram(of, self._first * width, width, counts)


def _exponent(low: Any, high: Any) -> int:
    """Return the smallest e for which `BINS` bins of width 2**e cover the range."""
    if isinstance(low, int):
        exponent = max((high - low).bit_length() - BINS.bit_length(), 0)
        while (high >> exponent) - (low >> exponent) >= BINS:
            exponent += 1
        return exponent
    # The number of a bin must be exact in float64, even if the values are far from zero.
    largest = max(abs(low), abs(high))
    exponent = max(math.frexp(largest)[1] - 52, -1000) if largest else -1000
    half_span = high / 2 - low / 2  # the span itself may be beyond float64
    if half_span:
        exponent = max(exponent, math.frexp(half_span)[1] - BINS.bit_length())
    while _place(high, exponent) - _place(low, exponent) >= BINS:
        exponent += 1
    return exponent


def _place(number: float, exponent: int) -> int:
    place = math.floor(math.ldexp(number, -exponent))
    return -1 if number < 0 and place == 0 else place  # too small for float64 once divided


def _places(numbers: np.ndarray, exponent: int) -> np.ndarray:
    if numbers.dtype.kind in "iu":
        return numbers >> min(exponent, 63)
    places = np.floor(np.ldexp(numbers, -exponent)).astype(np.int64)
    places[(numbers < 0) & (places == 0)] = -1
    return places


def _coarser(first: int, counts: np.ndarray, steps: int) -> tuple[int, np.ndarray]:
    """Join groups of 2**steps neighbouring bins."""
    if not steps:
        return first, counts
    start = first >> steps
    joined = np.zeros(((first + len(counts) - 1) >> steps) - start + 1, np.int64)
    for place, count in enumerate(counts):
        joined[((first + place) >> steps) - start] += count
    return start, joined


class Distinct:
    """The number of times each value occurs. Counting stops if there are too many distinct values or a value is too
    long."""

    def __init__(self) -> None:
        self.counts: dict[Any, int] | None = {}
        self.is_over = False
        """Whether there are more than DISTINCT_LIMIT values."""

    def forgo(self) -> None:
        """Stop counting: the values are too long, or cannot be counted."""
        self.counts = None
        self.is_over = False

    def add(self, values: pa.Array) -> None:
        if self.counts is None or self.is_over:
            return
        found = values.value_counts()
        if len(found) > DISTINCT_LIMIT:
            self.counts, self.is_over = {}, True
            return
        pairs = zip(found.field(0).to_pylist(), found.field(1).to_pylist(), strict=True)
        self.counts = dict(pairs)

    def merge(self, other: Distinct) -> None:
        if other.counts is None or self.counts is None:
            self.forgo()
            return
        self.is_over = self.is_over or other.is_over
        if not self.is_over:
            for value, count in other.counts.items():
                self.counts[value] = self.counts.get(value, 0) + count
            self.is_over = len(self.counts) > DISTINCT_LIMIT
        if self.is_over:
            self.counts = {}

    @property
    def number(self) -> int | None:
        if self.counts is None:
            return None
        return DISTINCT_LIMIT if self.is_over else len(self.counts) or None

    def most_common(self, limit: int = 5) -> tuple[tuple[Any, int], ...]:
        """Return the most frequent values with their counts. Of equally frequent values, the smallest comes first."""
        ordered = sorted((self.counts or {}).items(), key=lambda item: (-item[1], item[0]))
        return tuple(ordered[:limit])

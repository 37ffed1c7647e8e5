"""Formats figures as text for terminals and pages."""

from __future__ import annotations

from penstock import describe
from penstock.bench.measure import Measured

NOTHING = "–"


def rate(found: Measured | None) -> str:
    """Return a rate to three digits, with the spread of the repeats."""
    return NOTHING if found is None else short(found.median) + _spread(found)


def time(found: Measured | None) -> str:
    """Return seconds, with the spread of the repeats."""
    return NOTHING if found is None else seconds(found.median) + _spread(found)


def _spread(found: Measured) -> str:
    return f" ±{found.spread / 2:3.0%}" if found.repeats > 1 else ""


def ratio(value: float | None) -> str:
    """Return a ratio with two decimals, or without decimals from 100 on."""
    if value is None:
        return NOTHING
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def short(number: float | None) -> str:
    """Return a number to three digits, with k, M and G for thousands.

    Example:
        >>> from penstock.bench.words import short
        >>> short(59407523), short(345.6), short(0.0123)
        ('59.4 M', '346', '0.0123')
    """
    if number is None:
        return NOTHING
    for step, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(number) >= 0.9995 * step:
            scaled = number / step
            digits = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
            return f"{scaled:.{digits}f}{unit}"
    return f"{number:.3g}"


def size(number: float | None) -> str:
    """Return bytes in decimal units."""
    return NOTHING if number is None else describe.size(number)


def seconds(number: float | None) -> str:
    """Return a time in a fitting unit.

    Example:
        >>> from penstock.bench.words import seconds
        >>> seconds(0.00123), seconds(75), seconds(9000)
        ('1.23 ms', '1 min 15 s', '2 h 30 min')
    """
    if number is None:
        return NOTHING
    if number < 1:
        return f"{number * 1e3:.3g} ms"
    if number < 60:
        return f"{number:.3g} s"
    minutes, rest = divmod(round(number), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60:,} h {minutes % 60} min"

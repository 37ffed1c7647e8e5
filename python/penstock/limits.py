"""How much a file may ask for. All limits in one place, all adjustable, all errors.

Every declared length is a claim: it is compared with the bytes left and with these limits before
anything is reserved.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from penstock.errors import LimitError, batch_limit

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Limits:
    """Ceilings on what one file may make penstock reserve. Sizes in bytes, but for pixels.

    Example:
        >>> import penstock as ps
        >>> ps.Limits(record_bytes=4 << 30).record_bytes
        4294967296
    """

    record_bytes: int = GIB
    """One record."""
    batch_bytes: int = 2 * GIB - 1
    """The values of one variable-length column of a batch: Arrow's 32-bit offsets end here. And what one record
    takes in all columns, whatever it holds."""
    nesting: int = 100
    """Levels of nested messages, lists or types."""
    member_bytes: int = GIB
    """One compressed member after inflating, where a member is inflated whole."""
    footer_bytes: int = 64 * MIB
    """A footer or header that has to be read whole (Parquet, Arrow IPC)."""
    image_pixels: int = 1 << 28
    """Pixels of one image, counted before it is decoded."""

    def __post_init__(self) -> None:
        for field in fields(self):
            checked_count(f"the limit {field.name}", getattr(self, field.name), 0)

    def check(self, name: str, asked: int) -> None:
        """Raise LimitError if `asked` is beyond the limit called `name`."""
        limit = getattr(self, name)
        if asked > limit:
            what = "levels" if name == "nesting" else "bytes"
            raise LimitError(
                f"asks for {asked} {what}, beyond the limit {name}={limit}",
                hint=raise_limit(name, asked),
            )

    def check_batch(self, asked: int) -> None:
        """Raise LimitError if a batch would take more than `batch_bytes`: fewer records at once may do."""
        if asked > self.batch_bytes:
            message = (
                f"a batch would take {asked} bytes, beyond the limit batch_bytes={self.batch_bytes}"
            )
            error = batch_limit(message)
            # One record alone may be more than the limit.
            error.hint = f"{error.hint}; or {raise_limit('batch_bytes', ...)}"
            raise error


def raise_limit(name: str, asked: object) -> str:
    """The hint that says how to read something that is beyond a limit."""
    shown = "..." if asked is ... else asked
    return f"open(..., limits={{{name!r}: {shown}}})"


def limits_from(value: Limits | dict[str, int] | None) -> Limits:
    """The limits a caller meant: a Limits, a dict of some of them, or None for the defaults."""
    if value is None:
        return Limits()
    if isinstance(value, Limits):
        return value
    known = {f.name for f in fields(Limits)}
    unknown = sorted(set(value) - known)
    if unknown:
        raise TypeError(f"unknown limit {unknown[0]!r}; known: {', '.join(sorted(known))}")
    return Limits(**value)


def checked_count(word: str, value: Any, least: int) -> int:
    """What a user gave for `word`, as a Python number of at least so much.

    Raises:
        TypeError: it is no whole number.
        ValueError: it is smaller.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{word} is a whole number, not {value!r}")
    if number < least:
        raise ValueError(f"{word} must be at least {least}, not {number}")
    return number

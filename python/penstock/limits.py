"""Limits on the memory that a file may request. All limits are defined here, can be changed, and raise errors.

Every declared length is only a claim. It is compared with the remaining bytes and with these limits before memory is
allocated.
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
    """Upper limits for the memory that penstock allocates for one file. Sizes are in bytes, except for pixels.

    Example:
        >>> import penstock as ps
        >>> ps.Limits(record_bytes=4 << 30).record_bytes
        4294967296
    """

    record_bytes: int = GIB
    """The size of one record."""
    batch_bytes: int = 2 * GIB - 1
    """The values of one variable-length column of a batch, which Arrow's 32-bit offsets limit. Also the minimum size of
    one record over all columns, whatever it holds."""
    nesting: int = 100
    """Nesting depth of messages, lists or types."""
    member_bytes: int = GIB
    """The inflated size of one compressed member, if a member is inflated as a whole."""
    footer_bytes: int = 64 * MIB
    """The size of a footer or header that must be read completely (Parquet, Arrow IPC)."""
    image_pixels: int = 1 << 28
    """Pixels of one image, counted before it is decoded."""

    def __post_init__(self) -> None:
        for field in fields(self):
            checked_count(f"the limit {field.name}", getattr(self, field.name), 0)

    def check(self, name: str, asked: int) -> None:
        """Raise LimitError if `asked` exceeds the limit with this name."""
        limit = getattr(self, name)
        if asked > limit:
            what = "levels" if name == "nesting" else "bytes"
            raise LimitError(
                f"asks for {asked} {what}, beyond the limit {name}={limit}",
                hint=raise_limit(name, asked),
            )

    def check_batch(self, asked: int) -> None:
        """Raise LimitError if a batch would exceed `batch_bytes`. The hint suggests smaller batches."""
        if asked > self.batch_bytes:
            message = (
                f"a batch would take {asked} bytes, beyond the limit batch_bytes={self.batch_bytes}"
            )
            error = batch_limit(message)
            # A single record may exceed the limit, too.
            error.hint = f"{error.hint}; or {raise_limit('batch_bytes', ...)}"
            raise error


def raise_limit(name: str, asked: object) -> str:
    """The hint that explains how to raise a limit that was exceeded."""
    shown = "..." if asked is ... else asked
    return f"open(..., limits={{{name!r}: {shown}}})"


def limits_from(value: Limits | dict[str, int] | None) -> Limits:
    """Return the limits for a Limits object, for a dict of some limits, or for None (the defaults)."""
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
    """Check a user's value for `word`: a whole number of at least `least`. Return it as a Python int.

    Raises:
        TypeError: it is not a whole number.
        ValueError: it is too small.
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

"""Limits on the memory that a file may request. Every length that a file declares is compared with the remaining bytes
and with these limits before memory is allocated."""

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
    """Upper limits for what penstock allocates for a file, in bytes unless noted.

    Example:
        >>> import penstock as ps
        >>> ps.Limits(record_bytes=4 << 30).record_bytes
        4294967296
    """

    record_bytes: int = GIB
    """The size of one record."""
    batch_bytes: int = 2 * GIB - 1
    """The bytes of one variable-length column of a batch, because Arrow has 32-bit offsets. Also limits the bytes that
    every record takes in memory, even if all its values are missing."""
    nesting: int = 100
    """Nesting depth of messages, lists, types or folders, in levels."""
    member_bytes: int = GIB
    """The inflated size of a gzip member that is inflated as a whole."""
    footer_bytes: int = 64 * MIB
    """The size of a footer or header that must be read completely (Parquet, Arrow IPC)."""
    image_pixels: int = 1 << 28
    """Pixels of an image, checked before it is decoded."""

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
            # Even a single record may exceed the limit.
            error.hint = f"{error.hint}; or {raise_limit('batch_bytes', ...)}"
            raise error


def raise_limit(name: str, asked: object) -> str:
    """A hint that shows how to raise a limit."""
    shown = "..." if asked is ... else asked
    return f"open(..., limits={{{name!r}: {shown}}})"


def limits_from(value: Limits | dict[str, int] | None) -> Limits:
    """The limits for a Limits object, a dict of some limits, or None (the defaults)."""
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
    """Check a user's value for `word`, and return it as an int. Raises TypeError if it is not a whole number, and
    ValueError if it is less than `least`."""
    number = checked_whole(word, value)
    if number < least:
        raise ValueError(f"{word} must be at least {least}, not {number}")
    return number


def checked_whole(word: str, value: Any) -> int:
    """Check a user's value for `word`, and return it as an int. Raises TypeError if it is not a whole number."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{word} is a whole number, not {value!r}")
    return number

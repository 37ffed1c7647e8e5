"""Errors for files whose fields differ from those of the other files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence

from penstock.datasets._one_set import OF_EVERY_RECORD
from penstock.errors import SchemaError

_WARNED_OF: set[tuple[str, str]] = set()
"""The folders and columns of which the program was warned."""


def has_none_of(names: Sequence[str], others: Sequence[str]) -> bool:
    """Whether a file has fields, and none of them are fields of the other files."""
    return bool(names) and not set(names) & set(others).difference(OF_EVERY_RECORD)


def none_in_common(path: str, names: Sequence[str], others: Sequence[str]) -> SchemaError:
    """The error for a file that has none of the fields of the other files."""
    return SchemaError(
        "the file has none of the fields of the other files",
        file=path,
        expected=", ".join(others[:5]),
        found=", ".join(names[:5]),
        hint="open(..., schema=...) with the fields of all files, or open each kind of file separately",
    )


def refuse_left_out(path: str, names: Sequence[str], others: Sequence[str]) -> None:
    """Raise SchemaError if a file stores fields that the dataset does not have, so that they would be lost."""
    known = set(others)
    found = [name for name in names if name not in known]
    if found:
        raise SchemaError(
            "the file has this column, but the first file does not, so it would be lost",
            file=path,
            field=found[0],
            expected=", ".join(others[:5]),
            found=", ".join(names[:5]),
            hint='open(..., infer_records="all") for the columns of all files, or name the columns to keep with columns=',
        )


def warn_of_left_out(path: str, names: Sequence[str], others: Sequence[str]) -> None:
    """Warn, once for a column of the files in a folder, that it is left out because the first file does not have it."""
    known = set(others)
    found = next((name for name in names if name not in known), None)
    key = os.path.dirname(path), found or ""
    if found is not None and key not in _WARNED_OF:
        _WARNED_OF.add(key)
        warnings.warn(
            f"{path}: the file has the column {found!r}, which is left out, because the first file has no such column; "
            'open(..., infer_records="all") reads it',
            stacklevel=2,
        )

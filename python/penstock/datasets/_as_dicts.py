"""Converts a batch to records: dicts of Python values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.columns.casts import in_microseconds
from penstock.columns.records import rows_of
from penstock.errors import SchemaError


def dicts_of(batch: pa.RecordBatch, has_tensors: bool, file: str | None) -> list[dict[str, Any]]:
    """The records of a batch as dicts of Python values, with tensors as NumPy arrays.

    Raises:
        SchemaError: a record holds a value that Python cannot express. `file` is for this error.
    """
    try:
        given = batch.columns
        columns = [in_microseconds(column) for column in given]
        if any(made is not one for made, one in zip(columns, given, strict=True)):
            batch = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
        return rows_of(batch) if has_tensors else batch.to_pylist()
    except (ValueError, OverflowError, LookupError) as error:
        # Examples: two equal names in a struct, a year after 9999, an unknown time zone.
        raise SchemaError(
            f"a record holds a value that Python cannot express: {error}",
            file=file,
            field=_unconvertible(batch),
            hint="take or scan, which return it as Arrow",
        ) from error


def _unconvertible(batch: pa.RecordBatch) -> str | None:
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            column.to_pylist()
        except (ValueError, OverflowError, LookupError):
            return name
    return None

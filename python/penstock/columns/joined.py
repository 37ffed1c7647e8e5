"""Joins batches and selects rows. A result that is too large for Arrow's 32-bit offsets raises LimitError."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.errors import LimitError, batch_limit

_OVERFLOWS = (
    "offset overflow",
    "overflowed binary array capacity",
    "input array too large",
    "array cannot contain more than",
    "too large for 32-bit",
)
"""Parts of pyarrow's messages for columns larger than 2 GiB, for which it has no exception type."""


def outgrown(error: Exception) -> LimitError | None:
    """The LimitError for a pyarrow error about a batch that is too large; None for other errors."""
    text = str(error).lower()
    if not any(words in text for words in _OVERFLOWS):
        return None
    return batch_limit("a column of the batch takes more than 2 GiB, the limit of Arrow's offsets")


def join(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Join batches of the same schema into one. Raises LimitError if a column would take more than 2 GiB."""
    if len(batches) == 1:
        return batches[0]
    if not batches[0].num_columns:
        total = sum(batch.num_rows for batch in batches)
        return pa.RecordBatch.from_struct_array(pa.array([{}] * total, pa.struct([])))
    try:
        return pa.concat_batches(batches)
    except pa.ArrowException as error:
        raise outgrown(error) or error from None


def picked(batch: pa.RecordBatch, rows: pa.Array) -> pa.RecordBatch:
    """Rows of a batch in the requested order. Raises LimitError if a column would take more than 2 GiB."""
    try:
        return batch.take(rows)
    except pa.ArrowInvalid as error:
        raise outgrown(error) or error from None

"""JAX stores 64-bit integers in 32 bits unless it is told not to, and larger numbers wrap around without a word."""

from __future__ import annotations

import jax
import numpy as np

from penstock.errors import SchemaError


def check_fits(column: str, array: np.ndarray) -> None:
    """Raise SchemaError if an integer does not fit the type in which JAX stores it."""
    if array.dtype.kind not in "iu" or array.dtype.itemsize < 8 or not array.size:
        return
    stored = jax.dtypes.canonicalize_dtype(array.dtype)
    limits = np.iinfo(stored)
    for value in (int(array.min()), int(array.max())):
        if not limits.min <= value <= limits.max:
            raise SchemaError(
                f"a number does not fit {stored}, in which JAX stores {array.dtype}",
                field=column,
                expected=f"from {limits.min} to {limits.max}",
                found=value,
                hint='jax.config.update("jax_enable_x64", True), or leave the column out with columns=',
            )

"""The boundaries of documents in packed rows, for attention kernels that take rows of any length."""

from __future__ import annotations

from typing import Any

import numpy as np


def cu_seqlens(document: Any) -> np.ndarray:
    """Return where the documents of packed rows begin and end if all rows are joined to one, int32[documents + 1]. Kernels
    such as FlashAttention's `flash_attn_varlen_func` and Transformer Engine's call this `cu_seqlens`.

    Call it in `map` of a Loader, or on a batch. Padding at the end of a row counts as a document of its own, so that the
    last number is that of all tokens. The longest document, `max_seqlen`, is `np.diff(cu_seqlens).max()`.

    Args:
        document: the column `document` of `packed` or `pieces`, int[rows, length], or that of one row.

    Raises:
        TypeError: it is not an array of integers of one or two dimensions.

    Example:
        >>> import penstock as ps
        >>> ps.cu_seqlens([[1, 1, 1, 2, 2], [1, 1, 2, 0, 0]])
        array([ 0,  3,  5,  7,  8, 10], dtype=int32)
    """
    rows = np.asarray(document)
    if rows.ndim not in (1, 2) or rows.dtype.kind not in "iu":
        raise TypeError(
            "cu_seqlens takes the column `document` of packed rows, integers of shape [rows, length],"
            f" not {rows.dtype}{list(rows.shape)}"
        )
    flat = rows.reshape(-1)
    is_first = np.ones(len(flat), bool)
    is_first[1:] = flat[1:] != flat[:-1]
    is_first[:: max(rows.shape[-1], 1)] = True
    return np.append(np.flatnonzero(is_first), len(flat)).astype(np.int32)

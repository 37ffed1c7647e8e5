"""The source of all randomness: 64-bit keys computed from numbers, and permutations chosen by keys.

Nothing here has state. The key for (seed, epoch, …) is the same on every machine and in every version.
"""

from __future__ import annotations

import hashlib
import operator
from enum import IntEnum
from typing import Any

import numpy as np

from penstock import _core
from penstock.columns.numbers import as_arrow, as_numpy

_END = 1 << 64


class Draw(IntEnum):
    """The purposes of random draws. Different numbers make draws with the same seed independent."""

    RECORDS = 0
    CHUNKS = 1
    WINDOWS = 2
    BUFFERS = 3
    SHARDS = 4
    SETS = 5
    WEIGHTS = 6
    CLASSES = 7
    SPLITS = 8
    SAMPLES = 9


def checked_seed(seed: Any) -> int:
    """Check a seed, and return it as a Python int from 0 to 2^64 - 1."""
    try:
        number = operator.index(seed)
    except TypeError:
        raise TypeError(f"a seed is an integer, not {type(seed).__name__}") from None
    if not 0 <= number < _END:
        raise ValueError(f"a seed is from 0 to 2**64 - 1, not {number}: try seed % 2**64")
    return number


def checked_epoch(epoch: Any) -> int:
    """Check an epoch, and return it as a Python int from 0 to 2^64 - 1."""
    number = operator.index(epoch)
    if not 0 <= number < _END:
        raise ValueError(f"epochs count from 0, and {number} is not an epoch")
    return number


def permuted(
    num_records: int, seed: int, epoch: int, what: int, start: int, stop: int
) -> np.ndarray:
    """The numbers at positions start to stop of a permutation of 0 to num_records - 1, as int64[stop - start].

    `seed`, `epoch` and `what` choose the permutation. `num_records` is at most 2^63 - 1.

    Example:
        >>> permuted(10, 0, 0, Draw.RECORDS, 4, 7)
        array([8, 9, 5])
    """
    key = _core.key_of([seed, epoch])
    return as_numpy(_core.permuted(num_records, key, what, start, stop))


def record_keys(seed: int, epoch: int, records: np.ndarray) -> np.ndarray:
    """A 64-bit key for each record, uint64[n]. The record's augmentation may depend only on this key.

    `seed` and `epoch` are from 0 to 2^64 - 1, `records` is int64[n] or uint64[n].

    Example:
        >>> record_keys(0, 0, np.array([7, 8, 7]))[[0, 2]] == _core.key_of([0, 0, 7])
        array([ True,  True])
    """
    return as_numpy(_core.record_keys(seed, epoch, as_arrow(records)))


def digest(array: np.ndarray) -> str:
    """A hash of the type, shape and values of an array, for a spec."""
    data = np.ascontiguousarray(array)
    data = data.astype(data.dtype.newbyteorder("<"), copy=False)
    head = f"{data.dtype.str} {data.shape} ".encode()
    return hashlib.sha256(head + data.tobytes()).hexdigest()[:32]

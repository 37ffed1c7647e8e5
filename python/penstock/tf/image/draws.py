"""What the random operations on images draw: numbers spread evenly, by an operation's seed."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from penstock.tf import random
from penstock.tf.random import Philox, op_seeds
from penstock.tf.tensor import Tensor

_BLOCK = 4
_RESERVED = 64
"""Blocks that TensorFlow sets aside for each number, lest two operations ever share one."""


class _Streams:
    """Where the stream of each pair of seeds stands: an operation goes on where the last one of the
    same seeds ended, until the program's seed is set anew."""

    lock = threading.Lock()
    program: Any = None
    at: dict[tuple[int, int], int] = {}


def _bits(count: int, pair: tuple[int, int]) -> np.ndarray:
    with _Streams.lock:
        if _Streams.program is not random._Global.draws:  # noqa: SLF001 -- set_seed makes it anew
            _Streams.program, _Streams.at = random._Global.draws, {}  # noqa: SLF001
        block = _Streams.at.get(pair, 0)
        _Streams.at[pair] = block + count * _RESERVED
    stream = Philox(*pair)
    stream._next = block * _BLOCK  # noqa: SLF001
    return stream.take(count)


def uniform(low: float, high: float, seed: int | None, shape: tuple[int, ...] = ()) -> Any:
    """float32 numbers from `low` to below `high`, the next ones of the operation's seed."""
    bits = _bits(int(np.prod(shape)), op_seeds(seed))
    made = ((bits & np.uint32(0x7FFFFF)) | np.uint32(0x3F800000)).view(np.float32) - np.float32(1)
    low_, high_ = np.float32(low), np.float32(high)
    return (made * (high_ - low_) + low_).reshape(shape)


def integers(low: int, high: int, seed: int | None, shape: tuple[int, ...] = ()) -> Any:
    """Whole numbers from `low` to below `high`, the next ones of the operation's seed."""
    bits = _bits(int(np.prod(shape)), op_seeds(seed)).astype(np.int64)
    return (low + bits % (high - low)).reshape(shape)


def stateless(low: float, high: float, seed: Any, shape: tuple[int, ...] = ()) -> Any:
    """float32 numbers from `low` to below `high`, those of two seeds."""
    return random.stateless_uniform(shape, seed, low, high).view(np.ndarray)


def stateless_integers(low: int, high: int, seed: Any, shape: tuple[int, ...] = ()) -> Any:
    """Whole numbers from `low` to below `high`, those of two seeds."""
    found: Tensor = random.stateless_uniform(shape, seed, low, high, "int32")
    return found.view(np.ndarray).astype(np.int64)

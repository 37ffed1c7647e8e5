"""The uniform random numbers of operations on images, drawn from an operation's seed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.tf.random import stateless_uniform
from penstock.tf.seeds import next_words
from penstock.tf.tensor import Tensor

_RESERVED = 256
"""The number of blocks that TensorFlow reserves for each number, so that no two operations share one."""


def _next(kind: str, shape: tuple[int, ...], seed: int | None) -> np.ndarray:
    count = math.prod(shape)
    return next_words(kind, count, seed, count * _RESERVED).reshape(shape)


def uniform(low: float, high: float, seed: int | None, shape: tuple[int, ...] = ()) -> Any:
    """The next float32 numbers of the operation's seed, from `low` to below `high`."""
    bits = _next("floats", shape, seed)
    made = (bits & np.uint32(0x7FFFFF)).astype(np.float32) * np.float32(2**-23)
    return made * (np.float32(high) - np.float32(low)) + np.float32(low)


def integers(low: int, high: int, seed: int | None, shape: tuple[int, ...] = ()) -> Any:
    """The next integers of the operation's seed, from `low` to below `high`."""
    return low + _next("integers", shape, seed).astype(np.int64) % (high - low)


def stateless_words(count: int, seed: Any) -> np.ndarray:
    """The first 32-bit numbers for a seed of two numbers."""
    return stateless_uniform([count], seed, 0, 1 << 32, "uint32").view(np.ndarray)


def stateless(low: float, high: float, seed: Any, shape: tuple[int, ...] = ()) -> Any:
    """float32 numbers for a seed of two numbers, from `low` to below `high`."""
    return stateless_uniform(shape, seed, low, high).view(np.ndarray)


def stateless_integers(low: int, high: int, seed: Any, shape: tuple[int, ...] = ()) -> Any:
    """Integers for a seed of two numbers, from `low` to below `high`."""
    found: Tensor = stateless_uniform(shape, seed, low, high, "int32")
    return found.view(np.ndarray).astype(np.int64)

"""What the random operations on images draw: numbers spread evenly, by an operation's seed."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import numpy as np

from penstock.tf.random import (
    _Global,  # pyright: ignore[reportPrivateUsage]
    op_seeds,
    philox_blocks,
    stateless_uniform,
)
from penstock.tf.random import words as halves
from penstock.tf.tensor import Tensor

_BLOCK = 4
_RESERVED = 256
"""Blocks that TensorFlow sets aside for each number, lest two operations ever share one."""


class _Streams:
    """Where the stream of each pair of seeds stands: an operation goes on where the last one of the
    same seeds ended, until the program's seed is set anew."""

    lock = threading.Lock()
    program: Any = None
    at: ClassVar[dict[tuple[str, int, int], int]] = {}


def words(kind: str, count: int, seed: int | None, blocks: int) -> np.ndarray:
    """The next 32-bit numbers of a kind of operation and its seed, which use up so many blocks of four."""
    pair = op_seeds(seed)
    # It is made anew when the program's seed is set.
    program = _Global.draws
    with _Streams.lock:
        if _Streams.program is not program:
            _Streams.program, _Streams.at = program, {}
        block = _Streams.at.get((kind, *pair), 0)
        if seed is not None:
            _Streams.at[(kind, *pair)] = block + blocks
    key, high = halves(pair[0]), halves(pair[1])
    numbers = np.arange(block, block - (-count // _BLOCK), dtype=np.uint64)
    counters = [numbers & np.uint64(0xFFFFFFFF), numbers >> np.uint64(32), *high]
    return philox_blocks(counters, key).reshape(-1)[:count]


def _next(kind: str, shape: tuple[int, ...], seed: int | None) -> np.ndarray:
    count = int(np.prod(shape))
    return words(kind, count, seed, count * _RESERVED).reshape(shape)


def uniform(low: float, high: float, seed: int | None, shape: tuple[int, ...] = ()) -> Any:
    """float32 numbers from `low` to below `high`, the next ones of the operation's seed."""
    bits = _next("floats", shape, seed)
    made = ((bits & np.uint32(0x7FFFFF)) | np.uint32(0x3F800000)).view(np.float32) - np.float32(1)
    return made * (np.float32(high) - np.float32(low)) + np.float32(low)


def integers(low: int, high: int, seed: int | None, shape: tuple[int, ...] = ()) -> Any:
    """Whole numbers from `low` to below `high`, the next ones of the operation's seed."""
    return low + _next("integers", shape, seed).astype(np.int64) % (high - low)


def stateless_words(count: int, seed: Any) -> np.ndarray:
    """The first 32-bit numbers of two seeds."""
    return stateless_uniform([count], seed, 0, 1 << 32, "uint32").view(np.ndarray)


def stateless(low: float, high: float, seed: Any, shape: tuple[int, ...] = ()) -> Any:
    """float32 numbers from `low` to below `high`, those of two seeds."""
    return stateless_uniform(shape, seed, low, high).view(np.ndarray)


def stateless_integers(low: int, high: int, seed: Any, shape: tuple[int, ...] = ()) -> Any:
    """Whole numbers from `low` to below `high`, those of two seeds."""
    found: Tensor = stateless_uniform(shape, seed, low, high, "int32")
    return found.view(np.ndarray).astype(np.int64)

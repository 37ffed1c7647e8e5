"""Converts random bits to numbers of a uniform or normal distribution, as TensorFlow does."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.tf.dtypes import DType
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.tensor import Tensor

Take = Callable[[int], np.ndarray]
"""A function that returns the requested number of 32-bit numbers. It is called once."""
_GROUP = 4
_LEAST = 1e-7
_FARTHEST = 2.0


def sizes(shape: Any) -> list[int]:
    """Convert a shape, list or tensor to a list of sizes."""
    return [int(size) for size in np.asarray(shape, np.int64).reshape(-1)]


def uniform(take: Take, shape: list[int], low: Any, high: Any, kind: DType) -> Tensor:
    """Numbers from `low` to below `high`.

    Raises:
        ValueError: integers without `high`; an unsupported dtype.
        InvalidArgumentError: `low` is not below `high`.
    """
    count = math.prod(shape)
    if not kind.is_integer:
        made = _fractions(take, count, kind).reshape(shape)
        least, most = _as(0 if low is None else low, made), _as(1 if high is None else high, made)
        return np.asarray(made * (most - least) + least).view(Tensor)
    if (high is None) != (low is None):
        raise ValueError(f"Must specify maxval for integer dtype {kind.name!r}")
    if kind.size == np.dtype(np.int64).itemsize:
        bits = take(2 * count).astype(np.uint64)
        bits = bits[::2] | bits[1::2] << np.uint64(32)
    elif kind.size == np.dtype(np.int32).itemsize:
        bits = take(count).astype(np.uint64)
    else:
        raise ValueError(f"random integers are of 32 or 64 bits, not {kind.name}")
    if low is None or high is None:
        return bits.astype(kind.dtype).reshape(shape).view(Tensor)
    least, most = int(low), int(high)
    if least >= most:
        raise InvalidArgumentError(None, None, f"Need minval < maxval, got {least} >= {most}")
    offsets = bits % np.uint64(most - least)
    return (offsets + np.uint64(least % (1 << 64))).astype(kind.dtype).reshape(shape).view(Tensor)


def normal(take: Take, shape: list[int], mean: Any, stddev: Any, kind: DType) -> Tensor:
    """Normal numbers around `mean`."""
    count = math.prod(shape)
    if kind.name == "float64":
        words = take(-(-count // 2) * _GROUP).reshape(-1, _GROUP)
        first, second = doubles(words[:, 0], words[:, 1]), doubles(words[:, 2], words[:, 3])
    else:
        words = take(-(-count // _GROUP) * _GROUP)
        first, second = _floats(words[::2]), _floats(words[1::2])
    made = _box_muller(first, second).reshape(-1)[:count].astype(kind.dtype).reshape(shape)
    return np.asarray(made * _as(stddev, made) + _as(mean, made)).view(Tensor)


def truncated(words: np.ndarray, shape: list[int], mean: Any, stddev: Any, kind: DType) -> Tensor:
    """Like `normal`. Each row of words gives four numbers within two standard deviations."""
    numbers = _box_muller(_floats(words[:, ::2]), _floats(words[:, 1::2])).reshape(len(words), -1)
    rows = [row[np.abs(row) < _FARTHEST][:_GROUP] for row in numbers]
    flat = np.concatenate(rows) if rows else np.empty(0)
    made = flat[: math.prod(shape)].astype(kind.dtype).reshape(shape)
    return np.asarray(made * _as(stddev, made) + _as(mean, made)).view(Tensor)


def _as(value: Any, beside: np.ndarray) -> np.ndarray:
    return np.asarray(value, beside.dtype)


def _fractions(take: Take, count: int, kind: DType) -> np.ndarray:
    """Numbers from 0 to below 1 with a random mantissa."""
    if kind.name == "float64":
        words = take(2 * count)
        return doubles(words[::2], words[1::2])
    if kind.name == "float32":
        return _floats(take(count))
    if kind.name == "float16":
        bits = (take(count) & np.uint32(0x3FF)) | np.uint32(0x3C00)
        return bits.astype(np.uint16).view(np.float16) - np.float16(1)
    raise ValueError(f"random numbers are float16, float32, float64, int32 or int64, not {kind}")


def _floats(words: np.ndarray) -> np.ndarray:
    bits = (words & np.uint32(0x7FFFFF)) | np.uint32(0x3F800000)
    return bits.view(np.float32) - np.float32(1)


def doubles(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Numbers from 0 to below 1, each from two words."""
    mantissa = (high.astype(np.uint64) & np.uint64(0xFFFFF)) << np.uint64(32) | low
    return (mantissa | np.uint64(1023 << 52)).view(np.float64) - 1.0


def _box_muller(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Pairs of normal numbers from pairs of uniform numbers."""
    kind = first.dtype.type
    angle = kind(2 * math.pi) * second
    far = np.sqrt(kind(-2) * np.log(np.maximum(first, kind(_LEAST))))
    return np.stack([np.sin(angle) * far, np.cos(angle) * far], axis=-1)

"""TensorFlow's random numbers, the same for the same seeds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import penstock.tf.distributions as distributions  # noqa: PLR0402 -- the package imports this
from penstock.tf.dtypes import as_dtype
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.generators import Generator, get_global_generator, set_global_generator
from penstock.tf.missing import Space, absent_from
from penstock.tf.seeds import (
    BLOCK,
    LOW,
    RESERVED,
    next_words,
    one_block,
    philox_blocks,
    set_seed,
    words,
)
from penstock.tf.tensor import Tensor, convert_to_tensor

__all__ = [
    "Generator",
    "categorical",
    "experimental",
    "get_global_generator",
    "normal",
    "set_global_generator",
    "set_seed",
    "shuffle",
    "split",
    "stateless_normal",
    "stateless_uniform",
    "truncated_normal",
    "uniform",
]

_STATELESS_KEY = 0x3EC8F720, 0x02461E29


def uniform(
    shape: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = "float32",
    seed: Any = None,
    name: str | None = None,
) -> Tensor:
    """Uniform random numbers. If a seed is set, they are those of TensorFlow in eager mode.

    Args:
        shape: the shape of the result.
        minval, maxval: numbers are at least minval and less than maxval; 0 and 1 for floats.
        dtype: float16, float32, float64, int32 or int64.
        seed (int): the seed of this operation; `tf.random.set_seed` sets the program's.
        name: ignored.

    Returns:
        Tensor of the shape and dtype.

    Raises:
        ValueError: no maxval for integers, or a dtype that is not there.
        InvalidArgumentError: minval is not below maxval.

    Example:
        >>> import penstock.tf as tf
        >>> tf.random.set_seed(1)
        >>> tf.random.uniform([2], 1, 7, tf.int32).numpy().tolist()
        [1, 4]
        >>> tf.random.set_seed(None)
    """
    kind, sizes = as_dtype(dtype), distributions.sizes(shape)
    count = math.prod(sizes)

    def take(number: int) -> np.ndarray:
        return next_words(f"uniform {kind.name}", number, seed, count * RESERVED)

    return distributions.uniform(take, sizes, minval, maxval, kind)


def normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = "float32",
    seed: Any = None,
    name: str | None = None,
) -> Tensor:
    """Normal random numbers. If a seed is set, they are those of TensorFlow in eager mode, except for rounding.

    Args:
        shape: the shape of the result.
        mean, stddev: the mean and the standard deviation.
        dtype: float16, float32 or float64.
        seed, name: as for `uniform`.

    Returns:
        Tensor of the shape and dtype.
    """
    kind, sizes = as_dtype(dtype), distributions.sizes(shape)
    blocks = math.prod(sizes) * RESERVED

    def take(number: int) -> np.ndarray:
        return next_words(f"normal {kind.name}", number, seed, blocks)

    return distributions.normal(take, sizes, mean, stddev, kind)


def truncated_normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = "float32",
    seed: Any = None,
    name: str | None = None,
) -> Tensor:
    """Like `normal`, but without numbers that are more than two standard deviations from the mean."""
    kind, sizes = as_dtype(dtype), distributions.sizes(shape)
    count = math.prod(sizes)
    groups = -(-count // BLOCK)
    drawn = next_words("truncated", groups * RESERVED * BLOCK, seed, count * RESERVED)
    return distributions.truncated(drawn.reshape(groups, -1), sizes, mean, stddev, kind)


def shuffle(value: Any, seed: Any = None, name: str | None = None) -> Tensor:
    """The slices along the first dimension in random order.

    Args:
        value: the tensor.
        seed, name: as for `uniform`.

    Example:
        >>> import penstock.tf as tf
        >>> sorted(tf.random.shuffle([3, 1, 2]).numpy().tolist())
        [1, 2, 3]
    """
    given = convert_to_tensor(value)
    if given.ndim == 0 or len(given) < 2:
        return given
    most = len(given) - 1
    drawn = next_words("shuffle", most, seed, -(-most // BLOCK)).tolist()
    order = list(range(len(given)))
    for place in range(most):
        other = place + drawn[place] % (len(order) - place)
        order[place], order[other] = order[other], order[place]
    return given.view(np.ndarray)[order].view(Tensor)


def categorical(
    logits: Any, num_samples: Any, dtype: Any = None, seed: Any = None, name: str | None = None
) -> Tensor:
    """Random class numbers.

    Args:
        logits: the logarithms of the classes' probabilities, up to a constant, [rows, classes].
        num_samples: class numbers for each row.
        dtype: int64 or int32.
        seed, name: as for `uniform`.

    Returns:
        Tensor[rows, num_samples].

    Raises:
        InvalidArgumentError: logits of another rank.

    Example:
        >>> import penstock.tf as tf
        >>> tf.random.categorical([[0.0, float("-inf")]], 3).numpy().tolist()
        [[0, 0, 0]]
    """
    given = convert_to_tensor(logits).view(np.ndarray).astype(np.float64)
    if given.ndim != 2:
        message = f"logits should be a matrix, got shape {list(given.shape)}"
        raise InvalidArgumentError(None, None, message)
    rows, count = len(given), int(num_samples)
    blocks = rows * -(-count // BLOCK) * BLOCK * 2 * RESERVED
    drawn = next_words("categorical", 2 * rows * count, seed, blocks)
    numbers = distributions.doubles(drawn[::2], drawn[1::2]).reshape(rows, count)
    finite = np.isfinite(given)
    most = np.max(given, axis=1, keepdims=True, where=finite, initial=-np.inf)
    parts = np.exp(np.where(finite, given, -np.inf) - np.where(np.isfinite(most), most, 0))
    sums = np.cumsum(parts, axis=1)
    found = [
        np.searchsorted(row, wanted * row[-1], "right")
        for row, wanted in zip(sums, numbers, strict=True)
    ]
    kind = as_dtype(dtype or "int64").dtype
    return np.array(found, kind).reshape(rows, count).view(Tensor)


def stateless_doubles(seeds: np.ndarray) -> np.ndarray:
    """The first float64 from 0 to below 1 for each seed.

    Args:
        seeds: [n, 2] 32-bit numbers.

    Returns:
        float64[n].
    """
    made = philox_blocks([seeds[:, 0], 0, seeds[:, 1], 0], _STATELESS_KEY).astype(np.uint64)
    blocks = philox_blocks([0, 0, made[:, 2], made[:, 3]], (made[:, 0], made[:, 1]))
    return distributions.doubles(blocks[:, 0], blocks[:, 1])


def _stateless_bits(count: int, seed: Any) -> np.ndarray:
    """The 32-bit words of a seed of two numbers."""
    pair = np.asarray(seed)
    if pair.shape != (2,):
        raise InvalidArgumentError(None, None, f"seed must have shape [2], not {list(pair.shape)}")
    first, second = (int(s) & 0xFFFFFFFFFFFFFFFF for s in pair)
    m0, m1, m2, m3 = one_block((*words(first), *words(second)), _STATELESS_KEY).tolist()
    if count <= BLOCK:
        return one_block((0, 0, m2, m3), (m0, m1))[:count]
    blocks = np.arange(-(-count // 4), dtype=np.uint64)
    return philox_blocks([blocks & LOW, blocks >> np.uint64(32), m2, m3], (m0, m1)).reshape(-1)[
        :count
    ]


def stateless_uniform(
    shape: Any,
    seed: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = "float32",
    name: str | None = None,
    alg: str = "auto_select",
) -> Tensor:
    """Uniform random numbers, the same for the same seed.

    Args:
        shape: the shape of the result.
        seed: two numbers.
        minval, maxval: numbers are at least minval and less than maxval; 0 and 1 for floats; both None for
            integers over the whole range.
        dtype: float16, float32, float64, int32, int64, uint32 or uint64.
        name, alg: ignored.

    Returns:
        Tensor of the shape and dtype.

    Raises:
        ValueError: no maxval for integers, or a dtype that is not there.
        InvalidArgumentError: a seed that is not two numbers.

    Example:
        >>> import penstock.tf as tf
        >>> tf.random.stateless_uniform([2], seed=(1, 2)).numpy().round(3).tolist()
        [0.843999981880188, 0.19200000166893005]
    """

    def take(count: int) -> np.ndarray:
        return _stateless_bits(count, seed)

    return distributions.uniform(take, distributions.sizes(shape), minval, maxval, as_dtype(dtype))


def stateless_normal(
    shape: Any,
    seed: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = "float32",
    name: str | None = None,
    alg: str = "auto_select",
) -> Tensor:
    """Normal random numbers, the same for the same seed, with the arguments of `normal`."""

    def take(count: int) -> np.ndarray:
        return _stateless_bits(count, seed)

    return distributions.normal(take, distributions.sizes(shape), mean, stddev, as_dtype(dtype))


def split(seed: Any, num: int = 2, alg: str = "auto_select") -> Tensor:
    """Seeds derived from one seed.

    Args:
        seed: two numbers.
        num (int): how many.
        alg: ignored.

    Returns:
        Tensor[num, 2] of the seed's dtype.

    Example:
        >>> import penstock.tf as tf
        >>> tf.random.split([1, 2], num=3).shape
        TensorShape([3, 2])
    """
    given = convert_to_tensor(seed)
    return stateless_uniform([int(num), 2], given, None, None, given.dtype)


def fold_in(seed: Any, data: Any, alg: str = "auto_select") -> Tensor:
    """A seed derived from a seed and a number.

    Args:
        seed: two numbers.
        data: a number.
        alg: ignored.

    Returns:
        Tensor[2] of the number's dtype.

    Example:
        >>> import penstock.tf as tf
        >>> tf.random.fold_in([1, 2], 3).shape
        TensorShape([2])
    """
    number = convert_to_tensor(data)
    first = stateless_uniform([], seed, None, None, number.dtype)
    return np.stack([np.asarray(first), np.asarray(number)]).view(Tensor)


experimental = Space(
    "tf.random.experimental",
    Generator=Generator,
    stateless_fold_in=fold_in,
    stateless_split=split,
    get_global_generator=get_global_generator,
    set_global_generator=set_global_generator,
)

__getattr__ = absent_from("tf.random")

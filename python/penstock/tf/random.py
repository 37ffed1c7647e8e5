"""TensorFlow's random numbers: Philox4x32-10, and the seeds of operations.

Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011). TensorFlow uses their
generator with ten rounds; the layout of counters is TensorFlow's.
"""

from __future__ import annotations

import math
import os
import random
import threading
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

import penstock.tf.distributions as distributions  # noqa: PLR0402 -- the package imports this
from penstock.tf import graphs, probing
from penstock.tf.binding import bound
from penstock.tf.dtypes import as_dtype
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.missing import absent_from
from penstock.tf.tensor import Tensor, convert_to_tensor

_LOW = np.uint64(0xFFFFFFFF)
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_INCREMENTS = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10
_DEFAULT_SEED = 87654321
"""The global seed if only the operation has one."""
_BLOCK = 4
_RESERVED = 256
"""Blocks that TensorFlow reserves for each number, so that no two operations share one."""
_MOST = 2**31 - 1
_STATELESS_KEY = 0x3EC8F720, 0x02461E29


def philox_blocks(counters: list[Any], key: tuple[Any, Any]) -> np.ndarray:
    """Blocks of four numbers each.

    Args:
        counters: the four words of the counter, each a number or a uint64 array of n.
        key: the two words of the key, in the same form.

    Returns:
        uint32[n, 4].
    """
    c0, c1, c2, c3 = np.broadcast_arrays(*(np.asarray(c, np.uint64) for c in counters))
    low, high = key
    shift = np.uint64(32)
    for _ in range(_ROUNDS):
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (p1 >> shift) ^ c1 ^ np.uint64(low),
            p1 & _LOW,
            (p0 >> shift) ^ c3 ^ np.uint64(high),
            p0 & _LOW,
        )
        low, high = (low + _INCREMENTS[0]) & 0xFFFFFFFF, (high + _INCREMENTS[1]) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=-1).astype(np.uint32).reshape(-1, 4)


def words(number: int) -> tuple[int, int]:
    """The low and the high 32 bits of a 64-bit number."""
    return number & 0xFFFFFFFF, (number >> 32) & 0xFFFFFFFF


class Philox:
    """The sequence of 32-bit numbers for a pair of seeds.

    Example:
        >>> from penstock.tf.random import Philox
        >>> [hex(number) for number in Philox(0, 0).take(2)]
        ['0x6627e8d5', '0xe169c58d']
    """

    def __init__(self, seed: int, seed2: int) -> None:
        self._key = words(seed)
        self._high = words(seed2)
        self._next = 0

    def take(self, count: int) -> np.ndarray:
        """The next numbers, uint32[count]."""
        first, self._next = self._next, self._next + count
        blocks = np.arange(first // 4, -(-self._next // 4), dtype=np.uint64)
        counters = [blocks & _LOW, blocks >> np.uint64(32), *self._high]
        return philox_blocks(counters, self._key).reshape(-1)[first % 4 :][:count]


class _Global:
    """The program's seed, and the generator for operations without a seed of their own."""

    seed: int | None = None
    draws = random.Random()  # noqa: S311 -- the very generator that TensorFlow draws from
    lock = threading.Lock()


def set_seed(seed: int | None) -> None:
    """Set the seed of the program: operations made from now on are repeatable.

    Args:
        seed (int): any number; None: unset it.

    Example:
        >>> import penstock.tf as tf
        >>> tf.random.set_seed(1)
        >>> [int(x) for x in tf.data.Dataset.range(5).shuffle(5)]
        [1, 2, 0, 4, 3]
        >>> tf.random.set_seed(None)
    """
    with _Global.lock:
        _Global.seed = seed
        _Global.draws = random.Random(seed)  # noqa: S311


def program_seed() -> int | None:
    """The program's seed; in a function that a dataset calls, the seed when the function was given to it."""
    call = graphs.current()
    return _Global.seed if call is None else call.seed


def traceable(function: Any) -> graphs.Traced:
    """A user's function, whose random operations draw as if TensorFlow had traced it now."""
    return graphs.Traced(bound(function), program_seed())


def op_seeds(seed: Any) -> tuple[int, int]:
    """The pair of seeds of a new operation. `seed` is the operation's seed, or None."""
    own = None if seed is None else int(seed)
    if probing.is_on():
        return 1, 1
    call = graphs.current()
    program = program_seed()
    with _Global.lock:
        if program is not None:
            if own is None:
                own = _Global.draws.randint(0, _MOST) if call is None else call.own_seed()
            pair = program % _MOST, own % _MOST
        elif own is not None:
            pair = _DEFAULT_SEED, own % _MOST
        else:
            drawn = os.urandom(14)
            pair = int.from_bytes(drawn[:7], "little"), int.from_bytes(drawn[7:], "little")
    return (0, _MOST) if pair == (0, 0) else pair


class _Streams:
    """The position in the sequence of each pair of seeds: an operation continues where the last one with the same seeds
    ended, until the program's seed is set again."""

    lock = threading.Lock()
    program: Any = None
    at: ClassVar[dict[tuple[str, int, int], int]] = {}


def next_words(kind: str, count: int, seed: int | None, blocks: int) -> np.ndarray:
    """Return the next `count` 32-bit numbers for a kind of operation with a seed. They take `blocks` blocks of four."""
    if probing.is_on():
        return np.zeros(count, np.uint32)
    if seed is None and program_seed() is None:
        return np.frombuffer(
            os.urandom(4 * count), np.uint32
        )  # without seeds, each call draws new numbers
    pair = op_seeds(seed)
    key, high = words(pair[0]), words(pair[1])
    call = graphs.current()
    if call is not None:
        block = call.sequences.advance(call.operation(), blocks)
        return _from_block(count, block, key, high)
    # Replaced when the program's seed is set.
    program = _Global.draws
    with _Streams.lock:
        if _Streams.program is not program:
            _Streams.program, _Streams.at = program, {}
        block = _Streams.at.get((kind, *pair), 0)
        if seed is not None:
            _Streams.at[(kind, *pair)] = block + blocks
    return _from_block(count, block, key, high)


def _one_block(counter: tuple[int, int, int, int], key: tuple[int, int]) -> np.ndarray:
    """One block, without NumPy, which takes ten times longer for it."""
    c0, c1, c2, c3 = counter
    low, high = key
    for _ in range(_ROUNDS):
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (
            (p1 >> 32) ^ c1 ^ low,
            p1 & 0xFFFFFFFF,
            (p0 >> 32) ^ c3 ^ high,
            p0 & 0xFFFFFFFF,
        )
        low, high = (low + _INCREMENTS[0]) & 0xFFFFFFFF, (high + _INCREMENTS[1]) & 0xFFFFFFFF
    return np.array([c0, c1, c2, c3], np.uint32)


def _from_block(count: int, block: int, key: tuple[int, int], high: tuple[int, int]) -> np.ndarray:
    if count <= _BLOCK:
        return _one_block((*words(block), *high), key)[:count]
    numbers = np.arange(block, block - (-count // _BLOCK), dtype=np.uint64)
    return philox_blocks([numbers & _LOW, numbers >> np.uint64(32), *high], key).reshape(-1)[:count]


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
        return next_words(f"uniform {kind.name}", number, seed, count * _RESERVED)

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
    blocks = math.prod(sizes) * _RESERVED

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
    groups = -(-count // _BLOCK)
    drawn = next_words("truncated", groups * _RESERVED * _BLOCK, seed, count * _RESERVED)
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
    drawn = next_words("shuffle", most, seed, -(-most // _BLOCK)).tolist()
    order = list(range(len(given)))
    for place in range(most):
        other = place + drawn[place] % (len(order) - place)
        order[place], order[other] = order[other], order[place]
    return given.view(np.ndarray)[order].view(Tensor)


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
    m0, m1, m2, m3 = _one_block((*words(first), *words(second)), _STATELESS_KEY).tolist()
    if count <= _BLOCK:
        return _one_block((0, 0, m2, m3), (m0, m1))[:count]
    blocks = np.arange(-(-count // 4), dtype=np.uint64)
    return philox_blocks([blocks & _LOW, blocks >> np.uint64(32), m2, m3], (m0, m1)).reshape(-1)[
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


experimental = SimpleNamespace(stateless_split=split)

__getattr__ = absent_from("tf.random")

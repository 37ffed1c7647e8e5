"""TensorFlow's randomness: Philox4x32-10, and which seeds an operation gets.

Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011), whose
generator TensorFlow uses with ten rounds; counters are laid out as TensorFlow does.
"""

from __future__ import annotations

import os
import random
import threading
from typing import Any

import numpy as np

from penstock.tf.dtypes import as_dtype
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.shapes import TensorShape
from penstock.tf.tensor import Tensor

_LOW = np.uint64(0xFFFFFFFF)
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_INCREMENTS = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10
_DEFAULT_SEED = 87654321
"""What stands for the global seed where only an operation has one."""
_MOST = 2**31 - 1


def philox_blocks(counters: list[Any], key: tuple[int, int]) -> np.ndarray:
    """Blocks of four numbers each.

    Args:
        counters: the four words of the counter, each a number or a uint64 array of n.
        key: the two words of the key.

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
    """The low and the high 32 bits of a number of 64."""
    return number & 0xFFFFFFFF, (number >> 32) & 0xFFFFFFFF


class Philox:
    """The stream of 32-bit numbers of a pair of seeds.

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
    """The seed of the program, and what operations without one of their own draw from it."""

    seed: int | None = None
    draws = random.Random()  # noqa: S311 -- the very generator that TensorFlow draws from
    lock = threading.Lock()


def set_seed(seed: int | None) -> None:
    """Set the seed of the program: operations made from now on are repeatable.

    Args:
        seed (int): any number; None: as if none had been set.

    Example:
        >>> import penstock.tf as tf
        >>> tf.random.set_seed(1)
        >>> [int(x) for x in tf.data.Dataset.range(5).shuffle(5)]
        [2, 1, 3, 4, 0]
        >>> tf.random.set_seed(None)
    """
    with _Global.lock:
        _Global.seed = seed
        _Global.draws = random.Random(seed)  # noqa: S311


def op_seeds(seed: Any) -> tuple[int, int]:
    """The pair of seeds of one new operation, of which `seed` is its own, or None."""
    own = None if seed is None else int(seed)
    with _Global.lock:
        if _Global.seed is not None:
            drawn = _Global.draws.randint(0, _MOST) if own is None else own
            pair = _Global.seed % _MOST, drawn % _MOST
        elif own is not None:
            pair = _DEFAULT_SEED, own % _MOST
        else:
            pair = int.from_bytes(os.urandom(7), "little"), int.from_bytes(os.urandom(7), "little")
    return (0, _MOST) if pair == (0, 0) else pair


def _stateless_bits(count: int, seed: Any) -> np.ndarray:
    """The 32-bit numbers that a seed of two numbers stands for."""
    pair = np.asarray(seed)
    if pair.shape != (2,):
        raise InvalidArgumentError(None, None, f"seed must have shape [2], not {list(pair.shape)}")
    first, second = (int(s) & 0xFFFFFFFFFFFFFFFF for s in pair)
    ((m0, m1, m2, m3),) = philox_blocks(
        [*words(first), *words(second)], (0x3EC8F720, 0x02461E29)
    ).tolist()
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
    """Numbers spread evenly, the same for the same seed.

    Args:
        shape: of the result.
        seed: two numbers.
        minval, maxval: the least number, and the first beyond the greatest; 0 and 1 for floats.
        dtype: float32, float64, int32 or uint32.
        name, alg: no meaning here.

    Returns:
        Tensor of the shape and dtype.

    Raises:
        ValueError: no maxval for integers, or a dtype that is not there.
        InvalidArgumentError: a seed that is no two numbers.

    Example:
        >>> import penstock.tf as tf
        >>> tf.random.stateless_uniform([2], seed=(1, 2)).numpy().round(3).tolist()
        [0.8439999818801880, 0.19200000166893005]
    """
    kind = as_dtype(dtype)
    sizes = tuple(TensorShape(shape).as_list())
    count = int(np.prod(sizes, dtype=np.int64))
    if kind.name in ("int32", "uint32"):
        if maxval is None:
            raise ValueError(f"Must specify maxval for integer dtype {kind.name!r}")
        low, high = int(minval), int(maxval)
        if low >= high:
            raise InvalidArgumentError(None, None, f"Need minval < maxval, got {low} >= {high}")
        bits = _stateless_bits(count, seed).astype(np.int64)
        return (low + bits % (high - low)).astype(kind.dtype).reshape(sizes).view(Tensor)
    if kind.name == "float32":
        bits = _stateless_bits(count, seed)
        made = ((bits & np.uint32(0x7FFFFF)) | np.uint32(0x3F800000)).view(np.float32)
        made = made - np.float32(1)
    elif kind.name == "float64":
        pairs = _stateless_bits(2 * count, seed).astype(np.uint64).reshape(-1, 2)
        mantissa = ((pairs[:, 0] & np.uint64(0xFFFFF)) << np.uint64(32)) | pairs[:, 1]
        made = (mantissa | np.uint64(1023 << 52)).view(np.float64) - 1.0
    else:
        raise ValueError(f"stateless_uniform makes float32, float64, int32 and uint32, not {kind}")
    low, high = made.dtype.type(minval), made.dtype.type(1 if maxval is None else maxval)
    return (made * (high - low) + low).reshape(sizes).view(Tensor)

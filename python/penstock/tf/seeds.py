"""The numbers behind TensorFlow's random operations: Philox4x32-10, and the seeds of operations.

Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011). TensorFlow uses their
generator with ten rounds; the layout of counters is TensorFlow's.
"""

from __future__ import annotations

import os
import random
import threading
from typing import Any, ClassVar

import numpy as np

from penstock.tf import graphs, probing
from penstock.tf.backend_tensors import refuse_drawing
from penstock.tf.binding import bound

LOW = np.uint64(0xFFFFFFFF)
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_INCREMENTS = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10
_DEFAULT_SEED = 87654321
"""The global seed if only the operation has one."""
BLOCK = 4
RESERVED = 256
"""Blocks that TensorFlow reserves for each number, so that no two operations share one."""
_MOST = 2**31 - 1


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
            p1 & LOW,
            (p0 >> shift) ^ c3 ^ np.uint64(high),
            p0 & LOW,
        )
        low, high = (low + _INCREMENTS[0]) & 0xFFFFFFFF, (high + _INCREMENTS[1]) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=-1).astype(np.uint32).reshape(-1, 4)


def words(number: int) -> tuple[int, int]:
    """The low and the high 32 bits of a 64-bit number."""
    return number & 0xFFFFFFFF, (number >> 32) & 0xFFFFFFFF


class Philox:
    """The sequence of 32-bit numbers for a pair of seeds.

    Example:
        >>> from penstock.tf.seeds import Philox
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
        counters = [blocks & LOW, blocks >> np.uint64(32), *self._high]
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
    probing.refuse_recording()
    if probing.is_on():
        return 1, 1
    call, program = graphs.current(), program_seed()
    own = None if seed is None else int(seed)
    if call is not None and program is not None:
        own = call.operation(own)[1]
    return _pair(own, program)


def _pair(own: int | None, program: int | None) -> tuple[int, int]:
    """The pair of seeds for those of an operation and the program."""
    with _Global.lock:
        if program is not None:
            drawn = _Global.draws.randint(0, _MOST) if own is None else own
            pair = program % _MOST, drawn % _MOST
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
    probing.refuse_recording()
    if probing.is_on():
        return probing.words(count)
    call = graphs.current()
    if call is None:
        refuse_drawing()
    if seed is None and program_seed() is None:
        return fresh_words(count)  # without seeds, each call draws new numbers
    if call is None:
        pair = op_seeds(seed)
        block = _advanced((kind, *pair), 0 if seed is None else blocks)
    else:
        operation, own = call.operation(None if seed is None else int(seed))
        pair = _pair(own, call.seed)
        block = call.sequences.advance(operation, blocks)
    return from_block(count, block, words(pair[0]), words(pair[1]))


def _advanced(stream: tuple[str, int, int], blocks: int) -> int:
    """The position of the operations with the same seeds, which then moves by a number of blocks."""
    # Replaced when the program's seed is set.
    program = _Global.draws
    with _Streams.lock:
        if _Streams.program is not program:
            _Streams.program, _Streams.at = program, {}
        block = _Streams.at.get(stream, 0)
        if blocks:
            _Streams.at[stream] = block + blocks
    return block


def one_block(counter: tuple[int, int, int, int], key: tuple[int, int]) -> np.ndarray:
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


def from_block(count: int, block: int, key: tuple[int, int], high: tuple[int, int]) -> np.ndarray:
    """32-bit numbers from the block with a number."""
    if count <= BLOCK:
        return one_block((*words(block), *high), key)[:count]
    numbers = np.arange(block, block - (-count // BLOCK), dtype=np.uint64)
    return philox_blocks([numbers & LOW, numbers >> np.uint64(32), *high], key).reshape(-1)[:count]


def philox_at(count: int, low: int, high: int, key: int) -> np.ndarray:
    """32-bit numbers from a counter, given as two 64-bit words, and a key."""
    numbers = np.arange(-(-count // BLOCK), dtype=np.uint64) + np.uint64(low)
    return philox_blocks(
        [numbers & LOW, numbers >> np.uint64(32), *words(high)], words(key)
    ).reshape(-1)[:count]


def fresh_words(count: int) -> np.ndarray:
    """32-bit numbers that no seed determines."""
    return np.frombuffer(os.urandom(4 * count), np.uint32)

"""The orders of pipelines without an index: interleaved shards, and a shuffle buffer.

They match `interleave` and `shuffle` of tf.data, and the shuffles of WebDataset, but are functions of the position. So
resuming in the middle of an epoch does not repeat the earlier positions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock import _core
from penstock.columns.numbers import as_numpy
from penstock.limits import checked_count
from penstock.orders._order import (
    EachOnce,
    Recent,
    checked_lengths,
    checked_records,
    checked_span,
    settle,
)
from penstock.orders.keys import Draw, checked_seed, digest, permuted


class _Turns:
    """The turns of one epoch, as a table of stretches in which the same shards take turns.

    A stretch has its first position, the number of records that a shard yields in a turn, and the next record of each
    shard. A stretch ends only when a shard ends or begins, so there are only a few stretches for each shard.
    """

    def __init__(self, shards: list[tuple[int, int]], cycle: int, block: int) -> None:
        self._block = block
        self._stretches: list[tuple[int, int, int, int]] = []
        self._records: list[int] = []
        self._position = 0
        waiting = deque(shards)
        # For each slot, [next record, records left] of its shard; None if the slot is free.
        slots: list[list[int] | None] = [None] * cycle
        while waiting or any(slots):
            shards_open = [slot for slot in slots if slot is not None]
            rounds = min((left for _, left in shards_open), default=0) // block
            if rounds and (len(shards_open) == cycle or not waiting):
                self._add([first for first, _ in shards_open], block, rounds)
                for shard in shards_open:
                    shard[0] += rounds * block
                    shard[1] -= rounds * block
            else:
                self._one_round(slots, waiting)
        self._stretches.append((self._position, 1, 1, 0))
        self._table = np.array(self._stretches, np.int64)
        self._firsts = np.array(self._records, np.int64)

    def _one_round(self, slots: list[list[int] | None], waiting: deque[tuple[int, int]]) -> None:
        """Add one turn of each slot, in which shards may end and begin."""
        for number, slot in enumerate(slots):
            if slot is None and waiting:
                slot = list(waiting.popleft())
            if slot is None:
                continue
            given = min(self._block, slot[1])
            if given:
                self._add([slot[0]], given, 1)
            slot[0] += given
            slot[1] -= given
            # As in tf.data, a shard whose last turn was complete is found to be empty only at its next turn.
            slots[number] = slot if given == self._block else None

    def _add(self, firsts: list[int], block: int, rounds: int) -> None:
        self._stretches.append((self._position, block, len(firsts), len(self._records)))
        self._records.extend(firsts)
        self._position += block * len(firsts) * rounds

    def at(self, positions: np.ndarray) -> np.ndarray:
        stretch = np.searchsorted(self._table[:, 0], positions, side="right") - 1
        start, block, num_shards, firsts = self._table[stretch].T
        turn, within = np.divmod(positions - start, block)
        round_, shard = np.divmod(turn, num_shards)
        return self._firsts[firsts + shard] + round_ * block + within


@dataclass(frozen=True)
class Interleaved(EachOnce):
    """Shards read in turns: `block_length` records from each of `cycle_length` open shards.

    This is exactly the order of tf.data's `interleave(cycle_length, block_length)`. When a shard ends, the next shard
    takes its place. Only the order of the shards is shuffled. To match pipelines of tf.data and WebDataset, combine it
    with `Buffered`. The start of an epoch takes about 5 microseconds for each shard and each slot of the cycle.

    Args:
        cycle_length: how many shards are open.
        block_length: how many records a shard yields in a turn.
        seed: shuffles the order of the shards, differently in each epoch; None keeps their order.
        shard_lengths: the number of records in each shard, if not passed to `take`.

    Example:
        >>> import penstock as ps
        >>> ps.Interleaved(2, 1, shard_lengths=[3, 3]).take(6, 0, 0, 6)
        array([0, 3, 1, 4, 2, 5])
    """

    cycle_length: int = 16
    block_length: int = 1
    seed: int | None = None
    shard_lengths: Sequence[int] | None = None
    _recent: Recent[_Turns] = field(default_factory=Recent, init=False, repr=False, compare=False)

    layout = "shard_lengths"

    def __post_init__(self) -> None:
        for name in ("cycle_length", "block_length"):
            checked_count(name, getattr(self, name), 1)
        if self.seed is not None:
            settle(self, seed=checked_seed(self.seed))
        if self.shard_lengths is not None:
            settle(self, shard_lengths=tuple(map(checked_records, self.shard_lengths)))

    def at(
        self, num_records: int, epoch: int, positions: np.ndarray, shard_lengths: Any = None
    ) -> np.ndarray:
        """The records at some positions of an epoch, as int64."""
        given = self.shard_lengths if shard_lengths is None else shard_lengths
        if given is None:
            raise ValueError("shards are interleaved by their lengths: give shard_lengths=")
        lengths = checked_lengths(given, num_records, "shards")
        epoch = epoch if self.seed is not None else 0
        turns = self._recent.get(epoch, lengths, lambda: self._turns(epoch, lengths))
        return turns.at(positions)

    def _turns(self, epoch: int, lengths: np.ndarray) -> _Turns:
        shards = np.stack([np.cumsum(lengths) - lengths, lengths], axis=1)
        if self.seed is not None:
            count = len(lengths)
            shards = shards[permuted(count, self.seed, epoch, Draw.SHARDS, 0, count)]
        return _Turns(shards.tolist(), self.cycle_length, self.block_length)

    def take(
        self, num_records: int, epoch: int, start: int, stop: int, shard_lengths: Any = None
    ) -> np.ndarray:
        """The records at positions start to stop of the epoch, as int64[stop - start]."""
        num_records = self.length(num_records)
        epoch, start, stop = checked_span(num_records, epoch, start, stop)
        positions = np.arange(start, stop, dtype=np.int64)
        return self.at(num_records, epoch, positions, shard_lengths)

    def spec(self) -> dict[str, Any]:
        """All parameters; the shard lengths as a digest."""
        lengths = self.shard_lengths
        return {
            "name": "interleaved",
            "cycle_length": self.cycle_length,
            "block_length": self.block_length,
            "seed": self.seed,
            "shard_lengths": None if lengths is None else digest(np.array(lengths, np.int64)),
        }


@dataclass(frozen=True)
class Buffered(EachOnce):
    """The order that a shuffle buffer of `size` records makes of sequential or interleaved records.

    It has the distribution of tf.data's `shuffle(size)`: each record that leaves the buffer is chosen at random from
    the buffer. A record comes at most `size` - 1 positions early, and about `size` late on average, so a buffer much
    smaller than the data hardly shuffles it. Use it for comparisons, or for data that can only be read from front to
    back. Any call takes about size * ln(size) nanoseconds and 8 * size bytes of memory, so take thousands of positions
    in one call.

    Args:
        seed: 0 to 2^64 - 1.
        size: the size of the buffer, in records.
        over: the order of the records that enter the buffer: Interleaved, or None for sequential.

    Example:
        >>> import penstock as ps
        >>> ps.Buffered(seed=0, size=3).take(10, 0, 0, 10)
        array([1, 0, 3, 5, 6, 2, 8, 7, 9, 4])
    """

    seed: int
    size: int
    over: Interleaved | None = None

    def __post_init__(self) -> None:
        settle(self, seed=checked_seed(self.seed))
        checked_count("size", self.size, 1)
        if self.over is not None and not isinstance(self.over, Interleaved):
            raise TypeError(f"over is Interleaved or None, not {type(self.over).__name__}")

    @property
    def layout(self) -> str | None:
        return None if self.over is None else self.over.layout

    def take(
        self, num_records: int, epoch: int, start: int, stop: int, shard_lengths: Any = None
    ) -> np.ndarray:
        """The records at positions start to stop of the epoch, as int64[stop - start]."""
        num_records = self.length(num_records)
        epoch, start, stop = checked_span(num_records, epoch, start, stop)
        key = _core.key_of([self.seed, epoch, Draw.BUFFERS])
        positions = as_numpy(_core.buffered(num_records, self.size, key, start, stop))
        if self.over is None:
            return positions
        return self.over.at(num_records, epoch, positions, shard_lengths)

    def spec(self) -> dict[str, Any]:
        """All parameters, with the spec of `over`."""
        over = None if self.over is None else self.over.spec()
        return {"name": "buffered", "seed": self.seed, "size": self.size, "over": over}

"""What pipelines without an index do: shards read in turns, and a shuffle buffer behind them.

The same as tf.data's `interleave` and `shuffle`, and WebDataset's shuffles, but as functions of the
position: to go on in the middle of an epoch nothing before it is read or simulated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock import _core
from penstock.columns.numbers import as_numpy
from penstock.engine.locks import Lock
from penstock.orders._order import checked_records, checked_span
from penstock.orders.keys import Draw, checked_seed, digest, permuted


class _Turns:
    """The turns of one epoch: stretches in which the same shards give records round by round.

    A stretch is its first position, the records each of its shards gives a turn, and for each shard
    the record it goes on with. Shards end seldom, so stretches are few: some for each shard.
    """

    def __init__(self, shards: list[tuple[int, int]], cycle: int, block: int) -> None:
        self._stretches: list[tuple[int, int, int, int]] = []
        self._records: list[int] = []
        self._position = 0
        waiting = iter(shards)
        # (next record, records left) of the shards that are open; None: a place to open one in.
        open_: list[list[int] | None] = [None] * cycle
        more = True
        while more or any(place is not None for place in open_):
            full = [place for place in open_ if place is not None]
            rounds = min((left for _, left in full), default=0) // block
            if rounds and (len(full) == cycle or not more):
                self._add([first for first, _ in full], block, rounds)
                for place in full:
                    place[0] += rounds * block
                    place[1] -= rounds * block
                continue
            for number, place in enumerate(open_):
                if place is None and more:
                    found = next(waiting, None)
                    more = found is not None
                    place = None if found is None else list(found)
                if place is None:
                    continue
                given = min(block, place[1])
                if given:
                    self._add([place[0]], given, 1)
                place[0] += given
                place[1] -= given
                # A shard whose last turn was a full one is found empty at its next turn, which is
                # then lost; so it is in tf.data.
                open_[number] = place if given == block else None
        self._stretches.append((self._position, 1, 1, 0))
        self._table = np.array(self._stretches, np.int64)
        self._firsts = np.array(self._records, np.int64)

    def _add(self, firsts: list[int], block: int, rounds: int) -> None:
        self._stretches.append((self._position, block, len(firsts), len(self._records)))
        self._records.extend(firsts)
        self._position += block * len(firsts) * rounds

    def at(self, positions: np.ndarray) -> np.ndarray:
        """The records at any positions."""
        stretch = np.searchsorted(self._table[:, 0], positions, side="right") - 1
        start, block, num_shards, firsts = self._table[stretch].T
        turn, within = np.divmod(positions - start, block)
        round_, shard = np.divmod(turn, num_shards)
        return self._firsts[firsts + shard] + round_ * block + within


@dataclass
class _Kept:
    """The turns used last, which pickling forgets."""

    key: object = None
    turns: _Turns | None = None
    lock: Lock = field(default_factory=Lock)

    def __reduce__(self) -> tuple[type[_Kept], tuple[()]]:
        return _Kept, ()


@dataclass(frozen=True)
class Interleaved:
    """Shards read side by side: `block_length` records of each of `cycle_length` shards in turn.

    The order of tf.data's `interleave(cycle_length, block_length)`, record by record. Where a shard
    ends, the next one takes its place. Not shuffled but for the order of shards: `Buffered` over it
    is what pipelines of tf.data and WebDataset do.

    Args:
        cycle_length: How many shards are open.
        block_length: How many records a shard gives in a turn.
        seed: Shuffles the order of shards, anew in each epoch; None: as they lie.
        shard_lengths: The numbers of records of the shards, where `take` is not told them.

    Memory and time to begin an epoch: about 5 microseconds for each shard and place of the cycle.

    Example:
        >>> import penstock as ps
        >>> ps.Interleaved(2, 1, shard_lengths=[3, 3]).take(6, 0, 0, 6)
        array([0, 3, 1, 4, 2, 5])
    """

    cycle_length: int = 16
    block_length: int = 1
    seed: int | None = None
    shard_lengths: Sequence[int] | None = None
    _kept: _Kept = field(default_factory=_Kept, init=False, repr=False, compare=False)

    layout = "shard_lengths"
    """What `take` needs to know of the data besides: the keyword's name."""

    def __post_init__(self) -> None:
        for name in ("cycle_length", "block_length"):
            size = getattr(self, name)
            if not isinstance(size, int) or size < 1:
                raise ValueError(f"{name} is {size!r}, and should be 1 or more")
        if self.seed is not None:
            object.__setattr__(self, "seed", checked_seed(self.seed))
        if self.shard_lengths is not None:
            lengths = tuple(checked_records(length) for length in self.shard_lengths)
            object.__setattr__(self, "shard_lengths", lengths)

    def length(self, num_records: int) -> int:
        """As many positions as records."""
        return checked_records(num_records)

    def at(
        self, num_records: int, epoch: int, positions: np.ndarray, shard_lengths: Any = None
    ) -> np.ndarray:
        """The records at any positions of an epoch, as int64."""
        lengths = self.shard_lengths if shard_lengths is None else shard_lengths
        if lengths is None:
            raise ValueError("shards are interleaved by their lengths: give shard_lengths=")
        lengths = tuple(checked_records(length) for length in lengths)
        if sum(lengths) != num_records:
            raise ValueError(f"the shards have {sum(lengths)} records, the dataset {num_records}")
        key = (epoch if self.seed is not None else 0, lengths)
        with self._kept.lock:
            if self._kept.lock.was_cut_short() or self._kept.key != key:
                firsts = (np.cumsum(lengths, dtype=np.int64) - lengths).tolist()
                shards = list(zip(firsts, lengths, strict=True))
                if self.seed is not None:
                    count = len(shards)
                    order = permuted(count, self.seed, epoch, Draw.SHARDS, 0, count)
                    shards = [shards[number] for number in order.tolist()]
                self._kept.turns = _Turns(shards, self.cycle_length, self.block_length)
                self._kept.key = key
            turns = self._kept.turns
        assert turns is not None
        return turns.at(positions)

    def take(
        self, num_records: int, epoch: int, start: int, stop: int, shard_lengths: Any = None
    ) -> np.ndarray:
        """The records at positions start to stop of the epoch, as int64[stop - start]."""
        num_records = self.length(num_records)
        epoch, start, stop = checked_span(num_records, epoch, start, stop)
        positions = np.arange(start, stop, dtype=np.int64)
        return self.at(num_records, epoch, positions, shard_lengths)

    def spec(self) -> dict[str, Any]:
        """All parameters; of given lengths a digest."""
        lengths = self.shard_lengths
        return {
            "name": "interleaved",
            "cycle_length": self.cycle_length,
            "block_length": self.block_length,
            "seed": self.seed,
            "shard_lengths": None if lengths is None else digest(np.array(lengths, np.int64)),
        }


@dataclass(frozen=True)
class Buffered:
    """What a shuffle buffer of `size` records makes of the records as they lie, or interleaved.

    The law of tf.data's `shuffle(size)`: each record that comes out is any of those in the buffer.
    A record comes at most `size` - 1 positions early, and late by about `size` on average: a buffer
    much smaller than the data hardly shuffles it. Use it to compare with, or for data that can
    only be read from front to back.

    Args:
        seed: 0 to 2^64 - 1.
        size: Of the buffer, in records.
        over: The order of the stream that runs through it: Sequential (None) or Interleaved.

    Any position costs about size * ln(size) steps of a nanosecond and 8 * size bytes, not more
    towards the end of the epoch, so take thousands of positions at once.

    Example:
        >>> import penstock as ps
        >>> ps.Buffered(seed=0, size=3).take(10, 0, 0, 10)
        array([1, 0, 3, 5, 6, 2, 8, 7, 9, 4])
    """

    seed: int
    size: int
    over: Interleaved | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", checked_seed(self.seed))
        if not isinstance(self.size, int) or self.size < 1:
            raise ValueError(f"size is {self.size!r}, and should be 1 or more")
        if self.over is not None and not isinstance(self.over, Interleaved):
            raise TypeError(f"over is Interleaved or None, not {type(self.over).__name__}")

    @property
    def layout(self) -> str | None:
        """What `take` needs to know of the data besides: the keyword's name."""
        return None if self.over is None else self.over.layout

    def length(self, num_records: int) -> int:
        """As many positions as records."""
        return checked_records(num_records)

    def take(
        self, num_records: int, epoch: int, start: int, stop: int, shard_lengths: Any = None
    ) -> np.ndarray:
        """The records at positions start to stop of the epoch, as int64[stop - start]."""
        num_records = self.length(num_records)
        epoch, start, stop = checked_span(num_records, epoch, start, stop)
        key = _core.key_of([self.seed, epoch, Draw.BUFFERS])
        found = _core.buffered(num_records, self.size, key, start, stop)
        positions = as_numpy(found)
        if self.over is None:
            return positions
        return self.over.at(num_records, epoch, positions, shard_lengths)

    def spec(self) -> dict[str, Any]:
        """All parameters, and those of the order below."""
        over = None if self.over is None else self.over.spec()
        return {"name": "buffered", "seed": self.seed, "size": self.size, "over": over}

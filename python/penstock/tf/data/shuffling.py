"""`shuffle`: TensorFlow's buffer, with the same numbers.

The buffer is a ring whose slots `start` to `end` are occupied. It is filled before each element is yielded. Then the
next 32-bit number of a Philox chooses that element, and the element at `start` moves to its slot.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from penstock.tf.data.blocks import AnyBlock, Blocks
from penstock.tf.data.op import UNKNOWN, Op, Stream, is_looking, whole
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.seeds import Philox, op_seeds

DRAWN = 4096
"""How many numbers are drawn in one call."""
WHOLE = 1 << 62
"""The size of a buffer for the whole input."""


class Shuffle(Op):
    """Elements in random order, a new one in each epoch unless `reshuffle_each_iteration` is False."""

    passes_on = True

    def __init__(
        self, source: Op, buffer_size: Any, seed: Any = None, reshuffle_each_iteration: Any = None
    ) -> None:
        self.source = source
        self.size = whole(buffer_size, "buffer_size")
        if self.size == UNKNOWN:
            self.size = WHOLE
        if self.size < 1:
            raise InvalidArgumentError(
                None,
                None,
                "buffer_size must be greater than zero or UNKNOWN_CARDINALITY",
                found=self.size,
            )
        self._pair = op_seeds(seed)
        self._epochs = Philox(*self._pair) if reshuffle_each_iteration in (None, True) else None
        self._lock = threading.Lock()

    def _philox(self) -> Philox:
        """The random numbers of a new epoch."""
        if self._epochs is None:
            return Philox(*self._pair)
        with self._lock:
            first, second = self._epochs.take(2).tolist()
        return Philox(first, second)

    def begin(self) -> None:
        # The source is opened when the first element is requested.
        self._philox()

    def open(self) -> Stream:
        if is_looking():
            return self.source.open()
        ring = Ring(self.size, self._philox())
        stream = self.source.open()
        if isinstance(stream, Blocks):
            return stream.like(_shuffled_blocks(stream, ring))
        return _shuffled(stream, ring)

    def cardinality(self) -> int:
        return self.source.cardinality()

    def spec(self) -> Any:
        return self.source.spec()


class Ring:
    """The buffer, which returns values in random order."""

    def __init__(self, size: int, philox: Philox) -> None:
        self.size = size
        self._philox = philox
        self._at_once = 64  # grows when many are needed
        self._drawn = np.zeros(0, np.int64)
        self._held: list[Any] = []
        self._start = 0

    def is_full(self) -> bool:
        """Whether a value must leave before the next value enters."""
        return len(self._held) == self.size

    def fill(self, values: Iterator[Any]) -> None:
        """Add as many values as the buffer can take."""
        self._held.extend(islice(values, self.size - len(self._held)))

    def _numbers(self, most: int) -> np.ndarray:
        """The next numbers of the Philox: at least one, and at most the requested number."""
        if not len(self._drawn):
            self._drawn = self._philox.take(self._at_once).astype(np.int64)
            self._at_once = DRAWN
        numbers, self._drawn = self._drawn[:most], self._drawn[most:]
        return numbers

    def _steps(self, numbers: np.ndarray) -> zip[tuple[int, int]]:
        """The slot whose value a full buffer yields, and the slot that is free afterwards."""
        starts = (self._start + np.arange(len(numbers))) % self.size
        places = (starts + numbers % self.size) % self.size
        return zip(places.tolist(), starts.tolist(), strict=True)

    def fed(self, values: list[Any]) -> list[Any]:
        """Add values, and return those that must leave."""
        held, given = self._held, list[Any]()
        room = self.size - len(held)
        if room:
            held.extend(values[:room])
            values = values[room:]
        done = 0
        while done < len(values):
            numbers = self._numbers(len(values) - done)
            steps = zip(self._steps(numbers), values[done : done + len(numbers)], strict=True)
            for (place, start), value in steps:
                given.append(held[place])
                held[place] = held[start]
                held[start] = value
            done += len(numbers)
            self._start = (self._start + len(numbers)) % self.size
        return given

    def passed(self, values: Iterator[Any]) -> Iterator[Any]:
        """Pass values through a full buffer until the input ends: for each value that enters, one leaves."""
        held = self._held
        while True:
            numbers = self._numbers(DRAWN)
            done = 0
            try:
                for place, start in self._steps(numbers):
                    given = held[place]
                    held[place] = held[start]
                    done += 1
                    yield given
                    held[start] = next(values)
            except StopIteration:
                self._drawn = np.concatenate([numbers[done:], self._drawn])
                self._start = (self._start + done) % self.size
                self._turn()
                held.pop()  # the slot that was not filled
                return
            self._start = (self._start + done) % self.size

    def _turn(self) -> None:
        self._held[:] = self._held[self._start :] + self._held[: self._start]
        self._start = 0

    def drained(self) -> Iterator[Any]:
        """The remaining values."""
        self._turn()
        held, first = self._held, 0
        while first < len(held):
            for number in self._numbers(len(held) - first).tolist():
                place = first + number % (len(held) - first)
                given, held[place] = held[place], held[first]
                first += 1
                yield given


def _shuffled(stream: Iterator[Any], ring: Ring) -> Iterator[Any]:
    ring.fill(stream)
    if ring.is_full():
        yield from ring.passed(stream)
    yield from ring.drained()


_MOST_WAITING = 1 << 16
"""How many rows are read before they are mixed with the rows in the buffer, because mixing copies all rows."""


def _shuffled_blocks(blocks: Blocks, ring: Ring) -> Iterator[AnyBlock]:
    held: list[AnyBlock] = []
    numbers, waiting = np.zeros(0, np.int64), 0
    first = 0

    def given(chosen: list[int]) -> Iterator[AnyBlock]:
        nonlocal numbers, held
        if not chosen:
            return
        rows = type(held[0]).joined(held)  # type: ignore[arg-type]
        places = np.searchsorted(numbers, np.array(chosen))
        left = np.ones(len(numbers), bool)
        left[places] = False
        yield rows.taken(places)
        held, numbers = [rows.taken(np.flatnonzero(left))], numbers[left]

    def mixed() -> Iterator[AnyBlock]:
        nonlocal first, waiting, numbers
        new = np.arange(first, first + waiting)
        numbers = np.concatenate([numbers, new])
        first, waiting = first + waiting, 0
        yield from given(ring.fed(new.tolist()))

    try:
        for block in blocks:
            held.append(block)
            waiting += len(block)
            if waiting >= min(ring.size // 4, _MOST_WAITING):
                yield from mixed()
    except Exception:
        # The buffer is filled before each element is yielded, so there was no error until then.
        yield from mixed()
        if ring.is_full():
            yield from given(list(islice(ring.drained(), 1)))
        raise
    yield from mixed()
    yield from given(list(ring.drained()))

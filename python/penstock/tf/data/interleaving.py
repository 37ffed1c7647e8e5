"""Combines several datasets: interleave, flat_map, and choices between datasets.

Interleaving has `cycle_length` slots, which take turns. At its turn, an empty slot opens the next dataset, and a slot
yields up to `block_length` elements. A slot whose dataset ends becomes empty and its turn is over, so an empty
dataset costs a turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import numpy as np

from penstock.engine.pipeline import default_threads
from penstock.tf.data.blocks import AnyBlock, Blocks
from penstock.tf.data.op import (
    AUTOTUNE,
    INFINITE,
    Op,
    Stream,
    elements,
    is_looking,
    parallel_calls,
    whole,
)
from penstock.tf.data.tracing import traced
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.graphs import opened
from penstock.tf.random import stateless_doubles
from penstock.tf.seeds import Philox
from penstock.tf.shapes import TensorSpec
from penstock.tf.tensor import Tensor


def slots(cycle_length: Any, calls: int | None) -> int:
    """The number of datasets that are open at once.

    Raises:
        InvalidArgumentError: an invalid number.
    """
    cycle = AUTOTUNE if cycle_length is None else whole(cycle_length, "cycle_length")
    cores = default_threads()
    if cycle == AUTOTUNE:
        if calls is None:
            return cores
        return max(1, -(-cores // 3)) if calls == AUTOTUNE else min(calls, cores)
    if cycle < 1:
        raise InvalidArgumentError(None, None, "`cycle_length` must be > 0", found=cycle)
    if calls is not None and calls > cycle:
        raise InvalidArgumentError(
            None,
            None,
            f"`num_parallel_calls` must be at most `cycle_length`: {calls} is more than {cycle}",
        )
    return cycle


class Interleave(Op):
    """Elements of the datasets that a function makes from each element, in turns."""

    def __init__(
        self,
        source: Op,
        function: Callable[..., Op],
        cycle_length: Any,
        block_length: Any,
        num_parallel_calls: Any = None,
    ) -> None:
        self.source = source
        self.function = function
        self.calls = parallel_calls(num_parallel_calls)
        self.cycle = slots(cycle_length, self.calls)
        self.block = 1 if block_length is None else whole(block_length, "block_length")
        if self.block < 1:
            raise InvalidArgumentError(None, None, "`block_length` must be > 0", found=self.block)

    def open(self) -> Stream:
        inputs, made = elements(self.source.open()), opened(self.function)
        try:
            first = next(inputs, None)
            stream = None if first is None else made(first).open()
        except Exception as error:
            # Raised when an element is requested, like every other error.
            return _raised(error)
        if stream is None:
            return iter(())
        streams = chain([stream], (made(element).open() for element in inputs))
        if isinstance(stream, Blocks) and not stream.batched:
            return stream.like(_Columns(stream, streams, self.cycle, self.block).run())
        return _in_turns(map(elements, streams), self.cycle, self.block)

    def spec(self) -> Any:
        found = traced(lambda element: self.function(element).spec(), self.source.spec())
        return super().spec() if found is None else found


def _raised(error: Exception) -> Iterator[Any]:
    raise error
    yield


def _in_turns(opened: Iterator[Iterator[Any]], cycle: int, block: int) -> Iterator[Any]:
    places: list[Iterator[Any] | None] = [None] * cycle
    num_open, is_more, place = 0, True, 0
    while is_more or num_open:
        current = places[place]
        if current is None and is_more:
            current = places[place] = next(opened, None)
            is_more = current is not None
            num_open += is_more
        if current is not None:
            for _ in range(block):
                try:
                    element = next(current)
                except StopIteration:
                    places[place] = None
                    num_open -= 1
                    break
                yield element
        place = (place + 1) % cycle


class FlatMap(Interleave):
    """The elements of the datasets that a function makes, one dataset after the other."""

    def __init__(self, source: Op, function: Callable[..., Op]) -> None:
        super().__init__(source, function, 1, 1)


class _Slot:
    """An open dataset of blocks, and the rest of its current block."""

    def __init__(self, blocks: Iterator[AnyBlock]) -> None:
        self._blocks = blocks
        self.rest: AnyBlock | None = None
        self._error: Exception | None = None

    def look(self) -> int:
        """The number of elements available; 0 at the end, or before an error."""
        while not self.rest and self._error is None:
            try:
                self.rest = next(self._blocks)
            except StopIteration:
                return 0
            except Exception as error:
                self._error = error
        return len(self.rest) if self.rest else 0

    def take(self, most: int) -> AnyBlock | None:
        """Some elements, or None at the end."""
        if not self.look():
            if self._error is not None:
                raise self._error
            return None
        assert self.rest is not None
        taken = self.rest.sliced(0, most)
        self.rest = self.rest.sliced(most, len(self.rest)) if most < len(self.rest) else None
        return taken


class _Columns:
    """The same turns with blocks instead of elements. As long as no slot ends, many rounds are made in one step."""

    def __init__(self, kind: Blocks, opened: Iterator[Stream], cycle: int, block: int) -> None:
        self._kind = kind
        self._opened = opened
        self._block = block
        self._places: list[_Slot | None] = [None] * cycle
        self._is_more = True

    def _next_opened(self) -> _Slot | None:
        stream = next(self._opened, None)
        if stream is None:
            self._is_more = False
            return None
        return _Slot(self._kind.adopted(stream))

    def run(self) -> Iterator[AnyBlock]:
        places, cycle, place = self._places, len(self._places), 0
        while True:
            active = [slot for slot in places if slot is not None]
            if not active and not self._is_more:
                return
            if place == 0 and (len(active) == cycle or not self._is_more):
                yield from self._rounds(active)
            current = places[place]
            if current is None and self._is_more:
                current = places[place] = self._next_opened()
            if current is not None:
                yield from self._turn(current, place)
            place = (place + 1) % cycle

    def _turn(self, slot: _Slot, place: int) -> Iterator[AnyBlock]:
        """The elements of one slot's turn; the slot is removed when it ends."""
        left = self._block
        while left:
            taken = slot.take(left)
            if taken is None:
                self._places[place] = None
                return
            left -= len(taken)
            yield taken

    def _rounds(self, active: list[_Slot]) -> Iterator[AnyBlock]:
        while True:
            count = min(slot.look() for slot in active) // self._block
            if not count:
                return
            rows = count * self._block
            parts = [slot.take(rows) for slot in active]
            whole_parts = [part for part in parts if part is not None]
            if len(whole_parts) == 1:
                yield whole_parts[0]
                continue
            order = np.arange(len(active) * rows).reshape(len(active), count, self._block)
            joined = type(whole_parts[0]).joined(whole_parts)  # type: ignore[arg-type]
            yield joined.taken(order.transpose(1, 0, 2).ravel())


class Choose(Op):
    """The next element of the dataset whose number another dataset yields."""

    def __init__(self, sources: list[Op], choice: Op, stop_on_empty: bool) -> None:
        self.sources = sources
        self.choice = choice
        self.stops = stop_on_empty

    def open(self) -> Stream:
        return self._run([elements(source.open()) for source in self.sources])

    def _run(self, streams: list[Iterator[Any]]) -> Iterator[Any]:
        open_ones = set(range(len(streams)))
        for chosen in elements(self.choice.open()):
            number = int(chosen)
            if not 0 <= number < len(streams):
                raise InvalidArgumentError(
                    None, None, f"Selector index out of range: {number} >= {len(streams)}"
                )
            element = next(streams[number], self)
            if element is self:
                open_ones.discard(number)
                if self.stops or not open_ones:
                    return
                continue
            yield element

    def cardinality(self) -> int:
        return INFINITE if all(s.cardinality() == INFINITE for s in self.sources) else -2

    def spec(self) -> Any:
        return self.sources[0].spec()


class Numbers(Op):
    """An endless sequence of random 32-bit numbers: `Dataset.random`."""

    def __init__(self, pair: tuple[int, int], *, changes: bool) -> None:
        self._pair = pair
        self._epochs = Philox(*pair) if changes else None

    def pair(self) -> tuple[int, int]:
        """The seeds of the next epoch."""
        if self._epochs is None or is_looking():
            return self._pair
        first, second = self._epochs.take(2).tolist()
        return first, second

    def open(self) -> Stream:
        return self._run(Philox(*self.pair()))

    def _run(self, philox: Philox) -> Iterator[Any]:
        while True:
            yield from philox.take(256).astype(np.int64).view(Tensor)

    def cardinality(self) -> int:
        return INFINITE

    def spec(self) -> Any:
        return TensorSpec([], np.int64)


class Draws(Op):
    """Numbers of datasets, drawn by weights, each with a pair of random numbers as its seed."""

    def __init__(self, weights: np.ndarray, numbers: Numbers) -> None:
        with np.errstate(divide="ignore"):
            logits = np.log(weights)
        self._ends = np.cumsum(np.exp((logits - logits.max()).astype(np.float64)))
        self._numbers = numbers

    def open(self) -> Stream:
        return self._run(Philox(*self._numbers.pair()))

    def _run(self, philox: Philox) -> Iterator[Any]:
        while True:
            drawn = stateless_doubles(philox.take(512).reshape(-1, 2)) * self._ends[-1]
            found = np.searchsorted(self._ends, drawn, "right")
            yield from np.minimum(found, len(self._ends) - 1).astype(np.int64).view(Tensor)

    def cardinality(self) -> int:
        return INFINITE

"""Which elements are used, and how often: take, skip, shard, repeat, concatenate, enumerate, zip."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, count, islice
from typing import Any

import numpy as np

from penstock.tf.data.blocks import AnyBlock, Blocks
from penstock.tf.data.op import INFINITE, UNKNOWN, Op, Stream, elements, merged_specs, whole
from penstock.tf.data.shuffling import Shuffle
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.graphs import Opened, opening, part
from penstock.tf.nest import flatten, pack_sequence_as, packer
from penstock.tf.shapes import TensorSpec
from penstock.tf.tensor import Tensor


class Take(Op):
    """The first elements; all, for a negative count."""

    passes_on = True

    def __init__(self, source: Op, number: Any) -> None:
        self.source = source
        self.number = whole(number, "count")

    def changes_nothing(self) -> bool:
        return self.number < 0

    def open(self) -> Stream:
        if self.number == 0:
            return iter(())
        stream = self.source.open()
        if self.number < 0:
            return stream
        if isinstance(stream, Blocks):
            return stream.like(_first(stream, self.number))
        return islice(stream, self.number)

    def cardinality(self) -> int:
        known = self.source.cardinality()
        if self.number < 0:
            return known
        return self.number if known == INFINITE else known if known < 0 else min(known, self.number)

    def spec(self) -> Any:
        return self.source.spec()


def _first(blocks: Blocks, number: int) -> Iterator[AnyBlock]:
    for block in blocks:
        yield block.sliced(0, number)
        number -= len(block)
        if number <= 0:
            return


class Skip(Op):
    """All but the first elements; none, for a negative count."""

    passes_on = True

    def __init__(self, source: Op, number: Any) -> None:
        self.source = source
        self.number = whole(number, "count")

    def changes_nothing(self) -> bool:
        return self.number == 0

    def open(self) -> Stream:
        if self.number < 0:
            return iter(())
        stream = self.source.open()
        if isinstance(stream, Blocks):
            return stream.like(_after(stream, self.number))
        return islice(stream, self.number, None)

    def cardinality(self) -> int:
        known = self.source.cardinality()
        if self.number < 0:
            return 0
        return known if known < 0 else max(0, known - self.number)

    def spec(self) -> Any:
        return self.source.spec()


def _after(blocks: Blocks, number: int) -> Iterator[AnyBlock]:
    for block in blocks:
        if number < len(block):
            yield block.sliced(number, len(block))
        number = max(0, number - len(block))


class Shard(Op):
    """Every n-th element."""

    passes_on = True

    def __init__(self, source: Op, num_shards: Any, index: Any) -> None:
        self.source = source
        self.num_shards = whole(num_shards, "num_shards")
        self.index = whole(index, "index")
        if self.num_shards < 1:
            raise InvalidArgumentError(
                None,
                None,
                f"Number of shards must be greater than zero (currently num_shards = {self.num_shards}).",
            )
        if not 0 <= self.index < self.num_shards:
            raise InvalidArgumentError(
                None,
                None,
                f"Index must be between 0 and {self.num_shards - 1} (currently index = {self.index}).",
            )

    def changes_nothing(self) -> bool:
        return self.num_shards == 1

    def open(self) -> Stream:
        stream = self.source.open()
        if isinstance(stream, Blocks):
            return stream.like(self._blocks(stream))
        return islice(stream, self.index, None, self.num_shards)

    def _blocks(self, blocks: Blocks) -> Iterator[AnyBlock]:
        first = self.index
        for block in blocks:
            rows = np.arange(first, len(block), self.num_shards)
            first += self.num_shards * len(rows) - len(block)
            if len(rows):
                yield block.taken(rows)

    def cardinality(self) -> int:
        known = self.source.cardinality()
        return known if known < 0 else -(-max(0, known - self.index) // self.num_shards)

    def spec(self) -> Any:
        return self.source.spec()


class Repeat(Op):
    """The elements, repeated."""

    passes_on = True

    def __init__(self, source: Op, number: Any = None) -> None:
        self.source = source
        self.number = -1 if number is None else whole(number, "count")

    def changes_nothing(self) -> bool:
        return self.number == 1

    def open(self) -> Stream:
        if self.number == 0:
            return iter(())
        again = part(self, Opened)
        with opening(again):
            stream = self.source.open()
        if self.number == 1:
            return stream
        if isinstance(stream, Blocks):
            return stream.like(self._repeated(stream, again))
        return self._repeated(stream, again)

    def _repeated(self, stream: Any, again: Opened) -> Iterator[Any]:
        for epoch in count(1):
            is_empty = True
            for each in stream:
                is_empty = False
                yield each
            if is_empty and self.number < 0:
                return
            if epoch == self.number:
                # TensorFlow starts one more epoch, which draws from the seeds of a shuffle. If `repeat`
                # directly follows the
                # # shuffle, it does not, because it fuses these two steps.
                if not isinstance(_acting(self.source), Shuffle):
                    self.source.begin()
                return
            with opening(again):
                stream = self.source.open()

    def cardinality(self) -> int:
        known = self.source.cardinality()
        if self.number < 0:
            return 0 if known == 0 else INFINITE
        if self.number == 0:
            return 0
        return known if known < 0 else known * self.number

    def spec(self) -> Any:
        return self.source.spec()


def _acting(op: Any) -> Op:
    """The nearest earlier step that has an effect."""
    while op.changes_nothing():
        op = op.source
    return op


class Concatenate(Op):
    """The elements of one dataset, then those of another."""

    def __init__(self, first: Op, second: Op) -> None:
        self.sources = first, second

    def open(self) -> Stream:
        first = self.sources[0].open()
        if isinstance(first, Blocks):
            return first.like(chain(first, self._blocks_like(first)))
        return chain(first, self._elements())

    def begin(self) -> None:
        self.sources[0].begin()

    def _blocks_like(self, first: Blocks) -> Iterator[AnyBlock]:
        yield from first.adopted(self.sources[1].open())

    def _elements(self) -> Iterator[Any]:
        yield from elements(self.sources[1].open())

    def cardinality(self) -> int:
        one, other = (source.cardinality() for source in self.sources)
        if INFINITE in (one, other):
            return INFINITE
        return UNKNOWN if UNKNOWN in (one, other) else one + other

    def spec(self) -> Any:
        return merged_specs(self.sources[0].spec(), self.sources[1].spec())


class Enumerate(Op):
    """Pairs of a number and an element."""

    def __init__(self, source: Op, start: Any) -> None:
        self.source = source
        self.start = whole(start, "start")

    def open(self) -> Stream:
        return zip(numbers(self.start), elements(self.source.open()), strict=False)

    def cardinality(self) -> int:
        return self.source.cardinality()

    def spec(self) -> Any:
        return (TensorSpec([], np.int64), self.source.spec())


def numbers(start: int) -> Iterator[Tensor]:
    """Consecutive integers from a start, as int64 scalars."""
    for first in count(start, 1024):
        yield from np.arange(first, first + 1024, dtype=np.int64).view(Tensor)


class Zip(Op):
    """Structures of the elements of several datasets."""

    def __init__(self, structure: Any) -> None:
        self.structure = structure
        self.sources: list[Op] = flatten(structure, lists=False)

    def begin(self) -> None:
        for source in self.sources:
            source.begin()

    def open(self) -> Stream:
        streams = [elements(source.open()) for source in self.sources]
        return map(packer(self.structure), zip(*streams, strict=False))

    def cardinality(self) -> int:
        known = [source.cardinality() for source in self.sources]
        finite = [number for number in known if number != INFINITE]
        if not finite:
            return INFINITE
        return UNKNOWN if UNKNOWN in finite else min(finite)

    def spec(self) -> Any:
        specs = [source.spec() for source in self.sources]
        return pack_sequence_as(self.structure, specs, lists=False)

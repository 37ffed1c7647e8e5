"""Methods of datasets that choose, order, prefetch and cache elements."""

from __future__ import annotations

import os
from typing import Any

from penstock.tf.data.ahead import ahead
from penstock.tf.data.base import Base
from penstock.tf.data.blocks import Blocks
from penstock.tf.data.caching import FileCache, MemoryCache
from penstock.tf.data.choosing import Concatenate, Enumerate, Repeat, Shard, Skip, Take
from penstock.tf.data.mapping import Unique
from penstock.tf.data.op import AUTOTUNE, Op, Stream, is_looking, whole
from penstock.tf.data.options import Options
from penstock.tf.data.shuffling import Shuffle
from penstock.tf.errors import InvalidArgumentError

_AUTO_AHEAD = 8
"""How many elements are prefetched for `tf.data.AUTOTUNE`."""


class Prefetch(Op):
    """The same elements, made by a thread a few elements ahead of the consumer."""

    passes_on = True

    def __init__(self, source: Op, number: Any) -> None:
        self.source = source
        self.number = AUTOTUNE if number is None else whole(number, "buffer_size")
        if self.number < AUTOTUNE:
            raise InvalidArgumentError(
                None,
                None,
                "buffer_size must be >= 0 or set buffer_size to be -1 for auto-tuning.",
                found=self.number,
            )

    def changes_nothing(self) -> bool:
        return self.number == 0

    def open(self) -> Stream:
        stream = self.source.open()
        if not self.number or is_looking() or getattr(stream, "is_ahead", False):
            return stream
        most = _AUTO_AHEAD if self.number == AUTOTUNE else self.number
        if isinstance(stream, Blocks):
            # A block has many elements, so a few blocks are enough.
            return stream.like(ahead(stream.blocks, min(most, 2)), is_ahead=True)
        return ahead(stream, most)

    def cardinality(self) -> int:
        return self.source.cardinality()

    def spec(self) -> Any:
        return self.source.spec()


class Named(Op):
    """The same elements, with the options of `with_options`."""

    passes_on = True

    def __init__(self, source: Op, options: Options) -> None:
        self.source = source
        self.options = options

    def changes_nothing(self) -> bool:
        return True

    def open(self) -> Stream:
        return self.source.open()

    def cardinality(self) -> int:
        return self.source.cardinality()

    def spec(self) -> Any:
        return self.source.spec()


class OrderVerbs(Base):
    """take, skip, shard, shuffle, repeat, cache, prefetch and others."""

    def take(self, count: Any, name: str | None = None) -> Any:
        """The first elements; all of them for a negative count.

        Example:
            >>> import penstock.tf as tf
            >>> [int(x) for x in tf.data.Dataset.range(9).take(2)]
            [0, 1]
        """
        return self.of(Take(self.op, count))

    def skip(self, count: Any, name: str | None = None) -> Any:
        """All but the first elements; none for a negative count.

        Example:
            >>> import penstock.tf as tf
            >>> [int(x) for x in tf.data.Dataset.range(4).skip(2)]
            [2, 3]
        """
        return self.of(Skip(self.op, count))

    def shard(self, num_shards: Any, index: Any, name: str | None = None) -> Any:
        """Every num_shards-th element, starting with number `index`.

        Raises:
            InvalidArgumentError: the index is out of range.

        Example:
            >>> import penstock.tf as tf
            >>> [int(x) for x in tf.data.Dataset.range(5).shard(2, 1)]
            [1, 3]
        """
        return self.of(Shard(self.op, num_shards, index))

    def shuffle(
        self,
        buffer_size: Any,
        seed: Any = None,
        reshuffle_each_iteration: bool | None = None,
        name: str | None = None,
    ) -> Any:
        """The elements in the order that TensorFlow's shuffle gives for the same seeds.

        Args:
            buffer_size: how many elements to choose from; `tf.data.UNKNOWN_CARDINALITY` for all.
            seed: a number; with it or `tf.random.set_seed` the order is repeatable.
            reshuffle_each_iteration: a new order in each epoch, unless False.
            name: ignored.

        Raises:
            InvalidArgumentError: buffer_size is 0 or less.

        Example:
            >>> import penstock.tf as tf
            >>> [
            ...     int(x)
            ...     for x in tf.data.Dataset.range(10).shuffle(
            ...         3, seed=42, reshuffle_each_iteration=False
            ...     )
            ... ]
            [2, 0, 3, 4, 6, 7, 1, 9, 5, 8]
        """
        return self.of(Shuffle(self.op, buffer_size, seed, reshuffle_each_iteration))

    def repeat(self, count: Any = None, name: str | None = None) -> Any:
        """The elements `count` times; forever, if it is None or negative.

        Example:
            >>> import penstock.tf as tf
            >>> [int(x) for x in tf.data.Dataset.range(2).repeat(2)]
            [0, 1, 0, 1]
        """
        return self.of(Repeat(self.op, count))

    def concatenate(self, dataset: Any, name: str | None = None) -> Any:
        """The elements of this dataset, then those of another.

        Raises:
            TypeError: the other is not a dataset.

        Example:
            >>> import penstock.tf as tf
            >>> [int(x) for x in tf.data.Dataset.range(2).concatenate(tf.data.Dataset.range(1))]
            [0, 1, 0]
        """
        if not isinstance(dataset, Base):
            raise TypeError(f"concatenate takes a dataset, not {type(dataset)}")
        return self.of(Concatenate(self.op, dataset.op))

    def enumerate(self, start: Any = 0, name: str | None = None) -> Any:
        """Pairs of a number (int64) and an element.

        Example:
            >>> import penstock.tf as tf
            >>> [(int(n), int(x)) for n, x in tf.data.Dataset.range(5, 7).enumerate()]
            [(0, 5), (1, 6)]
        """
        return self.of(Enumerate(self.op, start))

    def prefetch(self, buffer_size: Any, name: str | None = None) -> Any:
        """The same elements, made by a thread ahead of the consumer.

        Args:
            buffer_size: the most elements made ahead; `tf.data.AUTOTUNE`; 0 for none.
            name: ignored.

        Raises:
            InvalidArgumentError: buffer_size is below -1.
        """
        return self.of(Prefetch(self.op, buffer_size))

    def cache(self, filename: Any = "", name: str | None = None) -> Any:
        """The elements, kept from the first complete pass for all later ones.

        Args:
            filename: the prefix of the files' names; empty keeps the elements in memory.
            name: ignored.

        Raises:
            AlreadyExistsError: when read: another iterator fills the file.
            InvalidArgumentError: when read: the file is TensorFlow's, or has elements of other types.
        """
        path = filename.item() if hasattr(filename, "item") else filename
        path = os.fsdecode(path)
        return self.of(FileCache(self.op, path) if path else MemoryCache(self.op))

    def unique(self, name: str | None = None) -> Any:
        """The elements without repeats."""
        return self.of(Unique(self.op))

    def with_options(self, options: Options, name: str | None = None) -> Any:
        """The same dataset; the options are kept but have no effect."""
        if not isinstance(options, Options):
            raise TypeError(f"with_options takes tf.data.Options, not {type(options)}")
        return self.of(Named(self.op, self.options().merge(options)))

    def options(self) -> Options:
        """The options of this dataset and of the datasets that it is made from."""
        op: Any = self.op
        while op is not None:
            if isinstance(op, Named):
                return op.options
            op = getattr(op, "source", None)
        return Options()

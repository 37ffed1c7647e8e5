"""Combines elements into batches and splits batches: batch, padded_batch, ragged_batch, unbatch, rebatch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

import numpy as np

from penstock.tf.data.blocks import AnyBlock, Batches, Block, Blocks, Listed
from penstock.tf.data.failures import Failure, Raising, guarded
from penstock.tf.data.op import (
    INFINITE,
    UNKNOWN,
    Op,
    Stream,
    batched_spec,
    elements,
    positive,
    with_shape,
)
from penstock.tf.data.sources import shapes_like
from penstock.tf.data.stacking import Stack, is_large, num_rows, stack, stack_padded, unstack
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.nest import flatten, is_nested, map_structure, pack_sequence_as, packer
from penstock.tf.shapes import RaggedTensorSpec, TensorShape, TensorSpec, TypeSpec
from penstock.tf.tensor import Tensor, convert_to_tensor


class Groups:
    """An iterator that combines groups of elements. After an error, it continues with the next group."""

    def __init__(
        self,
        values: Iterator[Any],
        size: int,
        drops: bool,
        join: Callable[[list[Any], int], Any],
    ) -> None:
        self._values = values
        self._size = size
        self._drops = drops
        self._join = join

    def __iter__(self) -> Groups:
        return self

    def __next__(self) -> Any:
        return self._joined(list(islice(self._values, self._size)))

    def _joined(self, group: list[Any]) -> Any:
        if not group or (self._drops and len(group) < self._size):
            raise StopIteration
        columns = zip(*(flatten(each, lists=False) for each in group), strict=True)
        joined = [self._join(list(column), place) for place, column in enumerate(columns)]
        return pack_sequence_as(group[0], joined, lists=False)


class Stacked(Groups):
    """Groups that are stacked."""

    def __init__(self, values: Iterator[Any], size: int, drops: bool) -> None:
        super().__init__(values, size, drops, stack)

    def __next__(self) -> Any:
        first = next(self._values)
        leaves = flatten(first, lists=False)
        rest = islice(self._values, self._size - 1)
        if not any(is_large(leaf, self._size) for leaf in leaves):
            return self._joined([first, *rest])
        stacks = [Stack(leaf, self._size, place) for place, leaf in enumerate(leaves)]
        count = 1
        for element in rest:
            for each, leaf in zip(stacks, flatten(element, lists=False), strict=True):
                each.add(leaf)
            count += 1
        if self._drops and count < self._size:
            raise StopIteration
        return pack_sequence_as(first, [each.stacked() for each in stacks], lists=False)


class Batch(Op):
    """Batches of stacked elements."""

    def __init__(self, source: Op, batch_size: Any, drop_remainder: Any = False) -> None:
        self.source = source
        self.size = positive(batch_size, "batch_size", "must be greater than zero.")
        self.drops = bool(drop_remainder)

    def open(self) -> Stream:
        stream = self.source.open()
        if isinstance(stream, Blocks) and not stream.batched:
            return Blocks(
                self._blocks(stream),
                stream.structure,
                stream.strings,
                batched=True,
                is_varying=stream.is_varying,
            )
        return Stacked(elements(stream), self.size, self.drops)

    def _blocks(self, blocks: Blocks) -> Iterator[AnyBlock]:
        size, waiting, count = self.size, list[Block](), 0
        for block in blocks:
            assert isinstance(block, Block)
            start = 0
            if waiting:
                # Complete the batch that crosses the block boundary, so that the rest of the block is not
                # copied.
                start = min(size - count, len(block))
                waiting.append(block.sliced(0, start))
                count += start
                if count == size:
                    yield Batches(Block.joined(waiting), np.array([0, size]))
                    waiting, count = [], 0
            whole_rows = (len(block) - start) // size * size
            if whole_rows:
                offsets = np.arange(0, whole_rows + 1, size)
                yield Batches(block.sliced(start, start + whole_rows), offsets)
            if start + whole_rows < len(block):
                waiting.append(block.sliced(start + whole_rows, len(block)))
                count += len(waiting[-1])
        if waiting and not self.drops:
            yield Batches(Block.joined(waiting), np.array([0, count]))

    def cardinality(self) -> int:
        known = self.source.cardinality()
        if known < 0:
            return known
        return known // self.size if self.drops else -(-known // self.size)

    def spec(self) -> Any:
        return batched_spec(self.source.spec(), self.size if self.drops else None)


class PaddedBatch(Batch):
    """Batches of elements padded to one shape."""

    def __init__(
        self, source: Op, batch_size: Any, shapes: Any, values: Any, drop_remainder: Any
    ) -> None:
        super().__init__(source, batch_size, drop_remainder)
        self._shapes, self._values = shapes, values

    def _wanted(self, leaves: list[Any], structure: Any) -> tuple[list[Any], list[Any]]:
        """The padded shape and the padding of each leaf."""
        count = len(leaves)
        shapes: list[Any] = [None] * count
        if self._shapes is not None:
            given = self._shapes
            shapes = (
                [TensorShape(given)]
                if isinstance(given, TensorShape) and count == 1
                else shapes_like(structure, given)
            )
        fills: list[Any] = [None] * count
        if self._values is not None:
            if is_nested(self._values, lists=False):
                fills = _aligned(structure, self._values)
            else:
                fills = [self._values] * count
        for place, (fill, leaf) in enumerate(zip(fills, leaves, strict=True)):
            if fill is not None:
                fills[place] = _filling(fill, leaf.dtype)
        return [None if s is None or s.rank is None else s for s in shapes], fills

    def open(self) -> Stream:
        stream = elements(self.source.open())
        wanted: tuple[list[Any], list[Any]] | None = None

        def first_seen() -> Iterator[Any]:
            nonlocal wanted
            for element in stream:
                if wanted is None:
                    wanted = self._wanted(flatten(element, lists=False), element)
                yield element

        def join(values: list[Any], place: int) -> Any:
            assert wanted is not None
            return stack_padded(values, wanted[0][place], wanted[1][place], place)

        return Groups(first_seen(), self.size, self.drops, join)

    def spec(self) -> Any:
        inner = self.source.spec()
        leaves = flatten(inner, lists=False)
        shapes = [None if leaf.shape.rank is None else [None] * leaf.shape.rank for leaf in leaves]
        if self._shapes is None:
            shapes = [leaf.shape for leaf in leaves]
        else:
            shapes = list(self._wanted(leaves, inner)[0])
        padded = [with_shape(leaf, shape) for leaf, shape in zip(leaves, shapes, strict=True)]
        packed = pack_sequence_as(inner, padded, lists=False)
        return batched_spec(packed, self.size if self.drops else None)


def _aligned(structure: Any, values: Any) -> list[Any]:
    """The padding of each leaf of a structure. None stands for the default for all leaves below it."""
    if values is None:
        return [None] * len(flatten(structure, lists=False))
    if not is_nested(structure, lists=False):
        return [values]
    if isinstance(structure, dict):
        return [v for key in sorted(structure) for v in _aligned(structure[key], values[key])]
    if len(structure) != len(values):
        raise ValueError(f"padding_values {values!r} do not have the structure of the elements")
    return [v for each, value in zip(structure, values, strict=True) for v in _aligned(each, value)]


def _filling(value: Any, dtype: Any) -> Any:
    tensor = convert_to_tensor(value)
    if tensor.ndim:
        raise ValueError(f"padding_values must be scalars, not of shape {tensor.shape}")
    # Python numbers are converted to the dtype of the elements, if possible.
    is_number = isinstance(value, (int, float)) and dtype.kind in "iufc"
    if tensor.dtype != dtype and not (is_number and np.can_cast(tensor.dtype.kind, dtype.kind)):
        raise TypeError(
            f"Mismatched type for padding: the padding value is {tensor.dtype}, the elements are {dtype}"
        )
    return tensor.item()


def _aligned_leaves(element: Any) -> list[Any]:
    leaves = flatten(element, lists=False)
    if len({num_rows(leaf) for leaf in leaves}) > 1:
        raise InvalidArgumentError(
            None, None, "Input element must have the same batch size in each component."
        )
    return leaves


def _after_error(error: Exception, values: Iterator[Any]) -> Iterator[Any]:
    """An iterator that first raises an error, and then yields the values."""
    return Raising(chain([Failure(error)], guarded(values)))


def _rows_as_blocks(values: Iterator[Any], like: Any) -> Iterator[AnyBlock]:
    """The rows of each element as a block; separate tensors if types or sizes differ from the first element's."""
    kinds = [(leaf.dtype, np.shape(leaf)[1:]) for leaf in flatten(like, lists=False)]
    for element in values:
        leaves = _aligned_leaves(element)
        columns = [
            leaf.view(np.ndarray)
            if type(leaf) is Tensor and (leaf.dtype, np.shape(leaf)[1:]) == kind
            else Listed(unstack(leaf))
            for leaf, kind in zip(leaves, kinds, strict=True)
        ]
        yield Block(columns, num_rows(leaves[0]))


class Unbatch(Op):
    """The rows of the elements, one by one."""

    def __init__(self, source: Op) -> None:
        self.source = source

    def open(self) -> Stream:
        stream = self.source.open()
        if isinstance(stream, Blocks) and stream.batched and not stream.is_varying:
            rows = (block.rows for block in stream if isinstance(block, Batches))
            return Blocks(rows, stream.structure, stream.strings)
        values = elements(stream)
        try:
            first = next(values, None)
        except Exception as error:
            return _after_error(error, self._run(values))
        if first is None:
            return iter(())
        return self._open_like(first, chain([first], values))

    def _open_like(self, first: Any, values: Iterator[Any]) -> Stream:
        leaves = flatten(first, lists=False)
        if not all(type(leaf) is Tensor and leaf.ndim for leaf in leaves):
            return self._run(values)
        strings = tuple(leaf.dtype == object and leaf.ndim == 1 for leaf in leaves)
        return Blocks(_rows_as_blocks(values, first), first, strings)

    def _run(self, values: Iterator[Any]) -> Iterator[Any]:
        for element in values:
            leaves = _aligned_leaves(element)
            pack = packer(element)
            yield from map(pack, zip(*map(unstack, leaves), strict=True))

    def cardinality(self) -> int:
        known = self.source.cardinality()
        if known == INFINITE:
            return INFINITE
        sizes = {leaf.shape[0] for leaf in flatten(self._known(), lists=False) if leaf.shape.rank}
        size = sizes.pop() if len(sizes) == 1 else None
        return UNKNOWN if size is None or known < 0 else known * size

    def _known(self) -> Any:
        source: Any = self.source
        while source.passes_on:
            source = source.source
        return source.spec() if isinstance(source, Batch) else TensorSpec(None)

    def spec(self) -> Any:
        def less(leaf: Any) -> Any:
            if not isinstance(leaf, TypeSpec):
                return leaf
            shape = leaf.shape[1:]
            if isinstance(leaf, RaggedTensorSpec):
                return RaggedTensorSpec(
                    shape, leaf.dtype, leaf.ragged_rank - 1, leaf.row_splits_dtype
                )
            return with_shape(leaf, shape)

        return map_structure(less, self.source.spec(), lists=False)


class RaggedBatch(Batch):
    """Batches of elements. Dense tensors of different lengths become ragged tensors."""

    def __init__(self, source: Op, batch_size: Any, drop_remainder: Any, dtype: Any) -> None:
        super().__init__(source, batch_size, drop_remainder)
        self._dtype = np.dtype(dtype)

    def open(self) -> Stream:
        return Groups(elements(self.source.open()), self.size, self.drops, self._join)

    def _join(self, values: list[Any], place: int) -> Any:
        if not all(isinstance(value, np.ndarray) and value.ndim for value in values):
            return stack(values, place)
        if len({np.shape(value) for value in values}) == 1 and self._is_fixed(place):
            return stack(values, place)
        return self._ragged(values, self._shape(place))

    def _ragged(self, values: list[Any], sizes: TensorShape) -> Any:
        """A ragged tensor whose rows are these arrays, ragged up to the last dimension of unknown size."""
        from penstock.tf.ragged_tensor import RaggedTensor

        rank = _ragged_rank(sizes)
        shapes = [tuple(np.shape(value)) for value in values]
        flat = [np.reshape(v, (-1, *s[rank:])) for v, s in zip(values, shapes, strict=True)]
        made: Any = np.concatenate(flat).view(Tensor)
        for axis in reversed(range(rank)):
            rows = [np.full(math.prod(s[:axis]), s[axis], self._dtype) for s in shapes]
            lengths = np.concatenate(rows)
            if sizes[axis] is None or (lengths != sizes[axis]).any():
                made = RaggedTensor.from_row_lengths(made, lengths)
            else:
                made = RaggedTensor.from_uniform_row_length(made, sizes[axis], len(lengths))
                made = made.with_row_splits_dtype(self._dtype)
        return made

    def _shape(self, place: int) -> TensorShape:
        return flatten(self.source.spec(), lists=False)[place].shape

    def _is_fixed(self, place: int) -> bool:
        return self._shape(place).is_fully_defined()

    def spec(self) -> Any:
        size = self.size if self.drops else None

        def ragged(leaf: Any) -> Any:
            if type(leaf) is not TensorSpec or not leaf.shape or leaf.shape.is_fully_defined():
                return batched_spec(leaf, size)
            rank = _ragged_rank(leaf.shape)
            return RaggedTensorSpec([size, *leaf.shape], leaf.dtype, rank, self._dtype)

        return map_structure(ragged, self.source.spec(), lists=False)


def _ragged_rank(shape: TensorShape) -> int:
    """The ragged dimensions of a batch: all up to the last that has no known size."""
    return max((axis + 1 for axis, size in enumerate(shape.as_list()) if size is None), default=1)


class Rebatch(Op):
    """Batches divided into batches of other sizes, which alternate."""

    def __init__(self, source: Op, batch_size: Any, drop_remainder: Any) -> None:
        self.source = source
        sizes = np.atleast_1d(np.asarray(batch_size)).tolist()
        self.sizes = [positive(size, "batch_size") for size in sizes]
        self.drops = bool(drop_remainder)

    def open(self) -> Stream:
        return self._run(elements(Unbatch(self.source).open()))

    def _run(self, rows: Iterator[Any]) -> Iterator[Any]:
        turn = 0
        while True:
            size = self.sizes[turn % len(self.sizes)]
            turn += 1
            group = next(Stacked(rows, size, self.drops), None)
            if group is None:
                return
            yield group

    def spec(self) -> Any:
        size = self.sizes[0] if len(self.sizes) == 1 and self.drops else None
        return batched_spec(Unbatch(self.source).spec(), size)

"""Blocks: runs of elements in columns, so that a step needs only a few array operations per block.

A dataset whose elements come from columns (records, slices of arrays, numbers) yields `Blocks` instead of elements.
Steps that only choose, order and group pass blocks on; other steps split them into elements. A column is an array
(one row for each element), an Arrow array of strings (not yet Python objects), or the values of rows of different
lengths (`Varying`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.tf.data.stacking import num_rows, stack, unstack
from penstock.tf.nest import flatten, map_structure, packer
from penstock.tf.tensor import Tensor


class Varying:
    """A column of one-dimensional sparse rows: row i has values[splits[i]:splits[i + 1]]."""

    def __init__(self, values: np.ndarray, splits: np.ndarray) -> None:
        self.values = values
        self.splits = splits

    def __len__(self) -> int:
        return len(self.splits) - 1

    def __getitem__(self, rows: Any) -> Varying:
        """Some rows: a slice, or an array of their indices."""
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(len(self))
            splits = self.splits[start : max(stop, start) + 1]
            values = self.values[splits[0] : splits[-1]]
            return Varying(values, splits - splits[0])
        starts, ends = self.splits[:-1][rows], self.splits[1:][rows]
        lengths = ends - starts
        splits = np.concatenate([[0], np.cumsum(lengths)])
        within = np.arange(splits[-1]) - np.repeat(splits[:-1], lengths)
        return Varying(self.values[np.repeat(starts, lengths) + within], splits)

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.splits.nbytes

    def rows(self) -> Iterator[Any]:
        from penstock.tf.sparse import SparseTensor

        places = self.splits.tolist()
        longest = int(np.diff(self.splits).max(initial=0))
        numbers = np.arange(longest, dtype=np.int64)[:, None]
        for start, end in pairwise(places):
            yield SparseTensor(numbers[: end - start], self.values[start:end], [end - start])

    def tensor(self) -> Any:
        """All rows as one sparse tensor of two dimensions."""
        from penstock.tf.sparse import SparseTensor

        lengths = np.diff(self.splits)
        row = np.repeat(np.arange(len(lengths)), lengths)
        place = np.arange(len(row)) - np.repeat(self.splits[:-1] - self.splits[0], lengths)
        indices = np.stack([row, place], axis=1).astype(np.int64, copy=False)
        return SparseTensor(indices, self.values, [len(lengths), int(lengths.max(initial=0))])


class Listed(list[Any]):
    """A column of separate tensors, for elements that were made one by one."""

    nbytes = 0


Column = Any
"""np.ndarray, pa.LargeBinaryArray, Varying or Listed."""


def _sliced(column: Column, start: int, stop: int) -> Column:
    if isinstance(column, pa.Array):
        return column.slice(start, max(stop - start, 0))
    part = column[start:stop]
    return Listed(part) if isinstance(column, Listed) else part


def _taken(column: Column, rows: np.ndarray) -> Column:
    if isinstance(column, Listed):
        return Listed(column[row] for row in rows.tolist())
    return column.take(pa.array(rows)) if isinstance(column, pa.Array) else column[rows]


def _joined(columns: Sequence[Column]) -> Column:
    first = columns[0]
    if any(type(column) is not type(first) for column in columns):
        return Listed(row for column in columns for row in _rows(column))
    if isinstance(first, Listed):
        return Listed(row for column in columns for row in column)
    if isinstance(first, pa.Array):
        return pa.concat_arrays(columns)
    return _joined_varying(columns) if isinstance(first, Varying) else np.concatenate(columns)


def _joined_varying(columns: Sequence[Varying]) -> Varying:
    ends = np.cumsum([0, *(c.splits[-1] for c in columns)])
    splits = [
        columns[0].splits[:1],
        *(c.splits[1:] + e for c, e in zip(columns, ends, strict=False)),
    ]
    return Varying(np.concatenate([c.values for c in columns]), np.concatenate(splits))


def _rows(column: Column) -> Iterator[Any]:
    if isinstance(column, Varying):
        return column.rows()
    if isinstance(column, Listed):
        return iter(column)
    if isinstance(column, pa.Array):
        column = column.to_numpy(zero_copy_only=False)
    item, tensor = np.ndarray.__getitem__, column.view(Tensor)
    return (item(tensor, (i, ...)) for i in range(len(column)))


def tensor_of(column: Column) -> Any:
    """A column as one tensor, copied if its memory may be reused."""
    if isinstance(column, Varying):
        return column.tensor()
    if isinstance(column, Listed):
        return stack(column)
    if isinstance(column, pa.Array):
        return column.to_numpy(zero_copy_only=False).view(Tensor)
    # A read-only array belongs to a buffer that will be reused.
    return (column if column.flags.writeable else column.copy()).view(Tensor)


class Block:
    """Some elements, each a row of the columns.

    Args:
        columns: one for each leaf of the structure.
        num_rows: the number of elements.
    """

    __slots__ = ("columns", "num_rows")

    def __init__(self, columns: Sequence[Column], num_rows: int) -> None:
        self.columns = columns
        self.num_rows = num_rows

    def __len__(self) -> int:
        return self.num_rows

    def sliced(self, start: int, stop: int) -> Block:
        """Elements start..stop, without a copy."""
        if start == 0 and stop >= self.num_rows:
            return self
        stop = min(stop, self.num_rows)
        return Block([_sliced(c, start, stop) for c in self.columns], max(stop - start, 0))

    def taken(self, rows: np.ndarray) -> Block:
        """The elements with these indices."""
        return Block([_taken(c, rows) for c in self.columns], len(rows))

    @staticmethod
    def joined(blocks: Sequence[Block]) -> Block:
        """The elements of several blocks, concatenated."""
        if len(blocks) == 1:
            return blocks[0]
        columns = [_joined(each) for each in zip(*(b.columns for b in blocks), strict=True)]
        return Block(columns, sum(map(len, blocks)))

    def leaves(self) -> Iterator[tuple[Any, ...]]:
        """The leaves of each element, one element after another."""
        return zip(*map(_rows, self.columns), strict=True)

    @property
    def nbytes(self) -> int:
        return sum(
            8 * len(c) if isinstance(c, np.ndarray) and c.dtype == object else c.nbytes
            for c in self.columns
        )

    def kept(self) -> Block:
        """The same elements with read-only arrays."""
        columns = [c.view() if isinstance(c, np.ndarray) else c for c in self.columns]
        for column in columns:
            if isinstance(column, np.ndarray):
                column.flags.writeable = False
        return Block(columns, self.num_rows)


class Batches:
    """Elements that are batches: element i has the rows offsets[i]..offsets[i + 1]."""

    __slots__ = ("offsets", "rows")

    def __init__(self, rows: Block, offsets: np.ndarray) -> None:
        self.rows = rows
        self.offsets = offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def sliced(self, start: int, stop: int) -> Batches:
        offsets = self.offsets[start : min(stop, len(self)) + 1]
        if not len(offsets):
            offsets = self.offsets[-1:]
        return Batches(self.rows.sliced(int(offsets[0]), int(offsets[-1])), offsets - offsets[0])

    def taken(self, rows: np.ndarray) -> Batches:
        starts, lengths = self.offsets[:-1][rows], np.diff(self.offsets)[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        return Batches(self.rows.taken(np.repeat(starts, lengths) + within), offsets)

    @staticmethod
    def joined(blocks: Sequence[Batches]) -> Batches:
        if len(blocks) == 1:
            return blocks[0]
        ends = np.cumsum([0, *(b.offsets[-1] for b in blocks)])
        offsets = [
            blocks[0].offsets[:1],
            *(b.offsets[1:] + e for b, e in zip(blocks, ends, strict=False)),
        ]
        return Batches(Block.joined([b.rows for b in blocks]), np.concatenate(offsets))

    def leaves(self) -> Iterator[tuple[Any, ...]]:
        places = self.offsets.tolist()
        for start, stop in pairwise(places):
            yield tuple(tensor_of(_sliced(c, start, stop)) for c in self.rows.columns)

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes

    def kept(self) -> Batches:
        return Batches(self.rows.kept(), self.offsets)


AnyBlock = Block | Batches


class Blocks:
    """Elements as an iterator of blocks.

    Args:
        blocks: the blocks, all of the same kind.
        structure: the structure of the elements, with any values at its leaves.
        strings: for each leaf, whether it is a string, or a batch of strings.
        batched: whether the blocks are Batches.
        is_ahead: whether threads make them ahead of the consumer.
        is_varying: whether a column is sparse; the rows of a batch then have the length of its longest row.
    """

    def __init__(
        self,
        blocks: Iterator[AnyBlock],
        structure: Any,
        strings: tuple[bool, ...],
        *,
        batched: bool = False,
        is_ahead: bool = False,
        is_varying: bool = False,
    ) -> None:
        self.blocks = blocks
        self.structure = structure
        self.strings = strings
        self.batched = batched
        self.is_ahead = is_ahead
        self.is_varying = is_varying

    def __iter__(self) -> Iterator[AnyBlock]:
        return self.blocks

    def like(self, blocks: Iterator[AnyBlock], *, is_ahead: bool = False) -> Blocks:
        """Other blocks of the same kind."""
        return Blocks(
            blocks,
            self.structure,
            self.strings,
            batched=self.batched,
            is_ahead=is_ahead,
            is_varying=self.is_varying,
        )

    def is_like(self, other: Any) -> bool:
        """Whether blocks of both streams can be joined."""
        return (
            isinstance(other, Blocks)
            and (self.strings, self.batched) == (other.strings, other.batched)
            and _shape(self.structure) == _shape(other.structure)
        )

    def adopted(self, stream: Any) -> Iterator[AnyBlock]:
        """Another stream of elements with the same structure, as blocks that can be joined with these."""
        if isinstance(stream, Blocks):
            if self.is_like(stream):
                yield from stream.blocks
                return
            stream = stream.elements()
        for element in stream:
            leaves = flatten(element, lists=False)
            if self.batched:
                count = num_rows(leaves[0])
                rows = Block([_listed(leaf) for leaf in leaves], count)
                yield Batches(rows, np.array([0, count]))
            else:
                yield Block([Listed([leaf]) for leaf in leaves], 1)

    def elements(self) -> Iterator[Any]:
        """The elements, one by one."""
        pack = packer(self.structure)
        for block in self.blocks:
            yield from map(pack, block.leaves())


def _listed(leaf: Any) -> Column:
    return np.asarray(leaf) if isinstance(leaf, np.ndarray) else Listed(unstack(leaf))


def _shape(structure: Any) -> Any:
    return map_structure(lambda _: None, structure, lists=False)

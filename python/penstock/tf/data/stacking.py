"""Stacks elements into batches, and splits batches into elements: dense, padded, sparse and ragged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.tf.dtypes import as_dtype
from penstock.tf.errors import DataLossError, InvalidArgumentError
from penstock.tf.ragged_tensor import RaggedTensor
from penstock.tf.tensor import Tensor

_shape_of = np.ndarray.shape.__get__  # type: ignore[attr-defined]


class RaggedRow(Tensor):
    """A row of a ragged tensor: dense, but a batch of such rows is ragged again."""


def stack(values: Sequence[Any], component: int = 0) -> Any:
    """Stack leaves of several elements into one tensor with an additional dimension.

    Raises:
        InvalidArgumentError: dense tensors of different shapes or dtypes.
    """
    first = values[0]
    if isinstance(first, RaggedRow):
        return _stack_rows(values)
    if isinstance(first, np.ndarray):
        return _stack_dense(values, component)
    if hasattr(first, "dense_shape"):
        return _stack_sparse(values)
    if hasattr(first, "row_splits"):
        return _stack_ragged(values)
    if first is None:
        return None
    raise TypeError(f"Cannot batch elements of type {type(first).__name__}")


def _stack_dense(values: Sequence[Any], component: int) -> Tensor:
    first = values[0]
    made = np.empty((len(values), *_shape_of(first)), first.dtype)
    for place, value in enumerate(values):
        _put(made, place, value, component)
    return made.view(Tensor)


def _put(made: np.ndarray[Any, Any], place: int, value: Any, component: int) -> None:
    shape = _shape_of(made)[1:]
    if not isinstance(value, np.ndarray) or _shape_of(value) != shape:
        raise InvalidArgumentError(
            None,
            None,
            f"Cannot batch tensors with different shapes in component {component}. First element "
            f"had shape {list(shape)} and element {place} had shape {list(np.shape(value))}.",
        )
    if value.dtype != made.dtype:
        raise InvalidArgumentError(
            None,
            None,
            f"Cannot batch tensors of different types in component {component}:"
            f" {as_dtype(made.dtype)} and {value.dtype}.",
        )
    # The dots keep NumPy from splitting the bytes of a value for an object array.
    made[place, ...] = value


_LARGE, _MOST = 1 << 16, 1 << 30


def is_large(value: Any, count: int) -> bool:
    """Whether a leaf is copied into its batch of `count` at once. The next element can then take its memory, which is
    faster than memory that the system has to clear. A batch of more than a GiB gets its memory when its size is known."""
    return type(value) is Tensor and value.nbytes >= _LARGE and value.nbytes * count <= _MOST


class Stack:
    """Leaves of several elements, stacked one by one. An error is raised when all are there."""

    def __init__(self, first: Any, count: int, component: int) -> None:
        self._component, self._values, self._count = component, [first], 1
        self._made: np.ndarray[Any, Any] | None = None
        self._error: Exception | None = None
        if is_large(first, count):
            self._made, self._values = np.empty((count, *_shape_of(first)), first.dtype), []
            self._made[0] = first

    def add(self, value: Any) -> None:
        """Stack the leaf of the next element."""
        if self._made is None:
            self._values.append(value)
        elif self._error is None:
            try:
                _put(self._made, self._count, value, self._component)
            except InvalidArgumentError as error:
                self._error = error
        self._count += 1

    def stacked(self) -> Any:
        """The same as `stack` of all leaves."""
        if self._made is None:
            return stack(self._values, self._component)
        if self._error is not None:
            raise self._error
        return self._made[: self._count].view(Tensor)


def _stack_sparse(values: Sequence[Any]) -> Any:
    ranks = {len(np.asarray(value.dense_shape)) for value in values}
    if len(ranks) > 1:
        raise InvalidArgumentError(
            None, None, f"Cannot batch sparse tensors of different ranks: {sorted(ranks)}"
        )
    counts = [len(np.asarray(value.values)) for value in values]
    rows = np.repeat(np.arange(len(values), dtype=np.int64), counts)
    (rank,) = ranks
    inner = np.concatenate([np.asarray(value.indices).reshape(-1, rank) for value in values])
    indices = np.concatenate([rows[:, None], inner], axis=1)
    sizes = np.max([np.asarray(value.dense_shape) for value in values], axis=0)
    kept = np.concatenate([np.asarray(value.values) for value in values])
    return type(values[0])(indices, kept, [len(values), *sizes.tolist()])


def _stack_ragged(values: Sequence[Any]) -> Any:
    lengths = [len(value.row_splits) - 1 for value in values]
    splits = np.concatenate([[0], np.cumsum(lengths)]).astype(
        np.asarray(values[0].row_splits).dtype
    )
    return type(values[0]).from_row_splits(_joined_ragged(values), splits)


def _stack_rows(values: Sequence[Any]) -> Any:
    lengths = [len(value) for value in values]
    return RaggedTensor.from_row_lengths(np.concatenate(values).view(Tensor), lengths)


def _joined_ragged(values: Sequence[Any]) -> Any:
    """Ragged tensors, concatenated."""
    if not hasattr(values[0], "row_splits"):
        return np.concatenate([np.asarray(value) for value in values])
    parts, end = [np.asarray(values[0].row_splits)[:1]], 0
    for value in values:
        splits = np.asarray(value.row_splits)
        parts.append(splits[1:] + end)
        end += int(splits[-1])
    inner = _joined_ragged([value.values for value in values])
    return type(values[0]).from_row_splits(inner, np.concatenate(parts))


# -- padding --------------------------------------------------------------------------------------


def stack_padded(
    values: Sequence[Any], shape: Sequence[int | None] | None, fill: Any, component: int = 0
) -> Any:
    """Stack dense leaves into one tensor, after padding each at its ends.

    Args:
        values: the leaves.
        shape: the size of each dimension; None for the largest size in the batch.
        fill: the padding; None: 0, False or "".

    Raises:
        DataLossError: a leaf is larger than the shape.
        InvalidArgumentError: a leaf has another number of dimensions.
    """
    if not all(isinstance(value, np.ndarray) for value in values):
        raise TypeError(
            "padded_batch takes dense tensors only: convert sparse and ragged ones first"
        )
    dtype = values[0].dtype
    padded = _padded_shape([_shape_of(value) for value in values], shape, component)
    made = np.empty((len(values), *padded), dtype)
    made[...] = (b"" if dtype.kind == "O" else 0) if fill is None else fill
    for place, value in enumerate(values):
        # The dots keep NumPy from splitting the bytes of a value for an object array.
        made[(place, *(slice(size) for size in _shape_of(value)), ...)] = value
    return made.view(Tensor)


def _padded_shape(
    shapes: Sequence[Sequence[int]], shape: Sequence[int | None] | None, component: int
) -> list[int]:
    """The shape to which all leaves are padded. If a size in `shape` is None, it is the size of the largest leaf."""
    rank = len(shapes[0]) if shape is None else len(shape)
    for place, each in enumerate(shapes):
        if len(each) != rank:
            raise InvalidArgumentError(
                None,
                None,
                "All elements in a batch must have the same rank as the padded shape for component"
                f"{component}: expected rank {rank} got element with rank {len(each)}",
                record=place,
            )
    longest = [max(sizes) for sizes in zip(*shapes, strict=True)]
    if shape is None:
        return longest
    padded = [long if size is None else size for size, long in zip(shape, longest, strict=True)]
    if any(long > size for size, long in zip(padded, longest, strict=True)):
        raise DataLossError(
            None,
            None,
            "Attempted to pad to a smaller size than the input element.",
            expected=padded,
            found=longest,
        )
    return padded


# -- splitting -----------------------------------------------------------------------------------


def unstack(value: Any) -> Iterator[Any]:
    """The rows of a leaf.

    Raises:
        InvalidArgumentError: it is a scalar.
    """
    if isinstance(value, np.ndarray):
        if not value.ndim:
            raise InvalidArgumentError(
                None, None, "Input element must have a non-scalar value in each component."
            )
        tensor, item = value.view(Tensor), np.ndarray.__getitem__
        return (item(tensor, (row, ...)) for row in range(len(tensor)))
    if hasattr(value, "dense_shape"):
        return _unstack_sparse(value)
    if hasattr(value, "row_splits"):
        return (ragged_row(value[row]) for row in range(len(value.row_splits) - 1))
    raise TypeError(f"Cannot unbatch elements of type {type(value).__name__}")


def ragged_row(row: Any) -> Any:
    """A row of a ragged tensor, marked as one."""
    return row.view(RaggedRow) if isinstance(row, np.ndarray) else row


def _unstack_sparse(value: Any) -> Iterator[Any]:
    indices, values = np.asarray(value.indices), np.asarray(value.values)
    count, *inner = np.asarray(value.dense_shape).tolist()
    order = np.argsort(indices[:, 0], kind="stable")
    indices, values = indices[order], values[order]
    places = np.searchsorted(indices[:, 0], np.arange(count + 1)).tolist()
    for start, end in pairwise(places):
        yield type(value)(indices[start:end, 1:], values[start:end], inner)


def num_rows(value: Any) -> int:
    """The number of rows of a leaf.

    Raises:
        InvalidArgumentError: it is a scalar.
    """
    if hasattr(value, "dense_shape"):
        return int(value.dense_shape[0])
    if hasattr(value, "row_splits"):
        return len(value.row_splits) - 1
    if not np.ndim(value):
        raise InvalidArgumentError(
            None, None, "Input element must have a non-scalar value in each component."
        )
    return len(value)

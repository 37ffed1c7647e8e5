"""Parts of tensors by masks, positions and numbers: `tf.unique`, `tf.scatter_nd`, `tf.sequence_mask` and others."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from penstock.tf import probing
from penstock.tf.arrays import sizes_of, tensor
from penstock.tf.dtypes import as_dtype
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.tensor import Tensor, convert_to_tensor


def _array(value: Any) -> np.ndarray[Any, Any]:
    return convert_to_tensor(value).view(np.ndarray)


def sequence_mask(
    lengths: Any, maxlen: Any = None, dtype: Any = "bool", name: str | None = None
) -> Tensor:
    """Whether each position lies before the end of a sequence.

    Args:
        lengths: the lengths of the sequences.
        maxlen: the number of positions; the greatest length unless given.
        dtype: the dtype of the result.
        name: ignored.

    Example:
        >>> import penstock.tf as tf
        >>> tf.sequence_mask([1, 3], dtype=tf.int32).numpy().tolist()
        [[1, 0, 0], [1, 1, 1]]
    """
    given = _array(lengths)
    most = int(given.max(initial=0)) if maxlen is None else int(maxlen)
    return tensor((np.arange(most) < given[..., None]).astype(as_dtype(dtype).dtype))


class Unique(NamedTuple):
    """The different values, and the index of each value among them."""

    y: Tensor
    idx: Tensor


class UniqueWithCounts(NamedTuple):
    """The same, and how often each value occurs."""

    y: Tensor
    idx: Tensor
    count: Tensor  # type: ignore[assignment]


def unique(x: Any, out_idx: Any = "int32", name: str | None = None) -> Unique:
    """The different values in the order of their first occurrence, and the index of each value among them.

    Example:
        >>> import penstock.tf as tf
        >>> tf.unique([3, 1, 3]).y.numpy(), tf.unique([3, 1, 3]).idx.numpy()
        (array([3, 1], dtype=int32), array([0, 1, 0], dtype=int32))
    """
    found = unique_with_counts(x, out_idx)
    return Unique(found.y, found.idx)


def unique_with_counts(x: Any, out_idx: Any = "int32", name: str | None = None) -> UniqueWithCounts:
    """The same, and how often each value occurs."""
    given = _array(x)
    if given.ndim != 1:
        raise InvalidArgumentError(None, None, "unique expects a 1D vector.")
    places: dict[Any, int] = {}
    numbers = [places.setdefault(value, len(places)) for value in given.tolist()]
    made = np.empty(len(places), given.dtype)
    made[:] = list(places)
    index = np.array(numbers, as_dtype(out_idx).dtype)
    counts = np.bincount(index, minlength=len(places)).astype(index.dtype)
    return UniqueWithCounts(tensor(made), tensor(index), tensor(counts))


def meshgrid(*args: Any, **kwargs: Any) -> list[Tensor]:
    """The coordinates of all points of a grid, from the coordinates along its sides; `indexing` is xy or ij.

    Example:
        >>> import penstock.tf as tf
        >>> [part.numpy().tolist() for part in tf.meshgrid([1, 2], [3, 4])]
        [[[1, 2], [1, 2]], [[3, 3], [4, 4]]]
    """
    indexing = kwargs.get("indexing", "xy")
    return [tensor(part) for part in np.meshgrid(*map(_array, args), indexing=indexing)]


def linspace(start: Any, stop: Any, num: Any, name: str | None = None, axis: int = 0) -> Tensor:
    """Numbers at equal distances from `start` to `stop`."""
    first, last = convert_to_tensor(start), convert_to_tensor(stop)
    kind = first.dtype if first.dtype.is_floating else as_dtype("float64")
    made = np.linspace(first.view(np.ndarray), last.view(np.ndarray), int(num), axis=axis)
    return tensor(made.astype(kind.dtype))


def searchsorted(
    sorted_sequence: Any,
    values: Any,
    side: str = "left",
    out_type: Any = "int32",
    name: str | None = None,
) -> Tensor:
    """The index at which each value belongs in a sorted sequence: before equal values (left) or after them (right)."""
    order, given = _array(sorted_sequence), _array(values)
    kind = as_dtype(out_type).dtype
    if order.ndim == 1:
        return tensor(np.searchsorted(order, given, side).astype(kind))  # type: ignore[call-overload]
    made = np.empty(given.shape, kind)
    for place in np.ndindex(*given.shape[:-1]):
        made[place] = np.searchsorted(order[place], given[place], side)  # type: ignore[call-overload]
    return tensor(made)


def roll(input: Any, shift: Any, axis: Any, name: str | None = None) -> Tensor:
    """The values moved along dimensions. Values that leave at one end return at the other end."""
    moves = [int(s) for s in np.atleast_1d(np.asarray(shift))]
    return tensor(np.roll(_array(input), moves, [int(a) for a in np.atleast_1d(np.asarray(axis))]))


def reverse_sequence(
    input: Any, seq_lengths: Any, seq_axis: int = 1, batch_axis: int = 0, name: str | None = None
) -> Tensor:
    """Each row with its first `seq_lengths[row]` values reversed."""
    given = np.moveaxis(_array(input), [batch_axis, seq_axis], [0, 1]).copy()
    for row, length in zip(given, np.asarray(seq_lengths).tolist(), strict=True):
        row[:length] = row[:length][::-1].copy()
    return tensor(np.moveaxis(given, [0, 1], [batch_axis, seq_axis]))


def _places(indices: Any) -> tuple[np.ndarray[Any, Any], ...]:
    return tuple(np.moveaxis(np.asarray(indices), -1, 0))


def scatter_nd(indices: Any, updates: Any, shape: Any, name: str | None = None) -> Tensor:
    """Zeros of a shape, with values added at positions."""
    given = _array(updates)
    made = np.zeros(sizes_of(shape), given.dtype)
    np.add.at(made, _places(indices), given)
    return tensor(made)


def _unchanged(tensor: Any, indices: Any, updates: Any, name: str | None = None) -> Tensor:
    """A placeholder for a tensor with other values at positions."""
    return _array(tensor).copy().view(Tensor)


@probing.instead(_unchanged)
def tensor_scatter_nd_update(
    tensor: Any, indices: Any, updates: Any, name: str | None = None
) -> Tensor:
    """A tensor with the values at positions replaced.

    Example:
        >>> import penstock.tf as tf
        >>> tf.tensor_scatter_nd_update([1, 2, 3], [[1]], [9]).numpy()
        array([1, 9, 3], dtype=int32)
    """
    made = _array(tensor).copy()
    made[_places(indices)] = _array(updates)
    return made.view(Tensor)


@probing.instead(_unchanged)
def tensor_scatter_nd_add(
    tensor: Any, indices: Any, updates: Any, name: str | None = None
) -> Tensor:
    """A tensor with values added at positions."""
    return _changed(np.add, tensor, indices, updates)


@probing.instead(_unchanged)
def tensor_scatter_nd_sub(
    tensor: Any, indices: Any, updates: Any, name: str | None = None
) -> Tensor:
    """A tensor with values subtracted at positions."""
    return _changed(np.subtract, tensor, indices, updates)


@probing.instead(_unchanged)
def tensor_scatter_nd_min(
    tensor: Any, indices: Any, updates: Any, name: str | None = None
) -> Tensor:
    """A tensor in which values at positions are replaced by other values if those are less."""
    return _changed(np.minimum, tensor, indices, updates)


@probing.instead(_unchanged)
def tensor_scatter_nd_max(
    tensor: Any, indices: Any, updates: Any, name: str | None = None
) -> Tensor:
    """A tensor in which values at positions are replaced by other values if those are greater."""
    return _changed(np.maximum, tensor, indices, updates)


def _changed(function: np.ufunc, tensor: Any, indices: Any, updates: Any) -> Tensor:
    made = _array(tensor).copy()
    function.at(made, _places(indices), _array(updates))
    return made.view(Tensor)


def dynamic_partition(
    data: Any, partitions: Any, num_partitions: int, name: str | None = None
) -> list[Tensor]:
    """Divide rows by their partition numbers, from 0, into a list of tensors."""
    given, numbers = _array(data), np.asarray(partitions)
    return [tensor(given[numbers == number]) for number in range(num_partitions)]


def dynamic_stitch(indices: Any, data: Any, name: str | None = None) -> Tensor:
    """Combine the rows of several tensors in one tensor, each row at its index."""
    places = [np.asarray(part) for part in indices]
    parts = [_array(part) for part in data]
    inner = parts[0].shape[places[0].ndim :]
    count = max(int(p.max(initial=-1)) for p in places) + 1
    made = np.zeros((count, *inner), parts[0].dtype)
    for place, part in zip(places, parts, strict=True):
        made[place] = part
    return tensor(made)


def histogram_fixed_width(
    values: Any, value_range: Any, nbins: Any = 100, dtype: Any = "int32", name: str | None = None
) -> Tensor:
    """The number of values in each of several equal parts of a range. Values outside count in the first or last
    part."""
    given = _array(values).astype(np.float64)
    low, high = (float(v) for v in np.asarray(value_range))
    place = np.floor((given - low) / (high - low) * int(nbins)).astype(np.int64)
    place = np.clip(place, 0, int(nbins) - 1)
    return tensor(np.bincount(place.ravel(), minlength=int(nbins)).astype(as_dtype(dtype).dtype))


def tensor_dot(a: Any, b: Any, axes: Any, name: str | None = None) -> Tensor:
    """The sums of products along dimensions of both tensors."""
    pair: Any = axes if np.ndim(axes) == 0 else [np.asarray(part).tolist() for part in axes]
    return tensor(np.asarray(np.tensordot(_array(a), _array(b), pair)))


def einsum(equation: str, *inputs: Any, **kwargs: Any) -> Tensor:
    """Sums of products in Einstein's notation, as with `numpy.einsum`."""
    return tensor(np.asarray(np.einsum(equation, *map(_array, inputs))))


def compat_where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Tensor:
    """`tf.compat.v1.where`: like `tf.where`, but a vector as condition chooses whole rows of `x` and `y`."""
    from penstock.tf.arithmetic import where

    if x is None or y is None:
        return where(condition, x, y)
    chosen, first = np.asarray(condition, bool), convert_to_tensor(x)
    if chosen.ndim == 1 and first.ndim > 1 and len(chosen) == len(first):
        chosen = chosen.reshape([-1] + [1] * (first.ndim - 1))
    return where(chosen, first, y)

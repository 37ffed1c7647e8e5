"""Shapes and parts of tensors: `tf.reshape`, `tf.stack`, `tf.gather` and others, computed by NumPy.

This module has only functions that occur in code that prepares data. NumPy's functions also accept a `Tensor`.
"""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from penstock.tf import probing
from penstock.tf.dtypes import as_dtype
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.refusals import refusing
from penstock.tf.shapes import TensorShape
from penstock.tf.tensor import Tensor, beside, convert_to_tensor

newaxis = None


def tensor(array: Any) -> Tensor:
    """A NumPy array or scalar as a tensor over the same memory."""
    return np.asarray(array).view(Tensor)


def is_tensor(x: Any) -> bool:
    """Whether a value is a tensor: dense, sparse or ragged.

    Example:
        >>> import penstock.tf as tf
        >>> tf.is_tensor(tf.constant(1)), tf.is_tensor(1)
        (True, False)
    """
    return isinstance(x, Tensor) or type(x).__name__ in {"SparseTensor", "RaggedTensor"}


def identity(input: Any, name: str | None = None) -> Tensor:
    """The same values as a tensor."""
    return convert_to_tensor(input)


def ensure_shape(x: Any, shape: Any, name: str | None = None) -> Tensor:
    """The tensor itself, if it has this shape (None fits any size).

    Raises:
        InvalidArgumentError: it has a different shape.

    Example:
        >>> import penstock.tf as tf
        >>> tf.ensure_shape(tf.zeros([2, 3]), [None, 3]).shape
        TensorShape([2, 3])
    """
    value = convert_to_tensor(x)
    if probing.is_on():
        value = identity(value.copy())
        value.set_shape(shape)
        return value
    if not value.shape.is_compatible_with(shape):
        raise InvalidArgumentError(
            None,
            None,
            f"Shape of tensor {value.shape} is not compatible with {TensorShape(shape)}.",
        )
    return value


def shape(input: Any, out_type: Any = "int32", name: str | None = None) -> Tensor:
    """The sizes of the dimensions, as a tensor.

    Example:
        >>> import penstock.tf as tf
        >>> tf.shape(tf.zeros([2, 3])).numpy()
        array([2, 3], dtype=int32)
    """
    return tensor(np.array(convert_to_tensor(input).shape, as_dtype(out_type).dtype))


def size(input: Any, out_type: Any = "int32", name: str | None = None) -> Tensor:
    """The number of values, as a scalar tensor."""
    return tensor(np.array(convert_to_tensor(input).size, as_dtype(out_type).dtype))


def rank(input: Any, name: str | None = None) -> Tensor:
    """The number of dimensions, as a scalar tensor."""
    return tensor(np.array(convert_to_tensor(input).ndim, np.int32))


def reshape(tensor: Any, shape: Any, name: str | None = None) -> Tensor:
    """The same values in another shape; one size may be -1.

    Raises:
        InvalidArgumentError: the shape has a different number of values.

    Example:
        >>> import penstock.tf as tf
        >>> tf.reshape([1, 2, 3, 4], [2, -1]).numpy().tolist()
        [[1, 2], [3, 4]]
    """
    value = convert_to_tensor(tensor)
    sizes = sizes_of(shape)
    try:
        return np.reshape(value, sizes).view(Tensor)
    except ValueError as error:
        if probing.is_on():
            unknown = [None if n == -1 else n for n in sizes]
            return probing.array(unknown, value.dtype).view(Tensor)
        raise InvalidArgumentError(
            None, None, f"Input to reshape is a tensor with {value.size} values, but the requested "
            f"shape is {list(sizes)}",
        ) from error  # fmt: skip


def sizes_of(shape: Any) -> tuple[int, ...]:
    """Convert a shape, or another argument of one or more integers, to a tuple."""
    return tuple(int(s) for s in np.atleast_1d(np.asarray(shape, np.int64)))


@refusing
def expand_dims(input: Any, axis: int, name: str | None = None) -> Tensor:
    """The tensor with a dimension of size 1 inserted at `axis`."""
    return tensor(np.expand_dims(convert_to_tensor(input), int(axis)))


def squeeze(input: Any, axis: Any = None, name: str | None = None) -> Tensor:
    """The tensor without its dimensions of size 1: all, or the named ones.

    Raises:
        InvalidArgumentError: a named dimension has a different size.
    """
    named = None if axis is None else tuple(int(a) for a in np.atleast_1d(axis))
    try:
        return tensor(np.squeeze(convert_to_tensor(input), named))
    except ValueError as error:
        raise InvalidArgumentError(None, None, f"Can not squeeze: {error}") from error


@refusing
def transpose(a: Any, perm: Any = None, conjugate: bool = False, name: str | None = None) -> Tensor:
    """The dimensions in another order; reversed by default."""
    value = convert_to_tensor(a)
    permuted = np.transpose(value, None if perm is None else sizes_of(perm))
    return tensor(np.conjugate(permuted) if conjugate else permuted)


def _parts(values: Any) -> list[Any]:
    """Tensors of one dtype, that of the first tensor among the values. Other values take it."""
    given = list(values)
    first = next((value for value in given if isinstance(value, Tensor)), None)
    if first is None:
        return [convert_to_tensor(value) for value in given]
    return [
        value if value is first else convert_to_tensor(beside(first, value), first.dtype)
        for value in given
    ]


def stack(values: Any, axis: int = 0, name: str = "stack") -> Tensor:
    """Tensors of one shape, stacked along a new dimension.

    Raises:
        InvalidArgumentError: their shapes or dtypes differ.

    Example:
        >>> import penstock.tf as tf
        >>> tf.stack([tf.constant([1, 2]), tf.constant([3, 4])], axis=1).numpy().tolist()
        [[1, 3], [2, 4]]
    """
    parts = _parts(values)
    try:
        return tensor(np.stack(parts, int(axis)))
    except ValueError as error:
        raise InvalidArgumentError(
            None, None, f"Shapes of all inputs must match: {error}"
        ) from error


def unstack(
    value: Any, num: int | None = None, axis: int = 0, name: str = "unstack"
) -> list[Tensor]:
    """The slices of a tensor along a dimension, as a list."""
    moved = np.moveaxis(convert_to_tensor(value), axis, 0)
    if num is not None and num != len(moved):
        raise ValueError(f"Expected axis {axis} to have {num} elements, it has {len(moved)}")
    return [tensor(moved[i, ...]) for i in range(len(moved))]


def concat(values: Any, axis: int, name: str = "concat") -> Tensor:
    """Tensors joined along a dimension.

    Raises:
        InvalidArgumentError: the sizes of other dimensions differ, or the dtypes.
    """
    parts = _parts(values)
    try:
        return tensor(np.concatenate(parts, int(axis)))
    except ValueError as error:
        raise InvalidArgumentError(
            None, None, f"Dimensions of inputs should match: {error}"
        ) from error


def split(
    value: Any, num_or_size_splits: Any, axis: int = 0, num: int | None = None, name: str = "split"
) -> list[Tensor]:
    """A tensor split along a dimension: into a number of equal parts, or into parts of these sizes.

    Raises:
        InvalidArgumentError: the sizes do not add up, or the parts would not be equal.
    """
    whole = convert_to_tensor(value)
    sizes = np.asarray(num_or_size_splits)
    length = whole.shape[axis]
    if sizes.ndim:
        if (sizes == -1).sum() == 1:
            sizes = np.where(sizes == -1, length - sizes[sizes != -1].sum(), sizes)
        if sizes.sum() != length or (sizes < 0).any():
            raise InvalidArgumentError(
                None, None, f"sizes {sizes.tolist()} do not add up to {length}"
            )
        cuts = np.cumsum(sizes)[:-1]
    elif length % int(sizes):
        raise InvalidArgumentError(
            None,
            None,
            f"Number of ways to split should evenly divide the split dimension, got {length} / {int(sizes)}",
        )
    else:
        cuts = int(sizes)
    return [tensor(part) for part in np.split(whole, cuts, axis)]


def slice(input_: Any, begin: Any, size: Any, name: str | None = None) -> Tensor:
    """The part that begins at `begin` and has the given sizes; -1 means up to the end.

    Raises:
        InvalidArgumentError: the part reaches beyond the tensor.
    """
    value = convert_to_tensor(input_)
    starts, sizes = sizes_of(begin), sizes_of(size)
    if probing.is_on():
        return _placeholder_slice(value, sizes)
    limits = np.shape(value)
    ends = [n if s == -1 else b + s for b, s, n in zip(starts, sizes, limits, strict=True)]
    if any(not 0 <= b <= e <= n for b, e, n in zip(starts, ends, limits, strict=True)):
        raise InvalidArgumentError(
            None, None, f"slice from {list(starts)} of {list(sizes)} is not inside {value.shape}"
        )
    return value[tuple(builtins.slice(b, e) for b, e in zip(starts, ends, strict=True))]


def _placeholder_slice(value: Tensor, sizes: tuple[int, ...]) -> Tensor:
    whole = zip(sizes, np.shape(value), strict=True)
    return probing.array([n if s < 0 else s for s, n in whole], value.dtype).view(Tensor)


def gather(
    params: Any,
    indices: Any,
    validate_indices: Any = None,
    axis: Any = None,
    batch_dims: int = 0,
    name: str | None = None,
) -> Tensor:
    """The slices with these indices along a dimension.

    Raises:
        InvalidArgumentError: an index is out of range.
    """
    value, places = convert_to_tensor(params), np.asarray(indices)
    if batch_dims:
        return _gathered_by_batch(value, places, int(axis or batch_dims), batch_dims)
    axis = int(axis or 0)
    length = value.shape[axis]
    if probing.is_on():
        places = np.clip(places, 0, max(length - 1, 0))
        return tensor(np.take(value, places, axis) if length else _none(value, places, axis))
    if places.size and (places.min() < 0 or places.max() >= length):
        raise InvalidArgumentError(
            None, None, f"indices {places.tolist()} are not in [0, {length})"
        )
    return tensor(np.take(value, places, int(axis)))


def _none(value: Tensor, places: Any, axis: int) -> Any:
    shape = np.shape(value)
    return np.zeros((*shape[:axis], *places.shape, *shape[axis + 1 :]), value.dtype.dtype)


def _gathered_by_batch(value: Tensor, places: Any, axis: int, batch_dims: int) -> Tensor:
    """Gather separately within each entry of the first `batch_dims` dimensions."""
    if batch_dims < 0:
        batch_dims += places.ndim
    if batch_dims == 0:
        return gather(value, places, axis=axis)
    parts = [
        _gathered_by_batch(part, numbers, axis - 1, batch_dims - 1)
        for part, numbers in zip(value, places, strict=True)
    ]
    return tensor(np.stack(parts))


def gather_nd(
    params: Any,
    indices: Any,
    batch_dims: int = 0,
    name: str | None = None,
    bad_indices_policy: str = "",
) -> Tensor:
    """The values, or slices, at the positions in the last dimension of `indices`.

    Raises:
        InvalidArgumentError: a position is out of range.

    Example:
        >>> import penstock.tf as tf
        >>> tf.gather_nd([[1, 2], [3, 4]], [[1, 0], [0, 1]]).numpy()
        array([3, 2], dtype=int32)
    """
    value, places = convert_to_tensor(params).view(np.ndarray), np.asarray(indices)
    if batch_dims:
        parts = zip(value, places, strict=True)
        return tensor(np.stack([gather_nd(v, p, batch_dims - 1) for v, p in parts]))
    if not places.size:
        places = places.astype(np.int64)
    limits = np.array(value.shape[: places.shape[-1]], np.int64)
    if probing.is_on():
        places = np.clip(places, 0, np.maximum(limits - 1, 0))
    if ((places < 0) | (places >= limits)).any():
        raise InvalidArgumentError(
            None, None, f"indices {places.tolist()} do not index into param shape {value.shape}"
        )
    return tensor(value[tuple(np.moveaxis(places, -1, 0))])


def strided_slice(
    input_: Any,
    begin: Any,
    end: Any,
    strides: Any = None,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
    var: Any = None,
    name: str | None = None,
) -> Tensor:
    """The part from `begin` to before `end` in steps, as with NumPy's slices. The masks have TensorFlow's meaning.

    Example:
        >>> import penstock.tf as tf
        >>> tf.strided_slice([1, 2, 3, 4, 5], [1], [5], [2]).numpy()
        array([2, 4], dtype=int32)
    """
    starts, ends = sizes_of(begin), sizes_of(end)
    steps = (1,) * len(starts) if strides is None else sizes_of(strides)
    key: list[Any] = []
    for i, (start, stop, step) in enumerate(zip(starts, ends, steps, strict=True)):
        bit = 1 << i
        if ellipsis_mask & bit:
            key.append(...)
        elif new_axis_mask & bit:
            key.append(None)
        elif shrink_axis_mask & bit:
            key.append(start)
        else:
            first = None if begin_mask & bit else start
            key.append(builtins.slice(first, None if end_mask & bit else stop, step))
    return convert_to_tensor(input_)[tuple(key)]


def boolean_mask(
    tensor: Any, mask: Any, axis: int | None = None, name: str = "boolean_mask"
) -> Tensor:
    """The slices for which the mask is true.

    Raises:
        ValueError: a mask of another shape.
    """
    value, chosen = convert_to_tensor(tensor), np.asarray(mask, bool)
    lead = (builtins.slice(None),) * (axis or 0)
    masked = np.shape(value)[len(lead) : len(lead) + chosen.ndim]
    if masked != chosen.shape:
        raise ValueError(f"Shapes {masked} and {chosen.shape} are incompatible")
    return value[(*lead, chosen)]


def reverse(tensor: Any, axis: Any, name: str | None = None) -> Tensor:
    """The values in reversed order along the named dimensions."""
    return np.flip(convert_to_tensor(tensor), sizes_of(axis)).view(Tensor)


@refusing
def tile(input: Any, multiples: Any, name: str | None = None) -> Tensor:
    """The tensor repeated `multiples` times along each dimension."""
    return tensor(np.tile(convert_to_tensor(input), sizes_of(multiples)))


def repeat(input: Any, repeats: Any, axis: int | None = None, name: str | None = None) -> Tensor:
    """Repeat each value, or each slice along a dimension."""
    return tensor(np.repeat(convert_to_tensor(input), np.asarray(repeats), axis))


@refusing
def broadcast_to(input: Any, shape: Any, name: str | None = None) -> Tensor:
    """The tensor expanded to a larger shape, by NumPy's broadcasting rules."""
    return tensor(np.broadcast_to(convert_to_tensor(input), sizes_of(shape)))


@refusing
def pad(
    tensor: Any,
    paddings: Any,
    mode: str = "CONSTANT",
    constant_values: Any = 0,
    name: str | None = None,
) -> Tensor:
    """The tensor with values added before and after it along each dimension.

    Args:
        tensor: the tensor to pad.
        paddings: [rank, 2]: how many values before, how many after.
        mode: CONSTANT, REFLECT or SYMMETRIC.
        constant_values: the added value in CONSTANT mode.
        name: ignored.
    """
    value, widths = convert_to_tensor(tensor), np.asarray(paddings)
    if probing.is_on():
        widths = np.maximum(widths, 0)
    elif (widths < 0).any():
        raise InvalidArgumentError(None, None, f"Paddings must be non-negative: {widths.tolist()}")
    if mode.upper() == "CONSTANT":
        return np.pad(value, widths, constant_values=constant_values).view(Tensor)
    return np.pad(value, widths, mode=mode.lower()).view(Tensor)  # type: ignore[call-overload]

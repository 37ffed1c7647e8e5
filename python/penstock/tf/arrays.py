"""What programs do with the shape of a tensor: `tf.reshape`, `tf.stack`, `tf.gather` and their kin, by NumPy.

Only what appears in code that prepares data is here; NumPy's own functions take a `Tensor`, too.
"""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from penstock.tf.dtypes import as_dtype, string
from penstock.tf.errors import InvalidArgumentError, UnimplementedError
from penstock.tf.shapes import TensorShape
from penstock.tf.tensor import Tensor, constant, convert_to_tensor

newaxis = None
_WIDTHS = [np.dtype(name) for name in ("int32", "int64", "float16", "float32", "float64")]
"""What the numbers of a range can be; the last of those given counts."""


def tensor(array: Any) -> Tensor:
    """An array of NumPy's, or a scalar of its, as a tensor over the same memory."""
    return np.asarray(array).view(Tensor)


def is_tensor(x: Any) -> bool:
    """Whether this is a tensor: dense, sparse or ragged.

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
    """The tensor, if it has the shape (None fits any size).

    Raises:
        InvalidArgumentError: it has another.

    Example:
        >>> import penstock.tf as tf
        >>> tf.ensure_shape(tf.zeros([2, 3]), [None, 3]).shape
        TensorShape([2, 3])
    """
    value = convert_to_tensor(x)
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
        InvalidArgumentError: the shape has another number of values.

    Example:
        >>> import penstock.tf as tf
        >>> tf.reshape([1, 2, 3, 4], [2, -1]).numpy().tolist()
        [[1, 2], [3, 4]]
    """
    value = convert_to_tensor(tensor)
    sizes = _sizes(shape)
    try:
        return np.reshape(value, sizes).view(Tensor)
    except ValueError as error:
        raise InvalidArgumentError(
            None, None, f"Input to reshape is a tensor with {value.size} values, but the requested "
            f"shape is {list(sizes)}",
        ) from error  # fmt: skip


def _sizes(shape: Any) -> tuple[int, ...]:
    return tuple(int(s) for s in np.atleast_1d(np.asarray(shape, np.int64)))


def expand_dims(input: Any, axis: int, name: str | None = None) -> Tensor:
    """A dimension of size 1 put in at `axis`."""
    return tensor(np.expand_dims(convert_to_tensor(input), int(axis)))


def squeeze(input: Any, axis: Any = None, name: str | None = None) -> Tensor:
    """Dimensions of size 1 taken out: all, or those named.

    Raises:
        InvalidArgumentError: a dimension named has another size.
    """
    named = None if axis is None else tuple(int(a) for a in np.atleast_1d(axis))
    try:
        return tensor(np.squeeze(convert_to_tensor(input), named))
    except ValueError as error:
        raise InvalidArgumentError(None, None, f"Can not squeeze: {error}") from error


def transpose(a: Any, perm: Any = None, conjugate: bool = False, name: str | None = None) -> Tensor:
    """The dimensions in another order; reversed where none is given."""
    value = convert_to_tensor(a)
    turned = np.transpose(value, None if perm is None else _sizes(perm))
    return tensor(np.conjugate(turned) if conjugate else turned)


def stack(values: Any, axis: int = 0, name: str = "stack") -> Tensor:
    """Tensors of one shape, side by side along a new dimension.

    Raises:
        InvalidArgumentError: their shapes differ.

    Example:
        >>> import penstock.tf as tf
        >>> tf.stack([tf.constant([1, 2]), tf.constant([3, 4])], axis=1).numpy().tolist()
        [[1, 3], [2, 4]]
    """
    parts = [convert_to_tensor(v) for v in values]
    try:
        return tensor(np.stack(parts, int(axis)))
    except ValueError as error:
        raise InvalidArgumentError(
            None, None, f"Shapes of all inputs must match: {error}"
        ) from error


def unstack(
    value: Any, num: int | None = None, axis: int = 0, name: str = "unstack"
) -> list[Tensor]:
    """The tensors that lie side by side along a dimension."""
    moved = np.moveaxis(convert_to_tensor(value), axis, 0)
    if num is not None and num != len(moved):
        raise ValueError(f"Expected axis {axis} to have {num} elements, it has {len(moved)}")
    return [tensor(moved[i, ...]) for i in builtins.range(len(moved))]


def concat(values: Any, axis: int, name: str = "concat") -> Tensor:
    """Tensors one behind the other along a dimension.

    Raises:
        InvalidArgumentError: other sizes differ.
    """
    parts = [convert_to_tensor(v) for v in values]
    try:
        return tensor(np.concatenate(parts, int(axis)))
    except ValueError as error:
        raise InvalidArgumentError(
            None, None, f"Dimensions of inputs should match: {error}"
        ) from error


def split(
    value: Any, num_or_size_splits: Any, axis: int = 0, num: int | None = None, name: str = "split"
) -> list[Tensor]:
    """A tensor cut along a dimension: into so many equal parts, or into parts of these sizes.

    Raises:
        InvalidArgumentError: it cannot be cut so.
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
    """The part that begins at `begin` and has the given sizes; -1 is as far as it goes.

    Raises:
        InvalidArgumentError: the part reaches beyond the tensor.
    """
    value = convert_to_tensor(input_)
    starts, sizes = _sizes(begin), _sizes(size)
    limits = np.shape(value)
    ends = [n if s == -1 else b + s for b, s, n in zip(starts, sizes, limits, strict=True)]
    if any(not 0 <= b <= e <= n for b, e, n in zip(starts, ends, limits, strict=True)):
        raise InvalidArgumentError(
            None, None, f"slice from {list(starts)} of {list(sizes)} is not inside {value.shape}"
        )
    return value[tuple(builtins.slice(b, e) for b, e in zip(starts, ends, strict=True))]


def gather(
    params: Any,
    indices: Any,
    validate_indices: Any = None,
    axis: int = 0,
    batch_dims: int = 0,
    name: str | None = None,
) -> Tensor:
    """The slices at these places along a dimension.

    Raises:
        InvalidArgumentError: a place that is not there.
    """
    if batch_dims:
        told = "tf.gather(batch_dims=...) is not in penstock; use np.take_along_axis"
        raise UnimplementedError(None, None, told)
    value, places = convert_to_tensor(params), np.asarray(indices)
    length = value.shape[axis]
    if places.size and (places.min() < 0 or places.max() >= length):
        raise InvalidArgumentError(
            None, None, f"indices {places.tolist()} are not in [0, {length})"
        )
    return tensor(np.take(value, places, int(axis)))


def gather_nd(
    params: Any,
    indices: Any,
    batch_dims: int = 0,
    name: str | None = None,
    bad_indices_policy: str = "",
) -> Tensor:
    """The values, or slices, at places that the last dimension of `indices` names.

    Raises:
        InvalidArgumentError: a place that is not there.

    Example:
        >>> import penstock.tf as tf
        >>> tf.gather_nd([[1, 2], [3, 4]], [[1, 0], [0, 1]]).numpy()
        array([3, 2], dtype=int32)
    """
    if batch_dims:
        told = "tf.gather_nd(batch_dims=...) is not in penstock; use np.take_along_axis"
        raise UnimplementedError(None, None, told)
    value, places = convert_to_tensor(params).view(np.ndarray), np.asarray(indices)
    if not places.size:
        places = places.astype(np.int64)
    limits = np.array(value.shape[: places.shape[-1]], np.int64)
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
    """The part from `begin` to before `end` in steps, as slices of NumPy's; masks as TensorFlow's.

    Example:
        >>> import penstock.tf as tf
        >>> tf.strided_slice([1, 2, 3, 4, 5], [1], [5], [2]).numpy()
        array([2, 4], dtype=int32)
    """
    starts, ends = _sizes(begin), _sizes(end)
    steps = (1,) * len(starts) if strides is None else _sizes(strides)
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
    """The slices where the mask is true."""
    value, chosen = convert_to_tensor(tensor), np.asarray(mask, bool)
    lead = (builtins.slice(None),) * (axis or 0)
    return value[(*lead, chosen)]


def reverse(tensor: Any, axis: Any, name: str | None = None) -> Tensor:
    """The values in reversed order along the dimensions named."""
    return np.flip(convert_to_tensor(tensor), _sizes(axis)).view(Tensor)


def tile(input: Any, multiples: Any, name: str | None = None) -> Tensor:
    """The tensor repeated so many times along each dimension."""
    return tensor(np.tile(convert_to_tensor(input), _sizes(multiples)))


def repeat(input: Any, repeats: Any, axis: int | None = None, name: str | None = None) -> Tensor:
    """Each value, or each slice along a dimension, several times."""
    return tensor(np.repeat(convert_to_tensor(input), np.asarray(repeats), axis))


def broadcast_to(input: Any, shape: Any, name: str | None = None) -> Tensor:
    """The tensor as one of a larger shape, by NumPy's rules of broadcasting."""
    return tensor(np.broadcast_to(convert_to_tensor(input), _sizes(shape)))


def pad(
    tensor: Any,
    paddings: Any,
    mode: str = "CONSTANT",
    constant_values: Any = 0,
    name: str | None = None,
) -> Tensor:
    """The tensor with values put before and behind it along each dimension.

    Args:
        tensor: what is padded.
        paddings: [rank, 2] numbers: values before, values behind.
        mode: CONSTANT, REFLECT or SYMMETRIC.
        constant_values: what is put there in CONSTANT mode.
        name: no meaning here.
    """
    value, widths = convert_to_tensor(tensor), np.asarray(paddings)
    if mode.upper() == "CONSTANT":
        return np.pad(value, widths, constant_values=constant_values).view(Tensor)
    return np.pad(value, widths, mode=mode.lower()).view(Tensor)  # type: ignore[call-overload]


def fill(dims: Any, value: Any, name: str | None = None) -> Tensor:
    """A tensor of one value."""
    return tensor(np.full(_sizes(dims), constant(value)))


def zeros(
    shape: Any, dtype: Any = "float32", name: str | None = None, layout: Any = None
) -> Tensor:
    """A tensor of zeros; of empty strings where the dtype is string."""
    kind = as_dtype(dtype)
    return fill(shape, b"") if kind is string else tensor(np.zeros(_sizes(shape), kind.dtype))


def ones(shape: Any, dtype: Any = "float32", name: str | None = None, layout: Any = None) -> Tensor:
    """A tensor of ones."""
    return tensor(np.ones(_sizes(shape), as_dtype(dtype).dtype))


def zeros_like(
    input: Any, dtype: Any = None, name: str | None = None, layout: Any = None
) -> Tensor:
    """A tensor of zeros of the same shape."""
    value = convert_to_tensor(input)
    return zeros(value.shape, dtype or value.dtype)


def ones_like(input: Any, dtype: Any = None, name: str | None = None, layout: Any = None) -> Tensor:
    """A tensor of ones of the same shape."""
    value = convert_to_tensor(input)
    return ones(value.shape, dtype or value.dtype)


def range(
    start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None, name: str = "range"
) -> Tensor:
    """Numbers from `start` to before `limit`; from 0 where only one is given.

    Example:
        >>> import penstock.tf as tf
        >>> tf.range(3).numpy()
        array([0, 1, 2], dtype=int32)
    """
    if limit is None:
        start, limit = 0, start
    parts = [convert_to_tensor(part) for part in (start, limit, delta)]
    if dtype is None:
        kind = max((part.dtype for part in parts), key=_WIDTHS.index)
    else:
        kind = as_dtype(dtype).dtype
    first, last, step = (part.astype(kind).item() for part in parts)
    if step == 0:
        raise InvalidArgumentError(None, None, "Requires delta != 0")
    if (step > 0 and first > last) or (step < 0 and first < last):
        compared = "<=" if step > 0 else ">="
        raise InvalidArgumentError(
            None,
            None,
            f"Requires start {compared} limit when delta {'>' if step > 0 else '<'} 0: {first}, {last}",
        )
    return tensor(np.arange(first, last, step, dtype=kind))


def one_hot(
    indices: Any,
    depth: int,
    on_value: Any = 1,
    off_value: Any = 0,
    axis: int = -1,
    dtype: Any = None,
    name: str | None = None,
) -> Tensor:
    """For each index a vector that is `on_value` there and `off_value` elsewhere; nowhere on where it is outside.

    Example:
        >>> import penstock.tf as tf
        >>> tf.one_hot([1, -1], 2).numpy().tolist()
        [[0.0, 1.0], [0.0, 0.0]]
    """
    places = np.asarray(indices)
    kind = as_dtype(dtype or "float32").dtype
    hot = places[..., None] == np.arange(int(depth))
    made = np.where(hot, np.asarray(on_value, kind), np.asarray(off_value, kind))
    return tensor(made if axis == -1 else np.moveaxis(made, -1, axis))


def eye(
    num_rows: int,
    num_columns: int | None = None,
    batch_shape: Any = None,
    dtype: Any = "float32",
    name: str | None = None,
) -> Tensor:
    """Ones on the diagonal, zeros elsewhere."""
    one = np.eye(int(num_rows), num_columns, dtype=as_dtype(dtype).dtype)
    return tensor(
        one if batch_shape is None else np.broadcast_to(one, (*_sizes(batch_shape), *one.shape))
    )

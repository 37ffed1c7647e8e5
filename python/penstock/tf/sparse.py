"""`tf.sparse`: sparse tensors, such as those that parsing returns.

Only the counts are checked when a tensor is made. As in TensorFlow, indices may be out of order, repeated or outside
the shape. `to_dense` raises an error for such indices.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.tf.dtypes import DType, as_dtype, string
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.missing import KnownNames, absent_from
from penstock.tf.shapes import TensorShape
from penstock.tf.tensor import Tensor, convert_to_tensor


class SparseTensor(metaclass=KnownNames):
    """Elements of a tensor by their indices; all others are zero or empty.

    Args:
        indices: int64 [n, rank], the index of each element.
        values: [n], the elements.
        dense_shape: int64 [rank], the shape of the dense tensor.

    Raises:
        ValueError: different numbers of indices and values, or a different rank of indices and shape.

    Example:
        >>> import penstock.tf as tf
        >>> from penstock.tf.sparse import SparseTensor
        >>> sparse = SparseTensor([[0, 1], [2, 0]], [5, 6], [3, 2])
        >>> sparse.values.numpy(), sparse.shape, sparse.dtype
        (array([5, 6], dtype=int32), TensorShape([3, 2]), tf.int32)
    """

    __slots__ = ("dense_shape", "indices", "values")

    def __init__(self, indices: Any, values: Any, dense_shape: Any) -> None:
        self.indices: Tensor = _int64(indices)
        self.values: Tensor = convert_to_tensor(values)
        self.dense_shape: Tensor = _int64(dense_shape)
        for name, tensor, rank in (
            ("indices", self.indices, 2),
            ("values", self.values, 1),
            ("dense_shape", self.dense_shape, 1),
        ):
            if tensor.ndim != rank:
                raise ValueError(
                    f"Shape {tensor.shape} must have rank {rank}: {name} of a SparseTensor"
                )
        same_length(len(self.indices), len(self.values))
        same_length(self.indices.shape[1], len(self.dense_shape))

    @property
    def shape(self) -> TensorShape:
        """The shape of the dense tensor."""
        return TensorShape(self.dense_shape.tolist())

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return as_dtype(self.values.dtype)

    def get_shape(self) -> TensorShape:
        """The shape of the dense tensor."""
        return self.shape

    def with_values(self, new_values: Any) -> SparseTensor:
        """Other elements with the same indices."""
        return SparseTensor(self.indices, new_values, self.dense_shape)

    def __getattr__(self, name: str) -> Any:
        return absent_from("tf.SparseTensor")(name)

    def __repr__(self) -> str:
        return f"SparseTensor(indices={self.indices}, values={self.values}, dense_shape={self.dense_shape})"


def _int64(value: Any) -> Tensor:
    if isinstance(value, Tensor) and value.dtype == np.int64:
        return value
    return np.asarray(value, np.int64).view(Tensor)


class DifferentLengths(Exception):
    """The cause of a ValueError about sizes. In a dataset's functions, it becomes an InvalidArgumentError, because
    TensorFlow knows sizes only at run time."""


def same_length(found: int, expected: int) -> None:
    """Raise ValueError if two sizes differ."""
    if found != expected:
        message = f"Dimensions {found} and {expected} are not compatible"
        raise ValueError(message) from DifferentLengths()


def made(indices: Any, values: Any, dense_shape: Any) -> SparseTensor:
    """A SparseTensor made from tensors that are known to match."""
    tensor = SparseTensor.__new__(SparseTensor)
    tensor.indices, tensor.values, tensor.dense_shape = indices, values, dense_shape
    return tensor


def sorted_order(indices: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """The permutation that sorts indices row by row; None if they are sorted."""
    columns = indices.T
    earlier = np.zeros(max(len(indices) - 1, 0), np.bool_)
    equal = ~earlier
    for column in columns:
        step = np.diff(column) if column.size else column
        earlier |= equal & (step < 0)
        equal &= step == 0
    return np.lexsort(columns[::-1]) if earlier.any() else None


def reorder(sp_input: SparseTensor, name: str | None = None) -> SparseTensor:
    """The same elements sorted by index; equal indices keep their order.

    Example:
        >>> from penstock.tf.sparse import SparseTensor, reorder
        >>> reorder(SparseTensor([[2], [0]], [5, 6], [3])).indices.numpy().tolist()
        [[0], [2]]
    """
    order = sorted_order(np.asarray(sp_input.indices))
    if order is None:
        return sp_input
    return made(sp_input.indices[order], sp_input.values[order], sp_input.dense_shape)


def to_dense(
    sp_input: SparseTensor,
    default_value: Any = None,
    validate_indices: bool = True,
    name: str | None = None,
) -> Tensor:
    """The dense tensor.

    Args:
        sp_input: the sparse tensor.
        default_value: the value of all other elements; None: zero, False or b"".
        validate_indices: whether indices out of order or repeated are an error.
        name: ignored.

    Raises:
        InvalidArgumentError: an index outside the shape, out of order or repeated.

    Example:
        >>> from penstock.tf.sparse import SparseTensor, to_dense
        >>> to_dense(SparseTensor([[0], [2]], [5, 6], [4]), default_value=-1).numpy()
        array([ 5, -1,  6, -1], dtype=int32)
    """
    indices, sizes = np.asarray(sp_input.indices), np.asarray(sp_input.dense_shape)
    for number in np.flatnonzero(((indices < 0) | (indices >= sizes)).any(axis=1)):
        raise InvalidArgumentError(
            None,
            None,
            f"indices[{number}] = {indices[number].tolist()} is out of bounds: need 0 <= index < {sizes.tolist()}",
        )
    if validate_indices and len(indices):
        _check_order(indices, sizes)
    if default_value is None:
        default_value = b"" if sp_input.dtype is string else 0
    fill = convert_to_tensor(default_value, dtype=sp_input.dtype)
    if fill.ndim:
        raise InvalidArgumentError(None, None, "default_value should be a scalar.")
    dense = np.full(tuple(sizes), fill[()].numpy(), sp_input.values.dtype)
    dense[tuple(indices.T)] = np.asarray(sp_input.values)
    return dense.view(Tensor)


def _check_order(indices: np.ndarray[Any, Any], sizes: np.ndarray[Any, Any]) -> None:
    flat = np.ravel_multi_index(tuple(indices.T), tuple(sizes)) if len(sizes) else np.zeros(1, int)
    step = np.diff(flat)
    for number in np.flatnonzero(step <= 0):
        what = "is repeated" if step[number] == 0 else "is out of order"
        raise InvalidArgumentError(
            None,
            None,
            f"indices[{number + 1}] = {indices[number + 1].tolist()} {what}. "
            "Use `tf.sparse.reorder` for indices in order.",
        )


def from_dense(tensor: Any, name: str | None = None) -> SparseTensor:
    """The elements of a tensor that are not zero, False or b"".

    Example:
        >>> from penstock.tf.sparse import from_dense
        >>> from_dense([[0, 7], [8, 0]]).indices.numpy().tolist()
        [[0, 1], [1, 0]]
    """
    whole = convert_to_tensor(tensor)
    given = np.asarray(whole)
    kept = given != (b"" if given.dtype == object else 0)
    indices = np.argwhere(kept).view(Tensor)
    shape = np.asarray(given.shape, np.int64).view(Tensor)
    return made(indices, given[kept].view(Tensor), shape)


__getattr__ = absent_from("tf.sparse")

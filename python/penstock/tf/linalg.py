"""`tf.linalg`: products, norms, diagonals and bands of matrices, by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.tf.arithmetic import matmul
from penstock.tf.arrays import tensor
from penstock.tf.creation import eye
from penstock.tf.missing import absent_from
from penstock.tf.more_math import l2_normalize
from penstock.tf.selecting import einsum
from penstock.tf.selecting import tensor_dot as tensordot
from penstock.tf.tensor import Tensor, convert_to_tensor

__all__ = [
    "band_part",
    "det",
    "diag",
    "diag_part",
    "einsum",
    "eye",
    "inv",
    "l2_normalize",
    "matmul",
    "matrix_transpose",
    "matvec",
    "norm",
    "set_diag",
    "solve",
    "svd",
    "tensordot",
    "trace",
]


def _array(value: Any) -> np.ndarray[Any, Any]:
    return convert_to_tensor(value).view(np.ndarray)


def band_part(input: Any, num_lower: Any, num_upper: Any, name: str | None = None) -> Tensor:
    """Matrices with zeros outside a band around the diagonal. -1 keeps all values on that side of it.

    Example:
        >>> import penstock.tf as tf
        >>> tf.linalg.band_part(tf.ones([2, 2]), -1, 0).numpy().tolist()
        [[1.0, 0.0], [1.0, 1.0]]
    """
    given = _array(input)
    rows, columns = (np.arange(n) for n in given.shape[-2:])
    below = rows[:, None] - columns
    lower, upper = int(num_lower), int(num_upper)
    kept = ((lower < 0) | (below <= lower)) & ((upper < 0) | (-below <= upper))
    return tensor(np.where(kept, given, np.zeros((), given.dtype)))


def diag(diagonal: Any, name: str = "diag", k: int = 0, **_: Any) -> Tensor:
    """Matrices with these diagonals."""
    given = _array(diagonal)
    size = given.shape[-1] + abs(k)
    made = np.zeros((*given.shape[:-1], size, size), given.dtype)
    places = np.arange(given.shape[-1])
    made[..., places + max(-k, 0), places + max(k, 0)] = given
    return tensor(made)


def diag_part(input: Any, name: str = "diag_part", k: int = 0, **_: Any) -> Tensor:
    """The diagonals of matrices."""
    return tensor(np.diagonal(_array(input), k, -2, -1).copy())


def set_diag(input: Any, diagonal: Any, name: str = "set_diag", k: int = 0, **_: Any) -> Tensor:
    """Matrices with their diagonals replaced."""
    made = _array(input).copy()
    places = np.arange(np.asarray(diagonal).shape[-1])
    made[..., places + max(-k, 0), places + max(k, 0)] = _array(diagonal)
    return tensor(made)


def trace(x: Any, name: str | None = None) -> Tensor:
    """The sums of the diagonals."""
    given = _array(x)
    return tensor(np.asarray(np.trace(given, axis1=-2, axis2=-1), given.dtype))


def norm(
    tensor: Any,
    ord: Any = "euclidean",
    axis: Any = None,
    keepdims: bool = False,
    name: str | None = None,
) -> Tensor:
    """The norm over all dimensions, or over those in `axis`: euclidean, 1, 2, a number or infinity."""
    given = _array(tensor)
    over = axis if axis is None or np.ndim(axis) == 0 else tuple(axis)
    magnitude = np.abs(given)
    if ord in {"euclidean", "fro", 2}:
        made = np.sqrt(np.sum(np.square(magnitude), axis=over, keepdims=keepdims))
    elif ord == np.inf:
        made = np.max(magnitude, axis=over, keepdims=keepdims)
    else:
        made = np.sum(magnitude**ord, axis=over, keepdims=keepdims) ** (1 / ord)
    return np.asarray(made, magnitude.dtype).view(Tensor)


def matrix_transpose(a: Any, name: str = "matrix_transpose", conjugate: bool = False) -> Tensor:
    """Matrices with rows and columns exchanged."""
    made = np.swapaxes(_array(a), -1, -2)
    return tensor(np.conjugate(made) if conjugate else made)


def matvec(a: Any, b: Any, transpose_a: bool = False, name: str | None = None, **_: Any) -> Tensor:
    """Products of matrices and vectors."""
    return tensor(matmul(a, _array(b)[..., None], transpose_a=transpose_a).view(np.ndarray)[..., 0])


def inv(input: Any, adjoint: bool = False, name: str | None = None) -> Tensor:
    """The inverses of matrices."""
    return tensor(np.linalg.inv(_array(input)))


def det(input: Any, name: str | None = None) -> Tensor:
    """The determinants of matrices."""
    return tensor(np.asarray(np.linalg.det(_array(input))))


def solve(matrix: Any, rhs: Any, adjoint: bool = False, name: str | None = None) -> Tensor:
    """The solutions of systems of equations."""
    return tensor(np.linalg.solve(_array(matrix), _array(rhs)))


def svd(
    tensor: Any, full_matrices: bool = False, compute_uv: bool = True, name: str | None = None
) -> Any:
    """Singular values, and the left and right singular vectors."""
    if not compute_uv:
        return np.linalg.svd(_array(tensor), compute_uv=False).view(Tensor)
    left, values, right = np.linalg.svd(_array(tensor), full_matrices)
    return values.view(Tensor), left.view(Tensor), np.swapaxes(right, -1, -2).view(Tensor)


__getattr__ = absent_from("tf.linalg")

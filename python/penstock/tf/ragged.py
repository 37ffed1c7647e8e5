"""`tf.ragged`."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.tf.dtypes import as_dtype, int64
from penstock.tf.missing import absent_from
from penstock.tf.ragged_tensor import RaggedTensor
from penstock.tf.shapes import TensorShape
from penstock.tf.tensor import constant as dense_constant


def constant(
    pylist: Any,
    dtype: Any = None,
    ragged_rank: int | None = None,
    inner_shape: Any = None,
    name: str | None = None,
    row_splits_dtype: Any = int64,
) -> Any:
    """A RaggedTensor from nested lists; a Tensor if no dimension can be ragged.

    Args:
        pylist: nested lists of Python values, all values at one depth.
        dtype: of the values.
        ragged_rank: how many levels are ragged; None: all but the outermost, less those of `inner_shape`.
        inner_shape: the shape of each innermost value.
        name: ignored.
        row_splits_dtype: int32 or int64.

    Raises:
        ValueError: values at different depths, or nesting that does not fit ragged_rank.

    Example:
        >>> from penstock.tf.ragged import constant
        >>> constant([[1, 2], [], [3]])
        <tf.RaggedTensor [[1, 2], [], [3]]>
    """
    inner = None if inner_shape is None else tuple(TensorShape(inner_shape).as_list())
    depth, ragged_rank = _checked_nesting(pylist, ragged_rank, len(inner or ()))
    if not ragged_rank:
        return dense_constant(pylist, dtype, inner)
    values, nested_splits = _flattened(list(pylist), ragged_rank)
    if inner is None and values and depth > ragged_rank + 1:
        inner = np.asarray(values).shape[1:]
    shape = [len(values), *inner] if inner or (values and inner is not None) else None
    flat_values = dense_constant(values, dtype, shape)
    kind = as_dtype(row_splits_dtype).dtype
    return RaggedTensor.from_nested_row_splits(
        flat_values, [np.asarray(splits, kind) for splits in nested_splits], validate=False
    )


def _checked_nesting(pylist: Any, ragged_rank: int | None, inner_rank: int) -> tuple[int, int]:
    """The nesting depth of lists, and the number of their levels that are ragged."""
    scalars, deepest = _depths(pylist)
    if scalars is not None and deepest > scalars:
        raise ValueError(
            f"Invalid pylist={pylist!r}: empty list nesting is greater than scalar value nesting"
        )
    depth = deepest if scalars is None else scalars
    if ragged_rank is None:
        return depth, max(depth - 1 - inner_rank, 0)
    if scalars is not None and depth < ragged_rank + 1 + inner_rank:
        raise ValueError(f"Invalid pylist={pylist!r}: incompatible with ragged_rank={ragged_rank}")
    return depth, ragged_rank


def _flattened(rows: list[Any], levels: int) -> tuple[list[Any], list[list[int]]]:
    """The values of rows nested this many levels deep, and the row splits of each level."""
    nested: list[list[int]] = []
    for _ in range(levels):
        splits = [0]
        for row in rows:
            splits.append(splits[-1] + len(row))
        nested.append(splits)
        rows = [part for row in rows for part in row]
    return rows, nested


def _depths(value: Any) -> tuple[int | None, int]:
    """The nesting depth of the values (None if there are none), and that of the deepest list."""
    if not isinstance(value, (list, tuple)) and np.ndim(value) == 0:
        return 0, 0
    scalars, deepest = None, 1
    for part in value:
        found, below = _depths(part)
        if found is not None:
            if scalars not in (None, found + 1):
                raise ValueError("all scalar values must have the same nesting depth")
            scalars = found + 1
        deepest = max(deepest, below + 1)
    return scalars, deepest


__getattr__ = absent_from("tf.ragged")

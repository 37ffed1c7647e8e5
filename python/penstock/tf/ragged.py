"""`tf.ragged`: functions that make, join and mask ragged tensors."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from penstock.tf.dtypes import as_dtype, int64
from penstock.tf.missing import absent_from
from penstock.tf.ragged_tensor import RaggedTensor
from penstock.tf.row_splits import sums
from penstock.tf.shapes import TensorShape
from penstock.tf.tensor import Tensor, convert_to_tensor
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
        dtype: the dtype of the values.
        ragged_rank: how many levels are ragged; None: all but the outermost level and those of `inner_shape`.
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
    for _ in builtins.range(levels):
        splits = [0]
        for row in rows:
            splits.append(splits[-1] + len(row))
        nested.append(splits)
        rows = [part for row in rows for part in row]
    return rows, nested


def _depths(value: Any) -> tuple[int | None, int]:
    """The nesting depth of the values (None if there are none), and the depth of the deepest list."""
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


def map_flat_values(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Apply an operation to the innermost values of ragged tensors. The result has the same rows."""
    first = next((a for a in args if isinstance(a, RaggedTensor)), None)
    flat = [a.flat_values if isinstance(a, RaggedTensor) else a for a in args]
    made = op(*flat, **kwargs)
    return made if first is None else first.with_flat_values(made)


def stack(values: Any, axis: int = 0, name: str | None = None) -> RaggedTensor:
    """Tensors of different lengths as the rows of a ragged tensor."""
    parts = [v if isinstance(v, RaggedTensor) else convert_to_tensor(v) for v in values]
    if axis != 0:
        raise ValueError("tf.ragged.stack of penstock stacks along the first dimension only")
    joined = concat_rows(parts)
    kind = np.int64 if any(isinstance(part, RaggedTensor) for part in parts) else np.int32
    return RaggedTensor.from_row_lengths(joined, np.array([len(part) for part in parts], kind))


def concat_rows(parts: Any) -> Any:
    """Ragged or dense tensors joined along their first dimension."""
    if not any(isinstance(part, RaggedTensor) for part in parts):
        return np.concatenate(parts).view(Tensor)
    ragged = [p if isinstance(p, RaggedTensor) else RaggedTensor.from_tensor(p) for p in parts]
    lengths = np.concatenate([np.asarray(p.row_lengths()) for p in ragged])
    return RaggedTensor.from_row_lengths(concat_rows([p.values for p in ragged]), lengths)


def concat_columns(parts: Any) -> RaggedTensor:
    """Ragged or dense tensors joined row by row."""
    ragged = [p if isinstance(p, RaggedTensor) else RaggedTensor.from_tensor(p) for p in parts]
    rows = [concat_rows([p[n] for p in ragged]) for n in builtins.range(len(ragged[0]))]
    return stack(rows).with_row_splits_dtype(int64)


def range(
    starts: Any,
    limits: Any = None,
    deltas: Any = 1,
    dtype: Any = None,
    name: str | None = None,
    row_splits_dtype: Any = int64,
) -> RaggedTensor:
    """Rows of numbers from `starts` to before `limits`."""
    if limits is None:
        starts, limits = 0, starts
    first, last, step = np.broadcast_arrays(
        *(np.atleast_1d(np.asarray(v)) for v in (starts, limits, deltas))
    )
    kind = convert_to_tensor(limits).dtype if dtype is None else as_dtype(dtype)
    rows: list[Any] = [
        np.arange(a, b, c, dtype=np.dtype(kind)) for a, b, c in zip(first, last, step, strict=True)
    ]
    made = stack([row.view(Tensor) for row in rows])
    return made.with_row_splits_dtype(row_splits_dtype)


def boolean_mask(data: Any, mask: Any, name: str | None = None) -> Any:
    """The values for which a mask with the same rows is true, in ragged rows."""
    if not isinstance(mask, RaggedTensor):
        mask = RaggedTensor.from_tensor(mask)
    given = data if isinstance(data, RaggedTensor) else RaggedTensor.from_tensor(data)
    kept = np.asarray(mask.values)
    lengths = np.add.reduceat(
        np.append(kept, False).astype(np.int64), np.asarray(mask.row_splits)[:-1]
    )
    lengths = np.where(np.asarray(mask.row_lengths()) > 0, lengths, 0) if len(mask) else lengths[:0]
    return RaggedTensor.from_row_lengths(given.values[kept], lengths)


def segment_ids_to_row_splits(
    segment_ids: Any, num_segments: Any = None, out_type: Any = None, name: str | None = None
) -> Tensor:
    """Row splits from the row number of each value."""
    ids = np.asarray(segment_ids)
    kind = as_dtype(out_type or int64).dtype
    count = int(num_segments) if num_segments is not None else (int(ids[-1]) + 1 if len(ids) else 0)
    return sums(np.bincount(ids, minlength=count).astype(kind)).view(Tensor)


def row_splits_to_segment_ids(splits: Any, name: str | None = None, out_type: Any = None) -> Tensor:
    """The row number of each value, from row splits."""
    given = np.asarray(splits)
    return np.repeat(np.arange(len(given) - 1, dtype=given.dtype), np.diff(given)).view(Tensor)


__getattr__ = absent_from("tf.ragged")

"""Conversions of ragged tensors from and to dense and sparse tensors, and merged dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.tf.dtypes import as_dtype
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.row_splits import sums
from penstock.tf.sparse import SparseTensor
from penstock.tf.tensor import Tensor, convert_to_tensor


class RaggedConversions:
    """The methods of a RaggedTensor that convert it."""

    @classmethod
    def from_sparse(
        cls: Any, st_input: Any, name: str | None = None, row_splits_dtype: Any = "int64"
    ) -> Any:
        """The rows of a sparse matrix whose values are at the beginning of each row.

        Raises:
            ValueError: a sparse tensor of another rank.
            InvalidArgumentError: there is a gap before a value.
        """
        rank = len(st_input.dense_shape)
        if rank != 2:
            raise ValueError(f"rank(st_input) must be 2, not {rank}")
        indices = np.asarray(st_input.indices)
        lengths = np.bincount(indices[:, 0], minlength=int(st_input.dense_shape[0]))
        starts = sums(lengths)[:-1]
        if (np.arange(len(indices)) - starts[indices[:, 0]] != indices[:, 1]).any():
            raise InvalidArgumentError(None, None, "SparseTensor is not right-ragged")
        return cls.from_row_lengths(
            st_input.values, lengths.astype(as_dtype(row_splits_dtype).dtype)
        )

    @classmethod
    def from_tensor(
        cls: Any,
        tensor: Any,
        lengths: Any = None,
        padding: Any = None,
        ragged_rank: int = 1,
        name: str | None = None,
        row_splits_dtype: Any = "int64",
    ) -> Any:
        """The rows of a dense tensor, without the padding at their ends.

        Args:
            tensor: the dense tensor.
            lengths: the length of each row. None: rows end before the padding, or are complete.
            padding: the value that is left out at the ends of rows.
            ragged_rank: only 1.
            row_splits_dtype: int64 or int32.
            name: ignored.
        """
        given = convert_to_tensor(tensor).view(np.ndarray)
        if lengths is not None:
            kept = np.arange(given.shape[1]) < np.asarray(lengths)[:, None]
        elif padding is not None:
            other = given != np.asarray(convert_to_tensor(padding))
            other = other.reshape(*given.shape[:2], -1).any(-1)
            kept = np.flip(np.logical_or.accumulate(np.flip(other, 1), 1), 1)
        else:
            kept = np.ones(given.shape[:2], bool)
        splits = kept.sum(1).astype(as_dtype(row_splits_dtype).dtype)
        return cls.from_row_lengths(given[kept].view(Tensor), splits)

    def to_sparse(self: Any, name: str | None = None) -> Any:
        """The values as a sparse tensor."""
        lengths = np.asarray(self.row_lengths())
        columns = np.arange(len(self.values)) - np.repeat(np.asarray(self.row_splits)[:-1], lengths)
        if hasattr(self.values, "row_splits"):
            inner = self.values.to_sparse()
            own = np.stack([np.asarray(self.value_rowids()), columns], 1)
            indices = np.concatenate(
                [own[np.asarray(inner.indices)[:, 0]], inner.indices[:, 1:]], 1
            )
            return SparseTensor(indices, inner.values, self.bounding_shape())
        indices = np.stack([np.asarray(self.value_rowids()), columns], 1)
        return SparseTensor(indices, self.values, self.bounding_shape())

    def merge_dims(self: Any, outer_axis: int, inner_axis: int) -> Any:
        """The tensor with neighbouring dimensions merged. Merging dimensions 0 and 1 returns the values."""
        outer, inner = int(outer_axis), int(inner_axis)
        rank = self.shape.rank or 0
        outer, inner = outer % rank, inner % rank
        if outer == inner:
            return self
        if outer == 0:
            values = self.values
            if inner == 1:
                return values
            return (
                values.merge_dims(0, inner - 1)
                if hasattr(values, "row_splits")
                else _merged(values, 0, inner - 1)
            )
        if outer == 1 and hasattr(self.values, "row_splits") and inner == 2:
            splits = self.values.row_splits[self.row_splits]
            return type(self)(self.values.values, splits)
        values = self.values
        if hasattr(values, "row_splits"):
            return self.with_values(values.merge_dims(outer - 1, inner - 1))
        return self.with_values(_merged(values, outer - 1, inner - 1))


def _merged(values: Tensor, outer: int, inner: int) -> Tensor:
    shape = np.shape(values)
    return np.reshape(values, (*shape[:outer], -1, *shape[inner + 1 :])).view(Tensor)

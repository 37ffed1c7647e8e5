"""Methods of datasets that combine elements and split them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.tf.binding import bound
from penstock.tf.data.base import Base
from penstock.tf.data.batching import (
    Batch,
    PaddedBatch,
    RaggedBatch,
    Rebatch,
    Unbatch,
)
from penstock.tf.data.op import Op
from penstock.tf.data.sources import shapes_like
from penstock.tf.data.windows import Buckets, Window
from penstock.tf.nest import flatten, pack_sequence_as
from penstock.tf.shapes import TensorShape


class BatchVerbs(Base):
    """batch, padded_batch, unbatch, window and others."""

    def batch(
        self,
        batch_size: Any,
        drop_remainder: bool = False,
        num_parallel_calls: Any = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Any:
        """Batches: elements stacked along a new first dimension.

        Args:
            batch_size: elements of a batch.
            drop_remainder: drop a last batch that is not full.
            num_parallel_calls, deterministic, name: ignored.

        Raises:
            InvalidArgumentError: batch_size is below 1; when read: shapes that differ.

        Example:
            >>> import penstock.tf as tf
            >>> [x.numpy().tolist() for x in tf.data.Dataset.range(5).batch(2)]
            [[0, 1], [2, 3], [4]]
        """
        return self.of(Batch(self.op, batch_size, drop_remainder))

    def padded_batch(
        self,
        batch_size: Any,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Any:
        """Batches of tensors of different sizes, which are padded at their ends.

        Args:
            batch_size, drop_remainder: as for `batch`.
            padded_shapes: a shape for each component. None and -1 mean the largest size in the batch.
            padding_values: the padding; by default 0, False or "".
            name: ignored.

        Raises:
            InvalidArgumentError: batch_size is below 1; when read: elements have different numbers of dimensions.
            DataLossError: when read: an element larger than its padded shape.
            TypeError: a padding value of another type.

        Example:
            >>> import penstock.tf as tf
            >>> rows = tf.data.Dataset.range(1, 3).map(lambda n: tf.constant([7] * int(n)))
            >>> next(iter(rows.padded_batch(2))).numpy().tolist()
            [[7, 0], [7, 7]]
        """
        made = PaddedBatch(self.op, batch_size, padded_shapes, padding_values, drop_remainder)
        return self.of(made)

    def ragged_batch(
        self,
        batch_size: Any,
        drop_remainder: bool = False,
        row_splits_dtype: Any = "int64",
        name: str | None = None,
    ) -> Any:
        """Like `batch`, but elements of different sizes become ragged tensors."""
        return self.of(RaggedBatch(self.op, batch_size, drop_remainder, row_splits_dtype))

    def unbatch(self, name: str | None = None) -> Any:
        """The rows of the elements, one by one.

        Raises:
            InvalidArgumentError: when read: an element without dimensions, or components of different sizes.

        Example:
            >>> import penstock.tf as tf
            >>> [int(x) for x in tf.data.Dataset.from_tensors([1, 2]).unbatch()]
            [1, 2]
        """
        return self.of(Unbatch(self.op))

    def rebatch(
        self, batch_size: Any, drop_remainder: bool = False, name: str | None = None
    ) -> Any:
        """Batches divided into batches of another size, or of several alternating sizes."""
        return self.of(Rebatch(self.op, batch_size, drop_remainder))

    def window(
        self,
        size: Any,
        shift: Any = None,
        stride: Any = 1,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Any:
        """Windows: datasets of a fixed number of elements.

        Args:
            size: elements of a window.
            shift: the distance from the start of a window to the next; None: size.
            stride: the distance between elements of a window.
            drop_remainder: drop windows that are not full.
            name: ignored.

        Raises:
            InvalidArgumentError: a number below 1.

        Example:
            >>> import penstock.tf as tf
            >>> windows = tf.data.Dataset.range(4).window(3, shift=1, drop_remainder=True)
            >>> [[int(x) for x in window] for window in windows]
            [[0, 1, 2], [1, 2, 3]]
        """
        return self.of(Window(self.op, size, shift, stride, drop_remainder, self.of))

    def bucket_by_sequence_length(
        self,
        element_length_func: Callable[..., Any],
        bucket_boundaries: Any,
        bucket_batch_sizes: Any,
        padded_shapes: Any = None,
        padding_values: Any = None,
        pad_to_bucket_boundary: bool = False,
        no_padding: bool = False,
        drop_remainder: bool = False,
        name: str | None = None,
    ) -> Any:
        """Padded batches of elements of similar length.

        Args:
            element_length_func: a function from an element to its length.
            bucket_boundaries: the least length of each bucket except the first.
            bucket_batch_sizes: the batch size of each bucket. There is one bucket more than boundaries.
            padded_shapes, padding_values: as for `padded_batch`.
            pad_to_bucket_boundary: pad unknown sizes to the maximum length of the bucket.
            no_padding: do not pad, like `batch`.
            drop_remainder: drop batches that are not full.
            name: ignored.

        Raises:
            ValueError: there is not one batch size more than boundaries.
        """
        boundaries = list(bucket_boundaries)

        def made(source: Op, size: int, bucket: int) -> Op:
            if no_padding:
                return Batch(source, size)
            shapes = padded_shapes
            if pad_to_bucket_boundary:
                if bucket == len(boundaries):
                    raise ValueError(
                        "When pad_to_bucket_boundary=True, elements must have length < max(bucket_boundaries)."
                    )
                shapes = _up_to(self.op.spec(), shapes, boundaries[bucket] - 1)
            return PaddedBatch(source, size, shapes, padding_values, False)

        sizes = list(bucket_batch_sizes)
        return self.of(
            Buckets(self.op, bound(element_length_func), boundaries, sizes, made, drop_remainder)
        )


def _up_to(spec: Any, shapes: Any, size: int) -> Any:
    """The padded shapes with unknown sizes replaced."""
    leaves = flatten(spec, lists=False)
    given = [leaf.shape for leaf in leaves] if shapes is None else shapes_like(spec, shapes)
    made = [TensorShape([size if s is None else s for s in shape]) for shape in given]
    return pack_sequence_as(spec, made, lists=False)

"""`tf.TensorShape`, and specs of future elements: `tf.TensorSpec` and others."""

from __future__ import annotations

import operator
from typing import Any

from penstock.tf.dtypes import DType, as_dtype


class TensorShape(tuple[int | None, ...]):  # noqa: SLOT001 -- the rank tells unknown from ()
    """The sizes of a tensor's dimensions, as a tuple; None for an unknown size.

    Args:
        dims: the sizes, another shape, or one size; None for an unknown number of dimensions. The tuple is then empty
            and the rank is None.

    Example:
        >>> import penstock.tf as tf
        >>> shape = tf.TensorShape([None, 224, 3])
        >>> shape.rank, shape[1], shape.is_compatible_with([8, 224, 3]), shape.as_list()
        (3, 224, True, [None, 224, 3])
    """

    rank: int | None

    def __new__(cls, dims: Any = None) -> TensorShape:  # noqa: PYI034 -- returns a given shape unchanged
        if isinstance(dims, TensorShape):
            return dims
        if dims is None:
            made = super().__new__(cls, ())
            made.rank = None
            return made
        sizes = tuple(dims) if hasattr(dims, "__iter__") else (dims,)
        made = super().__new__(cls, (None if s is None or s == -1 else _size(s) for s in sizes))
        made.rank = len(sizes)
        return made

    @property
    def ndims(self) -> int | None:
        """The number of dimensions, or None."""
        return self.rank

    @property
    def dims(self) -> list[int | None] | None:
        """The sizes as a list, or None."""
        return None if self.rank is None else list(self)

    def as_list(self) -> list[int | None]:
        """The sizes as a list.

        Raises:
            ValueError: the rank is not known.
        """
        if self.rank is None:
            raise ValueError("as_list() is not defined on an unknown TensorShape.")
        return list(self)

    def is_fully_defined(self) -> bool:
        """Whether every size is known."""
        return self.rank is not None and None not in self

    def num_elements(self) -> int | None:
        """The product of the sizes; None if one is unknown."""
        count = 1
        if self.rank is None:
            return None
        for size in self:
            if size is None:
                return None
            count *= size
        return count

    def is_compatible_with(self, other: Any) -> bool:
        """Whether a tensor could have both shapes."""
        other = TensorShape(other)
        if self.rank is None or other.rank is None:
            return True
        return self.rank == other.rank and all(
            a is None or b is None or a == b for a, b in zip(self, other, strict=True)
        )

    def merge_with(self, other: Any) -> TensorShape:
        """The known sizes of both shapes.

        Raises:
            ValueError: they are not compatible.
        """
        other = TensorShape(other)
        if not self.is_compatible_with(other):
            raise ValueError(f"Shapes {self} and {other} are not compatible")
        if self.rank is None:
            return other
        if other.rank is None:
            return self
        return TensorShape([b if a is None else a for a, b in zip(self, other, strict=True)])

    def with_rank(self, rank: int) -> TensorShape:
        """The shape. If its rank was unknown, it gets this rank, with unknown sizes.

        Raises:
            ValueError: it has another rank.
        """
        if self.rank is None:
            return TensorShape([None] * int(rank))
        self.assert_has_rank(rank)
        return self

    def with_rank_at_least(self, rank: int) -> TensorShape:
        """The shape.

        Raises:
            ValueError: it has a lower rank.
        """
        if self.rank is not None and self.rank < int(rank):
            raise ValueError(f"Shape {self} must have rank at least {rank}")
        return self

    def with_rank_at_most(self, rank: int) -> TensorShape:
        """The shape.

        Raises:
            ValueError: it has a greater rank.
        """
        if self.rank is not None and self.rank > int(rank):
            raise ValueError(f"Shape {self} must have rank at most {rank}")
        return self

    def assert_has_rank(self, rank: int) -> None:
        """Raise ValueError if the shape has another rank."""
        if self.rank not in {None, int(rank)}:
            raise ValueError(f"Shape {self} must have rank {rank}")

    def assert_is_fully_defined(self) -> None:
        """Raise ValueError if a size is unknown."""
        if not self.is_fully_defined():
            raise ValueError(f"Shape {self} is not fully defined")

    def assert_is_compatible_with(self, other: Any) -> None:
        """Raise ValueError if no tensor could have both shapes."""
        if not self.is_compatible_with(other):
            raise ValueError(f"Shapes {self} and {TensorShape(other)} are incompatible")

    def is_subtype_of(self, other: Any) -> bool:
        """Whether every tensor of this shape also has the other shape."""
        if other.rank is None:
            return True
        return self.rank == other.rank and all(
            b is None or a == b for a, b in zip(self, other, strict=True)
        )

    def concatenate(self, other: Any) -> TensorShape:
        """The dimensions of this shape, then those of the other."""
        other = TensorShape(other)
        if self.rank is None or other.rank is None:
            return TensorShape(None)
        return TensorShape([*self, *other])

    def __add__(self, other: Any) -> TensorShape:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.concatenate(other)

    def __radd__(self, other: Any) -> TensorShape:
        return TensorShape(other).concatenate(self)

    def __getitem__(self, key: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        if self.rank is None:
            return TensorShape(None) if isinstance(key, slice) else None
        found = super().__getitem__(key)
        return TensorShape(found) if isinstance(key, slice) else found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorShape):
            if other is None:
                return self.rank is None
            if not isinstance(other, (tuple, list)):
                return NotImplemented
            other = TensorShape(other)
        return self.rank == other.rank and tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    def __hash__(self) -> int:
        return tuple.__hash__(self)

    def __bool__(self) -> bool:
        return self.rank is not None

    def __str__(self) -> str:
        if self.rank is None:
            return "<unknown>"
        return f"({', '.join(map(str, self))}{',' if self.rank == 1 else ''})"

    def __repr__(self) -> str:
        return f"TensorShape({None if self.rank is None else list(self)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return TensorShape, (self.dims,)


def _size(value: Any) -> int:
    size = operator.index(value)
    if size < 0:
        raise ValueError(f"Dimension {size} must be >= 0")
    return size


class TypeSpec:
    """The spec of an element that does not exist yet: shape, dtype, kind of tensor.

    Two specs are equal if their kinds, shapes and dtypes are.
    """

    def __init__(self, shape: Any = None, dtype: Any = "float32", name: str | None = None) -> None:
        self.shape = TensorShape(shape)
        self.dtype: DType = as_dtype(dtype)
        self.name = name

    def _facts(self) -> tuple[Any, ...]:
        return (self.shape, self.shape.rank, self.dtype)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._facts() == other._facts()  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((type(self).__name__, *self._facts()))

    def is_compatible_with(self, other: Any) -> bool:
        """Whether a value with the other spec, or with the other value's shape and dtype, matches this spec."""
        return self.dtype == other.dtype and self.shape.is_compatible_with(other.shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shape}, {self.dtype!r})"


class TensorSpec(TypeSpec):
    """The shape and dtype of a dense tensor.

    Example:
        >>> import penstock.tf as tf
        >>> tf.TensorSpec([None, 3], tf.float32)
        TensorSpec(shape=(None, 3), dtype=tf.float32, name=None)
    """

    def __repr__(self) -> str:
        return f"TensorSpec(shape={self.shape}, dtype={self.dtype!r}, name={self.name!r})"


class SparseTensorSpec(TypeSpec):
    """The dense shape and dtype of a sparse tensor."""

    def __repr__(self) -> str:
        return f"SparseTensorSpec({self.shape!r}, {self.dtype!r})"


class RaggedTensorSpec(TypeSpec):
    """The shape, dtype and ragged dimensions of a ragged tensor.

    Args:
        shape, dtype: as for TensorSpec.
        ragged_rank (int): how many dimensions may vary in length, beginning with the second dimension.
        row_splits_dtype: int64 or int32.
    """

    def __init__(
        self,
        shape: Any = None,
        dtype: Any = "float32",
        ragged_rank: int | None = None,
        row_splits_dtype: Any = "int64",
    ) -> None:
        super().__init__(shape, dtype)
        rank = self.shape.rank
        self.ragged_rank = (rank or 1) - 1 if ragged_rank is None else ragged_rank
        self.row_splits_dtype = as_dtype(row_splits_dtype)

    def _facts(self) -> tuple[Any, ...]:
        return (*super()._facts(), self.ragged_rank, self.row_splits_dtype)

    def __repr__(self) -> str:
        return (
            f"RaggedTensorSpec({self.shape!r}, {self.dtype!r}, "
            f"{self.ragged_rank}, {self.row_splits_dtype!r})"
        )

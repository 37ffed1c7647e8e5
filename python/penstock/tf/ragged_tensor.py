"""`tf.RaggedTensor`: a tensor whose rows have different lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import penstock.tf.row_splits as rows
from penstock.tf.dtypes import DType, as_dtype, string
from penstock.tf.missing import KnownNames, absent_from
from penstock.tf.ragged_conversions import RaggedConversions
from penstock.tf.ragged_operators import RaggedOperators
from penstock.tf.shapes import TensorShape
from penstock.tf.tensor import Tensor, convert_to_tensor


class RaggedTensor(RaggedOperators, RaggedConversions, metaclass=KnownNames):
    """Rows of different lengths, as their concatenated values and the positions where rows begin.

    Made by parsing, by `tf.ragged.constant` and by the `from_...` methods. Row i is
    `values[row_splits[i]:row_splits[i + 1]]`; values are a Tensor, or a RaggedTensor if rows contain rows.

    Attributes: values, row_splits.

    Example:
        >>> from penstock.tf.ragged_tensor import RaggedTensor
        >>> ragged = RaggedTensor.from_row_lengths([3, 1, 4], [2, 0, 1])
        >>> ragged, ragged.row_splits.numpy().tolist(), ragged.shape
        (<tf.RaggedTensor [[3, 1], [], [4]]>, [0, 2, 2, 3], TensorShape([3, None]))
    """

    __slots__ = ("row_splits", "uniform_row_length", "values")

    def __init__(
        self, values: Any, row_splits: Tensor, uniform_row_length: int | None = None
    ) -> None:
        self.values = values
        self.row_splits = row_splits
        self.uniform_row_length = uniform_row_length

    # -- construction --

    @classmethod
    def from_row_splits(
        cls, values: Any, row_splits: Any, name: str | None = None, validate: bool = True
    ) -> RaggedTensor:
        """Rows by the position where each begins, and the end of the last.

        Args:
            values: a Tensor, a RaggedTensor, or a value that can be converted to a Tensor.
            row_splits: int32 or int64 [rows + 1].
            name: ignored.
            validate: whether rows that do not cover the values are an error.

        Raises:
            InvalidArgumentError: the rows do not fit the values.

        Example:
            >>> from penstock.tf.ragged_tensor import RaggedTensor
            >>> RaggedTensor.from_row_splits([3, 1, 4], [0, 2, 2, 3]).to_list()
            [[3, 1], [], [4]]
        """
        values, given = _parts(values, row_splits)
        if validate:
            rows.check_splits(given)
        return cls._checked(values, given, validate)

    @classmethod
    def from_row_lengths(
        cls, values: Any, row_lengths: Any, name: str | None = None, validate: bool = True
    ) -> RaggedTensor:
        """Rows by their lengths; see `from_row_splits`."""
        values, given = _parts(values, row_lengths)
        return cls._checked(values, rows.splits_of_lengths(given, validate), validate)

    @classmethod
    def from_row_starts(
        cls, values: Any, row_starts: Any, name: str | None = None, validate: bool = True
    ) -> RaggedTensor:
        """Rows by the position where each begins; see `from_row_splits`."""
        values, given = _parts(values, row_starts)
        return cls._checked(values, rows.splits_of_starts(given, len(values), validate), validate)

    @classmethod
    def from_row_limits(
        cls, values: Any, row_limits: Any, name: str | None = None, validate: bool = True
    ) -> RaggedTensor:
        """Rows by the position where each ends; see `from_row_splits`."""
        values, given = _parts(values, row_limits)
        return cls._checked(values, rows.splits_of_limits(given, validate), validate)

    @classmethod
    def from_value_rowids(
        cls,
        values: Any,
        value_rowids: Any,
        nrows: int | None = None,
        name: str | None = None,
        validate: bool = True,
    ) -> RaggedTensor:
        """Rows by the row number of each element; see `from_row_splits`."""
        values, given = _parts(values, value_rowids)
        splits = rows.splits_of_rowids(given, len(values), nrows, validate)
        return cls._checked(values, splits, validate)

    @classmethod
    def from_uniform_row_length(
        cls,
        values: Any,
        uniform_row_length: int,
        nrows: int | None = None,
        validate: bool = True,
        name: str | None = None,
        row_splits_dtype: Any = None,
    ) -> RaggedTensor:
        """Rows of equal length; see `from_row_splits`."""
        values = _values(values)
        inner = values.row_splits.dtype if isinstance(values, RaggedTensor) else np.int64
        dtype = inner if row_splits_dtype is None else as_dtype(row_splits_dtype).dtype
        splits = rows.splits_of_uniform(uniform_row_length, len(values), nrows, validate, dtype)
        return cls(values, splits.view(Tensor), int(uniform_row_length))

    @classmethod
    def from_nested_row_splits(
        cls,
        flat_values: Any,
        nested_row_splits: Sequence[Any],
        name: str | None = None,
        validate: bool = True,
    ) -> RaggedTensor:
        """Nested rows, by the splits of each level, outermost first."""
        made = flat_values
        for splits in reversed(nested_row_splits):
            made = cls.from_row_splits(made, splits, validate=validate)
        return made

    @classmethod
    def from_nested_row_lengths(
        cls,
        flat_values: Any,
        nested_row_lengths: Sequence[Any],
        name: str | None = None,
        validate: bool = True,
    ) -> RaggedTensor:
        """Nested rows, by the lengths of each level, outermost first."""
        made = flat_values
        for lengths in reversed(nested_row_lengths):
            made = cls.from_row_lengths(made, lengths, validate=validate)
        return made

    @classmethod
    def _checked(cls, values: Any, splits: np.ndarray[Any, Any], validate: bool) -> RaggedTensor:
        if validate:
            rows.check_end(splits, len(values))
        return cls(values, splits.view(Tensor))

    # -- parts --

    @property
    def flat_values(self) -> Tensor:
        """The values of the innermost rows."""
        values = self.values
        return values.flat_values if isinstance(values, RaggedTensor) else values

    @property
    def nested_row_splits(self) -> tuple[Tensor, ...]:
        """The splits of each level, outermost first."""
        if isinstance(self.values, RaggedTensor):
            return (self.row_splits, *self.values.nested_row_splits)
        return (self.row_splits,)

    @property
    def ragged_rank(self) -> int:
        """The number of ragged levels."""
        return len(self.nested_row_splits)

    @property
    def dtype(self) -> DType:
        """The type of the values."""
        return as_dtype(self.flat_values.dtype)

    @property
    def shape(self) -> TensorShape:
        """The sizes of the dimensions; None for dimensions in which rows differ in length."""
        inner = self.values.shape[1:]
        return TensorShape([len(self), self.uniform_row_length]).concatenate(inner)

    def get_shape(self) -> TensorShape:
        """The shape."""
        return self.shape

    def nrows(self, out_type: Any = None, name: str | None = None) -> Tensor:
        """The number of rows, a scalar."""
        dtype = self.row_splits.dtype if out_type is None else as_dtype(out_type).dtype
        return np.asarray(len(self), dtype).view(Tensor)

    def row_starts(self, name: str | None = None) -> Tensor:
        """The position where each row begins."""
        return self.row_splits[:-1]

    def row_limits(self, name: str | None = None) -> Tensor:
        """The position where each row ends."""
        return self.row_splits[1:]

    def row_lengths(self, axis: int = 1, name: str | None = None) -> Any:
        """The length of each row: a Tensor, or a RaggedTensor for rows of an inner level (`axis` > 1)."""
        if axis == 0:
            return self.nrows()
        if axis == 1:
            return self.row_splits[1:] - self.row_splits[:-1]
        if isinstance(self.values, RaggedTensor):
            return self.with_values(self.values.row_lengths(axis - 1))
        sizes = tuple(self.values.shape)
        dtype = self.row_splits.dtype
        return self.with_values(np.full(sizes[: axis - 1], sizes[axis - 1], dtype).view(Tensor))

    def nested_row_lengths(self, name: str | None = None) -> tuple[Tensor, ...]:
        """The lengths of the rows of each level, outermost first."""
        return tuple(splits[1:] - splits[:-1] for splits in self.nested_row_splits)

    def value_rowids(self, name: str | None = None) -> Tensor:
        """The row number of each value."""
        numbers = np.arange(len(self), dtype=self.row_splits.dtype)
        return np.repeat(numbers, np.asarray(self.row_lengths())).view(Tensor)

    def bounding_shape(
        self, axis: int | None = None, name: str | None = None, out_type: Any = None
    ) -> Tensor:
        """The sizes of the smallest dense tensor that holds all rows, or its size in one dimension."""
        dtype = self.row_splits.dtype if out_type is None else as_dtype(out_type).dtype
        longest = [
            int(lengths.max(initial=0)) for lengths in map(np.asarray, self.nested_row_lengths())
        ]
        sizes = [len(self), *longest, *self.flat_values.shape[1:]]
        return np.asarray(sizes if axis is None else sizes[axis], dtype).view(Tensor)

    # -- conversion --

    def with_values(self, new_values: Any) -> RaggedTensor:
        """Replace the values, keeping the rows."""
        return RaggedTensor(_values(new_values), self.row_splits, self.uniform_row_length)

    def with_flat_values(self, new_values: Any) -> RaggedTensor:
        """Replace the innermost values, keeping the rows."""
        if isinstance(self.values, RaggedTensor):
            new_values = self.values.with_flat_values(new_values)
        return self.with_values(new_values)

    def with_row_splits_dtype(self, dtype: Any) -> RaggedTensor:
        """The same tensor with row splits of another type, int32 or int64."""
        values = self.values
        if isinstance(values, RaggedTensor):
            values = values.with_row_splits_dtype(dtype)
        splits: Any = self.row_splits.astype(as_dtype(dtype).dtype)
        return RaggedTensor(values, splits, self.uniform_row_length)

    def to_tensor(
        self, default_value: Any = None, name: str | None = None, shape: Any = None
    ) -> Tensor:
        """A dense tensor, with rows padded to the longest.

        Args:
            default_value: the padding; None: zero, False or b"".
            name: ignored.
            shape: the sizes of the result; None for the smallest that fits all rows. Longer rows are truncated.

        Example:
            >>> from penstock.tf.ragged import constant
            >>> constant([[1, 2], [3]]).to_tensor().numpy().tolist()
            [[1, 2], [3, 0]]
        """
        if default_value is None:
            default_value = b"" if self.dtype is string else 0
        fill = convert_to_tensor(default_value, dtype=self.dtype)
        rank = self.shape.rank or 0
        wanted: list[int | None] = [None] * rank if shape is None else TensorShape(shape).as_list()
        if len(wanted) != rank:
            raise ValueError(f"shape {wanted} does not have the {rank} dimensions of {self.shape}")
        return _dense(self, wanted, np.asarray(fill)).view(Tensor)

    def to_list(self) -> list[Any]:
        """Nested lists of Python values."""
        values, splits = self.values, self.row_splits.tolist()
        flat: Any = values if isinstance(values, RaggedTensor) else values.tolist()
        parts = [flat[splits[i] : splits[i + 1]] for i in range(len(splits) - 1)]
        return [part.to_list() for part in parts] if isinstance(values, RaggedTensor) else parts

    def numpy(self) -> Any:
        """A NumPy array: dense if all rows have the same length, otherwise an object array of rows."""
        values, splits = self.values.numpy(), self.row_splits.tolist()
        parts = [values[splits[i] : splits[i + 1]] for i in range(len(splits) - 1)]
        if not parts:
            return np.zeros((0, 0, *values.shape[1:]), values.dtype)
        if all(len(part) == len(parts[0]) for part in parts):
            return np.array(parts)
        made = np.empty(len(parts), object)
        for number, part in enumerate(parts):
            made[number] = part
        return made

    def __len__(self) -> int:
        return max(len(self.row_splits) - 1, 0)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        keys = key if isinstance(key, tuple) else (key,)
        if not keys:
            return self
        if keys[0] is Ellipsis:
            missing = (self.shape.rank or 0) - len(keys) + 1
            keys = (slice(None),) * missing + keys[1:]
        first, rest = keys[0], keys[1:]
        if not isinstance(first, slice):
            row = self._row(int(first))
            return row[rest] if rest else row
        splits = np.asarray(self.row_splits)
        starts, limits = splits[:-1][first], splits[1:][first]
        chosen = self
        if first.step not in (None, 1):
            chosen = self._gathered(starts, limits)
        elif first != slice(None):
            # Consecutive rows have consecutive values, so these are sliced, not gathered.
            kept = np.concatenate(
                [starts[:1] if len(starts) else np.zeros(1, starts.dtype), limits]
            )
            values = self.values[int(kept[0]) : int(kept[-1])]
            chosen = RaggedTensor(values, (kept - kept[0]).view(Tensor), self.uniform_row_length)
        return chosen._inside(rest) if rest else chosen

    def _row(self, number: int) -> Any:
        if not -len(self) <= number < len(self):
            raise IndexError(f"Row key {number} out of bounds: there are {len(self)} rows")
        number %= len(self)
        return self.values[int(self.row_splits[number]) : int(self.row_splits[number + 1])]

    def _gathered(self, starts: np.ndarray[Any, Any], ends: np.ndarray[Any, Any]) -> RaggedTensor:
        """Rows by the positions where they begin and end among the values."""
        lengths = np.maximum(ends - starts, 0)
        splits = rows.sums(lengths)
        places = np.repeat(starts - splits[:-1], lengths) + np.arange(splits[-1])
        return RaggedTensor(
            _taken(self.values, places), splits.view(Tensor), self.uniform_row_length
        )

    def _inside(self, keys: tuple[Any, ...]) -> RaggedTensor:
        """Each row sliced by the first key, and its elements by the others."""
        first, rest = keys[0], keys[1:]
        if not isinstance(first, slice):
            raise ValueError("Cannot index into an inner ragged dimension.")
        splits = np.asarray(self.row_splits)
        starts, limits = splits[:-1], splits[1:]
        chosen = self
        if first != slice(None):
            cuts = [first.indices(int(n)) for n in limits - starts]
            if any(step != 1 for *_, step in cuts):
                raise ValueError("rows of a RaggedTensor are sliced with a step of 1 only")
            begin = np.asarray([cut[0] for cut in cuts], splits.dtype)
            end = np.asarray([cut[1] for cut in cuts], splits.dtype)
            chosen = self._gathered(starts + begin, starts + np.maximum(begin, end))
            chosen.uniform_row_length = None
        if not rest:
            return chosen
        values = chosen.values
        inner = (
            values._inside(rest)
            if isinstance(values, RaggedTensor)
            else values[(slice(None), *rest)]
        )
        return chosen.with_values(inner)

    def __getattr__(self, name: str) -> Any:
        return absent_from("tf.RaggedTensor")(name)

    def __repr__(self) -> str:
        with np.printoptions(formatter={"all": _text}):
            return f"<tf.RaggedTensor {_text(self.numpy())}>"


def _text(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        return str(value)
    return np.array2string(value, separator=", ") if value.size else repr(value.tolist())


def _values(values: Any) -> Any:
    if isinstance(values, RaggedTensor):
        return values
    made = convert_to_tensor(values)
    if not made.ndim:
        raise ValueError("Shape () must have rank at least 1: values of a RaggedTensor")
    return made


def _parts(values: Any, partition: Any) -> tuple[Any, np.ndarray[Any, Any]]:
    """Convert values and their row partition to arrays, after checking that inner rows have the same integer type."""
    values = _values(values)
    given = np.asarray(partition)
    if given.dtype.name not in ("int32", "int64"):
        given = given.astype(np.int64)
    if isinstance(values, RaggedTensor) and values.row_splits.dtype != given.dtype:
        raise ValueError("values and partition have mismatched row_splits dtypes")
    if given.ndim != 1:
        raise ValueError(f"Shape {given.shape} must have rank 1")
    return values, given


def _taken(values: Any, places: np.ndarray[Any, Any]) -> Any:
    if not isinstance(values, RaggedTensor):
        return values[places]
    splits = np.asarray(values.row_splits)
    return values._gathered(splits[:-1][places], splits[1:][places])  # pyright: ignore[reportPrivateUsage]


def _dense(
    ragged: Any, wanted: list[int | None], fill: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """A ragged tensor as a dense array. `wanted` has the size of each dimension, or None for the smallest that fits."""
    starts, limits = np.asarray(ragged.row_splits[:-1]), np.asarray(ragged.row_splits[1:])
    num_rows, width = wanted[0], wanted[1]
    if num_rows is not None:
        starts, limits = starts[:num_rows], limits[:num_rows]
    lengths = limits - starts
    width = int(lengths.max(initial=0)) if width is None else width
    values = ragged.values
    inner = (
        _dense(values, [None, *wanted[2:]], fill)
        if isinstance(values, RaggedTensor)
        else np.asarray(values)
    )
    dense = np.empty(
        (len(starts) if num_rows is None else num_rows, width, *inner.shape[1:]), inner.dtype
    )
    dense[...] = fill
    places = np.arange(width)
    filled = places < lengths[:, None]
    dense[: len(starts)][filled] = inner[(starts[:, None] + places)[filled]]
    return dense

"""`tf.RaggedTensor` and `tf.ragged`: tensors whose rows differ in length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import penstock.tf.row_splits as rows
from penstock.tf.dtypes import DType, as_dtype, int64, string
from penstock.tf.missing import AllThereIs, absent_from
from penstock.tf.shapes import TensorShape
from penstock.tf.tensor import Tensor, convert_to_tensor
from penstock.tf.tensor import constant as dense_constant


class RaggedTensor(metaclass=AllThereIs):
    """Rows of different lengths: all their values one after another, and where each row begins.

    Made by parsing, by `tf.ragged.constant` and by the `from_...` methods. Row i is
    `values[row_splits[i]:row_splits[i + 1]]`; values are a Tensor, or a RaggedTensor where rows hold rows.

    Attributes: values, row_splits.

    Example:
        >>> from penstock.tf.ragged import RaggedTensor
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

    # -- made of parts --

    @classmethod
    def from_row_splits(
        cls, values: Any, row_splits: Any, name: str | None = None, validate: bool = True
    ) -> RaggedTensor:
        """Rows by where each begins, and the end of the last.

        Args:
            values: a Tensor or RaggedTensor, or what becomes a Tensor.
            row_splits: int32 or int64 [rows + 1].
            name: no meaning here.
            validate: whether rows that do not cover the values are refused.

        Raises:
            InvalidArgumentError: rows that do not fit the values.

        Example:
            >>> from penstock.tf.ragged import RaggedTensor
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
        """Rows by how many elements each has; otherwise as `from_row_splits`."""
        values, given = _parts(values, row_lengths)
        return cls._checked(values, rows.splits_of_lengths(given, validate), validate)

    @classmethod
    def from_row_starts(
        cls, values: Any, row_starts: Any, name: str | None = None, validate: bool = True
    ) -> RaggedTensor:
        """Rows by where each begins; otherwise as `from_row_splits`."""
        values, given = _parts(values, row_starts)
        return cls._checked(values, rows.splits_of_starts(given, len(values), validate), validate)

    @classmethod
    def from_row_limits(
        cls, values: Any, row_limits: Any, name: str | None = None, validate: bool = True
    ) -> RaggedTensor:
        """Rows by where each ends; otherwise as `from_row_splits`."""
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
        """Rows by the number of the row of each element; otherwise as `from_row_splits`."""
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
        """Rows of so many elements each; otherwise as `from_row_splits`."""
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
        """Rows of rows, by the splits of each level, outermost first."""
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
        """Rows of rows, by the lengths of each level, outermost first."""
        made = flat_values
        for lengths in reversed(nested_row_lengths):
            made = cls.from_row_lengths(made, lengths, validate=validate)
        return made

    @classmethod
    def _checked(cls, values: Any, splits: np.ndarray[Any, Any], validate: bool) -> RaggedTensor:
        if validate:
            rows.check_end(splits, len(values))
        return cls(values, splits.view(Tensor))

    # -- its parts --

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
        """How many levels of rows there are."""
        return len(self.nested_row_splits)

    @property
    def dtype(self) -> DType:
        """The type of the values."""
        return as_dtype(self.flat_values.dtype)

    @property
    def shape(self) -> TensorShape:
        """The sizes of the dimensions, None where rows differ."""
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
        """Where each row begins."""
        return self.row_splits[:-1]

    def row_limits(self, name: str | None = None) -> Tensor:
        """Where each row ends."""
        return self.row_splits[1:]

    def row_lengths(self, axis: int = 1, name: str | None = None) -> Any:
        """How many elements each row has: a Tensor, ragged for rows of an inner level (`axis` > 1)."""
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
        """The number of the row of each value."""
        numbers = np.arange(len(self), dtype=self.row_splits.dtype)
        return np.repeat(numbers, np.asarray(self.row_lengths())).view(Tensor)

    def bounding_shape(
        self, axis: int | None = None, name: str | None = None, out_type: Any = None
    ) -> Tensor:
        """The sizes of the smallest dense tensor that holds all rows, or the one of a dimension."""
        dtype = self.row_splits.dtype if out_type is None else as_dtype(out_type).dtype
        longest = [
            int(lengths.max(initial=0)) for lengths in map(np.asarray, self.nested_row_lengths())
        ]
        sizes = [len(self), *longest, *self.flat_values.shape[1:]]
        return np.asarray(sizes if axis is None else sizes[axis], dtype).view(Tensor)

    # -- others like it --

    def with_values(self, new_values: Any) -> RaggedTensor:
        """Other values in the same rows."""
        return RaggedTensor(_values(new_values), self.row_splits, self.uniform_row_length)

    def with_flat_values(self, new_values: Any) -> RaggedTensor:
        """Other values in the same innermost rows."""
        inner = self.values
        held = isinstance(inner, RaggedTensor)
        return self.with_values(inner.with_flat_values(new_values) if held else new_values)

    def with_row_splits_dtype(self, dtype: Any) -> RaggedTensor:
        """The same with row splits of another type, int32 or int64."""
        values = self.values
        if isinstance(values, RaggedTensor):
            values = values.with_row_splits_dtype(dtype)
        splits: Any = self.row_splits.astype(as_dtype(dtype).dtype)
        return RaggedTensor(values, splits, self.uniform_row_length)

    def to_tensor(
        self, default_value: Any = None, name: str | None = None, shape: Any = None
    ) -> Tensor:
        """A dense tensor, with rows filled up to the longest.

        Args:
            default_value: what rows are filled up with; None: zero, False or b"".
            name: no meaning here.
            shape: sizes of the result, None for those that the rows need; longer rows are cut.

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
            raise ValueError(f"shape {wanted} has not the {rank} dimensions of {self.shape}")
        return _dense(self, wanted, np.asarray(fill)).view(Tensor)

    # -- as Python's --

    def to_list(self) -> list[Any]:
        """Nested lists of Python's values."""
        values, splits = self.values, self.row_splits.tolist()
        flat: Any = values if isinstance(values, RaggedTensor) else values.tolist()
        parts = [flat[splits[i] : splits[i + 1]] for i in range(len(splits) - 1)]
        return [part.to_list() for part in parts] if isinstance(values, RaggedTensor) else parts

    def numpy(self) -> Any:
        """A NumPy array: dense where all rows have one length, else one of rows, as objects."""
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
            chosen = self._rows(starts, limits)
        elif first != slice(None):
            # A stretch of rows is one of values, too: nothing is looked at that is not asked for.
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

    def _rows(self, starts: np.ndarray[Any, Any], ends: np.ndarray[Any, Any]) -> RaggedTensor:
        lengths = np.maximum(ends - starts, 0)
        splits = rows.sums(lengths)
        places = np.repeat(starts - splits[:-1], lengths) + np.arange(splits[-1])
        return RaggedTensor(
            _taken(self.values, places), splits.view(Tensor), self.uniform_row_length
        )

    def _inside(self, keys: tuple[Any, ...]) -> RaggedTensor:
        """Each row cut by the first key, and what is in it by the others."""
        first, rest = keys[0], keys[1:]
        if not isinstance(first, slice):
            raise ValueError("Cannot index into an inner ragged dimension.")
        splits = np.asarray(self.row_splits)
        starts, limits = splits[:-1], splits[1:]
        chosen = self
        if first != slice(None):
            cuts = [first.indices(int(n)) for n in limits - starts]
            if any(step != 1 for *_, step in cuts):
                raise ValueError("rows of a RaggedTensor are cut with a step of 1 only")
            begin = np.asarray([cut[0] for cut in cuts], splits.dtype)
            end = np.asarray([cut[1] for cut in cuts], splits.dtype)
            chosen = self._rows(starts + begin, starts + np.maximum(begin, end))
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
    """Values, and what says how they fall into rows with the type of the rows within them."""
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
    return values._rows(splits[:-1][places], splits[1:][places])  # pyright: ignore[reportPrivateUsage]


def _dense(
    ragged: Any, wanted: list[int | None], fill: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """A ragged tensor in a dense one; `wanted` are the sizes of all its dimensions."""
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


def constant(
    pylist: Any,
    dtype: Any = None,
    ragged_rank: int | None = None,
    inner_shape: Any = None,
    name: str | None = None,
    row_splits_dtype: Any = int64,
) -> Any:
    """A RaggedTensor of nested lists; a Tensor where there is nothing that could be ragged.

    Args:
        pylist: nested lists of Python's values, all values at one depth.
        dtype: of the values.
        ragged_rank: how many levels are ragged; None: all but the innermost lists' values.
        inner_shape: the shape of each innermost value.
        name: no meaning here.
        row_splits_dtype: int32 or int64.

    Raises:
        ValueError: values at different depths, or nesting that does not fit ragged_rank.

    Example:
        >>> from penstock.tf.ragged import constant
        >>> constant([[1, 2], [], [3]])
        <tf.RaggedTensor [[1, 2], [], [3]]>
    """
    inner = None if inner_shape is None else tuple(TensorShape(inner_shape).as_list())
    scalars, deepest = _depths(pylist)
    if scalars is not None and deepest > scalars:
        raise ValueError(
            f"Invalid pylist={pylist!r}: empty list nesting is greater than scalar value nesting"
        )
    depth = deepest if scalars is None else scalars
    if ragged_rank is None:
        flat = depth - len(inner or ()) < 2
        ragged_rank = 0 if flat else depth - 1 - len(inner or ())
    elif scalars is not None and depth < ragged_rank + 1 + len(inner or ()):
        raise ValueError(f"Invalid pylist={pylist!r}: incompatible with ragged_rank={ragged_rank}")
    if not ragged_rank:
        return dense_constant(pylist, dtype, inner)
    nested: list[list[int]] = []
    values: list[Any] = list(pylist)
    for _ in range(ragged_rank):
        splits = [0]
        for row in values:
            splits.append(splits[-1] + len(row))
        nested.append(splits)
        values = [part for row in values for part in row]
    if inner is None and values and depth > ragged_rank + 1:
        inner = np.asarray(values).shape[1:]
    shape = None if inner is None else [len(values), *inner]
    flat_values = dense_constant(values, dtype, shape if values or inner else None)
    kind = as_dtype(row_splits_dtype).dtype
    return RaggedTensor.from_nested_row_splits(
        flat_values, [np.asarray(splits, kind) for splits in nested], validate=False
    )


def _depths(value: Any) -> tuple[int | None, int]:
    """How deep the values lie, None where there are none, and how deep the deepest list."""
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

"""The features of a schema in TensorFlow's terms, as values; `penstock.features` has the overview."""

from __future__ import annotations

import math
from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

_TYPES: dict[str, pa.DataType] = {
    "int64": pa.int64(),
    "float32": pa.float32(),
    "string": pa.binary(),
    "bytes": pa.binary(),
    "binary": pa.binary(),
    "object": pa.binary(),
}
_PYTHON_TYPES: dict[Any, pa.DataType] = {
    int: pa.int64(),
    float: pa.float32(),
    bytes: pa.binary(),
    str: pa.string(),
}
KINDS = {
    pa.int64(): "int64",
    pa.float32(): "float",
    pa.binary(): "bytes",
    pa.string(): "bytes",
}
"""The kind on the wire of each type that a feature may have."""


def value_type(dtype: Any) -> pa.DataType:
    """The Arrow type of a dtype given by name or as NumPy's, pyarrow's, Python's or TensorFlow's.

    "string" is TensorFlow's word for bytes, so it gives binary; ask for text with `pa.string()` or
    `str`.

    Raises:
        TypeError: any type but int64, float32 and bytes: the wire has no other.

    Example:
        >>> from penstock.features import value_type
        >>> value_type("float32"), value_type("string"), value_type(str)
        (DataType(float), DataType(binary), DataType(string))
    """
    if isinstance(dtype, pa.DataType):
        found = {pa.large_binary(): pa.binary(), pa.large_string(): pa.string()}.get(dtype, dtype)
        if found in KINDS:
            return found
    elif isinstance(dtype, type) and dtype in _PYTHON_TYPES:
        return _PYTHON_TYPES[dtype]
    else:
        name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None)
        if not isinstance(name, str) and isinstance(dtype, type) and issubclass(dtype, np.generic):
            name = np.dtype(dtype).name
        if isinstance(name, str) and name in _TYPES:
            return _TYPES[name]
        if isinstance(name, str) and name.rstrip("0123456789") == "bytes":
            return pa.binary()
        if isinstance(name, str) and name.rstrip("0123456789") == "str":
            return pa.string()
    raise TypeError(f"an Example holds int64, float32 and bytes, not {dtype}")


def _shape(shape: int | Iterable[int | None]) -> tuple[int, ...]:
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    for size in sizes:
        if size is None or size < 0:
            raise ValueError(f"shape {list(sizes)} is not fixed; see VarLen and FixedLenSequence")
    return tuple(int(size) for size in sizes if size is not None)


def _flatten(value: Any) -> list[Any]:
    if isinstance(value, (np.ndarray, np.generic, pa.Array, pa.Scalar)):
        value = value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value.as_py()
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in _flatten(part)]
    return [value]


def _default(value: Any, dtype: pa.DataType, count: int) -> tuple[Any, ...]:
    """A default as flat values of the wire's type: exactly as many as the shape has elements."""
    leaves = _flatten(value)
    if len(leaves) != count:
        raise ValueError(f"the default has {len(leaves)} values, the shape {count}")
    return tuple(_leaf(leaf, dtype) for leaf in leaves)


def _leaf(leaf: Any, dtype: pa.DataType) -> Any:
    number = isinstance(leaf, (int, float)) and not isinstance(leaf, bool)
    if dtype == pa.int64() and number and isinstance(leaf, int):
        if -(1 << 63) <= leaf < 1 << 63:
            return leaf
        raise ValueError(f"the default {leaf} does not fit int64")
    if dtype == pa.float32() and number:
        return float(leaf)
    if KINDS[dtype] == "bytes" and isinstance(leaf, (bytes, str)):
        return leaf.encode() if isinstance(leaf, str) else leaf
    raise TypeError(f"the default {leaf!r} is no {dtype}")


def _settle(feature: Any, **values: Any) -> None:
    """Put the settled forms of what the caller gave into a frozen dataclass."""
    for name, value in values.items():
        object.__setattr__(feature, name, value)


@dataclass(frozen=True, slots=True)
class FixedLen:
    """A tensor of the same shape in every record.

    Args:
        shape: dimensions, or one int; [] for a scalar. Values lie in C order.
        dtype: see `value_type`.
        default: what stands for a missing feature: as many values as the shape has elements, flat
            or nested. Not used where the feature is there and empty: that is an error.

    Raises:
        TypeError: a dtype that no Example holds, or a default of another type.
        ValueError: a shape that is not fixed, or a default of another size.

    Example:
        >>> import penstock as ps
        >>> ps.features.FixedLen([2], "float32", default=[0, 1]).default
        (0.0, 1.0)
    """

    shape: Any
    dtype: Any
    default: Any = None

    def __post_init__(self) -> None:
        _settle(self, shape=_shape(self.shape), dtype=value_type(self.dtype))
        if self.default is not None:
            count = math.prod(self.shape)
            _settle(self, default=_default(self.default, self.dtype, count))


@dataclass(frozen=True, slots=True)
class VarLen:
    """Any number of values.

    Example:
        >>> import penstock as ps
        >>> ps.features.VarLen("int64").dtype
        DataType(int64)
    """

    dtype: Any

    def __post_init__(self) -> None:
        _settle(self, dtype=value_type(self.dtype))


@dataclass(frozen=True, slots=True)
class FixedLenSequence:
    """Any number of elements of one shape.

    Args:
        shape: dimensions of one element, none of them 0.
        dtype: see `value_type`.
        allow_missing: whether a record may lack the feature.
        default: one value with which a loader pads rows to the longest; columns are not padded.

    Raises:
        TypeError, ValueError: as FixedLen.
    """

    shape: Any
    dtype: Any
    allow_missing: bool = False
    default: Any = None

    def __post_init__(self) -> None:
        _settle(self, shape=_shape(self.shape), dtype=value_type(self.dtype))
        if 0 in self.shape:
            raise ValueError("elements without values cannot be counted")
        if self.default is not None:
            _settle(self, default=_default(self.default, self.dtype, 1))


@dataclass(frozen=True, slots=True)
class RowLengths:
    """Rows by the number of their elements. `key` is that of an int64 list."""

    key: str


@dataclass(frozen=True, slots=True)
class RowSplits:
    """Rows by where each starts, and the end of the last. `key` is that of an int64 list."""

    key: str


@dataclass(frozen=True, slots=True)
class RowStarts:
    """Rows by where each starts. `key` is that of an int64 list."""

    key: str


@dataclass(frozen=True, slots=True)
class RowLimits:
    """Rows by where each ends. `key` is that of an int64 list."""

    key: str


@dataclass(frozen=True, slots=True)
class ValueRowIds:
    """Rows by the number of the row of each element. `key` is that of an int64 list."""

    key: str


@dataclass(frozen=True, slots=True)
class UniformRowLength:
    """Rows of `length` elements each."""

    length: int

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ValueError("rows without elements cannot be counted")


_PARTITIONS = (
    RowLengths,
    RowSplits,
    RowStarts,
    RowLimits,
    ValueRowIds,
    UniformRowLength,
)
Partition = RowLengths | RowSplits | RowStarts | RowLimits | ValueRowIds | UniformRowLength


@dataclass(frozen=True, slots=True)
class Ragged:
    """Lists of lists: flat values under one key, and how they fall into rows under others.

    Args:
        dtype: see `value_type`.
        value_key: the key of the values; None for the name of the column.
        partitions: RowLengths, RowSplits, RowStarts, RowLimits, ValueRowIds or UniformRowLength,
            outermost first. Without any, a record is one list.
        row_splits_dtype: "int32" or "int64", for TensorFlow; Arrow's offsets are int32 in any case.
        validate: whether rows that do not fit the values are an error; else they are cut short or
            lost. None leaves it to the dialect: an error, but not for TensorFlow.

    Example:
        >>> import penstock as ps
        >>> f = ps.features
        >>> f.Ragged("int64", value_key="v", partitions=[f.RowLengths("len")]).partitions
        (RowLengths(key='len'),)
    """

    dtype: Any
    value_key: str | None = None
    partitions: SequenceOf[Partition] = ()
    row_splits_dtype: str = "int32"
    validate: bool | None = None

    def __post_init__(self) -> None:
        splits = getattr(self.row_splits_dtype, "name", self.row_splits_dtype)
        if splits not in ("int32", "int64"):
            raise ValueError(f"row_splits_dtype is int32 or int64, not {splits}")
        partitions = tuple(self.partitions)
        for partition in partitions:
            # Callers need not use a type checker.
            if not isinstance(partition, _PARTITIONS):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"{partition!r} is no partition")
        _settle(
            self,
            dtype=value_type(self.dtype),
            partitions=partitions,
            row_splits_dtype=splits,
        )


@dataclass(frozen=True, slots=True)
class Sparse:
    """A sparse tensor: values under one key, and their indices under others.

    Args:
        index_key: the key of the indices, or one key for each dimension: int64 lists.
        value_key: the key of the values.
        dtype: see `value_type`.
        size: the dense size, one int for each dimension.
        already_sorted: whether the order of the record is kept; else values are sorted by index.

    Raises:
        ValueError: another number of sizes than of index keys.
    """

    index_key: Any
    value_key: str
    dtype: Any
    size: Any
    already_sorted: bool = False

    def __post_init__(self) -> None:
        keys = (self.index_key,) if isinstance(self.index_key, str) else tuple(self.index_key)
        size = _shape(self.size)
        if len(keys) != len(size) or not keys:
            raise ValueError(f"{len(keys)} index keys for {len(size)} dimensions")
        _settle(self, index_key=keys, size=size, dtype=value_type(self.dtype))


@dataclass(frozen=True, slots=True)
class Sequence:
    """A feature list of a SequenceExample: what its frames are.

    Example:
        >>> import penstock as ps
        >>> ps.features.Sequence(ps.features.VarLen("int64")).feature
        VarLen(dtype=DataType(int64))
    """

    feature: FixedLenSequence | VarLen | Ragged

    def __post_init__(self) -> None:
        kinds = (FixedLenSequence, VarLen, Ragged)
        if not isinstance(self.feature, kinds):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError("a feature list is a FixedLenSequence, VarLen or Ragged")


Feature = FixedLen | VarLen | FixedLenSequence | Ragged | Sparse | Sequence
"""Any of them."""

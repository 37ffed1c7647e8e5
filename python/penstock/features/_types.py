"""The feature classes of schemas in TensorFlow's terms. `penstock.features` has an overview."""

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
_NUMPY_TYPES = {"bytes": pa.binary(), "str": pa.string()}
"""Types by the name of a NumPy dtype without its size: for bytes24, the key is "bytes"."""
KINDS = {
    pa.int64(): "int64",
    pa.float32(): "float",
    pa.binary(): "bytes",
    pa.string(): "bytes",
}
"""The kind of list in an Example, for each type that a feature may have."""


def value_type(dtype: Any) -> pa.DataType:
    """The Arrow type for a dtype of NumPy, pyarrow, Python or TensorFlow, or for the name of a dtype.

    "string" is TensorFlow's name for bytes, so it becomes binary. For text, use `pa.string()` or `str`.

    Raises:
        TypeError: the type is not int64, float32, bytes or text, which are the types of an Example.

    Example:
        >>> from penstock.features import value_type
        >>> value_type("float32"), value_type("string"), value_type(str)
        (DataType(float), DataType(binary), DataType(string))
    """
    found: pa.DataType | None
    if isinstance(dtype, pa.DataType):
        found = {pa.large_binary(): pa.binary(), pa.large_string(): pa.string()}.get(dtype, dtype)
    elif isinstance(dtype, type) and dtype in _PYTHON_TYPES:
        found = _PYTHON_TYPES[dtype]
    else:
        name = _name_of(dtype)
        found = _TYPES.get(name) or _NUMPY_TYPES.get(name.rstrip("0123456789"))
    if found not in KINDS:
        raise TypeError(f"an Example holds int64, float32 and bytes, not {dtype}")
    return found


def _name_of(dtype: Any) -> str:
    if isinstance(dtype, type) and issubclass(dtype, np.generic):
        return np.dtype(dtype).name
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None)
    return name if isinstance(name, str) else ""


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
    leaves = _flatten(value)
    if len(leaves) != count:
        raise ValueError(f"the default has {len(leaves)} values, but the shape has {count}")
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
    raise TypeError(f"the default {leaf!r} is not of type {dtype}")


def _settle(feature: Any, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(feature, name, value)


@dataclass(frozen=True, slots=True)
class FixedLen:
    """A tensor of the same shape in every record.

    Args:
        shape: dimensions, or one int; [] for a scalar. Values are in C order.
        dtype: see `value_type`.
        default: replaces a missing feature: one value for each element of the shape, flat or nested. It does not
            replace a feature that is present but empty, which is an error.

    Raises:
        TypeError: an Example cannot hold the dtype, or the default has a different type.
        ValueError: the shape is not fixed, or the default has a different size.

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
    """A list of any length.

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
    """A list of any length whose elements all have the same shape.

    Args:
        shape: dimensions of one element, none of them 0.
        dtype: see `value_type`.
        allow_missing: whether a record may lack the feature.
        default: the value with which TensorFlow pads rows. It has no effect, because penstock does not pad columns.

    Raises:
        TypeError, ValueError: as for FixedLen.
    """

    shape: Any
    dtype: Any
    allow_missing: bool = False
    default: Any = None

    def __post_init__(self) -> None:
        _settle(self, shape=_shape(self.shape), dtype=value_type(self.dtype))
        if 0 in self.shape:
            raise ValueError(
                "a dimension of the shape is 0: elements without values cannot be counted"
            )
        if self.default is not None:
            _settle(self, default=_default(self.default, self.dtype, 1))


@dataclass(frozen=True, slots=True)
class KeyedPartition:
    """Rows described by an int64 list that the record has under `key`."""

    key: str


class RowLengths(KeyedPartition):
    """Rows given by their numbers of elements."""

    __slots__ = ()


class RowSplits(KeyedPartition):
    """Rows given by the start of each row, followed by the end of the last row."""

    __slots__ = ()


class RowStarts(KeyedPartition):
    """Rows given by the start of each row."""

    __slots__ = ()


class RowLimits(KeyedPartition):
    """Rows given by the end of each row."""

    __slots__ = ()


class ValueRowIds(KeyedPartition):
    """Rows given by the row number of each element."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class UniformRowLength:
    """Rows of `length` elements each."""

    length: int

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ValueError("length must be at least 1: rows without elements cannot be counted")


Partition = RowLengths | RowSplits | RowStarts | RowLimits | ValueRowIds | UniformRowLength


@dataclass(frozen=True, slots=True)
class Ragged:
    """Lists of lists: flat values under one key, and their division into rows under other keys.

    Args:
        dtype: see `value_type`.
        value_key: the key of the values; None for the name of the column.
        partitions: RowLengths, RowSplits, RowStarts, RowLimits, ValueRowIds or UniformRowLength, outermost first.
            Without partitions, each record is one list.
        row_splits_dtype: "int32" or "int64", for TensorFlow. Arrow's offsets are always int32.
        validate: whether rows that do not match the values are an error; otherwise rows are truncated and values
            are lost. None: an error in the protobuf dialect only.

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
            # Checked here because callers need not use a type checker.
            if not isinstance(partition, Partition):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"{partition!r} is not a partition")
        _settle(
            self,
            dtype=value_type(self.dtype),
            partitions=partitions,
            row_splits_dtype=splits,
        )


@dataclass(frozen=True, slots=True)
class Sparse:
    """A sparse tensor: values under one key, and their indices under other keys.

    Args:
        index_key: the key of the indices, int64 lists; for several dimensions a list of keys.
        value_key: the key of the values.
        dtype: see `value_type`.
        size: the shape of the dense tensor. It must have one int for each index key; otherwise ValueError is raised.
        already_sorted: keep the order of the record. Otherwise values are sorted by index.
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
            raise ValueError(f"there are {len(keys)} index keys for {len(size)} dimensions")
        _settle(self, index_key=keys, size=size, dtype=value_type(self.dtype))


@dataclass(frozen=True, slots=True)
class Sequence:
    """A feature list of a SequenceExample, described by the feature of one frame.

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

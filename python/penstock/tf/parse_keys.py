"""One key of a record: how the kernel decodes it, and which tensor is made from the result.

TensorFlow's parsers read a key as dense, dense of any length, sparse or ragged. Features of several keys are then
assembled from these (`parse_composites.py`). From the result of `_core.decode_tensors`, `batch` makes the tensor of a
batch, and `single` that of one record.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from penstock.payloads.example.plans import Wire
from penstock.tf.dtypes import DType, string
from penstock.tf.ragged_tensor import RaggedTensor
from penstock.tf.sparse import made as sparse_tensor
from penstock.tf.tensor import Tensor

KINDS = {"int64": "int64", "float32": "float", "string": "bytes"}
"""The kernel's names for the types of values in a record."""

Parts = tuple[Any, Any, Any]
Array = np.ndarray[Any, Any]
_INT64 = np.dtype(np.int64)
_INT32 = np.dtype(np.int32)


def numbers(raw: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Tensor:
    """Numbers from the kernel: a bytearray if they are few, otherwise an object with NumPy's array interface."""
    if type(raw) is bytearray:
        return Tensor(shape, dtype, raw)  # pyright: ignore[reportArgumentType]
    return np.asarray(raw).reshape(shape).view(Tensor)


def _count(raw: Any, width: int) -> int:
    return len(raw) // width if type(raw) is bytearray else len(raw)


def flat(raw: Any, dtype: DType) -> Tensor:
    """All values of a key, concatenated."""
    if dtype is string:
        made = np.empty(len(raw), object)
        made[:] = raw
        return made.view(Tensor)
    return numbers(raw, dtype.dtype, (_count(raw, dtype.dtype.itemsize),))


def ends(raw: Any) -> Array:
    """The positions where lists begin, and the end of the last list: int32."""
    return np.asarray(numbers(raw, _INT32, (_count(raw, 4),)))


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a record.

    Attributes: name; dtype; in_lists (bool): whether it is one of a SequenceExample's feature lists.
    """

    name: Any
    dtype: DType
    in_lists: bool = False
    sparse = False

    def encoded(self) -> bytes:
        """The key on the wire."""
        return self.name if isinstance(self.name, bytes) else self.name.encode()

    def wire(self) -> Wire:
        """How the kernel decodes it."""
        layout = "frame_lists" if self.in_lists else "list"
        return self._wire(layout, default=())

    def _wire(self, layout: str, **more: Any) -> Wire:
        return Wire(str(self.name), KINDS[self.dtype.name], layout, in_lists=self.in_lists, **more)

    def batch(self, parts: Parts, num_records: int) -> Any:
        """The tensor of a batch."""
        raise NotImplementedError

    def single(self, parts: Parts) -> Any:
        """The tensor of one record."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Dense(Key):
    """A key with the same shape in every record."""

    shape: tuple[int, ...] = ()
    default: tuple[Any, ...] | None = None

    def wire(self) -> Wire:
        layout, required = ("fixed" if self.shape else "scalar"), not self.default
        default = None if required else self.default
        return self._wire(layout, size=prod(self.shape), required=required, default=default)

    def batch(self, parts: Parts, num_records: int) -> Any:
        if self.dtype is not string:
            return numbers(parts[0], self.dtype.dtype, (num_records, *self.shape))
        values = flat(parts[0], string)
        return values.reshape((num_records, *self.shape)) if self.shape else values

    def single(self, parts: Parts) -> Any:
        if self.dtype is not string:
            return numbers(parts[0], self.dtype.dtype, self.shape)
        if self.shape:
            return flat(parts[0], string).reshape(self.shape)
        made = np.empty((), object)
        made[()] = parts[0][0]
        return made.view(Tensor)


@dataclass(frozen=True, slots=True)
class Rows(Key):
    """A key with any number of elements of the same shape, which are padded to the longest record in a batch."""

    shape: tuple[int, ...] = ()
    fill: Any = 0
    required: bool = False

    def wire(self) -> Wire:
        layout = "frame_rows" if self.in_lists else "rows"
        default = None if self.required else ()
        return self._wire(layout, size=prod(self.shape), required=self.required, default=default)

    def batch(self, parts: Parts, num_records: int) -> Any:
        lengths = np.diff(ends(parts[1]))
        values = flat(parts[0], self.dtype)
        longest = int(lengths.max(initial=0))
        if (lengths == longest).all():
            padded = values
        else:
            padded = np.full((num_records, longest), self.fill, self.dtype.dtype)
            padded[np.arange(longest) < lengths[:, None]] = values
        sizes = (num_records, longest // prod(self.shape), *self.shape)
        return padded.reshape(sizes).view(Tensor)

    def lengths(self, parts: Parts) -> Tensor:
        """How many elements each record has, int64."""
        counts = np.diff(ends(parts[1])).astype(np.int64)
        return (counts // prod(self.shape)).view(Tensor)

    def single(self, parts: Parts) -> Any:
        return flat(parts[0], self.dtype).reshape((-1, *self.shape))


@dataclass(frozen=True, slots=True)
class Sparse(Key):
    """A key with any number of values, as a sparse tensor indexed by record and position (and by frame, in feature
    lists)."""

    sparse = True

    def batch(self, parts: Parts, num_records: int) -> Any:
        raw, indices, longest = parts
        rank = len(longest) + 1
        values = flat(raw, self.dtype)
        shape = np.array((num_records, *longest), np.int64).view(Tensor)
        return sparse_tensor(numbers(indices, _INT64, (len(values), rank)), values, shape)

    def single(self, parts: Parts) -> Any:
        raw, indices, longest = parts
        rank = len(longest) + 1
        values = flat(raw, self.dtype)
        places = numbers(indices, _INT64, (len(values), rank))[:, 1:].copy()
        return sparse_tensor(places, values, np.array(longest, np.int64).view(Tensor))


@dataclass(frozen=True, slots=True)
class Ragged(Key):
    """A key with any number of values, as rows of a ragged tensor. In feature lists, a row is a list of frames."""

    splits: DType = string

    def batch(self, parts: Parts, num_records: int) -> RaggedTensor:
        raw, lists, frames = parts
        values: Any = flat(raw, self.dtype)
        if frames is not None:
            values = RaggedTensor(values, self._splits(frames))
        return RaggedTensor(values, self._splits(lists))

    def single(self, parts: Parts) -> Any:
        raw, _, frames = parts
        values = flat(raw, self.dtype)
        return values if frames is None else RaggedTensor(values, self._splits(frames))

    def _splits(self, raw: Any) -> Tensor:
        return ends(raw).astype(self.splits.dtype, copy=False).view(Tensor)

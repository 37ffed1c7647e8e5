"""A whole npz file as one record: each array is a value, with its shape."""

from __future__ import annotations

import os
from abc import abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.types import VariableShapeTensorType
from penstock.errors import UnsupportedError
from penstock.formats.numpy.arrays import (
    ArrayColumn,
    Cut,
    Place,
    StoredArray,
    StoredColumn,
)
from penstock.formats.numpy.checks import Check
from penstock.formats.numpy.dtypes import column, field_of
from penstock.formats.numpy.npy_header import Header
from penstock.limits import Limits

FILE_NAME = "file_name"
_MOST_VALUES = 0x7FFFFFFF


def whole_column(
    name: str, header: Header, place: Place, path: str, check: Check | None
) -> StoredColumn:
    """Return an array as a column of one record. Raise UnsupportedError if Arrow has no type for it."""
    if not header.shape:
        return ArrayColumn(name, StoredArray(replace(header, shape=(1,)), place, path, check))
    return _Array(name, StoredArray(header, place, path, check))


def check_whole(header: Header, limits: Limits) -> None:
    """Raise LimitError if an array is too large for a record."""
    limits.check("record_bytes", header.num_values * header.dtype.itemsize)


class _Single(StoredColumn):
    num_records = chunk_records = 1

    def read(self, cut: Cut) -> Any:
        return pa.concat_arrays([self.value()] * cut.total) if cut.total else self.value()[:0]

    @abstractmethod
    def value(self) -> Any:
        """The value, as an array of one record."""
        ...


class FileName(_Single):
    """The name of the file."""

    record_bytes = 16

    def __init__(self, path: str) -> None:
        self.field = pa.field(FILE_NAME, pa.string())
        self._name = os.path.basename(path)

    def value(self) -> Any:
        return pa.array([self._name.encode("utf-8", "replace")]).cast(pa.string())


class _Array(_Single):
    """An array with axes: of one axis a list, of several a tensor, whose shape may differ from file to file."""

    def __init__(self, name: str, array: StoredArray) -> None:
        self._array = array
        self._shape = array.shape
        self.record_bytes = float(array.num_records * array.record_bytes)
        stored: Any = field_of(name, array.dtype)
        self._value: Any = stored.type
        if len(self._shape) == 1:
            type_: Any = pa.list_(stored.type)
        elif pa.types.is_primitive(stored.type):
            type_ = VariableShapeTensorType(stored.type, len(self._shape))
        else:
            message = f"Arrow has no tensors of {stored.type}"
            raise UnsupportedError(message, found=f"shape {self._shape}", hint=_WITHOUT)
        if array.num_records * int(np.prod(array.inner, dtype=np.float64)) > _MOST_VALUES:
            message = "the array has too many values for one record"
            raise UnsupportedError(message, found=f"shape {self._shape}", hint=_WITHOUT)
        self.field: Any = stored.with_type(type_)

    def value(self) -> Any:
        whole = Cut.of_run(0, self._array.num_records, is_chunk=True)
        flat = np.ascontiguousarray(self._array.read(whole)).reshape(-1)
        lists = pa.ListArray.from_arrays(
            pa.array([0, len(flat)], pa.int32()), column(flat, self._value)
        )
        type_ = self.field.type
        if not isinstance(type_, VariableShapeTensorType):
            return lists
        shape = pa.FixedSizeListArray.from_arrays(
            pa.array(self._shape, pa.int32()), len(self._shape)
        )
        storage = pa.StructArray.from_arrays([lists, shape], fields=list(type_.storage_type))
        return pa.ExtensionArray.from_storage(type_, storage)


_WITHOUT = "open(..., arrays=[...]) with the other arrays"

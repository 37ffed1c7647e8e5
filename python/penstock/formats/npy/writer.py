"""Writes npy files: a header, the records, and at the end the header again with the number of records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.batches import conform, same_columns
from penstock.columns.refusals import refuse_ragged
from penstock.contract.format import Writer
from penstock.errors import PenstockError, SchemaError
from penstock.formats.numpy.dtypes import dtype_of, name_of_bits
from penstock.formats.numpy.npy_header import MOST_RECORDS, header_bytes
from penstock.formats.numpy.values import values_of
from penstock.storage.base import Sink


@dataclass(frozen=True, slots=True)
class NpyOptions:
    """Options for writing npy."""

    text_length: int | None = None
    """The maximum length of a string (in characters) and of a binary value (in bytes), because NumPy stores them with a
    fixed length. With None, such columns raise an error."""


def descr_of(dtype: np.dtype[Any]) -> Any:
    """Return how an npy header describes a dtype that is not a sub-array."""
    if dtype.names is None:
        return "<V2" if name_of_bits(dtype) == "bfloat16" else dtype.str
    assert dtype.fields is not None
    described: list[tuple[Any, ...]] = []
    for name in dtype.names:
        field = dtype[name]
        if field.subdtype is None:
            described.append((name, descr_of(field)))
        else:
            described.append((name, descr_of(field.base), field.shape))
    return described


class NpyWriter(Writer):
    """Writes one npy file: a plain array if the only field is called "data", else a structured array."""

    def __init__(self, sink: Sink, schema: pa.Schema, options: NpyOptions) -> None:
        check_text_length(options.text_length)
        self._sink = sink
        self._schema: Any = schema
        self._records = 0
        self._open = True
        try:
            self._is_plain = list(self._schema.names) == ["data"]
            refuse_ragged(self._schema, "npy")
            self._dtypes = [dtype_of(field, options.text_length or 0) for field in self._schema]
            self._dtype = self._whole()
        except PenstockError as error:
            raise error.at(file=sink.path) from None
        self._header_bytes = len(self._header(MOST_RECORDS))
        sink.write(self._header(MOST_RECORDS))
        self._num_bytes = self._header_bytes

    def _whole(self) -> np.dtype[Any]:
        if self._is_plain:
            return self._dtypes[0]
        names = self._schema.names
        if len(set(names)) < len(names) or not all(names):
            raise SchemaError("two fields have the same name, or a field has no name")
        if not names:
            raise SchemaError("an array cannot hold records without fields")
        return np.dtype(list(zip(names, self._dtypes, strict=True)))

    def _header(self, records: int, length: int | None = None) -> bytes:
        dtype = self._dtype
        return header_bytes(descr_of(dtype.base), (records, *dtype.shape), length)

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        path = self._sink.path
        batch = conform(same_columns(batch, self._schema, path), self._schema, path)
        values = np.zeros(0, self._dtype.base)
        try:
            for n, name in enumerate(self._schema.names):
                found = values_of(batch.column(n), self._dtypes[n], name)
                if self._is_plain:
                    values = np.ascontiguousarray(found)
                    break
                if not n:
                    values = np.zeros(batch.num_rows, self._dtype)
                values[name] = found
        except SchemaError as error:
            if error.record is not None:
                error.record += self._records
            raise error.at(file=path) from None
        data = values.reshape(-1).view(np.uint8)
        if len(data):
            self._sink.write(data)
        self._num_bytes += len(data)
        self._records += batch.num_rows

    def close(self) -> None:
        """Write the header with the number of records. The sink stays open."""
        if self._open:
            self._open = False
            self._sink.patch(0, self._header(self._records, self._header_bytes))


def check_text_length(text_length: int | None) -> None:
    """Raise ValueError for an invalid text length."""
    if text_length is not None and not 1 <= text_length < 1 << 29:
        raise ValueError(f"text_length must be at least 1 and below 2**29, not {text_length}")

"""Conversions of byte strings: `tf.io.decode_compressed`, base64, and sparse tensors as strings."""

from __future__ import annotations

import base64
import binascii
import gzip
import zlib
from typing import Any

import numpy as np

from penstock.tf import probing
from penstock.tf.dtypes import as_dtype
from penstock.tf.errors import DataLossError, InvalidArgumentError
from penstock.tf.sparse import SparseTensor
from penstock.tf.tensor import Tensor, convert_to_tensor
from penstock.tf.tensor_proto import parse_tensor, serialize_tensor
from penstock.tf.text_values import each


def decode_compressed(bytes: Any, compression_type: str = "", name: str | None = None) -> Any:
    """Decompress strings.

    Args:
        bytes: the strings.
        compression_type: "GZIP", "ZLIB" or "" for none.
        name: ignored.

    Raises:
        InvalidArgumentError: an unknown compression.
        DataLossError: a string that is not compressed in this way.

    Example:
        >>> import gzip
        >>> import penstock.tf as tf
        >>> tf.io.decode_compressed(gzip.compress(b"abc"), "GZIP").numpy()
        b'abc'
    """
    readers = {"": lambda text: text, "GZIP": gzip.decompress, "ZLIB": zlib.decompress}
    if compression_type not in readers:
        raise InvalidArgumentError(
            None,
            None,
            f"Only ZLIB, GZIP or NONE are supported compressions, not {compression_type!r}",
        )
    read = readers[compression_type]

    def decompressed(text: Any) -> Any:
        if probing.is_on():
            return text
        try:
            return read(text)
        except (OSError, EOFError, zlib.error) as error:
            raise DataLossError(None, None, f"inflate failed: {error}") from error

    return each(bytes, decompressed)


def encode_base64(input: Any, pad: bool = False, name: str | None = None) -> Any:
    """Encode strings in URL-safe base64."""

    def encoded(text: Any) -> Any:
        made = base64.urlsafe_b64encode(text)
        return made if pad else made.rstrip(b"=")

    return each(input, encoded)


def decode_base64(input: Any, name: str | None = None) -> Any:
    """Decode strings from URL-safe base64, with or without padding.

    Raises:
        InvalidArgumentError: a string is not base64.
    """

    def decoded(text: Any) -> Any:
        if probing.is_on():
            return text
        try:
            padded = text.rstrip(b"=")
            return base64.b64decode(padded + b"=" * (-len(padded) % 4), b"-_", validate=True)
        except binascii.Error:
            raise InvalidArgumentError(None, None, "Invalid character found in base64.") from None

    return each(input, decoded)


def serialize_sparse(
    sp_input: SparseTensor, out_type: Any = "string", name: str | None = None
) -> Tensor:
    """A sparse tensor as three strings: its indices, values and shape, each serialized by `serialize_tensor`."""
    parts = sp_input.indices, sp_input.values, sp_input.dense_shape
    return np.array([serialize_tensor(part).item() for part in parts], object).view(Tensor)


def serialize_many_sparse(
    sp_input: SparseTensor, out_type: Any = "string", name: str | None = None
) -> Tensor:
    """The rows of a sparse tensor, each as three strings."""
    rows = np.asarray(sp_input.indices)[:, 0]
    made = np.empty((int(sp_input.dense_shape[0]), 3), object)
    for row in range(len(made)):
        chosen = rows == row
        part = SparseTensor(
            np.asarray(sp_input.indices)[chosen, 1:],
            np.asarray(sp_input.values)[chosen].view(Tensor),
            sp_input.dense_shape[1:],
        )
        made[row] = serialize_sparse(part)
    return made.view(Tensor)


def deserialize_many_sparse(
    serialized_sparse: Any, dtype: Any, rank: int | None = None, name: str | None = None
) -> SparseTensor:
    """Convert rows of three strings to one sparse tensor with an additional first dimension.

    Raises:
        InvalidArgumentError: the strings do not have this form.
    """
    given = convert_to_tensor(serialized_sparse)
    if given.ndim != 2 or given.shape[1] != 3:
        raise InvalidArgumentError(
            None, None, f"serialized_sparse must have 3 columns, not shape {given.shape}"
        )
    indices: list[Any] = []
    values: list[Any] = []
    sizes = np.zeros(0, np.int64)
    for number, (places, parts, shape) in enumerate(given.tolist()):
        found = np.asarray(parse_tensor(places, "int64"))
        indices.append(np.concatenate([np.full((len(found), 1), number), found], axis=1))
        values.append(np.asarray(parse_tensor(parts, as_dtype(dtype))))
        own = np.asarray(parse_tensor(shape, "int64"))
        sizes = own if not len(sizes) else np.maximum(sizes, own)
    whole = [len(given), *sizes.tolist()]
    return SparseTensor(np.concatenate(indices), np.concatenate(values).view(Tensor), whole)

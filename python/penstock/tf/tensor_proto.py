"""`tf.io.serialize_tensor` and `parse_tensor`: an array as TensorFlow's TensorProto.

| field | what | wire |
|---|---|---|
| 1 | dtype, by TensorFlow's number | varint |
| 2 | shape: a message whose field 2 is a message for each dimension, with its size as field 1 | LEN |
| 4 | the numbers as in memory, little endian | LEN |
| 8 | the strings, one field each | LEN |
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock.tf import probing
from penstock.tf.dtypes import as_dtype, string
from penstock.tf.errors import InvalidArgumentError, OpError
from penstock.tf.tensor import Tensor, convert_to_tensor


def serialize_tensor(tensor: Any, name: str | None = None) -> Tensor:
    r"""A tensor's dtype, shape and values as a scalar string tensor.

    Args:
        tensor: a tensor, or values for `tf.convert_to_tensor`.
        name: ignored.

    Returns:
        Tensor: shape (), dtype string; the same bytes as TensorFlow's.

    Example:
        >>> import penstock.tf as tf
        >>> tf.io.serialize_tensor([1.5]).numpy()
        b'\x08\x01\x12\x04\x12\x02\x08\x01"\x04\x00\x00\xc0?'
    """
    array = convert_to_tensor(tensor)
    dtype = as_dtype(array.dtype)
    sizes = b"".join(_field(2, b"\x08" + _varint(size) if size else b"") for size in array.shape)
    message = b"\x08" + _varint(dtype.as_datatype_enum) + _field(2, sizes)
    plain = np.asarray(array)
    if dtype is string:
        message += b"".join(_field(8, value) for value in plain.ravel())
    elif plain.size:
        message += _field(4, plain.astype(plain.dtype.newbyteorder("<")).tobytes())
    return convert_to_tensor(message)


@probing.instead(lambda serialized, out_type, name=None: probing.array(None, out_type).view(Tensor))
def parse_tensor(serialized: Any, out_type: Any, name: str | None = None) -> Tensor:
    """The tensor that `serialize_tensor` wrote.

    Args:
        serialized: its bytes, or a scalar string tensor of them.
        out_type: the expected dtype.
        name: ignored.

    Returns:
        Tensor with the written shape and dtype.

    Raises:
        InvalidArgumentError: another dtype, or not a TensorProto.

    Example:
        >>> import penstock.tf as tf
        >>> tf.io.parse_tensor(tf.io.serialize_tensor([[1, 2]]), tf.int32).numpy().tolist()
        [[1, 2]]
    """
    data = convert_to_tensor(serialized).numpy()
    wanted = as_dtype(out_type)
    try:
        return _parsed(data, wanted)
    except (IndexError, TypeError, ValueError) as error:
        if isinstance(error, OpError):
            raise
        raise InvalidArgumentError(
            None, None, "Could not parse `serialized` as TensorProto"
        ) from error


class TensorProto:
    """A tensor as TensorFlow's TensorProto, with only the bytes of the message and the values.

    Attributes: dtype (int), TensorFlow's number of the type.
    """

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor
        self.dtype = as_dtype(tensor.dtype).as_datatype_enum

    def SerializeToString(self) -> bytes:  # noqa: N802 -- protobuf's name
        """The bytes of the message."""
        return serialize_tensor(self._tensor).item()

    @property
    def tensor_content(self) -> bytes:
        """The values as in memory."""
        return self._tensor.tobytes()

    def values(self) -> Any:
        """The values as a NumPy array."""
        return np.array(self._tensor.view(np.ndarray))


def make_tensor_proto(
    values: Any,
    dtype: Any = None,
    shape: Any = None,
    verify_shape: bool = False,
    allow_broadcast: bool = False,
) -> TensorProto:
    """Values as a TensorProto. Its `SerializeToString` returns the bytes."""
    made = convert_to_tensor(values, dtype)
    return TensorProto(made if shape is None else np.broadcast_to(made, shape).view(Tensor))


def make_ndarray(tensor: Any) -> Any:
    """The values of a TensorProto as a NumPy array."""
    if isinstance(tensor, TensorProto):
        return tensor.values()
    data = tensor.SerializeToString()
    kind = next(as_dtype(value) for number, value in _fields(data) if number == 1)
    return np.array(_parsed(data, kind).view(np.ndarray))


def _parsed(data: bytes, wanted: Any) -> Tensor:
    dtype, sizes, content = None, list[int](), b""
    strings: list[bytes] = []
    for number, value in _fields(data):
        if number == 1:
            dtype = as_dtype(value)
        elif number == 2:
            sizes += [_size(dim) for field, dim in _fields(value) if field == 2]
        elif number == 4:
            content = value
        elif number == 8:
            strings.append(value)
    if dtype is None or dtype != wanted:
        found = "none" if dtype is None else dtype.name
        raise InvalidArgumentError(
            None, None, f"Type mismatch between parsed tensor ({found}) and dtype ({wanted.name})"
        )
    if dtype is string:
        made = np.array([*strings, None], object)[:-1]
    else:
        made = np.frombuffer(content, dtype.dtype.newbyteorder("<")).astype(dtype.dtype)
    return made.reshape(sizes).view(Tensor)


def _size(message: bytes) -> int:
    return next((value for number, value in _fields(message) if number == 1), 0)


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field: an int, or the bytes of a longer one."""
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        if tag & 7 == 0:
            value, at = _read_varint(data, at)
        elif tag & 7 == 2:
            length, at = _read_varint(data, at)
            value, at = data[at : at + length], at + length
        else:
            width = {1: 8, 5: 4}.get(tag & 7)
            if width is None:
                raise ValueError("a wire type that no tensor has")
            value, at = data[at : at + width], at + width
        if at > len(data):
            raise ValueError("a field that is truncated")
        yield tag >> 3, value


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return value, at
        shift += 7
    raise ValueError("a number that does not end")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(data)) + data

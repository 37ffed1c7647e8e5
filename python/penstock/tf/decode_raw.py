"""`tf.io.decode_raw`: the bytes of strings as numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.tf import probing
from penstock.tf.dtypes import DType, as_dtype
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.tensor import Tensor, convert_to_tensor

_TYPES = [
    "float16",
    "float32",
    "float64",
    "int32",
    "uint16",
    "uint8",
    "int16",
    "int8",
    "int64",
    "complex64",
    "complex128",
    "bool",
]
_PADDED = tuple(name for name in _TYPES if name not in ("bool", "complex64", "complex128"))


def _placeholder(
    input_bytes: Any, out_type: Any, *_: Any, fixed_length: Any = None, **__: Any
) -> Any:
    size = None if fixed_length is None else fixed_length // as_dtype(out_type).size
    return probing.array([*np.shape(input_bytes), size], out_type).view(Tensor)


@probing.instead(_placeholder)
def decode_raw(
    input_bytes: Any,
    out_type: Any,
    little_endian: bool = True,
    fixed_length: int | None = None,
    name: str | None = None,
) -> Tensor:
    r"""The bytes of strings as numbers.

    Args:
        input_bytes: strings of any shape, all of one length unless fixed_length is given.
        out_type: the type of the numbers; TensorFlow takes neither uint32 nor uint64.
        little_endian: the order of the bytes.
        fixed_length: truncate strings to this many bytes, or pad them with zeros.
        name: ignored.

    Returns:
        Tensor of the shape of the strings + [numbers in each].

    Raises:
        InvalidArgumentError: the strings have different lengths, a length is not a multiple of the type's size, or the
            type is not supported.

    Example:
        >>> import penstock.tf as tf
        >>> from penstock.tf.decode_raw import decode_raw
        >>> decode_raw(b"\1\0\2\0", tf.int16).numpy()
        array([1, 2], dtype=int16)
        >>> decode_raw([b"\1", b"\2\3\4"], tf.uint8, fixed_length=2).numpy().tolist()
        [[1, 0], [2, 3]]
    """
    if out_type is None:
        raise TypeError("Expected DataType for argument 'out_type' not None.")
    try:
        strings = convert_to_tensor(input_bytes, dtype="string")
    except ValueError:
        raise TypeError(f"Cannot convert {input_bytes!r} to EagerTensor of dtype string") from None
    kind, allowed = as_dtype(out_type), _TYPES if fixed_length is None else _PADDED
    if kind.name not in allowed:
        _refuse(
            f"Value for attr 'out_type' of {core_name(kind)} is not in the list of allowed values: "
            + ", ".join(core_name(as_dtype(name)) for name in allowed)
        )
    width = kind.dtype.itemsize
    values: list[bytes] = strings.reshape(-1).tolist()
    if fixed_length is None:
        size = _common_size(values, kind)
    else:
        size = _checked_size(fixed_length, width)
        values = [value[:size].ljust(size, b"\0") for value in values]
    shape: Any = (*strings.shape, size // width)
    found = np.frombuffer(bytearray(b"".join(values)), np.uint8)
    if kind.name == "bool":
        return (found != 0).reshape(shape).view(Tensor)
    numbers = found.view(kind.dtype.newbyteorder("<" if little_endian else ">"))
    return numbers.astype(kind.dtype, copy=False).reshape(shape).view(Tensor)


def _checked_size(fixed_length: int, width: int) -> int:
    if fixed_length <= 0:
        _refuse(f"fixed_length ({fixed_length}) must be greater than zero.")
    if fixed_length % width:
        _refuse(
            f"fixed_length ({fixed_length}) must be a multiple of the size of out_type ({width})"
        )
    return fixed_length


def _common_size(values: list[bytes], kind: DType) -> int:
    """The size of the strings, which must be equal."""
    size = len(values[0]) if values else 0
    for number, value in enumerate(values):
        if len(value) != size:
            _refuse(
                "DecodeRaw requires input strings to all be the same size, "
                f"but element {number} has size {len(value)} != {size}"
            )
    if size % kind.dtype.itemsize:
        _refuse(
            f"Input to DecodeRaw has length {size} that is not a multiple of {kind.dtype.itemsize}, "
            f"the size of {core_name(kind)}"
        )
    return size


def core_name(dtype: DType) -> str:
    """The name of a type in the messages of TensorFlow's C++ core."""
    return {"float16": "half", "float32": "float", "float64": "double"}.get(dtype.name, dtype.name)


def _refuse(message: str) -> None:
    raise InvalidArgumentError(None, None, message)

"""TensorFlow's dtypes: names for NumPy's, with `string` for bytes, which NumPy keeps as objects.

A `DType` equals the NumPy dtype with the same meaning, has its attributes (`kind`, `itemsize` …), and NumPy accepts it
wherever it accepts a dtype.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from penstock.errors import UnsupportedError
from penstock.tf.missing import absent_from

_ENUM = {  # DataType in TensorFlow's types.proto
    "float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "string": 7,
    "complex64": 8, "int64": 9, "bool": 10, "bfloat16": 14, "uint16": 17, "complex128": 18,
    "float16": 19, "uint32": 22, "uint64": 23,
}  # fmt: skip
_GREATEST_BFLOAT16 = 3.3895313892515355e38
_ALIASES = {"half": "float16", "float": "float32", "double": "float64", "object": "string"}


class DType:
    """An element type.

    Attributes: name (str), as_numpy_dtype (NumPy's scalar type), is_floating, is_integer, is_bool,
    is_complex, is_unsigned (bool), min and max (the least and greatest value), size (bytes).

    Example:
        >>> import numpy as np
        >>> import penstock.tf as tf
        >>> tf.uint8.max, tf.uint8 == np.uint8, np.zeros(2, tf.int32).dtype
        (255, True, dtype('int32'))
    """

    __slots__ = ("dtype", "name")

    _is_numeric = True  # numpy.testing asks the class of a dtype

    def __init__(self, name: str, dtype: np.dtype[Any]) -> None:
        self.name = name
        self.dtype = dtype  # NumPy looks for this attribute: np.dtype(tf.float32)

    @property
    def as_numpy_dtype(self) -> type[Any]:
        """NumPy's scalar type; `object` for strings."""
        return object if self.name == "string" else self.dtype.type

    @property
    def as_datatype_enum(self) -> int:
        """The type's number in TensorFlow's protocol buffers."""
        return _ENUM[self.name]

    @property
    def base_dtype(self) -> DType:
        """The type itself: penstock has no reference types."""
        return self

    @property
    def is_floating(self) -> bool:
        """Whether values are floating-point numbers."""
        return self.dtype.kind == "f" or self.name == "bfloat16"

    @property
    def is_integer(self) -> bool:
        """Whether values are integers."""
        return self.dtype.kind in "iu"

    @property
    def is_unsigned(self) -> bool:
        """Whether values are unsigned integers."""
        return self.dtype.kind == "u"

    @property
    def is_bool(self) -> bool:
        """Whether values are booleans."""
        return self.dtype.kind == "b"

    @property
    def is_complex(self) -> bool:
        """Whether values are complex numbers."""
        return self.dtype.kind == "c"

    @property
    def is_numpy_compatible(self) -> bool:
        """Always True: values are in NumPy arrays."""
        return True

    @property
    def size(self) -> int:
        """Bytes of a value; 0 for strings, which have no fixed size."""
        return 0 if self.name == "string" else self.dtype.itemsize

    @property
    def min(self) -> Any:
        """The least value.

        Raises:
            TypeError: the type has no order.
        """
        return self._limit("min")

    @property
    def max(self) -> Any:
        """The greatest value.

        Raises:
            TypeError: the type has no order.
        """
        return self._limit("max")

    def _limit(self, which: str) -> Any:
        if self.is_bool:
            return which == "max"
        if self.is_integer:
            return getattr(np.iinfo(self.dtype), which)
        if self.name == "bfloat16":
            return self.dtype.type(_GREATEST_BFLOAT16 * (1 if which == "max" else -1))
        if self.dtype.kind == "f":
            return getattr(np.finfo(self.dtype), which)
        raise TypeError(f"{self.name} has no least and greatest value")

    @property
    def limits(self) -> tuple[Any, Any]:
        """The least and greatest value of an intensity: 0 and 1 for floats, the whole range for integers."""
        return (0, 1) if self.is_floating or self.is_bool else (self.min, self.max)

    @property
    def real_dtype(self) -> DType:
        """The type of the real part of a complex number; else the type itself."""
        parts = {"complex64": "float32", "complex128": "float64"}
        return BY_NAME[parts.get(self.name, self.name)]

    def is_compatible_with(self, other: Any) -> bool:
        """Whether the other type is the same."""
        return self == other

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "dtype":
            raise AttributeError(name)
        return getattr(self.dtype, name)

    def __eq__(self, other: object) -> bool:
        if other is self:
            return True
        if isinstance(other, (DType, np.dtype)):
            return of_array(other) is self
        try:
            return as_dtype(other) is self
        except TypeError:
            return False

    def __len__(self) -> int:
        return 0  # the number of fields of a NumPy dtype, which pandas asks for

    def __bool__(self) -> bool:
        return True

    def __hash__(self) -> int:
        return hash(self.dtype)  # It equals the NumPy dtype, so their hashes must be equal.

    def __repr__(self) -> str:
        return f"tf.{self.name}"

    def __str__(self) -> str:
        return f"<dtype: {self.name!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return as_dtype, (self.name,)


class _StringType(DType):
    """The type of strings, which NumPy keeps as objects."""

    __slots__ = ()

    _is_numeric = False


def _numpy(name: str) -> DType:
    return DType(name, np.dtype(name))


bool_ = _numpy("bool")
int8 = _numpy("int8")
int16 = _numpy("int16")
int32 = _numpy("int32")
int64 = _numpy("int64")
uint8 = _numpy("uint8")
uint16 = _numpy("uint16")
uint32 = _numpy("uint32")
uint64 = _numpy("uint64")
float16 = half = _numpy("float16")
float32 = _numpy("float32")
float64 = double = _numpy("float64")
complex64 = _numpy("complex64")
complex128 = _numpy("complex128")
string: DType = _StringType("string", np.dtype(object))

BY_NAME: dict[str, DType] = {
    t.name: t
    for t in (
        bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
        float16, float32, float64, complex64, complex128, string,
    )
}  # fmt: skip
_BY_NUMBER = {_ENUM[name]: t for name, t in BY_NAME.items()}
_PYTHON = {int: int32, float: float32, bool: bool_, str: string, bytes: string}


def as_dtype(value: Any) -> DType:
    """The DType for a DType, a name, a NumPy dtype or scalar type, a Python type, or TensorFlow's number.

    Raises:
        TypeError: there is no such dtype.

    Example:
        >>> import numpy as np
        >>> import penstock.tf as tf
        >>> tf.as_dtype("half"), tf.as_dtype(np.dtype("S3")), tf.as_dtype(float)
        (tf.float16, tf.string, tf.float32)
    """
    if isinstance(value, DType):
        return value
    if value == "bfloat16":
        return _bfloat16()
    if isinstance(value, str) and (found := BY_NAME.get(_ALIASES.get(value, value))) is not None:
        return found
    if type(value) is int and value in _BY_NUMBER:
        return _BY_NUMBER[value]
    if isinstance(value, type) and value in _PYTHON:
        return _PYTHON[value]
    # A dtype of TensorFlow itself has a NumPy equivalent.
    value = getattr(value, "as_numpy_dtype", value)
    found = None if value is None else _of_numpy(value)
    if found is None:
        raise TypeError(
            f"Cannot convert {value!r} to a TensorFlow dtype; penstock has {', '.join(BY_NAME)}"
        )
    return found


def _of_numpy(value: Any) -> DType | None:
    try:
        dtype = np.dtype(value)
    except TypeError:
        return None
    if dtype.name == "bfloat16":
        return _bfloat16()
    return string if dtype.kind in "OSUT" else BY_NAME.get(dtype.name)


def _bfloat16() -> DType:
    """The type bfloat16, which the package ml_dtypes adds to NumPy.

    Raises:
        UnsupportedError: ml_dtypes is not installed.
    """
    if (found := BY_NAME.get("bfloat16")) is None:
        try:
            from ml_dtypes import bfloat16 as numpys
        except ImportError:
            raise UnsupportedError(
                "tf.bfloat16 needs NumPy's bfloat16", hint="pip install ml_dtypes"
            ) from None
        found = BY_NAME["bfloat16"] = DType("bfloat16", np.dtype(numpys))
        _BY_ARRAY[found.dtype] = _BY_NUMBER[_ENUM["bfloat16"]] = found
    return found


_BY_ARRAY: dict[np.dtype[Any], DType] = {t.dtype: t for t in BY_NAME.values()}


def of_array(dtype: Any) -> Any:
    """The DType of an array of this NumPy dtype; the NumPy dtype itself if TensorFlow has none.

    Example:
        >>> import numpy as np
        >>> from penstock.tf.dtypes import of_array
        >>> of_array(np.dtype(object)), of_array(np.dtype("S2"))
        (tf.string, dtype('S2'))
    """
    if isinstance(dtype, DType):
        return dtype
    found = _BY_ARRAY.get(dtype)
    if found is None and dtype.name == "bfloat16":
        return _bfloat16()
    return dtype if found is None else found


def __getattr__(name: str) -> Any:
    if name in {"cast", "saturate_cast"}:
        # It imports this module.
        return getattr(importlib.import_module("penstock.tf"), name)
    return _bfloat16() if name == "bfloat16" else _absent(name)


def fits(number: int, dtype: np.dtype[Any]) -> bool:
    """Whether an integer dtype can hold a number."""
    if dtype.kind == "i":
        return (number if number >= 0 else ~number) >> (8 * dtype.itemsize - 1) == 0
    return dtype.kind == "u" and number >= 0 and number >> 8 * dtype.itemsize == 0


_absent = absent_from("tf.dtypes")

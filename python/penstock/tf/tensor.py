"""`Tensor`: a NumPy array with TensorFlow's methods, so that code written for either works.

A Tensor *is* an `np.ndarray`: NumPy, torch.from_numpy and jax.numpy accept it without a copy. Strings are arrays of
`bytes` objects. TensorFlow's additions are `.numpy()`, scalars that stay tensors, `.shape` with `as_list()`, float32
quotients of small integers, and the printed form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import currentframe
from typing import Any

import numpy as np

from penstock.tf import graphs, probing
from penstock.tf.backend_tensors import BackendTensorError, may_write, operated, refuse_unreadable
from penstock.tf.dtypes import DType, as_dtype, fits, of_array, string
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.mixed_lists import first_of, of_list
from penstock.tf.refusals import no_zero, refusal_of, refusing
from penstock.tf.shapes import TensorShape, TensorSpec

_NUMPY_DTYPE: Any = np.ndarray.dtype
numpy_dtype: Callable[[Any], np.dtype[Any]] = _NUMPY_DTYPE.__get__


class Tensor(np.ndarray[Any, np.dtype[Any]]):
    """A NumPy array with TensorFlow's methods; made by `tf.constant` and by functions that read data.

    Example:
        >>> import penstock.tf as tf
        >>> t = tf.constant([[1, 2], [3, 4]])
        >>> t.shape.as_list(), t[0, 1].numpy(), (t * 2).numpy().tolist()
        ([2, 2], np.int32(2), [[2, 4], [6, 8]])
    """

    @property
    def shape(self) -> TensorShape:  # type: ignore[override]
        """The sizes of the dimensions, a tuple with TensorFlow's methods."""
        return TensorShape(np.ndarray.shape.__get__(self))  # type: ignore[attr-defined]

    @property
    def dtype(self) -> Any:  # type: ignore[override]
        """The type of the values, a `tf.DType`, which equals NumPy's."""
        return of_array(_NUMPY_DTYPE.__get__(self))

    @dtype.setter
    def dtype(self, value: Any) -> None:
        _NUMPY_DTYPE.__set__(self, value)  # `view(dtype)` does this

    def numpy(self) -> Any:
        """The plain array over the same memory; a NumPy scalar or `bytes` if there are no dimensions."""
        return np.ndarray.__getitem__(self, ()) if self.ndim == 0 else self.view(np.ndarray)

    def get_shape(self) -> TensorShape:
        """The shape."""
        return self.shape

    def set_shape(self, shape: Any) -> None:
        """Check that the tensor has this shape; an existing tensor has nothing to set.

        Raises:
            ValueError: it has a different one.
        """
        if probing.is_on():
            if TensorShape(shape).rank is not None:
                probing.give_shape(self, TensorShape(shape))
        elif not self.shape.is_compatible_with(shape):
            raise ValueError(
                f"Tensor's shape {self.shape} is not compatible with supplied shape {TensorShape(shape)}."
            )

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, Tensor) and key.ndim == 0 and key.dtype.kind in "iu":
            key = int(key)
        try:
            found = np.ndarray.__getitem__(self, key)
        except IndexError as error:
            if not probing.is_on():
                raise InvalidArgumentError(None, None, str(error)) from None
            found = probing.part(self.view(np.ndarray), key).view(Tensor)
        return found if isinstance(found, Tensor) else _scalar(found, self.dtype)

    def __iter__(self) -> Iterator[Any]:
        if self.ndim == 0:
            raise TypeError("Cannot iterate over a scalar tensor.")
        return (np.ndarray.__getitem__(self, (i, ...)) for i in range(len(self)))

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        if context is not None and isinstance(context[1][0], np.generic) and len(context[1]) == 2:
            array = _beside_scalar(array, *context[:2])
        # NumPy would convert results without dimensions to its scalars.
        return (
            array.view(Tensor) if isinstance(array, np.ndarray) else np.asarray(array).view(Tensor)
        )

    def __setitem__(self, key: Any, value: Any) -> None:
        if not may_write(self, currentframe()):
            words = "use tf.tensor_scatter_nd_update, or change t.numpy()"
            raise TypeError(f"a tensor does not support item assignment: {words}")
        np.ndarray.__setitem__(self, key, value)

    def __eq__(self, other: object) -> Any:
        return _compared(np.equal, self, other)

    def __ne__(self, other: object) -> Any:
        return _compared(np.not_equal, self, other)

    def __neg__(self) -> Any:
        return np.negative(_signed(self))

    def std(self, *args: Any, **kwargs: Any) -> Any:
        """The standard deviation, as of a plain array."""
        return _as_tensor(self.view(np.ndarray).std(*args, **kwargs))

    def var(self, *args: Any, **kwargs: Any) -> Any:
        """The variance, as of a plain array."""
        return _as_tensor(self.view(np.ndarray).var(*args, **kwargs))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func in _OF_PLAIN_ARRAYS:
            args = [_plain(value) for value in args]
            return _as_tensor(func(*args, **{k: _plain(v) for k, v in kwargs.items()}))
        return super().__array_function__(func, types, args, kwargs)

    __hash__ = None  # type: ignore[assignment] -- like NumPy arrays

    def __bool__(self) -> bool:
        if probing.is_on():
            return probing.decision()
        call = graphs.current()
        if call is not None:
            call.decide(currentframe())
        return bool(self.numpy()) if self.ndim == 0 else bool(self.view(np.ndarray))

    def __arrow_array__(self, type: Any = None) -> Any:
        # pyarrow wants NumPy's dtype.
        import pyarrow as pa

        return pa.array(self.view(np.ndarray), type)

    def __repr__(self) -> str:
        value = self.numpy()
        shown = str(value) if isinstance(value, np.generic) else repr(value)
        shown = f"\n{shown}" if "\n" in shown else shown
        return f"<tf.Tensor: shape={self.shape}, dtype={_name(self)}, numpy={shown}>"

    def __str__(self) -> str:
        values = str(self.numpy())
        values = f"\n{values}" if "\n" in values else values
        return f"tf.Tensor({values}, shape={self.shape}, dtype={_name(self)})"

    def __format__(self, spec: str) -> str:
        return format(self.numpy(), spec)


def beside(tensor: Tensor, other: Any, error: type[Exception] = InvalidArgumentError) -> Any:
    """The other operand of an operation with a tensor, in the tensor's dtype, as in TensorFlow.

    Arrays and numbers of NumPy are converted. Python's numbers are converted if the dtype can hold such numbers.

    Returns:
        The operand; NotImplemented if it is a sparse or ragged tensor, which has its own operators.

    Raises:
        error: the other operand is a tensor of another dtype.
        TypeError: Python values that cannot be converted to the dtype.
    """
    kind, wanted = type(other), numpy_dtype(tensor)
    if kind is Tensor or kind is np.ndarray:
        if numpy_dtype(other) == wanted:
            return other
    elif kind is float:
        if wanted.kind in "fc":
            return other
    elif kind is int and (wanted.kind in "fc" or fits(other, wanted)):
        return other
    if isinstance(other, Tensor):
        text = f"cannot combine {_name(tensor)} and {_name(other)} tensors: tf.cast one of them"
        raise refusal_of(error, text)
    return NotImplemented if hasattr(other, "with_values") else _tensor(other, as_dtype(wanted))


def _added(tensor: Tensor, other: Any, error: type[Exception]) -> Any:
    """The other operand of a sum. TensorFlow makes a tensor of it first, so the error is that of two tensors."""
    try:
        return beside(tensor, other, error)
    except TypeError as refusal:
        raise refusal_of(error, str(refusal)) from None


# These functions of NumPy combine arrays of several dtypes by operators, or write into arrays like their argument.
_OF_PLAIN_ARRAYS = {
    np.allclose, np.apply_along_axis, np.average, np.corrcoef, np.cov, np.cross, np.ediff1d, np.geomspace,
    np.gradient, np.histogram, np.interp, np.isclose, np.kron, np.linspace, np.logspace, np.median, np.nanmax,
    np.nanmean, np.nanmedian, np.nanmin, np.nanpercentile, np.nanquantile, np.nanstd, np.nanvar, np.percentile,
    np.piecewise, np.polyfit, np.polyval, np.quantile, np.roll, np.sinc, np.trapezoid, np.unwrap, np.vander,
}  # fmt: skip


def _plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, Tensor) else value


def _as_tensor(value: Any) -> Any:
    return np.asarray(value).view(Tensor) if isinstance(value, (np.ndarray, np.generic)) else value


def _compared(numpys: Any, one: Tensor, other: Any) -> Any:
    """Whether values are equal, or differ. None and tensors of shapes that do not fit each other differ."""
    try:
        given = None if other is None else beside(one, other)
    except BackendTensorError:
        return operated("eq" if numpys is np.equal else "ne", one, other)
    if given is None or given is NotImplemented:
        return given if other is not None else numpys is np.not_equal
    try:
        return numpys(one, given)
    except ValueError:
        return _as_tensor(np.bool_(numpys is np.not_equal))


def _beside_scalar(result: Any, function: Any, operands: tuple[Any, Any]) -> Any:
    """The result of an operation on a scalar of NumPy and a tensor. NumPy does not call the tensor's operator."""
    scalar, tensor = operands
    if not isinstance(tensor, Tensor) or scalar.dtype == numpy_dtype(tensor):
        return result
    given = beside(tensor, scalar)
    return _quotient(given, tensor) if function is np.true_divide else function(given, tensor)


def _signed(tensor: Tensor) -> Tensor:
    if numpy_dtype(tensor).kind in "ubO":
        raise refusal_of(InvalidArgumentError, f"{_name(tensor)} values have no sign: use tf.cast")
    return tensor


def _quotient(x: Any, y: Any) -> Any:
    return np.true_divide(_divisible(x), _divisible(y))


def _give_operator(
    name: str, numpys: Any, refused: str, error: type[Exception] = InvalidArgumentError
) -> None:
    """Give Tensor an operator and its reflection.

    Args:
        name: the middle of its name.
        numpys: the function that computes it.
        refused: the kinds of NumPy dtypes that have no such operation in TensorFlow.
        error: what tensors of other dtypes raise.
    """
    numpys = refusing(numpys)

    def forward(self: Tensor, other: Any) -> Any:
        try:
            given = (_added if name == "add" else beside)(self, other, error)
        except BackendTensorError:
            return operated(name, self, other)
        if given is NotImplemented:
            return NotImplemented
        if numpy_dtype(self).kind in refused:
            raise refusal_of(error, f"{_name(self)} tensors have no operation {name}: use tf.cast")
        return numpys(self, given)

    def backward(self: Tensor, other: Any) -> Any:
        try:
            given = beside(self, other, error)
        except BackendTensorError:
            return operated(name, other, self)
        if given is NotImplemented:
            return NotImplemented
        if numpy_dtype(self).kind in refused:
            raise refusal_of(error, f"{_name(self)} tensors have no operation {name}: use tf.cast")
        return numpys(given, self)

    setattr(Tensor, f"__{name}__", forward)
    if name not in _COMPARISONS:
        setattr(Tensor, f"__r{name}__", backward)
        # In TensorFlow, `x += 1` makes a new tensor. Here x may be part of an array that is reused.
        setattr(Tensor, f"__i{name}__", forward)


_COMPARISONS = {"lt", "le", "gt", "ge"}
for _operator, _numpys, _refused in [
    ("add", np.add, "b"),
    ("sub", np.subtract, "bO"),
    ("mul", np.multiply, "O"),
    ("floordiv", no_zero(np.floor_divide), "bO"),
    ("mod", no_zero(np.mod), "bO"),
    ("pow", np.power, "bO"),
    ("matmul", np.matmul, "bO"),
    ("and", np.bitwise_and, "fcO"),
    ("or", np.bitwise_or, "fcO"),
    ("xor", np.bitwise_xor, "fcO"),
    ("lt", np.less, "bO"),
    ("le", np.less_equal, "bO"),
    ("gt", np.greater, "bO"),
    ("ge", np.greater_equal, "bO"),
]:
    _give_operator(_operator, _numpys, _refused)
_give_operator("truediv", _quotient, "bO", TypeError)
for _operator in ("lshift", "rshift"):
    setattr(Tensor, f"__i{_operator}__", getattr(Tensor, f"__{_operator}__"))


def _name(tensor: Tensor) -> str:
    return as_dtype(tensor.dtype).name


def _scalar(value: Any, dtype: np.dtype[Any]) -> Tensor:
    made = np.empty((), dtype)
    made[()] = value
    return made.view(Tensor)


def _divisible(value: Any) -> Any:
    """An operand of TensorFlow's division: integers of up to 16 bits become float32, larger ones float64."""
    if isinstance(value, np.ndarray):
        dtype = numpy_dtype(value)
        if dtype.kind in "iu" and dtype.itemsize <= 2:
            return value.astype(np.float32)
    return value


def constant(value: Any, dtype: Any = None, shape: Any = None, name: str | None = None) -> Tensor:
    r"""A tensor of these values: Python or NumPy numbers, text, nested lists of them.

    Python ints become int32 (int64 if one does not fit) and floats float32, as in TensorFlow; text becomes its UTF-8
    bytes.

    Args:
        value: the values.
        dtype: the type to convert to; None: as above, and NumPy arrays keep their type.
        shape: reshape to this; a single value is repeated to fill it.
        name: ignored.

    Raises:
        TypeError: values that are not of the dtype.
        ValueError: rows of different lengths, or a shape of another size.

    Example:
        >>> import penstock.tf as tf
        >>> tf.constant([1, 2]).dtype, tf.constant("é").numpy()
        (tf.int32, b'\xc3\xa9')
    """
    made = _tensor(value, None if dtype is None else as_dtype(dtype))
    if shape is not None:
        sizes = tuple(TensorShape(shape).as_list())
        made = (np.full(sizes, made) if made.size == 1 else made.reshape(sizes)).view(Tensor)  # type: ignore[arg-type]
    return made


def convert_to_tensor(
    value: Any, dtype: Any = None, dtype_hint: Any = None, name: str | None = None
) -> Tensor:
    """A tensor of these values, as `constant` makes it. A tensor is returned unchanged.

    Raises:
        TypeError, ValueError: the errors of `constant`; ValueError also for a tensor of another dtype.
    """
    wanted = None if dtype is None else as_dtype(dtype)
    if isinstance(value, Tensor):
        if wanted is not None and wanted != value.dtype:
            raise ValueError(
                f"Tensor conversion requested dtype {wanted.name} for Tensor with dtype {_name(value)}: {value!r}"
            )
        return value
    return _tensor(value, wanted)


def _tensor(value: Any, dtype: DType | None) -> Tensor:
    if isinstance(value, Tensor) and (dtype is None or dtype == value.dtype):
        return value
    is_numpy = hasattr(value, "__array__")  # also columns and tables of pandas
    if isinstance(value, (list, tuple)):
        dtype = of_list(value, dtype)
    try:
        array = np.asarray(value, object if not is_numpy and _holds_text(value) else None)
    except Exception:
        refuse_unreadable(value)
        raise
    if array.dtype.kind in "SUO":
        return _strings(array, dtype)
    if dtype is None and not is_numpy:
        dtype = _of_python(array, value)
    return _converted(value, array, dtype, is_numpy and not isinstance(value, Tensor))


_REFUSED = {"i": "f", "u": "fb", "b": "iuf"}


def _converted(
    value: Any, array: np.ndarray[Any, Any], dtype: DType | None, is_numpy: bool
) -> Tensor:
    if dtype is None or dtype == array.dtype:
        return array.view(Tensor)
    if not array.size:
        return np.empty(array.shape, dtype.dtype).view(Tensor)
    if dtype is string and is_numpy:
        raise ValueError(f"Cannot convert an array of {array.dtype} to a tensor of strings")
    # TensorFlow converts arrays to any dtype, and Python's numbers to dtypes of the same kind.
    if dtype is string or (not is_numpy and array.dtype.kind in _REFUSED.get(dtype.kind, "")):
        raise TypeError(f"Cannot convert {value!r} to EagerTensor of dtype {dtype.name}")
    return array.astype(dtype.dtype).view(Tensor)


def _of_python(array: np.ndarray[Any, Any], value: Any) -> DType | None:
    """The dtype of a tensor made from Python values; None for NumPy's choice."""
    first = first_of(value)
    if hasattr(first, "__array__") and not isinstance(first, np.integer):
        return None
    if array.dtype.kind == "f":
        return as_dtype(np.float32)
    if array.dtype.kind in "iu":
        fits = not array.size or (array.min() >= -(1 << 31) and array.max() < 1 << 31)
        return as_dtype(np.int32 if fits else np.int64)
    return None


def _holds_text(value: Any) -> bool:
    first = first_of(value)
    return isinstance(first, (str, bytes)) or (isinstance(first, Tensor) and first.dtype == object)


def _strings(array: np.ndarray[Any, Any], dtype: DType | None) -> Tensor:
    if dtype is not None and dtype is not string:
        raise TypeError(f"Cannot convert strings to EagerTensor of dtype {dtype.name}")
    made = np.empty(array.shape, object)
    for place, value in zip(np.ndindex(*array.shape), array.flat, strict=True):
        while isinstance(value, np.ndarray) and value.ndim == 0:
            value = value.item()
        if isinstance(value, str):
            value = value.encode()
        if not isinstance(value, bytes):
            raise ValueError(
                f"Can't convert Python sequence with mixed types or lengths to Tensor: {value!r} is not a string"
            )
        made[place] = bytes(value)  # not numpy.bytes_
    return made.view(Tensor)


def spec_of(value: Tensor) -> TensorSpec:
    """The shape and dtype of a tensor."""
    return TensorSpec(value.shape, value.dtype)

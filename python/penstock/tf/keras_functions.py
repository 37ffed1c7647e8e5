"""Functions of `tf` on tensors of Keras's backend, by `keras.ops`: for losses, metrics and layers written with `tf`.

A function in this table is called by `on_keras` where penstock's own, which computes with NumPy, met a tensor that
cannot become an array. It gets the same arguments, in order, without `name`. Integers have the width that Keras gives
them.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.tf.backend_tensors import BackendTensorError, in_ops, is_unreadable
from penstock.tf.dtypes import as_dtype
from penstock.tf.tensor import Tensor

_SAME = [
    "abs", "add", "ceil", "cos", "cosh", "divide", "divide_no_nan", "einsum", "equal", "erf", "exp", "expm1",
    "floor", "greater", "greater_equal", "leaky_relu", "less", "less_equal", "log", "log1p", "logical_and",
    "logical_not", "logical_or", "logical_xor", "maximum", "minimum", "mod", "multiply", "negative",
    "not_equal", "reciprocal", "relu", "relu6", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh",
    "softplus", "sqrt", "square", "subtract", "tan", "tanh",
]  # fmt: skip
_RENAMED = {
    "acos": "arccos",
    "asin": "arcsin",
    "atan": "arctan",
    "atan2": "arctan2",
    "floordiv": "floor_divide",
    "floormod": "mod",
    "identity": "convert_to_tensor",
    "is_finite": "isfinite",
    "is_inf": "isinf",
    "is_nan": "isnan",
    "pow": "power",
    "rint": "round",
    "truediv": "divide",
}
_REDUCTIONS = {
    "reduce_all": "all",
    "reduce_any": "any",
    "reduce_logsumexp": "logsumexp",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_prod": "prod",
    "reduce_std": "std",
    "reduce_sum": "sum",
    "reduce_variance": "var",
}


def on_keras(function: Callable[..., Any], backend: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls another one instead if it fails because NumPy cannot read a tensor of Keras's backend."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception:
            if not is_unreadable(args) and not is_unreadable(kwargs):
                raise
        given = inspect.signature(function).bind(*args, **kwargs)
        given.apply_defaults()
        given.arguments.pop("name", None)
        return backend(*given.args, **given.kwargs)

    return run


def install(spaces: tuple[str, ...]) -> None:
    """Replace the functions of these modules that are in the table by those that also take tensors of Keras."""
    done: dict[int, Callable[..., Any]] = {}
    for space in spaces:
        module = sys.modules[space]
        of_space = {"resize"} if space.endswith(".image") else FUNCTIONS.keys() - {"resize"}
        for name in of_space & set(vars(module)):
            own = getattr(module, name)
            if id(own) not in done:
                done[id(own)] = on_keras(own, FUNCTIONS[name])
                # so that it can be pickled
                done[id(own)].__module__, done[id(own)].__qualname__ = space, name
            setattr(module, name, done[id(own)])


def _axes(axis: Any) -> Any:
    if axis is None:
        return None
    given = np.asarray(axis)
    return int(given) if given.ndim == 0 else tuple(map(int, given))


def _sizes(shape: Any) -> tuple[int, ...]:
    """A shape. None, the unknown size of a symbolic tensor, becomes -1."""
    given = shape if isinstance(shape, (list, tuple)) else np.atleast_1d(shape)
    return tuple(-1 if size is None else int(size) for size in given)


def _reduction(name: str) -> Callable[..., Any]:
    return lambda x, axis, keepdims: in_ops(name, _tensor(x), _axes(axis), bool(keepdims))


def _tensor(x: Any) -> Any:
    return in_ops("stack", [_tensor(part) for part in x]) if isinstance(x, (list, tuple)) else x


def _reduce_mean(x: Any, axis: Any, keepdims: Any) -> Any:
    given = _tensor(x)
    mean = in_ops("mean", given, _axes(axis), bool(keepdims))
    return in_ops("cast", mean, given.dtype) if "int" in str(given.dtype) else mean


def _reduce_euclidean_norm(x: Any, axis: Any, keepdims: Any) -> Any:
    return in_ops("sqrt", in_ops("sum", in_ops("square", x), _axes(axis), bool(keepdims)))


def _norm(x: Any, order: Any, axis: Any, keepdims: Any) -> Any:
    if axis is None and not keepdims:
        x, axis = in_ops("reshape", x, (-1,)), 0
    return in_ops("norm", x, 2 if order == "euclidean" else order, _axes(axis), bool(keepdims))


def _l2_normalize(x: Any, axis: Any, epsilon: Any) -> Any:
    total = in_ops("sum", in_ops("square", x), _axes(axis), True)
    return x * in_ops("rsqrt", in_ops("maximum", total, epsilon))


def _count_nonzero(x: Any, axis: Any, keepdims: Any, dtype: Any) -> Any:
    count = in_ops("sum", in_ops("not_equal", x, 0), _axes(axis), bool(keepdims))
    return count if as_dtype(dtype).name == "int64" else in_ops("cast", count, as_dtype(dtype).name)


def _moments(x: Any, axes: Any, shift: Any, keepdims: Any) -> tuple[Any, Any]:
    return tuple(in_ops(name, x, _axes(axes), bool(keepdims)) for name in ("mean", "var"))  # type: ignore[return-value]


def _cast(x: Any, dtype: Any) -> Any:
    return in_ops("cast", x, as_dtype(dtype).name)


def _convert(value: Any, dtype: Any, dtype_hint: Any) -> Any:
    return in_ops(
        "convert_to_tensor", _tensor(value), None if dtype is None else as_dtype(dtype).name
    )


def _like(name: str) -> Callable[..., Any]:
    def made(x: Any, dtype: Any, layout: Any) -> Any:
        return in_ops(name, x, None if dtype is None else as_dtype(dtype).name)

    return made


def _shape(x: Any, out_type: Any) -> Any:
    sizes = tuple(x.shape)
    if None in sizes:
        return sizes
    return np.array(sizes, as_dtype(out_type).dtype).view(Tensor)


def _size(x: Any, out_type: Any) -> Any:
    return np.array(math.prod(x.shape), as_dtype(out_type).dtype).view(Tensor)


def _rank(x: Any) -> Any:
    return np.array(len(x.shape), np.int32).view(Tensor)


def _add_n(inputs: Any) -> Any:
    return functools.reduce(lambda x, y: in_ops("add", x, y), inputs)


def _squared_difference(x: Any, y: Any) -> Any:
    return in_ops("square", in_ops("subtract", x, y))


def _multiply_no_nan(x: Any, y: Any) -> Any:
    return in_ops("where", in_ops("equal", y, 0), in_ops("zeros_like", x), in_ops("multiply", x, y))


def _clip_by_value(x: Any, low: Any, high: Any) -> Any:
    return in_ops("minimum", in_ops("maximum", x, low), high)


def _where(condition: Any, x: Any, y: Any) -> Any:
    if x is None or y is None:
        message = (
            "tf.where of one tensor has a size that depends on values, which models do not have"
        )
        raise BackendTensorError(None, None, message, hint="tf.where(condition, x, y)")
    return in_ops("where", condition, x, y)


def _matmul(a: Any, b: Any, transpose_a: bool, transpose_b: bool) -> Any:
    first = in_ops("swapaxes", a, -1, -2) if transpose_a else a
    return in_ops("matmul", first, in_ops("swapaxes", b, -1, -2) if transpose_b else b)


def _cumulative(name: str) -> Callable[..., Any]:
    def made(x: Any, axis: Any, exclusive: bool, reverse: bool) -> Any:
        turned = in_ops("flip", x, axis) if reverse else x
        found = in_ops(name, turned, axis)
        if exclusive:
            found = found - turned if name == "cumsum" else found / turned
        return in_ops("flip", found, axis) if reverse else found

    return made


def _arg(name: str) -> Callable[..., Any]:
    return lambda x, axis, output_type: in_ops(name, x, int(axis or 0))


def _sort(x: Any, axis: int, direction: str) -> Any:
    found = in_ops("sort", x, axis)
    return in_ops("flip", found, axis) if direction == "DESCENDING" else found


def _argsort(x: Any, axis: int, direction: str, stable: bool) -> Any:
    return in_ops("argsort", in_ops("negative", x) if direction == "DESCENDING" else x, axis)


def _top_k(x: Any, k: Any, is_sorted: bool, index_type: Any) -> Any:
    return in_ops("top_k", x, int(k), is_sorted)


def _expand_dims(x: Any, axis: Any) -> Any:
    return in_ops("expand_dims", x, _axes(axis))


def _squeeze(x: Any, axis: Any) -> Any:
    return in_ops("squeeze", x, _axes(axis))


def _reshape(x: Any, shape: Any) -> Any:
    return in_ops("reshape", x, _sizes(shape))


def _broadcast_to(x: Any, shape: Any) -> Any:
    return in_ops("broadcast_to", x, _sizes(shape))


def _tile(x: Any, multiples: Any) -> Any:
    return in_ops("tile", x, _sizes(multiples))


def _transpose(x: Any, perm: Any, conjugate: bool) -> Any:
    return in_ops("transpose", x, None if perm is None else _sizes(perm))


def _repeat(x: Any, repeats: Any, axis: Any) -> Any:
    return in_ops("repeat", x, repeats, axis)


def _reverse(x: Any, axis: Any) -> Any:
    return in_ops("flip", x, _axes(axis))


def _pad(x: Any, paddings: Any, mode: str, value: Any) -> Any:
    widths = [tuple(map(int, pair)) for pair in np.asarray(paddings)]
    kind = mode.lower()
    return in_ops("pad", x, widths, kind, *([value] if kind == "constant" else []))


def _concat(values: Any, axis: Any) -> Any:
    return in_ops("concatenate", list(values), int(axis))


def _stack(values: Any, axis: Any) -> Any:
    return in_ops("stack", list(values), int(axis))


def _unstack(value: Any, num: Any, axis: Any) -> Any:
    return list(in_ops("unstack", value, num, axis))


def _split(value: Any, parts: Any, axis: Any, num: Any) -> Any:
    given = np.asarray(parts)
    cuts = np.cumsum(given)[:-1].tolist() if given.ndim else int(given)
    return list(in_ops("split", value, cuts, axis))


def _slice(x: Any, begin: Any, size: Any) -> Any:
    parts = zip(_sizes(begin), _sizes(size), strict=True)
    return x[tuple(slice(at, None if count < 0 else at + count) for at, count in parts)]


def _gather(params: Any, indices: Any, validate: Any, axis: Any, batch_dims: int) -> Any:
    if batch_dims:
        message = "tf.gather with batch_dims does not take tensors of models"
        raise BackendTensorError(None, None, message, hint="keras.ops.take_along_axis")
    return in_ops("take", params, indices, int(axis or 0))


def _embedding_lookup(params: Any, ids: Any, max_norm: Any) -> Any:
    return in_ops("take", params, ids, 0)


def _one_hot(indices: Any, depth: Any, on: Any, off: Any, axis: int, dtype: Any) -> Any:
    hot = in_ops("one_hot", indices, int(depth), axis, as_dtype(dtype or "float32").name)
    return hot if (on, off) == (1, 0) else hot * (on - off) + off


def _softmax(name: str) -> Callable[..., Any]:
    return lambda x, axis: in_ops(name, x, -1 if axis is None else axis)


def _gelu(x: Any, approximate: bool) -> Any:
    return in_ops("gelu", x, approximate)


def _softplus_of_minus_size(x: Any) -> Any:
    return in_ops("log1p", in_ops("exp", in_ops("negative", in_ops("abs", x))))


def _sigmoid_cross_entropy(labels: Any, logits: Any) -> Any:
    above = in_ops("relu", logits) - in_ops("multiply", logits, labels)
    return above + _softplus_of_minus_size(logits)


def _weighted_cross_entropy(labels: Any, logits: Any, weight: Any) -> Any:
    labels = in_ops("convert_to_tensor", labels)
    rest = _softplus_of_minus_size(logits) + in_ops("relu", -logits)
    return (1 - labels) * logits + (1 + (weight - 1) * labels) * rest


def _softmax_cross_entropy(labels: Any, logits: Any, axis: int) -> Any:
    parts = in_ops("multiply", labels, in_ops("log_softmax", logits, axis))
    return -in_ops("sum", parts, axis)


def _sparse_cross_entropy(labels: Any, logits: Any) -> Any:
    hot = in_ops("one_hot", labels, logits.shape[-1], -1, logits.dtype)
    return _softmax_cross_entropy(hot, logits, -1)


def _pair(size: Any) -> tuple[int, ...]:
    sides = _sizes(size)
    return (sides * 2)[:2] if len(sides) < 3 else sides[1:3]


def _pool(name: str) -> Callable[..., Any]:
    def made(x: Any, ksize: Any, strides: Any, padding: str, data_format: str) -> Any:
        return in_ops(name, x, _pair(ksize), _pair(strides), padding.lower(), "channels_last")

    return made


def _resize(images: Any, size: Any, method: str, keeps_proportions: bool, antialias: bool) -> Any:
    if keeps_proportions:
        message = "tf.image.resize with preserve_aspect_ratio does not take tensors of models"
        raise BackendTensorError(None, None, message, hint="keras.ops.image.resize")
    return in_ops(
        "image.resize", images, _sizes(size), method, antialias, data_format="channels_last"
    )


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: functools.partial(in_ops, name) for name in _SAME},
    **{name: functools.partial(in_ops, name_of) for name, name_of in _RENAMED.items()},
    **{name: _reduction(name_of) for name, name_of in _REDUCTIONS.items()},
    "add_n": _add_n,
    "argmax": _arg("argmax"),
    "argmin": _arg("argmin"),
    "argsort": _argsort,
    "avg_pool2d": _pool("average_pool"),
    "broadcast_to": _broadcast_to,
    "cast": _cast,
    "clip_by_value": _clip_by_value,
    "concat": _concat,
    "convert_to_tensor": _convert,
    "count_nonzero": _count_nonzero,
    "cumprod": _cumulative("cumprod"),
    "cumsum": _cumulative("cumsum"),
    "embedding_lookup": _embedding_lookup,
    "expand_dims": _expand_dims,
    "gather": _gather,
    "gelu": _gelu,
    "in_top_k": functools.partial(in_ops, "in_top_k"),
    "l2_normalize": _l2_normalize,
    "log_softmax": _softmax("log_softmax"),
    "matmul": _matmul,
    "max_pool2d": _pool("max_pool"),
    "moments": _moments,
    "multiply_no_nan": _multiply_no_nan,
    "norm": _norm,
    "one_hot": _one_hot,
    "ones_like": _like("ones_like"),
    "pad": _pad,
    "rank": _rank,
    "reduce_euclidean_norm": _reduce_euclidean_norm,
    "reduce_mean": _reduce_mean,
    "repeat": _repeat,
    "reshape": _reshape,
    "resize": _resize,
    "reverse": _reverse,
    "shape": _shape,
    "sigmoid_cross_entropy_with_logits": _sigmoid_cross_entropy,
    "size": _size,
    "slice": _slice,
    "softmax": _softmax("softmax"),
    "softmax_cross_entropy_with_logits": _softmax_cross_entropy,
    "sort": _sort,
    "sparse_softmax_cross_entropy_with_logits": _sparse_cross_entropy,
    "split": _split,
    "squared_difference": _squared_difference,
    "squeeze": _squeeze,
    "stack": _stack,
    "tensordot": functools.partial(in_ops, "tensordot"),
    "tile": _tile,
    "top_k": _top_k,
    "transpose": _transpose,
    "unstack": _unstack,
    "weighted_cross_entropy_with_logits": _weighted_cross_entropy,
    "where": _where,
    "zeros_like": _like("zeros_like"),
}
"""What each function of `tf`, `tf.math`, `tf.nn`, `tf.linalg` and `tf.image` does with tensors of Keras's backend."""

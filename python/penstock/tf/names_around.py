"""Other names that programs use besides data: `tf.autograph`, `tf.version`, `tf.test`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.tf.data.op import as_leaf, spec_of
from penstock.tf.missing import Space
from penstock.tf.shapes import TypeSpec


def _itself(func: Callable[..., Any] | None = None, **_: Any) -> Any:
    """Return the function itself, because functions are not converted."""
    return _itself if func is None else func


def _nothing(*_: Any, **__: Any) -> None:
    """No effect."""


def _never(*_: Any, **__: Any) -> bool:
    """Always False, because no GPU is used."""
    return False


autograph = Space(
    "tf.autograph",
    experimental=Space(
        "tf.autograph.experimental", do_not_convert=_itself, set_loop_options=_nothing
    ),
    set_verbosity=_nothing,
    to_graph=_itself,
)
version = Space("tf.version", VERSION="2.21.0", GIT_VERSION="penstock.tf")
test = Space(
    "tf.test", gpu_device_name=lambda: "", is_built_with_cuda=_never, is_gpu_available=_never
)


def type_spec_from_value(value: Any) -> TypeSpec:
    """The spec of a tensor, or of a value that can be converted to a tensor.

    Example:
        >>> import penstock.tf as tf
        >>> tf.type_spec_from_value(tf.constant([1, 2]))
        TensorSpec(shape=(2,), dtype=tf.int32, name=None)
    """
    if isinstance(value, TypeSpec):
        return value
    return spec_of(as_leaf(value))

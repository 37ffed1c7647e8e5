"""What a dataset is made of: an `Op` knows its inputs, and opens as a stream of elements.

A stream is an iterator of elements or, where they lie in columns, `Blocks`. Opening is what an epoch
begins with; nothing of a stream is shared with the next.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np

from penstock.tf.data.blocks import Blocks
from penstock.tf.data.stacking import RaggedRow
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.nest import map_structure
from penstock.tf.shapes import (
    RaggedTensorSpec,
    SparseTensorSpec,
    TensorShape,
    TensorSpec,
    TypeSpec,
)
from penstock.tf.sparse import DifferentLengths
from penstock.tf.tensor import Tensor, convert_to_tensor

AUTOTUNE = -1
INFINITE = -1
UNKNOWN = -2

Stream = Iterator[Any] | Blocks


class Op:
    """One step. Subclasses say how it opens, how many elements it has, and what they look like."""

    passes_on = False
    """Whether its elements are those of its source, some or all of them, in whatever order."""

    def open(self) -> Stream:
        """Begin an epoch."""
        raise NotImplementedError

    def begin(self) -> None:
        """What TensorFlow does for an epoch that it begins and never reads: seeds are drawn."""
        source = getattr(self, "source", None)
        if isinstance(source, Op):
            source.begin()

    def changes_nothing(self) -> bool:
        """Whether it gives what it is given, as `take(-1)`: TensorFlow leaves such steps out."""
        return False

    def cardinality(self) -> int:
        """The number of elements, INFINITE or UNKNOWN."""
        return UNKNOWN

    def spec(self) -> Any:
        """The structure of specs of an element. Where nobody says it, a look at two elements."""
        found = getattr(self, "_looked", None)
        if found is None:
            with looking():
                seen = list(islice(elements(self.open()), 2))
            if not seen:
                raise InvalidArgumentError(
                    None, None, "the dataset has no element to tell what its elements look like"
                )
            found = specs_of(seen[0])
            for other in seen[1:]:
                found = merged_specs(found, specs_of(other))
            self._looked = found
        return found


def elements(stream: Stream) -> Iterator[Any]:
    """A stream as an iterator of elements."""
    return stream.elements() if isinstance(stream, Blocks) else stream


class _Look(threading.local):
    is_on = False


_LOOK = _Look()


@contextmanager
def looking() -> Generator[None]:
    """What is opened within is only looked at: nothing is drawn, and no cache is filled."""
    before, _LOOK.is_on = _LOOK.is_on, True
    try:
        yield
    finally:
        _LOOK.is_on = before


def is_looking() -> bool:
    """Whether what is opened is only looked at."""
    return _LOOK.is_on


# -- elements -------------------------------------------------------------------------------------


def is_composite(value: Any) -> bool:
    """Whether a value is a sparse or ragged tensor."""
    return hasattr(value, "dense_shape") or hasattr(value, "row_splits")


def as_leaf(value: Any) -> Any:
    """A value as an element's leaf: a tensor, unless it is one of another kind."""
    if (
        isinstance(value, Tensor)
        or value is None
        or is_composite(value)
        or hasattr(value, "as_numpy_iterator")
    ):
        return value
    if type(value).__module__.startswith("tensorflow") and hasattr(value, "numpy"):
        value = value.numpy()
    return convert_to_tensor(value)


def as_element(value: Any) -> Any:
    """What a user's function returned, as an element."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, list):
        value = tuple(value)
    if type(value) is dict:
        return {
            key: leaf if isinstance(leaf, Tensor) else map_structure(as_leaf, leaf, lists=False)
            for key, leaf in value.items()
        }
    return map_structure(as_leaf, value, lists=False)


def spec_of(value: Any) -> Any:
    """The spec of one leaf."""
    if hasattr(value, "dense_shape"):
        shape = [int(size) for size in value.dense_shape]
        return SparseTensorSpec(shape, value.values.dtype)
    if hasattr(value, "row_splits"):
        values, rank = value.values, 1
        while hasattr(values, "row_splits"):
            values, rank = values.values, rank + 1
        shape = [len(value.row_splits) - 1, *[None] * rank, *np.shape(values)[1:]]
        return RaggedTensorSpec(shape, values.dtype, rank, value.row_splits.dtype)
    if isinstance(value, RaggedRow):
        return RaggedTensorSpec([None, *np.shape(value)[1:]], value.dtype, 0)
    if isinstance(value, np.ndarray):
        return TensorSpec(np.shape(value), value.dtype)
    return getattr(value, "_element_spec", value)


def specs_of(element: Any) -> Any:
    """The structure of specs of an element."""
    return map_structure(spec_of, element, lists=False)


def merged_specs(one: Any, other: Any) -> Any:
    """What holds for both: sizes that differ are not known."""
    return map_structure(_merged, one, other, lists=False)


def with_shape(spec: Any, shape: Any) -> Any:
    """The same spec of another shape."""
    if isinstance(spec, RaggedTensorSpec):
        return RaggedTensorSpec(
            shape, spec.dtype, max(0, (TensorShape(shape).rank or 1) - 1), spec.row_splits_dtype
        )
    return type(spec)(shape, spec.dtype) if isinstance(spec, TypeSpec) else spec


def _merged(one: Any, other: Any) -> Any:
    if not isinstance(one, TypeSpec) or not isinstance(other, TypeSpec):
        return one
    if one.shape == other.shape:
        return one
    if one.shape.rank != other.shape.rank or one.shape.rank is None:
        return with_shape(one, None)
    sizes = [a if a == b else None for a, b in zip(one.shape, other.shape, strict=True)]
    return with_shape(one, sizes)


def batched_spec(spec: Any, size: int | None) -> Any:
    """The specs of a batch of such elements."""

    def add(leaf: Any) -> Any:
        if not isinstance(leaf, TypeSpec):
            return leaf
        shape = TensorShape([size]).concatenate(leaf.shape)
        if isinstance(leaf, RaggedTensorSpec):
            return RaggedTensorSpec(shape, leaf.dtype, leaf.ragged_rank + 1, leaf.row_splits_dtype)
        return with_shape(leaf, shape)

    return map_structure(add, spec, lists=False)


def call(function: Callable[..., Any], element: Any) -> Any:
    """A user's function of an element: a tuple gives several arguments, anything else one."""
    try:
        if isinstance(element, tuple):
            return function(*element)
        return function(element)
    except ValueError as error:
        if isinstance(error.__cause__, DifferentLengths):
            raise InvalidArgumentError(None, None, str(error)) from error
        raise


def mapped(function: Callable[..., Any]) -> Callable[[Any], Any]:
    """A function of an element that gives an element."""

    def run(element: Any) -> Any:
        return as_element(call(function, element))

    return run


# -- arguments ------------------------------------------------------------------------------------


def whole(value: Any, name: str) -> int:
    """An argument that must be a whole number.

    Raises:
        TypeError: it is none.
    """
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {value!r}") from None


def positive(value: Any, name: str, words: str = "must be greater than zero.") -> int:
    """An argument that must be a whole number above 0.

    Raises:
        InvalidArgumentError: it is 0 or less.
    """
    number = whole(value, name)
    if number < 1:
        raise InvalidArgumentError(None, None, f"{name} {words}", found=number)
    return number


def parallel_calls(value: Any) -> int | None:
    """num_parallel_calls or num_parallel_reads, None where nothing is asked for.

    Raises:
        InvalidArgumentError: it is 0, or below -1.
    """
    if value is None:
        return None
    number = whole(value, "num_parallel_calls")
    if number < 1 and number != AUTOTUNE:
        raise InvalidArgumentError(
            None, None, "`num_parallel_calls` must be greater than zero.", found=number
        )
    return number

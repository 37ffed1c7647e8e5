"""`Op`, a step of a dataset: it knows its inputs and opens as a stream of elements.

A stream is an iterator of elements, or `Blocks` if they are in columns. Each epoch opens a new stream, which shares
nothing with the previous one.
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
from penstock.tf.nest import flatten, map_structure
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
    """One step of a dataset. Subclasses define how it opens, its number of elements, and their specs."""

    passes_on = False
    """Whether its elements are some or all elements of its source, in any order."""

    def open(self) -> Stream:
        """A stream for a new epoch."""
        raise NotImplementedError

    def begin(self) -> None:
        """Draw the seeds that TensorFlow draws for an epoch that it starts but never reads."""
        source = getattr(self, "source", None)
        if isinstance(source, Op):
            source.begin()

    def changes_nothing(self) -> bool:
        """Whether the step changes nothing, such as `take(-1)`. TensorFlow removes such steps."""
        return False

    def cardinality(self) -> int:
        """The number of elements, INFINITE or UNKNOWN."""
        return UNKNOWN

    def spec(self) -> Any:
        """The structure of specs of an element; by default inferred from the first two elements."""
        found = getattr(self, "_looked", None)
        if found is None:
            with looking():
                seen = list(islice(elements(self.open()), 2))
            if not seen:
                raise InvalidArgumentError(
                    None, None, "the dataset has no element from which to infer the element_spec"
                )
            found = specs_of(seen[0])
            for other in seen[1:]:
                found = merged_specs(found, specs_of(other))
            found = self._looked = self._without_unknown(found)
        return found

    def _without_unknown(self, found: Any) -> Any:
        """Specs of the first elements, without sizes that may come from unknown sizes of the source: a last batch is
        often smaller than the first two."""
        source = getattr(self, "source", None)
        if not isinstance(source, Op):
            return found
        known = flatten(source.spec(), lists=False)
        if all(type(leaf) is TensorSpec and leaf.shape.is_fully_defined() for leaf in known):
            return found
        with looking():
            first = flatten(next(elements(source.open())), lists=False)
        return map_structure(_without(_unknown_sizes(known, first)), found, lists=False)


def _unknown_sizes(specs: list[Any], leaves: list[Any]) -> set[tuple[int, int]]:
    """The axes whose sizes the specs do not say, and their sizes in one element."""
    return {
        (axis, size)
        for spec, leaf in zip(specs, leaves, strict=True)
        if type(spec) is TensorSpec
        for axis, size in enumerate(np.shape(leaf))
        if spec.shape.rank is None or spec.shape[axis] is None
    }


def _without(unknown: set[tuple[int, int]]) -> Callable[[Any], Any]:
    """A function that removes sizes from a spec: those that equal an unknown one, and of the first axis also their
    multiples."""
    sizes = {size for _, size in unknown}
    rows = {size for axis, size in unknown if axis == 0 and size > 1}

    def remove(spec: Any) -> Any:
        if type(spec) is not TensorSpec or spec.shape.rank is None:
            return spec
        kept = [None if size in sizes else size for size in spec.shape]
        if kept and kept[0] and any(kept[0] % size == 0 for size in rows):
            kept[0] = None
        return with_shape(spec, kept)

    return remove


def elements(stream: Stream) -> Iterator[Any]:
    """A stream as an iterator of elements."""
    return stream.elements() if isinstance(stream, Blocks) else stream


class _Look(threading.local):
    is_on = False


_LOOK = _Look()


@contextmanager
def looking() -> Generator[None]:
    """Streams opened in this context are only for inference: no seeds are drawn, and no cache is filled."""
    before, _LOOK.is_on = _LOOK.is_on, True
    try:
        yield
    finally:
        _LOOK.is_on = before


def is_looking() -> bool:
    """Whether streams are now opened only for inference."""
    return _LOOK.is_on


# -- elements -------------------------------------------------------------------------------------


def is_composite(value: Any) -> bool:
    """Whether a value is a sparse or ragged tensor."""
    return hasattr(value, "dense_shape") or hasattr(value, "row_splits")


def as_leaf(value: Any) -> Any:
    """Convert a value to a leaf of an element: a tensor, unless it is already another kind of leaf."""
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
    """The result of a user's function as an element."""
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
    """The spec that fits both: sizes that differ become unknown."""
    return map_structure(_merged, one, other, lists=False)


def with_shape(spec: Any, shape: Any) -> Any:
    """The same spec with another shape."""
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
    """The specs of a batch whose elements have these specs."""

    def add(leaf: Any) -> Any:
        if not isinstance(leaf, TypeSpec):
            return leaf
        shape = TensorShape([size]).concatenate(leaf.shape)
        if isinstance(leaf, RaggedTensorSpec):
            return RaggedTensorSpec(shape, leaf.dtype, leaf.ragged_rank + 1, leaf.row_splits_dtype)
        return with_shape(leaf, shape)

    return map_structure(add, spec, lists=False)


def call(function: Callable[..., Any], element: Any) -> Any:
    """Call a user's function with an element: a tuple becomes several arguments."""
    try:
        if isinstance(element, tuple):
            return function(*element)
        return function(element)
    except ValueError as error:
        if isinstance(error.__cause__, DifferentLengths):
            raise InvalidArgumentError(None, None, str(error)) from error
        raise


def mapped(function: Callable[..., Any]) -> Callable[[Any], Any]:
    """A function from an element to an element."""

    def run(element: Any) -> Any:
        made = call(function, element)
        if made is None:
            message = "a function given to Dataset.map returned None"
            raise InvalidArgumentError(None, None, message, hint="return its result")
        return as_element(made)

    return run


# -- arguments ------------------------------------------------------------------------------------


def whole(value: Any, name: str) -> int:
    """An argument that must be an integer.

    Raises:
        TypeError: it is not an integer.
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
    """An argument that must be an integer above 0.

    Raises:
        InvalidArgumentError: it is 0 or less.
    """
    number = whole(value, name)
    if number < 1:
        raise InvalidArgumentError(None, None, f"{name} {words}", found=number)
    return number


def parallel_calls(value: Any) -> int | None:
    """num_parallel_calls or num_parallel_reads, None if not given.

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

"""Datasets of data in memory: slices of arrays, one element, numbers, a user's generator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Generator as PythonGenerator
from contextlib import contextmanager
from typing import Any

import numpy as np

from penstock.tf.data.blocks import AnyBlock, Block, Blocks
from penstock.tf.data.op import (
    INFINITE,
    UNKNOWN,
    Op,
    Stream,
    as_leaf,
    is_composite,
    spec_of,
    specs_of,
    whole,
    with_shape,
)
from penstock.tf.data.stacking import unstack
from penstock.tf.dtypes import as_dtype
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.nest import flatten, is_nested, map_structure, pack_sequence_as, packer
from penstock.tf.shapes import TensorShape, TensorSpec, TypeSpec
from penstock.tf.tensor import Tensor, convert_to_tensor

_ROWS = 4096
"""Elements of a block."""


class Tensors(Op):
    """One element."""

    def __init__(self, element: Any) -> None:
        self.element = map_structure(as_leaf, element, lists=False)

    def open(self) -> Stream:
        return iter((self.element,))

    def cardinality(self) -> int:
        return 1

    def spec(self) -> Any:
        return specs_of(self.element)


class TensorSlices(Op):
    """The rows of tensors with equal numbers of rows."""

    def __init__(self, tensors: Any) -> None:
        self.tensors = map_structure(as_leaf, tensors, lists=False)
        leaves = flatten(self.tensors, lists=False)
        if not leaves:
            raise ValueError("Invalid `tensors`. `tensors` should not be empty.")
        sizes = [_num_rows(leaf) for leaf in leaves]
        for size in sizes:
            if size is None:
                raise ValueError("Unbatching a tensor is only supported for rank >= 1")
            if size != sizes[0]:
                raise ValueError(
                    f"Dimensions {sizes[0]} and {size} are not compatible: all tensors must have the same number of rows"
                )
        self._num_rows: int = sizes[0] or 0
        self._leaves = leaves
        self._columns = [
            None if is_composite(leaf) else np.array(leaf, copy=True) for leaf in leaves
        ]
        for column in self._columns:
            if column is not None:
                column.flags.writeable = False

    def open(self) -> Stream:
        if all(column is not None for column in self._columns):
            strings = tuple(c.dtype == object and c.ndim == 1 for c in self._columns)  # type: ignore[union-attr]
            return Blocks(self._blocks(), self.tensors, strings)
        pack = packer(self.tensors)
        return map(pack, zip(*map(unstack, self._leaves), strict=True))

    def _blocks(self) -> Iterator[AnyBlock]:
        for first in range(0, self._num_rows, _ROWS):
            columns = [c[first : first + _ROWS] for c in self._columns if c is not None]
            yield Block(columns, len(columns[0]))

    def cardinality(self) -> int:
        return self._num_rows

    def spec(self) -> Any:
        return map_structure(
            lambda leaf: with_shape(spec_of(leaf), spec_of(leaf).shape[1:]),
            self.tensors,
            lists=False,
        )


def _num_rows(leaf: Any) -> int | None:
    if hasattr(leaf, "dense_shape"):
        return int(leaf.dense_shape[0])
    if hasattr(leaf, "row_splits"):
        return len(leaf.row_splits) - 1
    return len(leaf) if isinstance(leaf, np.ndarray) and leaf.ndim else None


class Range(Op):
    """Numbers with a constant step."""

    def __init__(self, bounds: tuple[Any, ...], output_type: Any = None) -> None:
        if not 1 <= len(bounds) <= 3:
            raise ValueError(
                f"Invalid `args`. The length of `args` should be between 1 and 3 but was {len(bounds)}."
            )
        names = ("stop",) if len(bounds) == 1 else ("start", "stop", "step")
        numbers = [whole(bound, name) for bound, name in zip(bounds, names, strict=False)]
        self.numbers = range(*numbers) if not (len(numbers) == 3 and not numbers[2]) else None
        if self.numbers is None:
            raise InvalidArgumentError(None, None, "step must be a non-zero integer.")
        self.dtype = as_dtype("int64" if output_type is None else output_type)

    def open(self) -> Stream:
        return Blocks(self._blocks(), None, (False,))

    def _blocks(self) -> Iterator[AnyBlock]:
        assert self.numbers is not None
        for first in range(0, len(self.numbers), _ROWS):
            part = self.numbers[first : first + _ROWS]
            column = np.arange(part.start, part.stop, part.step).astype(self.dtype.dtype)
            yield Block([column], len(column))

    def cardinality(self) -> int:
        assert self.numbers is not None
        return len(self.numbers)

    def spec(self) -> Any:
        return TensorSpec([], self.dtype)


class Generator(Op):
    """The elements of a Python generator, with a declared structure, types and shapes."""

    def __init__(self, generator: Callable[..., Any], signature: Any, args: Any = None) -> None:
        if not callable(generator):
            raise TypeError(f"`generator` must be a Python callable: {generator!r}")
        for leaf in flatten(signature, lists=False):
            if not isinstance(leaf, TypeSpec):
                raise TypeError(
                    "`output_signature` must contain objects that are subclass of `tf.TypeSpec` but "
                    f"found {type(leaf)} which is not."
                )
        self.generator = generator
        self.signature = signature
        self.args = () if args is None else tuple(convert_to_tensor(a).numpy() for a in args)

    def open(self) -> Stream:
        specs = flatten(self.signature, lists=False)
        pack = packer(self.signature)

        def taken() -> Iterator[Any]:
            with _as_argument_error():
                values = iter(self.generator(*self.args))
            while True:
                with _as_argument_error():
                    value = next(values, taken)
                    if value is taken:
                        return
                    element = self._leaves(value, specs)
                yield pack(element)

        return taken()

    def _leaves(self, value: Any, specs: list[Any]) -> tuple[Any, ...]:
        try:
            leaves = _leaves_up_to(self.signature, value)
        except (TypeError, ValueError, KeyError):
            shown = map_structure(lambda s: s.dtype.name, self.signature, lists=False)
            raise TypeError(
                "`generator` yielded an element that did not match the expected structure. "
                f"The expected structure was {shown}, but the yielded element was {value}."
            ) from None
        return tuple(_fitting(leaf, spec) for leaf, spec in zip(leaves, specs, strict=True))

    def spec(self) -> Any:
        return self.signature


def _leaves_up_to(structure: Any, value: Any) -> list[Any]:
    """The parts of a value at the leaves of a structure. A part may itself be a structure."""
    if not is_nested(structure, lists=False):
        return [value]
    if isinstance(structure, dict):
        if set(structure) != set(value):
            raise ValueError(value)
        return [v for key in sorted(structure) for v in _leaves_up_to(structure[key], value[key])]
    if not isinstance(value, (list, tuple)):
        raise TypeError(value)
    pairs = zip(structure, value, strict=True)
    return [leaf for part, each in pairs for leaf in _leaves_up_to(part, each)]


def _fitting(leaf: Any, spec: Any) -> Any:
    if is_composite(leaf):
        return leaf
    try:
        tensor = convert_to_tensor(leaf)
        if tensor.dtype != spec.dtype:
            # A NumPy number, or a number of another width, is converted if possible.
            if (tensor.dtype == object) != (spec.dtype.name == "string"):
                raise TypeError(leaf)
            tensor = np.asarray(leaf, spec.dtype.dtype).view(Tensor)
    except (TypeError, ValueError):
        raise TypeError(
            "`generator` yielded an element that could not be converted to the expected type. "
            f"The expected type was {spec.dtype.name}, but the yielded element was {leaf}."
        ) from None
    if not spec.shape.is_compatible_with(np.shape(tensor)):
        raise TypeError(
            f"`generator` yielded an element of shape {tuple(np.shape(tensor))} where an element of "
            f"shape {spec.shape} was expected."
        )
    return tensor


@contextmanager
def _as_argument_error() -> PythonGenerator[None]:
    """Raise a ValueError or TypeError of the user's generator as TensorFlow does, as an InvalidArgumentError."""
    try:
        yield
    except InvalidArgumentError:
        raise
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(None, None, f"{type(error).__name__}: {error}") from error


def signature_of(output_types: Any, output_shapes: Any) -> Any:
    """A signature from the older arguments: types, and shapes if known."""
    if output_types is None:
        raise TypeError("Either `output_signature` or `output_types` must be specified.")
    if output_shapes is None:
        return map_structure(lambda t: TensorSpec(None, t), output_types, lists=False)
    shapes = shapes_like(output_types, output_shapes)
    types = flatten(output_types, lists=False)
    specs = [TensorSpec(shape, dtype) for shape, dtype in zip(shapes, types, strict=True)]
    return pack_sequence_as(output_types, specs, lists=False)


def shapes_like(structure: Any, shapes: Any) -> list[TensorShape]:
    """A shape for each leaf of a structure; a shape may itself be a tuple or list of sizes."""
    if not is_nested(structure, lists=False):
        return [TensorShape(None if shapes is None else _sizes(shapes))]
    if isinstance(structure, dict):
        return [s for key in sorted(structure) for s in shapes_like(structure[key], shapes[key])]
    if not isinstance(shapes, (tuple, list)) or len(shapes) != len(structure):
        raise ValueError(f"shapes {shapes!r} do not have the structure of {structure!r}")
    return [
        s for each, shape in zip(structure, shapes, strict=True) for s in shapes_like(each, shape)
    ]


def _sizes(shape: Any) -> Any:
    if isinstance(shape, np.ndarray):
        shape = shape.tolist()
    return (
        shape
        if isinstance(shape, TensorShape)
        else [None if s in (None, -1) else int(s) for s in shape]
    )


class Counter(Op):
    """Endless numbers."""

    def __init__(self, start: Any, step: Any, dtype: Any) -> None:
        self.start, self.step = whole(start, "start"), whole(step, "step")
        self.dtype = as_dtype(dtype)

    def open(self) -> Stream:
        return Blocks(self._blocks(), None, (False,))

    def _blocks(self) -> Iterator[AnyBlock]:
        first = self.start
        while True:
            column = (first + self.step * np.arange(_ROWS)).astype(self.dtype.dtype)
            yield Block([column], _ROWS)
            first += self.step * _ROWS

    def cardinality(self) -> int:
        return INFINITE

    def spec(self) -> Any:
        return TensorSpec([], self.dtype)


class Of(Op):
    """A stream opened by a function, with known specs."""

    def __init__(self, opened: Callable[[], Stream], spec: Any, number: int = UNKNOWN) -> None:
        self._opened, self._spec, self._number = opened, spec, number

    def open(self) -> Stream:
        return self._opened()

    def cardinality(self) -> int:
        return self._number

    def spec(self) -> Any:
        return self._spec

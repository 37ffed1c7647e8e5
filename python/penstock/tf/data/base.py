"""The base of datasets: the op, iteration and the specs of elements. `making.py` and `verbs_of_*.py` have the verbs."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator as PythonIterator
from typing import Any

import numpy as np

from penstock.tf.data.op import INFINITE, Op, elements
from penstock.tf.data.spec_parts import classes_of, shapes_of, types_of
from penstock.tf.errors import OutOfRangeError
from penstock.tf.graphs import Opened, opening
from penstock.tf.missing import missing
from penstock.tf.nest import map_structure
from penstock.tf.tensor import Tensor


class Iterator:
    """The elements of a dataset, one by one. Made by `iter(dataset)`.

    Example:
        >>> import penstock.tf as tf
        >>> iterator = iter(tf.data.Dataset.range(2))
        >>> int(next(iterator)), int(iterator.get_next())
        (0, 1)
    """

    def __init__(self, op: Op) -> None:
        self.op = op
        with opening(Opened()):
            self._stream = elements(op.open())

    def __iter__(self) -> Iterator:
        return self

    def __next__(self) -> Any:
        return next(self._stream)

    def get_next(self) -> Any:
        """The next element.

        Raises:
            OutOfRangeError: the dataset has ended.
        """
        try:
            return next(self._stream)
        except StopIteration:
            raise OutOfRangeError(None, None, "End of sequence") from None

    @property
    def element_spec(self) -> Any:
        """The specs of the elements."""
        return self.op.spec()

    @property
    def output_types(self) -> Any:
        """The dtypes of an element (TensorFlow 1)."""
        return types_of(self.op.spec())

    @property
    def output_shapes(self) -> Any:
        """The shapes of an element (TensorFlow 1)."""
        return shapes_of(self.op.spec())

    @property
    def output_classes(self) -> Any:
        """The kinds of tensors of an element (TensorFlow 1)."""
        return classes_of(self.op.spec())

    @property
    def initializer(self) -> None:
        """None, because an iterator needs no initialization (TensorFlow 1)."""
        return


# The names of classes in TensorFlow, where they differ from those of the ops.
_TENSORFLOWS = {
    "Tensors": "_TensorDataset",
    "TensorSlices": "_TensorSliceDataset",
    "Generator": "_FlatMapDataset",
    "Enumerate": "_ZipDataset",
    "RaggedBatch": "_BatchDataset",
    "MemoryCache": "CacheDataset",
    "FileCache": "CacheDataset",
    "Choose": "_DirectedInterleaveDataset",
    "Resample": "_DirectedInterleaveDataset",
    "Groups": "_GroupByWindowDataset",
    "Snapshot": "_MapDataset",
    "Named": "_OptionsDataset",
    "Buckets": "_GroupByWindowDataset",
    "Counter": "_ScanDataset",
    "Numbers": "_RandomDataset",
    "Asserted": "_AssertCardinalityDataset",
    "Loaded": "_LoadDataset",
}


class Base:
    """The base of all datasets. Attributes: element_spec."""

    op: Op

    @classmethod
    def of(cls, op: Op) -> Any:
        """A plain dataset of an op, whatever class the method was called on."""
        made = object.__new__(PLAIN[0])
        made.op = op
        return made

    @property
    def __class__(self) -> type:  # type: ignore[override]
        """The class that `isinstance` sees. Once Keras is imported, it also derives from Keras's adapter."""
        if "keras" in sys.modules:
            from penstock.tf.data.for_keras import with_adapter

            return with_adapter(type(self))
        return type(self)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and "keras" in sys.modules:
            from penstock.tf.data.for_keras import ADAPTER, Adapter

            if name in ADAPTER:
                return getattr(Adapter(self), name)
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        known = inspect.getattr_static(type(self), name, None)
        if isinstance(known, property):  # the property itself raised an AttributeError
            return known.__get__(self)
        raise missing(f"tf.data.Dataset.{name}")

    def __iter__(self) -> Iterator:
        return Iterator(self.op)

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        known = self.op.cardinality()
        if known == INFINITE:
            raise TypeError("The dataset is infinite.")
        if known < 0:
            raise TypeError("The dataset length is unknown.")
        return known

    def __repr__(self) -> str:
        try:
            spec = repr(self.element_spec)
        except Exception:  # the user's function fails; the error comes when elements are read
            spec = "unknown"
        return f"<{self._kind()} element_spec={spec}>"

    def _kind(self) -> str:
        """TensorFlow's name for the class of such a dataset."""
        own, step = type(self).__name__, type(self.op).__name__
        if own != "Dataset":
            return f"{own}V2"
        name = _TENSORFLOWS.get(step, f"_{step}Dataset")
        if getattr(self.op, "calls", None) is not None and step in {"Map", "Interleave"}:
            return name.replace("_", "_Parallel")
        return name

    @property
    def element_spec(self) -> Any:
        """The structure of the specs of an element.

        To find the specs after a user's function, the function is called a few times with placeholders. If it does not
        work with placeholders, the specs are inferred from the first two elements; sizes that differ between the two
        are unknown.
        """
        return self.op.spec()

    @property
    def _element_spec(self) -> Any:
        from penstock.tf.data.windows import DatasetSpec

        return DatasetSpec(self.op.spec())

    def cardinality(self, name: str | None = None) -> Tensor:
        """The number of elements, int64; `tf.data.INFINITE_CARDINALITY` or `UNKNOWN_CARDINALITY`.

        Example:
            >>> import penstock.tf as tf
            >>> int(tf.data.Dataset.range(7).batch(3).cardinality())
            3
        """
        return np.array(self.op.cardinality(), np.int64).view(Tensor)

    def as_numpy_iterator(self) -> PythonIterator[Any]:
        """The elements as NumPy arrays and scalars, and `bytes`.

        Example:
            >>> import penstock.tf as tf
            >>> list(tf.data.Dataset.from_tensor_slices({"a": [1, 2]}).as_numpy_iterator())
            [{'a': np.int32(1)}, {'a': np.int32(2)}]
        """
        return (map_structure(_plain, element, lists=False) for element in self)

    def get_single_element(self, name: str | None = None) -> Any:
        """The only element.

        Raises:
            InvalidArgumentError: the dataset is empty or has more than one.
        """
        from penstock.tf.errors import InvalidArgumentError

        iterator = iter(self)
        for element in iterator:
            for _ in iterator:
                raise InvalidArgumentError(None, None, "Dataset had more than one element.")
            return element
        raise InvalidArgumentError(None, None, "Dataset was empty.")


PLAIN: list[Any] = []
"""The class of the datasets that verbs make; `dataset.py` sets it."""


def _plain(leaf: Any) -> Any:
    if isinstance(leaf, Base):
        raise TypeError(
            "as_numpy_iterator() is not supported for datasets whose elements are datasets"
        )
    if isinstance(leaf, Tensor):
        return leaf.numpy()
    return leaf.numpy() if hasattr(leaf, "row_splits") else leaf

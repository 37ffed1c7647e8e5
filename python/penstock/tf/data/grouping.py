"""`Dataset.group_by_window`: elements with the same key, collected until a window is full."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from penstock.tf.data.base import Base
from penstock.tf.data.op import Op, Stream, call, elements, positive
from penstock.tf.data.tracing import traced
from penstock.tf.data.windows import Described, Held
from penstock.tf.shapes import TensorSpec
from penstock.tf.tensor import Tensor


class Groups(Op):
    """The elements of datasets that a function makes from windows of elements with the same key."""

    def __init__(
        self,
        source: Op,
        key_func: Callable[..., Any],
        reduce_func: Callable[[Any, Any], Any],
        size_of: Callable[[Any], Any],
    ) -> None:
        self.source, self.key_func = source, key_func
        self.reduce_func, self.size_of = reduce_func, size_of

    def spec(self) -> Any:
        # Like in TensorFlow's tracing, the window has only the specs of its elements.
        window = Base.of(Described(self.source.spec()))
        key = TensorSpec([], "int64")
        found = traced(lambda number: self.reduce_func(number, window).op.spec(), key)
        return super().spec() if found is None else found

    def open(self) -> Stream:
        return self._run(elements(self.source.open()))

    def _run(self, values: Iterator[Any]) -> Iterator[Any]:
        groups: dict[int, list[Any]] = {}
        sizes: dict[int, int] = {}
        for element in values:
            key = int(call(self.key_func, element))
            if key not in sizes:
                sizes[key] = positive(self.size_of(_scalar(key)), "window_size")
            group = groups.setdefault(key, [])
            group.append(element)
            if len(group) == sizes[key]:
                yield from self._reduced(key, groups.pop(key))
        for key in sorted(groups):
            yield from self._reduced(key, groups[key])

    def _reduced(self, key: int, group: list[Any]) -> Iterator[Any]:
        made = self.reduce_func(_scalar(key), Base.of(Held(group)))
        if not isinstance(made, Base):
            raise TypeError(f"`reduce_func` must return a `Dataset` object. Got {type(made)}.")
        return elements(made.op.open())


def _scalar(key: int) -> Tensor:
    return np.array(key, np.int64).view(Tensor)

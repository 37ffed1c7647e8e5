"""Groups of elements: windows, which are datasets themselves, and batches of similar length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from penstock.tf.data.op import Op, Stream, elements, merged_specs, positive, spec_of, whole
from penstock.tf.nest import flatten, map_structure, pack_sequence_as
from penstock.tf.shapes import TypeSpec


class Window(Op):
    """Datasets of a fixed number of elements, which a function makes from lists."""

    def __init__(
        self,
        source: Op,
        size: Any,
        shift: Any,
        stride: Any,
        drop_remainder: Any,
        made: Callable[[Op], Any],
    ) -> None:
        self.source = source
        self.size = positive(size, "Window size")
        self.shift = self.size if shift is None else positive(shift, "Window shift")
        self.stride = positive(stride, "Window stride")
        self.drops = bool(drop_remainder)
        self.made = made

    def open(self) -> Stream:
        return self._run(elements(self.source.open()))

    def _run(self, values: Iterator[Any]) -> Iterator[Any]:
        held: list[Any] = []
        span = (self.size - 1) * self.stride + 1
        while True:
            held.extend(islice(values, span - len(held)))
            chosen = held[:: self.stride]
            if not held or (self.drops and len(chosen) < self.size):
                return
            leaves = [flatten(element, lists=False) for element in chosen]
            columns = list(zip(*leaves, strict=True))
            datasets = [self.made(Held(list(column))) for column in columns]
            yield pack_sequence_as(chosen[0], datasets, lists=False)
            if self.shift >= len(held):
                missing = self.shift - len(held)
                held = []
                if len(list(islice(values, missing))) < missing:
                    return
            else:
                held = held[self.shift :]

    def cardinality(self) -> int:
        known = self.source.cardinality()
        if known < 0:
            return known
        if not self.drops:
            return -(-known // self.shift)
        span = (self.size - 1) * self.stride + 1
        return 0 if known < span else (known - span) // self.shift + 1

    def spec(self) -> Any:
        def dataset(leaf: Any) -> Any:
            return DatasetSpec(leaf, self.made)

        return map_structure(dataset, self.source.spec(), lists=False)


class DatasetSpec(TypeSpec):
    """The spec of a dataset that is an element."""

    def __init__(self, element_spec: Any, made: Callable[[Op], Any] | None = None) -> None:
        super().__init__([], "string")
        self.element_spec = element_spec
        self._made = made

    def blank(self) -> Any:
        """An empty dataset with this spec, for tracing functions of windows."""
        if self._made is None:
            raise TypeError("this spec cannot make a dataset")
        return self._made(Described(self.element_spec))

    def _facts(self) -> tuple[Any, ...]:
        return (self.element_spec,)

    def __repr__(self) -> str:
        return f"DatasetSpec({self.element_spec!r}, TensorShape([]))"


class Described(Op):
    """No elements, with known specs."""

    def __init__(self, spec: Any) -> None:
        self._spec = spec

    def open(self) -> Stream:
        return iter(())

    def spec(self) -> Any:
        return self._spec


class Held(Op):
    """The elements of a list."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def open(self) -> Stream:
        return iter(self.values)

    def cardinality(self) -> int:
        return len(self.values)

    def spec(self) -> Any:
        found = map_structure(spec_of, self.values[0], lists=False)
        for other in self.values[1:]:
            found = merged_specs(found, map_structure(spec_of, other, lists=False))
        return found


class Buckets(Op):
    """Batches of elements of similar length; see `Dataset.bucket_by_sequence_length`."""

    def __init__(
        self,
        source: Op,
        length_of: Callable[..., Any],
        boundaries: list[int],
        sizes: list[int],
        batch: Callable[[Op, int, int], Op],
        drop_remainder: bool,
    ) -> None:
        if len(sizes) != len(boundaries) + 1:
            raise ValueError(
                "`bucket_batch_sizes` must have one more entry than `bucket_boundaries`."
            )
        self.source, self.length_of, self.boundaries = source, length_of, boundaries
        self.sizes = [positive(size, "bucket_batch_sizes") for size in sizes]
        self.batch, self.drops = batch, drop_remainder

    def open(self) -> Stream:
        return self._run(elements(self.source.open()))

    def _run(self, values: Iterator[Any]) -> Iterator[Any]:
        buckets: list[list[Any]] = [[] for _ in self.sizes]
        for element in values:
            length = (
                self.length_of(*element) if isinstance(element, tuple) else self.length_of(element)
            )
            number = int(np.searchsorted(self.boundaries, whole(length, "length"), "right"))
            bucket = buckets[number]
            bucket.append(element)
            if len(bucket) == self.sizes[number]:
                yield from self._joined(bucket, number)
                buckets[number] = []
        if not self.drops:
            for number, bucket in enumerate(buckets):
                if bucket:
                    yield from self._joined(bucket, number)

    def _joined(self, bucket: list[Any], number: int) -> Iterator[Any]:
        return elements(self.batch(Held(bucket), len(bucket), number).open())

    def spec(self) -> Any:
        return self.batch(self.source, 1, len(self.boundaries)).spec()

"""`Dataset.rejection_resample`: elements left out at random, so that classes are as frequent as wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from penstock.tf.data.op import Op, Stream, call, elements
from penstock.tf.seeds import Philox, op_seeds
from penstock.tf.shapes import TensorSpec
from penstock.tf.tensor import Tensor, convert_to_tensor

_SMOOTHING = 10
"""The count with which each class starts, before any element was seen."""


class Resample(Op):
    """Pairs of a class and an element; the random numbers are not TensorFlow's."""

    def __init__(
        self,
        source: Op,
        class_func: Callable[..., Any],
        target_dist: Any,
        initial_dist: Any,
        seed: Any,
    ) -> None:
        self.source, self._class_of = source, class_func
        self._target = np.asarray(convert_to_tensor(target_dist), np.float64)
        self._initial = None if initial_dist is None else np.asarray(initial_dist, np.float64)
        self._seeds = op_seeds(seed)

    def open(self) -> Stream:
        return self._run()

    def _pairs(self) -> Iterator[tuple[int, Any, np.ndarray[Any, Any], float]]:
        """Class and element, the probability of keeping each class, and how often an element is used without a
        choice."""
        seen = np.full(len(self._target), float(_SMOOTHING))
        for element in elements(self.source.open()):
            number = int(call(self._class_of, element))
            seen[number] += 1
            initial = seen / seen.sum() if self._initial is None else self._initial
            ratio = self._target / np.maximum(initial, np.finfo(np.float64).tiny)
            least, most = ratio.min(), ratio.max()
            kept = (ratio - least) / (most - least) if most > least else np.ones_like(ratio)
            yield number, element, kept, float(least)

    def _run(self) -> Iterator[Any]:
        draws = Philox(*self._seeds)
        every, chosen = self._pairs(), self._kept(draws)
        share = 0.0
        while True:
            source = every if _unit(draws) < share else chosen
            pair = next(source, None)
            if pair is None:
                return
            number, element, _, share = pair
            yield np.array(number, np.int32).view(Tensor), element

    def _kept(self, draws: Philox) -> Iterator[tuple[int, Any, np.ndarray[Any, Any], float]]:
        for pair in self._pairs():
            if _unit(draws) < pair[2][pair[0]]:
                yield pair

    def spec(self) -> Any:
        return TensorSpec([], "int32"), self.source.spec()


def _unit(draws: Philox) -> float:
    return float(draws.take(1)[0]) / 2**32

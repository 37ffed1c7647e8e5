"""`tf.random.Generator`: random numbers from a state that the program holds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.tf import distributions, graphs, probing
from penstock.tf.dtypes import as_dtype
from penstock.tf.seeds import RESERVED, fresh_words, philox_at
from penstock.tf.tensor import Tensor

_PHILOX = 1, "philox", "auto_select"
_WORD = 1 << 64


class Generator:
    """A state, from which each call draws the next numbers. Made by `from_seed` and its kin.

    Attributes: state (int64[3]: two words of the counter and the key), key, algorithm.

    Example:
        >>> import penstock.tf as tf
        >>> generator = tf.random.Generator.from_seed(1)
        >>> generator.uniform([2], 0, 10, tf.int32).numpy().tolist()
        [1, 6]
    """

    def __init__(self, copy_from: Any = None, state: Any = None, alg: Any = None) -> None:
        given = copy_from.state if copy_from is not None else state
        self._counter = [int(word) % _WORD for word in np.asarray(given).reshape(-1)[:2]]
        self._key = int(np.asarray(given).reshape(-1)[2]) % _WORD
        if alg is not None and alg not in _PHILOX:
            raise ValueError(f"penstock.tf has the algorithm 'philox', not {alg!r}")

    @classmethod
    def from_seed(cls, seed: Any, alg: Any = None) -> Generator:
        """A generator for a seed: a number, or up to three.

        Raises:
            ValueError: another algorithm than Philox.
        """
        return cls(state=_state(seed), alg=alg)

    @classmethod
    def from_state(cls, state: Any, alg: Any) -> Generator:
        """A generator with a state that another one had."""
        return cls(state=state, alg=alg)

    @classmethod
    def from_non_deterministic_state(cls, alg: Any = None) -> Generator:
        """A generator with a new state."""
        return cls(state=fresh_words(6).view(np.int64), alg=alg)

    @property
    def state(self) -> Tensor:
        """The state, int64[3]."""
        return np.array([*self._counter, self._key], np.uint64).view(np.int64).view(Tensor)

    @property
    def key(self) -> Tensor:
        """The key, a part of the state."""
        return self.state[2]

    @property
    def algorithm(self) -> int:
        """TensorFlow's number of the algorithm: 1, Philox."""
        return 1

    def reset(self, state: Any) -> None:
        """Continue with another state."""
        Generator.__init__(self, state=state)

    def reset_from_seed(self, seed: Any) -> None:
        """Continue as a generator that `from_seed` makes."""
        self.reset(_state(seed))

    def skip(self, delta: Any) -> None:
        """Leave out numbers."""
        call = graphs.current()
        if probing.is_on() or (call is not None and call.is_trial):
            return  # a call that only finds out what a function returns
        moved = self._counter[0] + (self._counter[1] << 64) + int(delta) * RESERVED
        self._counter = [moved % _WORD, (moved >> 64) % _WORD]

    def _take(self, count: int, numbers: int) -> np.ndarray[Any, Any]:
        """The next 32-bit words, for so many numbers."""
        probing.refuse_recording()
        drawn = philox_at(count, self._counter[0], self._counter[1], self._key)
        self.skip(numbers)
        return drawn

    def uniform(
        self,
        shape: Any,
        minval: Any = 0,
        maxval: Any = None,
        dtype: Any = "float32",
        name: str | None = None,
    ) -> Tensor:
        """Uniform random numbers, with the arguments of `tf.random.uniform`."""
        kind, sizes = as_dtype(dtype), distributions.sizes(shape)
        numbers = math.prod(sizes)
        return distributions.uniform(
            lambda count: self._take(count, numbers), sizes, minval, maxval, kind
        )

    def uniform_full_int(
        self, shape: Any, dtype: Any = "uint64", name: str | None = None
    ) -> Tensor:
        """Integers over the whole range of a dtype."""
        kind, sizes = as_dtype(dtype), distributions.sizes(shape)
        numbers = math.prod(sizes)
        return distributions.uniform(
            lambda count: self._take(count, numbers), sizes, None, None, kind
        )

    def normal(
        self,
        shape: Any,
        mean: Any = 0.0,
        stddev: Any = 1.0,
        dtype: Any = "float32",
        name: str | None = None,
    ) -> Tensor:
        """Normal random numbers, with the arguments of `tf.random.normal`."""
        kind, sizes = as_dtype(dtype), distributions.sizes(shape)
        numbers = math.prod(sizes)
        return distributions.normal(
            lambda count: self._take(count, numbers), sizes, mean, stddev, kind
        )

    def truncated_normal(
        self,
        shape: Any,
        mean: Any = 0.0,
        stddev: Any = 1.0,
        dtype: Any = "float32",
        name: str | None = None,
    ) -> Tensor:
        """Like `normal`, but without numbers that are more than two standard deviations from the mean."""
        kind, sizes = as_dtype(dtype), distributions.sizes(shape)
        numbers = math.prod(sizes)
        groups = -(-numbers // 4)
        words = self._take(groups * RESERVED * 4, numbers).reshape(groups, -1)
        return distributions.truncated(words, sizes, mean, stddev, kind)

    def make_seeds(self, count: int = 1) -> Tensor:
        """Seeds for `stateless` operations, int64[2, count]."""
        words = self.uniform_full_int([int(count)], "int64")
        return np.stack([words, np.zeros_like(words)]).view(Tensor)

    def split(self, count: int = 1) -> list[Generator]:
        """Generators with keys of their own."""
        words = self.make_seeds(count).view(np.ndarray)
        return [Generator(state=[0, 0, key]) for key in words[0].tolist()]


def _state(seed: Any) -> list[int]:
    """The state for a seed: a number is its lowest word, and words are put at the end."""
    if isinstance(seed, int):
        return [seed % _WORD, (seed >> 64) % _WORD, (seed >> 128) % _WORD]
    given = np.asarray(seed).reshape(-1)[:3].tolist()
    return [0] * (3 - len(given)) + given


class _Global:
    generator: Generator | None = None


def get_global_generator() -> Generator:
    """The generator that the program shares; without `set_global_generator` a new one."""
    if _Global.generator is None:
        _Global.generator = Generator.from_non_deterministic_state()
    return _Global.generator


def set_global_generator(generator: Generator) -> None:
    """Share a generator."""
    _Global.generator = generator

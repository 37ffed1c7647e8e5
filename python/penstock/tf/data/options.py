"""`tf.data.Options`: accepted without effect, because penstock needs no tuning."""

from __future__ import annotations

from enum import IntEnum
from typing import Any


class Options:
    """Options for running a dataset. All attributes that TensorFlow has can be read and set.

    They have no effect: the order of elements is always deterministic, and there is one thread per core.

    Example:
        >>> import penstock.tf as tf
        >>> options = tf.data.Options()
        >>> options.threading.private_threadpool_size = 4
        >>> options.deterministic = False
        >>> list(tf.data.Dataset.range(2).with_options(options).as_numpy_iterator())
        [np.int64(0), np.int64(1)]
    """

    _GROUPS = frozenset({"autotune", "distribute", "experimental_optimization", "experimental_distribute",
                         "experimental_service", "experimental_threading", "service", "threading"})  # fmt: skip
    _KNOWN = frozenset({"dataset_name", "deterministic", "experimental_deterministic", "experimental_external_state_policy",
                        "experimental_slack", "experimental_symbolic_checkpoint", "experimental_warm_start",
                        "framework_type"})  # fmt: skip

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name == "experimental_deterministic":
            return self.deterministic
        if name in self._values:
            return self._values[name]
        if name in self._GROUPS:
            return self._values.setdefault(name, Wishes())
        if name in self._KNOWN:
            return None
        raise AttributeError(f"Options has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        elif name == "experimental_deterministic":  # an older name of the same option
            self._values["deterministic"] = value
        elif name in self._GROUPS or name in self._KNOWN:
            self._values[name] = value
        else:
            raise AttributeError(f"Cannot set the property {name} on {type(self).__name__}.")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Options) and self._values == other._values

    __hash__ = None  # type: ignore[assignment]

    def merge(self, options: Options) -> Options:
        """Merge both; the other's attributes have priority."""
        made = Options()
        made._values = {**self._values, **options._values}
        return made


class Wishes:
    """One group of options, such as `options.threading`. Any attribute may be set; the others are None."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Wishes) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


class ThreadingOptions(Wishes):
    """`tf.data.ThreadingOptions`: accepted without effect."""


AutotuneOptions = OptimizationOptions = DistributeOptions = ThreadingOptions


class AutoShardPolicy(IntEnum):
    """How TensorFlow divides datasets among workers. It has no effect, because there is only one worker."""

    OFF = -1
    AUTO = 0
    FILE = 1
    DATA = 2
    HINT = 3


class ExternalStatePolicy(IntEnum):
    """What TensorFlow does with functions that have state. It has no effect here."""

    WARN = 0
    IGNORE = 1
    FAIL = 2


class AutotuneAlgorithm(IntEnum):
    """How TensorFlow tunes datasets. It has no effect here."""

    DEFAULT = 0
    HILL_CLIMB = 1
    GRADIENT_DESCENT = 2
    MAX_PARALLELISM = 3
    STAGE_BASED = 4

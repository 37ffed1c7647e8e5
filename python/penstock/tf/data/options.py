"""`tf.data.Options`: accepted as it is. penstock needs no tuning, so nothing in it changes a result."""

from __future__ import annotations

from typing import Any


class Options:
    """Wishes about how a dataset runs. Every attribute that TensorFlow has may be read and set.

    Two of them have a meaning of their own elsewhere and none here: the order of elements is always
    deterministic, and threads are as many as the process has cores.

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
        elif name in self._GROUPS or name in self._KNOWN:
            self._values[name] = value
        else:
            raise AttributeError(f"Cannot set the property {name} on {type(self).__name__}.")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Options) and self._values == other._values

    __hash__ = None  # type: ignore[assignment]

    def merge(self, options: Options) -> Options:
        """Both together; what the other says comes first."""
        made = Options()
        made._values = {**self._values, **options._values}
        return made


class Wishes:
    """One group of options, such as `options.threading`: any attribute may be set; None otherwise."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Wishes) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


class ThreadingOptions(Wishes):
    """`tf.data.ThreadingOptions`: accepted, without a meaning here."""


AutotuneOptions = OptimizationOptions = DistributeOptions = ThreadingOptions

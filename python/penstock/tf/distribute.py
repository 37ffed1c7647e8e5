"""`tf.distribute` with one replica, on the CPU, and the errors that TensorFlow raises without a TPU."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from penstock.tf.errors import NotFoundError
from penstock.tf.missing import Space, absent_from

__all__ = [
    "InputContext",
    "MirroredStrategy",
    "OneDeviceStrategy",
    "Strategy",
    "cluster_resolver",
    "experimental",
    "get_strategy",
    "has_strategy",
]


class InputContext:
    """Which part of the input a pipeline reads. With one replica, it is all of the input.

    Attributes: num_input_pipelines, input_pipeline_id, num_replicas_in_sync (int).
    """

    def __init__(
        self,
        num_input_pipelines: int = 1,
        input_pipeline_id: int = 0,
        num_replicas_in_sync: int = 1,
    ) -> None:
        self.num_input_pipelines = num_input_pipelines
        self.input_pipeline_id = input_pipeline_id
        self.num_replicas_in_sync = num_replicas_in_sync

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """The part of a batch that one replica gets.

        Raises:
            ValueError: the batch cannot be divided.
        """
        if global_batch_size % self.num_replicas_in_sync:
            raise ValueError(
                f"The `global_batch_size` {global_batch_size} is not divisible by "
                f"`num_replicas_in_sync` {self.num_replicas_in_sync}"
            )
        return global_batch_size // self.num_replicas_in_sync


class Strategy:
    """One replica: datasets are used as they are, and functions run here.

    Attributes: num_replicas_in_sync (int), always 1.

    Example:
        >>> import penstock.tf as tf
        >>> tf.distribute.get_strategy().num_replicas_in_sync
        1
    """

    num_replicas_in_sync = 1

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    @contextmanager
    def scope(self) -> Generator[Strategy]:
        """No effect."""
        yield self

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        """The dataset itself."""
        return dataset

    def distribute_datasets_from_function(
        self, dataset_fn: Callable[[InputContext], Any], options: Any = None
    ) -> Any:
        """The dataset that a function makes for one replica."""
        return dataset_fn(InputContext())

    experimental_distribute_datasets_from_function = distribute_datasets_from_function

    def experimental_local_results(self, value: Any) -> tuple[Any, ...]:
        """The value of the only replica."""
        return (value,)

    def run(self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None, **_: Any) -> Any:
        """The result of a function."""
        return fn(*args, **(kwargs or {}))

    def reduce(self, reduce_op: Any, value: Any, axis: Any = None) -> Any:
        """The value of the only replica, or its sum or mean along a dimension."""
        if axis is None:
            return value
        from penstock.tf.arithmetic import reduce_mean, reduce_sum

        return (reduce_mean if str(reduce_op).upper().endswith("MEAN") else reduce_sum)(value, axis)


class MirroredStrategy(Strategy):
    """One replica: there is no GPU here."""


class OneDeviceStrategy(Strategy):
    """One replica."""


def get_strategy() -> Strategy:
    """The strategy of one replica."""
    return Strategy()


def has_strategy() -> bool:
    """Always False, as in TensorFlow outside the scope of a strategy."""
    return False


class TPUClusterResolver:
    """Raises the error that TensorFlow raises without a TPU, because notebooks catch it to use another device.

    Raises:
        ValueError: always, because there is no TPU.
    """

    def __init__(self, tpu: Any = None, *args: Any, **kwargs: Any) -> None:
        raise ValueError("Please provide a TPU Name to connect to.")

    connect = classmethod(lambda cls, *_, **__: cls())


def _no_tpu(*_: Any, **__: Any) -> Any:
    raise NotFoundError(None, None, "No TPU devices found")


cluster_resolver = Space("tf.distribute.cluster_resolver", TPUClusterResolver=TPUClusterResolver)
experimental = Space(
    "tf.distribute.experimental",
    CentralStorageStrategy=Strategy,
    MultiWorkerMirroredStrategy=MirroredStrategy,
    TPUStrategy=_no_tpu,
)
ReduceOp = Space("tf.distribute.ReduceOp", SUM="SUM", MEAN="MEAN")
TPUStrategy = _no_tpu
MultiWorkerMirroredStrategy = MirroredStrategy
tpu = Space("tf.tpu", experimental=Space("tf.tpu.experimental", initialize_tpu_system=_no_tpu))
"""`tf.tpu`."""

__getattr__ = absent_from("tf.distribute")

"""`Cluster`: runs the tasks of verbs on the machines of a cluster of Ray."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from logging import WARNING
from typing import Any, TypeVar

import ray
from ray.util.client import ray as client
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from penstock.engine.cluster import Failed
from penstock.errors import StorageError, UnsupportedError, shown
from penstock.ray._running import Place, Running, packed
from penstock.storage.urls import is_url

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Cluster:
    """A cluster of Ray, for `on=` of the long verbs.

    Args:
        address: as for `ray.init`: None for the cluster that this process is connected to, or else that of
            `RAY_ADDRESS` or of `ray start` on this machine, or else a new one on this machine; "ray://host:10001" for a
            cluster elsewhere.
        num_cpus: the cores of each task, which uses as many threads.
        memory: the bytes of memory that Ray keeps free for each task; None does not count memory.
        retries: how often a task is run again if its worker dies or a store does not answer.
        shared_paths: whether all machines see the files of this one under the same paths. Otherwise, tasks with files
            of this machine run on it.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": range(9)}, "shard-{shard}.tfrecord", num_shards=3, overwrite=True)
        >>> from penstock.ray import Cluster  # doctest: +SKIP
        >>> ps.verify("shard-*.tfrecord", on=Cluster(num_cpus=2)).ok  # doctest: +SKIP
        True
    """

    address: str | None = None
    num_cpus: float = 1
    memory: int | None = None
    retries: int = 3
    shared_paths: bool = False

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], paths: Iterable[str]
    ) -> Generator[tuple[int, Result | Failed]]:
        """See `penstock.engine.cluster.Machines`."""
        self.connect()
        here = [path for path in paths if not is_url(path)]
        options = self.options(here)
        is_relative = not all(map(os.path.isabs, here))
        place = Place(
            version("penstock"),
            os.getcwd() if is_relative else None,
            max(1, int(self.num_cpus)),
            function,
        )
        at_once = max(1, int(ray.cluster_resources().get("CPU", 1) / max(self.num_cpus, 1e-3)))
        return Running(ray.put(packed(place)), tasks, options, self.retries, at_once).results()

    def connect(self) -> None:
        """Connect this process to the cluster, if it is not connected yet."""
        if not ray.is_initialized():
            ray.init(address=self.address, log_to_driver=False, logging_level=WARNING)

    def options(self, paths: Iterable[str]) -> dict[str, Any]:
        """The options of Ray for tasks that read or write these files.

        Raises:
            UnsupportedError: files of this machine are named, which is not part of the cluster.
        """
        found: dict[str, Any] = {
            "num_cpus": self.num_cpus,
            "max_retries": self.retries,
            "retry_exceptions": [StorageError],
        }
        if self.memory is not None:
            found["memory"] = self.memory
        local = None if self.shared_paths else next((p for p in paths if not is_url(p)), None)
        if local is not None:
            found["scheduling_strategy"] = _this_machine(local)
        return found


def _this_machine(path: str) -> NodeAffinitySchedulingStrategy:
    if client.is_connected():
        raise UnsupportedError(
            "the machines of the cluster may not see this file",
            file=shown(path),
            hint="name files in a store, or pass on=penstock.ray.Cluster(address, shared_paths=True) if they see it under this path",
        )
    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)

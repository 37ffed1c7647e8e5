"""Hints about `on=`. The machines are this process, since the tests of clusters run the same calls on a real one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from steps import Case, Cases, cli

import penstock as ps
from penstock.engine.cluster import machines_of
from penstock.storage import LocalStorage, MemoryStorage

NAME = "a.tfrecord"


class Here:
    """A cluster that is this process."""

    def run(
        self, function: Callable[[Any], Any], tasks: Sequence[Any], paths: Iterable[str]
    ) -> Iterator[tuple[int, Any]]:
        del paths
        yield from enumerate(map(function, tasks))


@contextmanager
def put(holder: Any, name: str, value: Any) -> Iterator[None]:
    old = holder[name]
    holder[name] = value
    try:
        yield
    finally:
        holder[name] = old


def without_ray() -> Case:
    from penstock.ray import Cluster

    def fails() -> None:
        with put(sys.modules, "penstock.ray", None):
            machines_of("ray")

    def advised() -> None:
        assert machines_of("ray") == Cluster()

    return Case(fails, advised)


def another_version() -> Case:
    from penstock.ray import _running

    def run(number: str) -> Any:
        return _running._run(_running.Place(number, None, 1, abs), [-1])[0]

    def advised() -> None:
        assert run(version("penstock")) == [1]

    return Case(lambda: run("0.0.1"), advised)


def a_worker_without_penstock() -> Case:
    import ray

    from penstock.ray import _running

    def fails() -> None:
        error = ray.exceptions.RaySystemError("No module named 'penstock'")
        raise _running.failed(error, 3).error

    def advised() -> None:  # this process has it
        assert _running._run(_running.Place(version("penstock"), None, 1, abs), [-2])[0] == [2]

    return Case(fails, advised)


def a_file_of_this_machine() -> Case:
    from penstock.ray import Cluster, _cluster

    class Connected:
        is_connected = staticmethod(lambda: True)

    def options(**own: Any) -> dict[str, Any]:
        with put(vars(_cluster), "client", Connected):
            return Cluster("ray://host:10001", **own).options([NAME])

    def advised() -> None:
        assert "scheduling_strategy" not in options(shared_paths=True)
        with put(vars(_cluster), "client", Connected):
            assert "scheduling_strategy" not in Cluster().options([f"s3://bucket/{NAME}"])

    return Case(options, advised)


def files_in_memory() -> Case:
    storage = MemoryStorage()
    ps.write({"id": [1, 2]}, NAME, storage=storage)

    def advised() -> None:
        ps.convert(NAME, "b.tfrecord", storage=storage, target_storage=LocalStorage())
        assert ps.verify("b.tfrecord", on=Here()).num_records == 2
        assert ps.verify(NAME, storage=storage).num_records == 2

    return Case(lambda: ps.verify(NAME, storage=storage, on=Here()), advised)


def records_by_a_key() -> Case:
    ps.write({"id": [3, 1, 2], "x": [9, 7, 8]}, NAME)
    ps.write({"id": [1, 2, 3], "x": [7, 0, 9]}, "b.parquet")

    def advised() -> None:
        assert ps.diff(NAME, "b.parquet", by="id").records.num_differ == 1
        ps.sort(NAME, "id", into="c.tfrecord")
        found = ps.diff("c.tfrecord", "b.parquet", on=Here())
        assert (found.records.num_compared, found.records.num_differ) == (3, 1)

    return Case(lambda: ps.diff(NAME, "b.parquet", by="id", on=Here()), advised)


def damage_in_a_task() -> Case:
    ps.write({"id": [1, 2, 3]}, NAME)
    data = bytearray(Path(NAME).read_bytes())
    data[len(data) // 2] ^= 1
    Path(NAME).write_bytes(data)
    skipping = ps.open(NAME, damage="skip")

    def advised() -> None:
        assert ps.diff(skipping, skipping).records.num_compared == 2
        cli(f"repair {NAME} --into c.tfrecord")
        assert ps.diff("c.tfrecord", "c.tfrecord", on=Here()).records.num_compared == 2

    return Case(lambda: ps.diff(skipping, skipping, on=Here()), advised)


def shards_by_bytes_on_a_cluster() -> Case:
    ps.write({"id": range(9)}, NAME)

    def convert(**cut: int) -> None:
        ps.convert(NAME, "b.tfrecord", on=Here(), overwrite=True, **cut)

    def advised() -> None:
        for cut in ({"num_shards": 3}, {"shard_records": 3}):
            convert(**cut)
            assert len(ps.open("b-*-of-00003.tfrecord")) == 9

    return Case(lambda: convert(shard_bytes=20), advised)


def damage_on_a_cluster() -> Case:
    ps.write({"id": range(9)}, NAME)
    data = bytearray(Path(NAME).read_bytes())
    data[-9] ^= 1
    Path(NAME).write_bytes(data)

    def convert(source: str, **how: Any) -> int:
        return ps.convert(
            ps.open(source, damage="skip"), "b.parquet", overwrite=True, **how
        ).num_records

    def advised() -> None:
        assert convert(NAME) == 8
        ps.repair(NAME, into="c.tfrecord")
        assert ps.convert("c.tfrecord", "c.parquet", on=Here()).num_records == 8

    return Case(lambda: convert(NAME, on=Here()), advised)


CASES: Cases = {
    "'num_shards= or shard_records= instead of shard_bytes='": shards_by_bytes_on_a_cluster,
    "'run penstock repair first, or convert without on='": damage_on_a_cluster,
    "\"pip install 'penstock[ray]'\"": without_ray,
    "'leave out on=; or penstock.sort both by the key, if both have the same keys, and leave out by='": records_by_a_key,
    "'run penstock repair first, or leave out on='": damage_in_a_task,
    "'install the same version on all machines'": another_version,
    "'install penstock, and all that the task uses, on all machines of the cluster'": a_worker_without_penstock,
    "'name files in a store, or pass on=penstock.ray.Cluster(address, shared_paths=True) if they see it under this path'": a_file_of_this_machine,
    "'write them to a store or to a folder first, or leave out on='": files_in_memory,
}

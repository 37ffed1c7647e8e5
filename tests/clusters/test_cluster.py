"""Tasks on a cluster: each is done once, whatever happens to the workers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import worker_tasks

import penstock as ps
from penstock.engine.cluster import Failed, all_of, machines_of
from penstock.ray import Cluster

pytestmark = pytest.mark.usefixtures("nodes")


def test_results_come_in_the_order_of_the_tasks() -> None:
    assert all_of(Cluster().run(worker_tasks.squared, range(40), [])) == [n * n for n in range(40)]


def test_tasks_with_files_of_this_machine_run_here_and_others_on_all_nodes(nodes: Any) -> None:
    import ray

    here = ray.get_runtime_context().get_node_id()
    local = all_of(Cluster().run(worker_tasks.node_of, range(8), ["a.tfrecord"]))
    assert set(local) == {here}
    for cluster, path in (
        (Cluster(shared_paths=True), "a.tfrecord"),
        (Cluster(), "s3://bucket/a.tfrecord"),
    ):
        seen, end = set[str](), time.monotonic() + 60
        while len(seen) < len(
            nodes.list_all_nodes()
        ):  # one may have done all when the other starts
            assert time.monotonic() < end
            seen |= set(all_of(cluster.run(worker_tasks.node_of, range(40), [path])))


def test_an_error_is_raised_when_the_others_are_done() -> None:
    done: list[int] = []
    with pytest.raises(ps.FormatError, match="no magic") as caught:
        all_of(Cluster().run(worker_tasks.raising, range(5), []), lambda n, _: done.append(n))
    assert sorted(done) == [0, 1, 3, 4]
    assert caught.value.file == "a.tfrecord"


def test_a_task_whose_worker_died_is_run_again(tmp_path: Path) -> None:
    places = [str(tmp_path / str(n)) for n in range(3)]
    assert all_of(Cluster().run(worker_tasks.dying_once, places, [])) == places


def test_a_task_that_kills_its_workers_fails_alone() -> None:
    found = dict(Cluster(retries=1).run(worker_tasks.always_dying, range(4), []))
    failed = found.pop(1)
    assert found == {0: 0, 2: 2, 3: 3}
    assert isinstance(failed, Failed)
    assert "died 2 times" in str(failed.error)


def test_a_task_is_run_again_if_a_store_does_not_answer(tmp_path: Path) -> None:
    place = str(tmp_path / "x")
    assert all_of(Cluster(retries=2).run(worker_tasks.without_answer, [place], [])) == [place]
    place = str(tmp_path / "y")
    with pytest.raises(ps.StorageError, match="no answer"):
        all_of(Cluster(retries=1).run(worker_tasks.without_answer, [place], []))


def test_tasks_are_cancelled_when_nobody_waits_for_them(tmp_path: Path) -> None:
    found = Cluster().run(_first_is_quick, [str(tmp_path / str(n)) for n in range(3)], [])
    next(found)
    found.close()
    began = time.monotonic()
    assert all_of(Cluster().run(worker_tasks.squared, range(4), [])) == [0, 1, 4, 9]
    assert (
        time.monotonic() - began < 30
    )  # a slow task, which sleeps 60 seconds, has its core no more


def _first_is_quick(place: str) -> str:
    return place if place.endswith("0") else worker_tasks.slow(place)


def test_on_names_a_cluster() -> None:
    assert machines_of("ray") == Cluster()
    assert machines_of("ray://host:10001") == Cluster("ray://host:10001")
    with pytest.raises(ValueError, match="spark"):
        machines_of("spark")
    with pytest.raises(TypeError, match="Cluster"):
        machines_of(7)


def test_small_tasks_are_run_in_groups_of_which_a_deadly_one_fails_alone() -> None:
    """Ray knows of a thousand at a time, and those after the first are sent in groups."""
    tasks = range(3000)
    found = dict(Cluster(retries=0).run(worker_tasks.dying_at_2500, tasks, []))
    failed = found.pop(2500)
    assert isinstance(failed, Failed)
    assert failed.num_deaths == 1
    assert found == {number: number for number in tasks if number != 2500}

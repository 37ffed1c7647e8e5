"""penstock.ray.write: each record once, whatever happens to the workers, and nothing half done."""

from __future__ import annotations

import os
import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import ray
import worker_tasks
from killing import at_random_moments, kill_a_worker

import penstock as ps
import penstock.ray as on_ray
from penstock.formats import by_name
from penstock.ray._targets import FolderTarget, StoreTarget
from penstock.storage.local import LocalStorage
from remote.servers.fixtures import *  # noqa: F403
from remote.servers.seaweed import Seaweed

pytestmark = [
    pytest.mark.usefixtures("nodes", "in_order"),
    # Of its own options.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data"),
]

HOW: dict[str, Any] = {
    "format": "tfrecord",
    "index": True,
    "shard_records": None,
    "shard_bytes": None,
}


@pytest.fixture
def small_blocks(in_order: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_order, "target_max_block_size", 1000)


def numbers(count: int, blocks: int) -> Any:
    return ray.data.range(count, override_num_blocks=blocks)


def ids(source: Any, **how: Any) -> list[int]:
    return ps.open(source, **how).to_table(columns=["id"])["id"].to_pylist()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_each_task_makes_a_shard_with_its_index(tmp_path: Path) -> None:
    made = on_ray.write(numbers(1000, 4), tmp_path / "n.tfrecord")
    assert [os.path.basename(p) for p in made.paths] == [
        f"n-{n:05d}-of-00004.tfrecord" for n in range(4)
    ]
    assert names(tmp_path) == sorted(
        name for p in made.paths for name in (f".{Path(p).name}.penstock", Path(p).name)
    )
    assert made.num_records == 1000
    assert made.num_bytes == sum(os.path.getsize(path) for path in made.paths)
    assert ids(str(tmp_path / "n@4.tfrecord"), index="beside") == list(range(1000))


@pytest.mark.parametrize(
    "name", ["x.tfrecord.gz", "x.parquet", "x.arrow", "x.msgpack", "x.npz", "x.h5", "x.beton"]
)
def test_any_format_is_written(tmp_path: Path, name: str) -> None:
    if name.endswith(".h5"):
        pytest.importorskip("h5py")
    made = on_ray.write(numbers(60, 2), tmp_path / name)
    assert len(made.paths) == 2
    assert ids(list(made.paths)) == list(range(60))


def test_a_pattern_and_limits_name_the_shards(tmp_path: Path) -> None:
    made = on_ray.write(numbers(50, 2), tmp_path / "part-{shard:03d}.tfrecord", shard_records=10)
    assert [Path(p).name for p in made.paths] == [f"part-{n:03d}.tfrecord" for n in range(6)]
    assert [s.num_records for s in ps.open(made.paths).shards] == [10, 10, 5, 10, 10, 5]
    assert ids(list(made.paths)) == list(range(50))


def test_tensors_keep_their_shape(tmp_path: Path) -> None:
    data = ray.data.range_tensor(20, shape=(2, 3), override_num_blocks=2)
    made = on_ray.write(data, tmp_path / "t.parquet")
    found = ps.open(made.paths)
    assert found.schema.field("data").type == pa.fixed_shape_tensor(pa.int64(), (2, 3))
    assert [int(row["data"].sum()) for row in map(found.__getitem__, range(20))] == [
        6 * n for n in range(20)
    ]


def test_blocks_of_pandas_are_written_without_their_index(tmp_path: Path) -> None:
    data = numbers(40, 2).map_batches(lambda frame: frame[frame.id >= 25], batch_format="pandas")
    made = on_ray.write(data, tmp_path / "p.parquet")
    assert ps.open(made.paths).schema.names == ["id"]
    assert ids(list(made.paths)) == list(range(25, 40))


def test_empty_blocks_make_no_shards(tmp_path: Path) -> None:
    data = numbers(100, 4).map_batches(lambda b: {"id": b["id"][b["id"] >= 60]})
    made = on_ray.write(data, tmp_path / "e.parquet")
    assert [s.num_records for s in ps.open(made.paths).shards] == [15, 25]


def test_no_records_make_one_shard_with_the_schema(tmp_path: Path) -> None:
    data = ray.data.from_arrow(pa.table({"a": pa.array([], pa.int32()), "b": pa.array([], "str")}))
    made = on_ray.write(data, tmp_path / "none.parquet")
    assert [Path(p).name for p in made.paths] == ["none-00000-of-00001.parquet"]
    assert ps.open(made.paths).schema == pa.schema({"a": pa.int32(), "b": pa.string()})


def test_a_set_is_replaced_only_if_that_is_asked_for(tmp_path: Path) -> None:
    on_ray.write(numbers(90, 3), tmp_path / "n.tfrecord")
    before = names(tmp_path)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        on_ray.write(numbers(10, 2), tmp_path / "n.tfrecord")
    assert names(tmp_path) == before
    os.chmod(tmp_path / "n-00000-of-00003.tfrecord", 0o600)
    made = on_ray.write(numbers(10, 2), tmp_path / "n.tfrecord", overwrite=True)
    assert ids(str(tmp_path / "n-*.tfrecord")) == list(range(10))
    assert len(names(tmp_path)) == 4
    assert {os.stat(path).st_mode & 0o777 for path in made.paths} == {0o600}


def test_an_error_leaves_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    on_ray.write(numbers(30, 3), tmp_path / "n.tfrecord")
    before = {name: (tmp_path / name).read_bytes() for name in names(tmp_path)}
    data = numbers(40, 2).map_batches(lambda b: {"id": b["id"] / 7})
    with pytest.raises(ps.SchemaError, match="id") as caught:
        on_ray.write(data, tmp_path / "n.tfrecord", overwrite=True, exact=True)
    assert "penstock-tmp" not in str(caught.value)
    assert {name: (tmp_path / name).read_bytes() for name in names(tmp_path)} == before


def test_blocks_of_different_types_are_an_error_before_a_shard_has_its_name(tmp_path: Path) -> None:
    data = numbers(40, 2).map_batches(worker_tasks.of_two_types)
    with pytest.raises(ps.SchemaError, match="other types") as caught:
        on_ray.write(data, tmp_path / "n.parquet")
    assert caught.value.field == "value"
    assert names(tmp_path) == []


def test_a_missing_folder_is_an_error_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="folder"):
        on_ray.write(numbers(4, 1), tmp_path / "none" / "n.tfrecord")


def test_another_writer_of_the_set_has_to_wait(tmp_path: Path) -> None:
    target = FolderTarget(str(tmp_path / "n.tfrecord"), by_name("tfrecord"), LocalStorage(), HOW)
    with target.attempts(), pytest.raises(BlockingIOError):
        on_ray.write(numbers(4, 1), tmp_path / "n.tfrecord")
    assert names(tmp_path) == []


def batch(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": list(values)})


def test_attempts_without_a_result_leave_nothing(tmp_path: Path) -> None:
    target = FolderTarget(str(tmp_path / "n.tfrecord"), by_name("tfrecord"), LocalStorage(), HOW)
    schema = batch(0).schema
    with target.attempts():
        target.write(0, schema, lambda: [batch(1), batch(2)])  # its worker died afterwards
        made = target.write(0, schema, lambda: [batch(1, 2)])
        other = target.write(1, schema, lambda: [batch(3)])
        target.publish([made, other], overwrite=False)
    assert ids(str(tmp_path / "n-*.tfrecord")) == [1, 2, 3]
    assert len(names(tmp_path)) == 4
    with pytest.raises(OSError, match="folder"):  # an attempt that still runs
        target.write(0, schema, lambda: [batch(1)])
    assert len(names(tmp_path)) == 4


@pytest.mark.usefixtures("small_blocks")
def test_records_are_written_once_if_workers_are_killed_in_the_middle(tmp_path: Path) -> None:
    place, out = tmp_path / "place", tmp_path / "out"
    place.mkdir()
    out.mkdir()
    data = numbers(200, 2).map_batches(
        worker_tasks.dying_in_the_middle, batch_size=25, fn_kwargs={"place": str(place)}
    )
    made = on_ray.write(data, out / "n.tfrecord")
    assert len(names(place)) == 2  # each task died once
    assert ids(list(made.paths)) == list(range(200))
    assert len(names(out)) == 2 * len(made.paths)


def killed_write(folder: Path, path: str, count: int, seed: int, **how: Any) -> Any:
    place = folder / f"place-{seed}"
    place.mkdir()
    data = numbers(600, 6).map_batches(
        worker_tasks.slowly, batch_size=20, fn_kwargs={"place": str(place)}
    )
    with at_random_moments(partial(kill_a_worker, place), count, seed) as killed:
        made = on_ray.write(data, path, **how)
    assert killed
    return made


@pytest.mark.usefixtures("small_blocks")
def test_records_are_written_once_if_workers_are_killed_at_any_moment(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    made = killed_write(tmp_path, str(out / "n.parquet"), 1, seed=1)
    assert ids(list(made.paths)) == list(range(600))
    assert set(names(out)) >= {Path(path).name for path in made.paths}
    assert not [name for name in names(out) if "tmp" in name or "part" in name]


# -- in a store -----------------------------------------------------------------------------------


@pytest.fixture
def place(prefix: str, seaweed: Seaweed) -> tuple[str, dict[str, Any]]:
    return f"s3://{prefix}", {"storage_options": {**seaweed.options(), "pickle_secrets": True}}


def keys(seaweed: Seaweed, folder: str) -> list[str]:
    bucket, _, key = folder.removeprefix("s3://").partition("/")
    found = seaweed.client.keys(bucket, f"{key}/")
    return sorted(name[len(key) + 1 :] for name in found if not name.endswith("/"))


@pytest.mark.usefixtures("small_blocks")
def test_objects_are_written_once_and_the_manifest_last(
    place: tuple[str, dict[str, Any]], seaweed: Seaweed, tmp_path: Path
) -> None:
    folder, how = place
    made = killed_write(
        tmp_path, f"{folder}/n.tfrecord", 1, seed=2, manifest=f"{folder}/n.manifest", **how
    )
    written = [path.rpartition("/")[2] for path in made.paths]
    sidecars = [f".{name}.penstock" for name in written]
    assert keys(seaweed, folder) == sorted([*written, *sidecars, "n.manifest"])
    assert ids(f"{folder}/n.manifest", **how) == list(range(600))
    assert ids(f"{folder}/n-*.tfrecord", **how) == list(range(600))


def test_objects_are_replaced_when_all_are_written(
    place: tuple[str, dict[str, Any]], seaweed: Seaweed
) -> None:
    folder, how = place
    ps.write({"id": range(9)}, f"{folder}/n.tfrecord", num_shards=3, **how)
    before = keys(seaweed, folder)
    with pytest.raises(FileExistsError):
        on_ray.write(numbers(4, 1), f"{folder}/n.tfrecord", **how)
    bad = numbers(40, 2).map_batches(lambda b: {"id": b["id"] / 7})
    with pytest.raises(ps.SchemaError):
        on_ray.write(bad, f"{folder}/n.tfrecord", overwrite=True, exact=True, **how)
    assert keys(seaweed, folder) == before
    made = on_ray.write(numbers(40, 2), f"{folder}/n.tfrecord", overwrite=True, **how)
    assert len(keys(seaweed, folder)) == 2 * len(made.paths)
    assert ids(f"{folder}/n-*.tfrecord", **how) == list(range(40))
    made = on_ray.write(numbers(20, 2), f"{folder}/n.tfrecord", overwrite=True, **how)
    assert ids(f"{folder}/n-*.tfrecord", **how) == list(range(20))


def test_attempts_without_a_result_leave_no_object(
    place: tuple[str, dict[str, Any]], seaweed: Seaweed
) -> None:
    from penstock.storage.objects import ObjectStorage

    folder, how = place
    storage, schema = ObjectStorage(how["storage_options"]), batch(0).schema
    limits = {**HOW, "shard_records": 2}
    target = StoreTarget(f"{folder}/n.tfrecord", by_name("tfrecord"), storage, limits)
    with target.attempts():
        target.write(0, schema, lambda: [batch(1, 2, 3)])  # its worker died afterwards
        made = target.write(0, schema, lambda: [batch(1, 2)])
        target.publish([made], overwrite=False)
    assert ids(f"{folder}/n-*.tfrecord", **how) == [1, 2]
    assert len(keys(seaweed, folder)) == 2


def test_names_of_objects_have_no_number(place: tuple[str, dict[str, Any]]) -> None:
    folder, how = place
    with pytest.raises(ps.UnsupportedError, match="leave out"):
        on_ray.write(numbers(4, 1), f"{folder}/n-{{shard}}.tfrecord", **how)


# -- stress ---------------------------------------------------------------------------------------


@pytest.mark.stress
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("seed", range(10, 20))
def test_workers_and_nodes_killed_at_random_moments_change_nothing(
    nodes: Any, tmp_path: Path, seed: int
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    place = tmp_path / "place"
    place.mkdir()
    data = numbers(600, 6).map_batches(
        worker_tasks.slowly, batch_size=20, fn_kwargs={"place": str(place)}
    )

    def kill(rng: random.Random) -> bool:
        others = [node for node in nodes.list_all_nodes() if node is not nodes.head_node]
        if others and rng.random() < 0.3:
            nodes.remove_node(others[0], allow_graceful=False)
            return True
        return kill_a_worker(place, rng)

    try:
        with at_random_moments(kill, 5, seed):
            made = on_ray.write(data, out / "n.tfrecord", shared_paths=True)
    finally:
        if len(nodes.list_all_nodes()) == 1:
            nodes.add_node(num_cpus=1, node_ip_address="127.0.0.1")
    assert np.array_equal(ids(list(made.paths)), np.arange(600))
    assert len(names(out)) == 2 * len(made.paths)

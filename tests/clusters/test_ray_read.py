"""penstock.ray.read: the records, in order and with Ray's types, and nothing read that the query does not need."""

from __future__ import annotations

import io
import os
import pickle
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import ray
import worker_tasks
from killing import at_random_moments, kill_a_worker
from PIL import Image
from ray.data.expressions import col

import penstock as ps
import penstock.ray as on_ray
from penstock.datasets.tasks import ReadTask
from remote.servers.fixtures import *  # noqa: F403
from remote.servers.seaweed import Seaweed

pytestmark = [
    pytest.mark.usefixtures("nodes", "in_order"),
    # Of its own options.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data"),
]

COUNT = 3000


@pytest.fixture
def shards(tmp_path: Path) -> str:
    values = np.arange(COUNT * 6, dtype=np.float32).reshape(COUNT, 2, 3)
    names = [f"name {n}" for n in range(COUNT)]
    data = {"id": range(COUNT), "tensor": values, "name": names}
    ps.write(data, tmp_path / "x.tfrecord", num_shards=3)
    return str(tmp_path / "x-*.tfrecord")


def source_of(data: Any) -> Any:
    """The Datasource of a dataset of Ray, as the optimizer has changed it."""
    plan = ray.data._internal.logical.optimizers.LogicalOptimizer().optimize(data._logical_plan)
    op = plan.dag
    while op.input_dependencies:
        op = op.input_dependencies[0]
    return op.datasource


def ids(data: Any) -> list[int]:
    return [row["id"] for row in data.iter_rows()]


def test_records_come_in_order_with_the_types_of_ray(shards: str) -> None:
    data = on_ray.read(shards)
    assert data.schema().names == ["id", "tensor", "name"]
    batches = list(data.iter_batches(batch_size=1000, batch_format="numpy"))
    assert np.array_equal(np.concatenate([b["id"] for b in batches]), np.arange(COUNT))
    tensors = np.concatenate([b["tensor"] for b in batches])
    assert tensors.dtype == np.float32
    assert np.array_equal(tensors.ravel(), np.arange(COUNT * 6))
    assert batches[1]["name"][0] == "name 1000"
    frame = next(iter(data.iter_batches(batch_size=2, batch_format="pandas")))
    assert frame["name"].tolist() == ["name 0", "name 1"]
    found = data.map_batches(lambda b: {"mean": b["tensor"].mean(axis=(1, 2))}).take(2)
    assert [row["mean"] for row in found] == [2.5, 8.5]


def test_ten_million_records_are_counted_without_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = tmp_path / "first.tfrecord"
    ps.write({"id": np.zeros(100_000, np.int64)}, shard)
    paths = [str(tmp_path / f"x-{n:03d}.tfrecord") for n in range(100)]
    for path in paths:
        os.link(shard, path)
        ps.index(path)
    monkeypatch.setattr(ReadTask, "batches", lambda *_: pytest.fail("read"))
    monkeypatch.setattr(ray.data.Dataset, "_execute_to_iterator", lambda *_: pytest.fail("run"))
    dataset = ps.open(paths, index="beside")
    began = time.process_time()
    data = on_ray.read(dataset)
    assert data.count() == 10_000_000
    assert data.schema().names == ["id"]
    assert time.process_time() - began < 10  # it takes 0.1 s; decoding takes a minute


def test_tasks_are_planned_once_and_smaller_than_a_shard(tmp_path: Path) -> None:
    path = str(tmp_path / "one.tfrecord")
    ps.write({"id": range(COUNT), "pad": ["x" * 10_000] * COUNT}, path)
    source = source_of(on_ray.read(path, target_bytes=4 << 20))
    os.rename(path, tmp_path / "gone")
    sizes = [[t.metadata.num_rows for t in source.get_read_tasks(n)] for n in (1, 3, 100)]
    assert sizes[0] == [COUNT]
    assert len(sizes[1]) == 3
    assert len(sizes[2]) > 3
    assert {sum(each) for each in sizes} == {COUNT}
    copy = pickle.loads(pickle.dumps(source))
    assert [t.metadata.num_rows for t in copy.get_read_tasks(3)] == sizes[1]
    largest = max(sizes[1]) / COUNT
    assert largest < 0.5
    assert len(pickle.dumps(source.get_read_tasks(3)[0])) < 10_000


def test_only_selected_columns_are_decoded(shards: str) -> None:
    data = on_ray.read(shards).rename_columns({"id": "number"}).select_columns(["number"])
    tasks = source_of(data).get_read_tasks(1)
    assert [table.column_names for table in tasks[0]()] == [["id"]]
    assert data.take(2) == [{"number": 0}, {"number": 1}]


def test_a_limit_ends_the_reading(shards: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    batches = ReadTask.batches

    def counted(task: ReadTask, *arguments: Any) -> Any:
        for batch in batches(task, *arguments):
            read.append(batch.num_rows)
            yield batch

    data = on_ray.read(shards).limit(5)
    assert ids(data) == [0, 1, 2, 3, 4]
    monkeypatch.setattr(ReadTask, "batches", counted)
    tasks = on_ray.read(shards)
    tables = list(source_of(tasks).get_read_tasks(1, per_task_row_limit=5)[0]())
    assert [table.num_rows for table in tables] == [5]
    assert sum(read) <= COUNT // 3  # one shard


def test_row_groups_that_cannot_match_are_not_read(tmp_path: Path) -> None:
    path = str(tmp_path / "x.parquet")
    ps.write({"id": range(COUNT)}, path, row_group_records=100)
    data = on_ray.read(path).filter(expr=(col("id") >= 210) & (col("id") < 215))
    source = source_of(data)
    assert source.get_current_predicate() is not None
    assert [table["id"].to_pylist() for t in source.get_read_tasks(1) for table in t()] == [
        list(range(210, 215))
    ]
    assert ids(data) == list(range(210, 215))
    assert data.count() == 5
    # Bytes after the first row groups are damaged, and not read.
    size = os.path.getsize(path)
    with open(path, "r+b") as file:
        start = size // 2
        file.seek(start)
        file.write(bytes(1000))
    assert ids(on_ray.read(path).filter(expr=col("id") < 5)) == [0, 1, 2, 3, 4]


def test_conditions_on_tensors_are_left_to_ray(shards: str) -> None:
    data = on_ray.read(shards).filter(expr=col("tensor").is_not_null())
    assert source_of(data).get_current_predicate() is None
    assert data.count() == COUNT


def test_nulls_do_not_hold(tmp_path: Path) -> None:
    path = str(tmp_path / "x.parquet")
    ps.write(pa.table({"id": [1, None, 3]}), path)
    for expression in (col("id") != 1, ~(col("id") == 1)):
        data = on_ray.read(path).filter(expr=expression)
        assert source_of(data).get_current_predicate() is not None
        assert ids(data) == [3]
        rest = on_ray.read(path).map_batches(lambda b: b, batch_format="pyarrow")
        assert ids(rest.filter(expr=expression)) == [3]


def test_views_of_an_open_dataset_are_read(shards: str) -> None:
    view = ps.open(shards).filter("id % 1000 < 2").select(["name", "id"])
    data = on_ray.read(view)
    assert data.schema().names == ["name", "id"]
    assert [row["name"] for row in data.take_all()] == [
        f"name {n}" for n in (0, 1, 1000, 1001, 2000, 2001)
    ]
    assert on_ray.read(ps.open(shards).subset([5, 2500])).count() == 2
    with pytest.raises(TypeError, match="raw"):
        on_ray.read(ps.open(shards), raw=True)


def test_fields_of_overlays_are_read(shards: str) -> None:
    ps.add_fields(shards, {"twice": np.arange(COUNT) * 2})
    rows = on_ray.read(shards).select_columns(["id", "twice"]).take_all()
    assert rows == [{"id": n, "twice": 2 * n} for n in range(COUNT)]


def test_damage_is_an_error_or_skipped(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write({"id": range(100)}, path)
    data = bytearray(path.read_bytes())
    data[-5] ^= 0xFF  # in the payload of the last record
    path.write_bytes(data)
    with pytest.raises(ps.ChecksumError, match="sum"):
        on_ray.read(path).materialize()
    assert ids(on_ray.read(path, damage="skip")) == list(range(99))


def test_a_file_that_changed_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write({"id": range(100)}, path)
    data = on_ray.read(path)
    ps.write({"id": range(50)}, path, overwrite=True)
    with pytest.raises(ps.ChangedError, match="open the data again"):
        data.materialize()


def test_images_are_bytes_that_workers_decode(tmp_path: Path) -> None:
    file = io.BytesIO()
    Image.fromarray(np.full((8, 6, 3), 200, np.uint8)).save(file, "png")
    path = str(tmp_path / "x.tar")
    table = pa.table({"__key__": ["a", "b"], "png": pa.array([file.getvalue()] * 2, pa.binary())})
    ps.write(table, path)
    data = on_ray.read(path)
    assert data.take(1)[0]["png"] == file.getvalue()
    pixels = data.map_batches(worker_tasks.decoded).take_all()
    assert [row["pixels"].shape for row in pixels] == [(4, 4, 3)] * 2
    assert pixels[0]["pixels"].min() == 200


def test_tensors_of_any_shape_are_arrays(tmp_path: Path) -> None:
    path = str(tmp_path / "x.npz")
    for number, shape in enumerate([(2, 3), (4, 1)]):
        np.savez(tmp_path / f"{number}.npz", a=np.arange(np.prod(shape)).reshape(shape))
    data = on_ray.read(str(tmp_path / "*.npz"), record="file")
    found = [row["a"] for row in data.select_columns(["a"]).take_all()]
    assert [a.shape for a in found] == [(2, 3), (4, 1)]
    assert found[1].ravel().tolist() == [0, 1, 2, 3]
    made = on_ray.write(data, path.replace("x.npz", "y.parquet"))
    assert [row["a"].shape for row in map(ps.open(made.paths).__getitem__, (0, 1))] == [
        (2, 3),
        (4, 1),
    ]


def test_logical_types_become_plain_ones(tmp_path: Path) -> None:
    path = str(tmp_path / "x.arrow")
    table = pa.table(
        {
            "json": pa.array(['{"a": 1}', None], pa.json_()),
            "view": pa.array(["a", "b"], pa.string_view()),
            "label": pa.array(["cat", "dog"]).dictionary_encode(),
        }
    )
    ps.write(table, path)
    assert on_ray.read(path).take_all() == [
        {"json": '{"a": 1}', "view": "a", "label": "cat"},
        {"json": None, "view": "b", "label": "dog"},
    ]


def test_files_of_this_machine_are_read_on_it(shards: str) -> None:
    here = ray.get_runtime_context().get_node_id()
    options = on_ray.read(shards)._logical_plan.dag.ray_remote_args
    assert here in options["label_selector"].values()
    assert source_of(on_ray.read(shards)).supports_distributed_reads is False
    assert source_of(on_ray.read(shards, shared_paths=True)).supports_distributed_reads


def test_objects_are_read_on_all_machines(prefix: str, seaweed: Seaweed) -> None:
    how = {"storage_options": {**seaweed.options(), "pickle_secrets": True}}
    ps.write({"id": range(COUNT)}, f"s3://{prefix}/x.tfrecord", num_shards=3, **how)
    data = on_ray.read(f"s3://{prefix}/x-*.tfrecord", **how)
    source = source_of(data)
    assert source.supports_distributed_reads
    assert data.count() == COUNT
    assert ids(data) == list(range(COUNT))
    assert ids(data.filter(expr=col("id") > 2990)) == list(range(2991, COUNT))


def test_secrets_are_not_sent(prefix: str, seaweed: Seaweed) -> None:
    options = seaweed.options()
    ps.write({"id": [1]}, f"s3://{prefix}/x.tfrecord", storage_options=options)
    data = on_ray.read(f"s3://{prefix}/x.tfrecord", storage_options=options)
    with pytest.raises(ps.UnsupportedError, match="pickle_secrets"):
        data.materialize()


def test_records_are_read_once_if_workers_are_killed(shards: str, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    data = on_ray.read(shards, override_num_blocks=3).map_batches(
        worker_tasks.slowly, batch_size=50, fn_kwargs={"place": str(place)}
    )
    with at_random_moments(partial(kill_a_worker, place), 1, seed=3) as killed:
        assert ids(data) == list(range(COUNT))
    assert killed

"""Tasks: ranges of a dataset's records that other processes and machines read."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import ChangedError, UnsupportedError

RECORDS = 20_000
TARGETS = (1, 3 << 20, 1 << 30)

READ = """
import pickle, sys
tasks = pickle.load(sys.stdin.buffer)
pickle.dump([list(task.batches()) for task in tasks], sys.stdout.buffer)
"""


def some(num_records: int = RECORDS) -> pa.Table:
    rng = np.random.default_rng(3)
    text = pa.array([rng.bytes(400) for _ in range(num_records)], pa.binary())
    return pa.table({"id": np.arange(num_records), "text": text})


def carried(tasks: list[ps.ReadTask]) -> list[ps.ReadTask]:
    """The tasks as another process gets them."""
    return [pickle.loads(pickle.dumps(task)) for task in tasks]


def read(tasks: list[ps.ReadTask], schema: pa.Schema, **how: Any) -> pa.Table:
    found = [batch for task in carried(tasks) for batch in task.batches(**how)]
    return pa.Table.from_batches(found, schema)


def check(ds: ps.Dataset, targets: tuple[int, ...] = TARGETS) -> None:
    """The records of all tasks together are those of a scan."""
    whole = pa.Table.from_batches(list(ds.scan()), ds.schema)
    for target in targets:
        tasks = ds.tasks(target)
        assert read(tasks, ds.schema).equals(whole)
        for task in tasks:
            assert task.schema.equals(ds.schema)
            if task.num_records is not None:
                assert task.num_records == sum(b.num_rows for b in task.batches(columns=[]))


@pytest.mark.parametrize("name", ["a.tfrecord", "a.parquet", "a.tar", "a.tfrecord.gz"])
def test_the_tasks_of_a_file_are_its_records(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    ps.write(some(), path, index=False)
    check(ps.open(path))


def test_neighbouring_small_files_are_one_task(tmp_path: Path) -> None:
    ds = ps.open(ps.write(some(1000), str(tmp_path / "a.tfrecord"), num_shards=10).paths)
    check(ds, (1, 100_000, 1 << 30))
    tasks = ds.tasks(100_000)
    assert [len(task.paths) for task in tasks] == [2] * 5
    assert sum(task.num_bytes for task in tasks) == sum(shard.num_bytes for shard in ds.shards)
    assert len(ds.tasks()) == 1


def test_another_process_reads_the_same_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ds = ps.open(ps.write(some(), "a.tfrecord", num_shards=2).paths)
    sent = pickle.dumps(ds.tasks(3 << 20))
    done = subprocess.run(
        [sys.executable, "-c", READ], input=sent, capture_output=True, check=True, cwd="/"
    )
    found = [batch for batches in pickle.loads(done.stdout) for batch in batches]
    assert pa.Table.from_batches(found).equals(pa.Table.from_batches(list(ds.scan())))


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "a.tfrecord")
    ps.write(some(10), path)
    tasks = carried(ps.open(path).tasks())
    ps.write(some(10), path, overwrite=True)
    with pytest.raises(ChangedError, match="since the tasks were made"):
        list(tasks[0].batches())
    Path(path).unlink()
    with pytest.raises(ChangedError, match="not there"):
        list(carried(tasks)[0].batches())


def test_a_pickle_is_small_however_many_files_there_are(tmp_path: Path) -> None:
    def largest(num_shards: int) -> int:
        made = ps.write(some(1000), str(tmp_path / f"{num_shards}.parquet"), num_shards=num_shards)
        tasks = ps.open(made.paths).tasks(1)
        assert len(tasks) == num_shards
        return max(len(pickle.dumps(task)) for task in tasks)

    few, many = largest(2), largest(100)
    assert abs(few - many) < 20
    assert few < 2000


def test_views_are_read_in_tasks(tmp_path: Path) -> None:
    path = str(tmp_path / "a.tfrecord")
    ps.write(some(), path, index=False)
    ds = ps.open(path)
    for view in (
        ds.select(["text"]),
        ds.rename({"id": "number"}),
        ds.with_columns({"next": "id + 1"}),
        ds.filter("id >= 7000 and id < 15000"),
        ds.subset(np.arange(1000, 20_000, 7)),
        ds.filter("id >= 7000").subset(np.arange(0, 13_000, 3)).rename({"id": "n"}),
        ds.subset(np.arange(0, 20_000, 3)).with_columns({"half": "id / 2"}).filter("half > 9"),
    ):
        check(view, (1, 1 << 30))
    chosen = ds.subset([5, 19_999]).tasks(1)
    assert [task.num_records for task in chosen] == [1, 1]
    assert [task.num_records for task in ds.filter("id > 3").tasks()] == [None]


def test_packed_rows_are_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    ps.write({"tokens": [[1, 2], [3]]}, path)
    with pytest.raises(UnsupportedError, match=r"penstock\.write the rows"):
        ps.packed(ps.open(path), "tokens", 2).tasks()


@pytest.mark.parametrize("name", ["x.tfrecord", "x.tar", "x.parquet"])
def test_neighbouring_parts_of_a_file_are_one_task(tmp_path: Path, name: str) -> None:
    text = [np.random.default_rng(n).bytes(9_000) for n in range(900)]
    columns = {"__key__": [f"{n:04d}" for n in range(900)], "txt": text}
    paths = [str(tmp_path / f"{n}-{name}") for n in range(2)]
    for path in paths:
        ps.write(columns, path, **({"row_group_records": 100} if name == "x.parquet" else {}))
    tasks = ps.open(paths).tasks(1 << 20)
    ends = [n for n, task in enumerate(tasks) if task.paths[0] == paths[0]]
    assert 2 < len(ends) < len(tasks)
    assert tasks[ends[-1]].and_next(tasks[ends[-1] + 1]) is None
    for where in (None, '__key__ != "0003"'):
        one, *others = (
            tasks[1 : len(ends)]
            if where is None
            else [task.filter(where) for task in tasks[: len(ends)]]
        )
        expected = [key for task in (one, *others) for key in keys_of(task)]
        for other in others:
            both = one.and_next(other)
            assert both is not None
            one = both
        assert keys_of(pickle.loads(pickle.dumps(one))) == expected
        assert one.num_records == (len(expected) if where is None else None)


def keys_of(task: ps.ReadTask) -> list[str]:
    return [key for batch in task.batches() for key in batch.column("__key__").to_pylist()]

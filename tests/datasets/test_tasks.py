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
        found = read(tasks, ds.schema)
        assert found.equals(whole) or found.to_pylist() == whole.to_pylist()
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


@pytest.mark.parametrize("ending", ["tfrecord", "parquet", "tar", "h5"])
def test_fields_of_overlays_are_read_in_tasks(tmp_path: Path, ending: str) -> None:
    """Of the first file only, and of all files."""
    made = ps.write(some(6000), str(tmp_path / f"a.{ending}"), num_shards=2, index=False)
    ps.add_fields(made.paths[0], {"score": np.arange(3000) * 0.5})
    ps.add_fields(made.paths, {"flag": np.arange(6000) % 2 == 0})
    ds = ps.open(made.paths)
    check(ds, (1, 1 << 30))
    check(ds.filter("flag").rename({"score": "points"}), (1, 1 << 30))
    tasks = carried(ds.tasks())
    ps.remove_overlay(made.paths[0], "score")
    with pytest.raises(ChangedError, match="overlays"):
        list(tasks[0].batches())


@pytest.mark.parametrize("ending", ["tfrecord", "parquet"])
def test_columns_of_folders_are_read_in_tasks(tmp_path: Path, ending: str) -> None:
    """A task of one file alone has the type that the names of all folders give."""
    for year, first in (("2024", 0), ("new", 3000)):
        folder = tmp_path / f"year={year}"
        folder.mkdir()
        ps.write(some(3000).slice(first % 3), str(folder / f"a.{ending}"), index=False)
    ds = ps.open(str(tmp_path))
    check(ds, (1, 1 << 30))
    check(ds.filter('year == "2024"'), (1,))


@pytest.mark.parametrize("damage", ["skip", "stop"])
@pytest.mark.parametrize("ending", ["tfrecord", "tfrecord.gz", "tar", "parquet"])
def test_damage_is_skipped_in_tasks(tmp_path: Path, ending: str, damage: str) -> None:
    made = ps.write(some(6000), str(tmp_path / f"a.{ending}"), num_shards=2, index=False)
    data = bytearray(Path(made.paths[0]).read_bytes())
    data[len(data) // 2] ^= 64
    Path(made.paths[0]).write_bytes(data)
    ds = ps.open(made.paths, damage=damage)
    check(ds, (1, 1 << 30))
    tasks = carried(ds.tasks(1))
    assert [task.num_records for task in tasks] == [None, None]
    for task in tasks:
        assert not task.damage
        assert sum(batch.num_rows for batch in task.batches()) <= 3000
    regions = [(region.start_byte, region.end_byte) for region in ds.damage]
    assert [(r.start_byte, r.end_byte) for task in tasks for r in task.damage] == regions


def test_what_open_was_told_goes_along(tmp_path: Path) -> None:
    path = str(tmp_path / "a.tfrecord")
    ps.write(some(6000), path)
    ps.index(path, checksums=True)
    for how in (
        {"raw": True},
        {"columns": ["text"]},
        {"types": {"id": "int32"}},
        {"schema": pa.schema([("more", pa.float64()), ("id", pa.int64())])},
        {"schema": {"id": ps.features.FixedLen((), "int64")}},
        {"checksums": "index"},
        {"checksums": "none", "mmap": True},
        {"dialect": "tensorflow"},
    ):
        check(ps.open(path, **how), (1, 1 << 30))
    with pytest.raises(ps.LimitError):
        (task,) = carried(ps.open(path, limits={"record_bytes": 100}).tasks())
        list(task.batches())


def test_class_labels_keep_their_type(tmp_path: Path) -> None:
    labels = pa.array([f"c{number // 50}" for number in range(6000)]).dictionary_encode()
    numbers = np.random.default_rng(0).random((6000, 64))
    for ending in ("beton", "h5", "npz", "parquet", "tar"):
        path = str(tmp_path / f"a.{ending}")
        ps.write({"label": labels, "x": numbers}, path, index=False)
        check(ps.open(path), (1, 1 << 30))


def test_files_without_bytes_are_in_tasks(tmp_path: Path) -> None:
    path, empty = str(tmp_path / "a.tfrecord"), str(tmp_path / "b.tfrecord")
    ps.write(some(10), path)
    Path(empty).touch()
    ds = ps.open([empty, path, empty])
    check(ds, (1, 1 << 30))
    assert [task.num_records for task in ds.tasks(1)] == [0, 10, 0]


def is_even(batch: pa.RecordBatch) -> np.ndarray:
    return np.asarray(batch["id"]) % 2 == 0


def test_functions_are_conditions_of_tasks(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    ps.write(some(3000), path)
    check(ps.open(path).filter(is_even), (1,))
    check(ps.open(path).filter(lambda batch: np.asarray(batch["id"]) > 7), (1,))


def test_dense_choices_take_a_bit_for_each_record(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    ps.write({"id": range(100_000)}, path)
    train = ps.split(ps.open(path), {"train": 0.9, "val": 0.1}, seed=3)["train"]
    check(train, (1 << 30,))
    (task,) = train.tasks()
    assert len(pickle.dumps(task)) < 100_000 // 8 + 2000


def test_tasks_are_cut_where_spans_end(tmp_path: Path) -> None:
    """No part of several spans is larger than it may be, and a Parquet file is cut between row groups."""
    path = str(tmp_path / "a.parquet")
    ps.write(some(), path, row_group_bytes=1 << 20)
    groups = [batch.num_rows for task in ps.open(path).tasks(1) for batch in task.batches()]
    ends = set(np.cumsum(groups).tolist())
    for target in (2 << 20, 5 << 20):
        tasks = ps.open(path).tasks(target)
        assert max(task.num_bytes for task in tasks) <= target
        assert set(np.cumsum([task.num_records for task in tasks]).tolist()) <= ends
        assert len(tasks) > 1


def test_target_bytes_is_a_count(tmp_path: Path) -> None:
    ps.write({"id": range(9)}, str(tmp_path / "a.tfrecord"))
    for wrong in (0, -1, 1.5, True):
        with pytest.raises((TypeError, ValueError), match="target_bytes"):
            ps.open(str(tmp_path / "a.tfrecord")).tasks(wrong)  # type: ignore[arg-type]


def test_a_compressed_file_is_one_task(tmp_path: Path) -> None:
    """As far as its records are only found from its first byte on."""
    mds = Path(__file__).parents[1] / "golden" / "mds" / "zstd"
    for name, how in (("a.tfrecord.gz", {}), ("a.npz", {"compression": "deflate"})):
        ps.write(some(), str(tmp_path / name), index=False, **how)
    for path in (tmp_path / "a.tfrecord.gz", tmp_path / "a.npz", mds):
        ds = ps.open(path)
        check(ds, (1,))
        assert [task.num_records for task in ds.tasks(1)] == [s.num_records for s in ds.shards]


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

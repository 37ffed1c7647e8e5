"""diff on a cluster: what it finds is what threads find."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import worker_tasks

import frames
import penstock as ps
from penstock.ray import Cluster

pytestmark = pytest.mark.usefixtures("nodes")
BOTH = Cluster(shared_paths=True)
RECORDS = 3000


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.verbs.diff._on_machines.TASK_BYTES", 60_000)


def table(count: int = RECORDS) -> pa.Table:
    rng = np.random.default_rng(5)
    return pa.table(
        {
            "id": np.arange(count),
            "score": pa.array([None if n % 7 == 0 else n / 2 for n in range(count)], pa.float32()),
            "tokens": [list(range(n % 4)) for n in range(count)],
            "data": [rng.bytes(60) for _ in range(count)],
        }
    )


def changed(found: pa.Table) -> pa.Table:
    """The same with other values in a few records, and with a field that only late records have."""
    rows = found.to_pylist()
    for n in (5, 700, 701, 1999, len(rows) - 1):
        rows[n]["data"] = b"other"
    rows[1500]["score"] = None
    rows[1501]["tokens"] = [9, 9]
    late = pa.array([1 if n > 2500 else None for n in range(len(rows))])
    return pa.Table.from_pylist(rows, schema=found.schema).append_column("late", late)


def written(place: Path, data: pa.Table, **options: Any) -> list[str]:
    return list(ps.write(data, str(place), **options).paths)


class Here:
    """Runs pickled tasks in this process, the last one first."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def run(
        self, function: Callable[[Any], Any], tasks: Sequence[Any], paths: Iterable[str]
    ) -> Generator[tuple[int, Any]]:
        function = pickle.loads(pickle.dumps(function))
        for number, task in reversed(list(enumerate(tasks))):
            sent = pickle.dumps(task)
            self.sizes.append(len(sent))
            yield number, function(pickle.loads(sent))


SIDES = {
    "a few shards": {"name": "x.tfrecord", "num_shards": 4},
    "other shards": {"name": "x.tfrecord", "num_shards": 7},
    "no index": {"name": "x.tfrecord", "num_shards": 3, "index": False},
    "gzip": {"name": "x.tfrecord.gz", "num_shards": 2, "compression": "gzip"},
    "parquet": {"name": "x.parquet", "num_shards": 5},
    "arrow": {"name": "x.arrow", "num_shards": 1},
}


PAIRS = [
    ("a few shards", "other shards", 4),
    ("no index", "other shards", 3),
    ("a few shards", "gzip", 2),
    ("gzip", "no index", 2),
    ("parquet", "a few shards", 4),
    ("no index", "parquet", 3),
    ("parquet", "parquet", 5),
    ("arrow", "other shards", 1),
]


@pytest.mark.parametrize(("left", "right", "least_tasks"), PAIRS)
def test_the_differences_are_the_same(
    left: str, right: str, least_tasks: int, tmp_path: Path
) -> None:
    data, machines = table(), Here()
    sets: list[list[str]] = []
    for folder, side, rows in (
        ("a", left, data),
        ("b", right, data),
        ("c", right, changed(data)),
        ("d", right, data.slice(0, 1234)),
    ):
        (tmp_path / folder).mkdir()
        options = dict(SIDES[side])
        sets.append(written(tmp_path / folder / options.pop("name"), rows, **options))
    a, b, c, d = sets
    assert ps.diff(a, b, on=machines) == ps.diff(a, b)
    assert ps.diff(a, b).equal
    assert len(machines.sizes) >= least_tasks
    for first, second in ((a, c), (c, a), (a, d), (d, a), (c, d)):
        found = ps.diff(first, second, on=machines)
        assert found == ps.diff(first, second)
        assert not found.equal


def test_a_cluster_finds_the_same(tmp_path: Path) -> None:
    data = table()
    a = written(tmp_path / "a.tfrecord", data, num_shards=3)
    b = written(tmp_path / "b.parquet", changed(data), num_shards=4)
    calls: list[tuple[int, int, int]] = []
    found = ps.diff(a, b, on=BOTH, progress=lambda *c: calls.append(c))
    assert found == ps.diff(a, b)
    assert [field.name for field in found.fields] == ["score", "tokens", "data", "late"]
    assert calls == sorted(calls)
    assert len(calls) > 2
    assert calls[-1][0] == RECORDS
    assert calls[-1][1] == calls[-1][2]
    chosen = ps.diff(a, b, on="ray", columns=["id", "score"])
    assert chosen == ps.diff(a, b, columns=["id", "score"])
    assert ps.diff(a, a, on="ray").equal


def test_a_large_file_is_cut_and_the_tasks_stay_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.verbs.diff._on_machines.TASK_BYTES", 3 << 20)
    count = 200_000
    data = pa.table({"id": np.arange(count), "x": np.arange(count, dtype=np.float32)})
    other = data.set_column(0, "id", pa.array(np.where(np.arange(count) % 70_000, data["id"], -7)))
    (a,) = written(tmp_path / "a.tfrecord", data, index=False)
    (b,) = written(tmp_path / "b.tfrecord", other, index=False)
    (c,) = written(tmp_path / "c.tfrecord.gz", other, compression="gzip")
    (d,) = written(tmp_path / "d.parquet", data)
    for right, equal in ((b, False), (c, False), (d, True)):
        machines = Here()
        found = ps.diff(a, right, on=machines)
        assert found == ps.diff(a, right)
        assert found.equal == equal
        assert len(machines.sizes) > 2
        assert max(machines.sizes) < 10_000
        if not equal:
            (field,) = found.fields
            assert [example.record_a for example in field.examples] == [0, 70_000, 140_000]


def framed(path: Path, payloads: Iterable[bytes]) -> str:
    path.write_bytes(b"".join(map(frames.frame, payloads)))
    return str(path)


def test_fields_of_few_payloads_are_the_same(tmp_path: Path) -> None:
    """Without a kept schema, equal payloads are not parsed, so a second search finds their fields."""
    few = [frames.example({"id": [n]}) for n in range(9000)]
    late = [frames.example({"id": [n], "late": [n] * (n - 8990)}) for n in range(9000, 9003)]
    lost = [*few, *late[:-1], frames.example({"id": [9002]})]
    other = [*few[:-1], frames.example({"id": [8999], "new": [b"x"]}), *late]
    sets: list[list[str]] = []
    for name, payloads in (("a", [*few, *late]), ("b", lost), ("c", other)):
        parts = np.array_split(np.arange(len(payloads)), 4)
        chosen = [[payloads[n] for n in part] for part in parts]
        sets.append([framed(tmp_path / f"{name}{n}", part) for n, part in enumerate(chosen)])
    for left in sets:
        for right in sets:
            machines = Here()
            options = {"format": "tfrecord"}
            one, two = ps.open(left, **options), ps.open(right, **options)
            assert ps.diff(one, two, on=machines) == ps.diff(one, two)
            assert len(machines.sizes) > 3
    one, two = (ps.open(paths, format="tfrecord") for paths in sets[:2])
    (field,) = ps.diff(one, two, on=BOTH).fields
    assert (field.name, field.kind, field.num_only_in_a) == ("late", "values", 1)


def test_views_are_compared(tmp_path: Path) -> None:
    data = table()
    a = ps.open(written(tmp_path / "a.tfrecord", data, num_shards=5))
    b = ps.open(written(tmp_path / "b.parquet", changed(data), num_shards=6))
    for left, right in (
        (a.filter("id % 3 == 0"), b.filter("id % 3 == 0")),
        (a.filter("id % 3 == 0"), a),
        (a.subset(range(100, 2900)), b.subset(range(100, 2900))),
        (a.select(["id", "data"]), b.select(["data", "id"])),
        (a.subset([]), b),
    ):
        assert ps.diff(left, right, on=Here()) == ps.diff(left, right)


def test_bad_records_are_the_usual_error(tmp_path: Path) -> None:
    good = [frames.example({"id": [n]}) for n in range(6000)]
    a = framed(tmp_path / "a.tfrecord", good)
    b = framed(tmp_path / "b.tfrecord", [*good[:2500], b"\xff\xff", *good[2501:]])
    data = bytearray(Path(a).read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "c.tfrecord").write_bytes(data)
    for left, right in ((a, b), (b, a), (a, str(tmp_path / "c.tfrecord"))):
        with pytest.raises(ps.FormatError) as usual:
            ps.diff(left, right)
        with pytest.raises(ps.FormatError) as caught:
            ps.diff(left, right, on="ray")
        assert str(caught.value) == str(usual.value)
        assert caught.value.record is not None


def test_what_cannot_be_divided_is_refused(tmp_path: Path) -> None:
    (a,) = written(tmp_path / "a.tfrecord", table(9))
    machines = Here()
    with pytest.raises(ps.UnsupportedError, match="on= cannot be used with by="):
        ps.diff(a, a, by="id", on=machines)
    with pytest.raises(ps.UnsupportedError, match="hides which records a task has"):
        ps.diff(a, ps.open(a, damage="skip"), on=machines)
    assert not machines.sizes


def test_a_file_that_cannot_be_read_at_first_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    a = written(tmp_path / "a.tfrecord", table(), num_shards=4)
    b = written(tmp_path / "b.tfrecord", changed(table()), num_shards=3)
    failing = worker_tasks.Failing(tmp_path / "notes")
    found = ps.diff(a, b, on=BOTH, storage=failing)
    assert found == ps.diff(a, b)
    assert len(list((tmp_path / "notes").iterdir())) == 7


def test_an_error_names_the_files_of_which_workers_died(tmp_path: Path) -> None:
    names = [f"{tmp_path}/{name}.tfrecord" for name in ("a", "poison")]
    for name in names:
        ps.write(table(9), name)
    deadly = worker_tasks.Deadly()
    with pytest.raises(ps.PenstockError, match=r"a.tfrecord or .*poison.*died 1 times"):
        ps.diff(*names, on=Cluster(retries=0), storage=deadly)

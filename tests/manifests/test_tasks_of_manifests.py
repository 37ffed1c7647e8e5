"""Tasks of the shards that a manifest lists: planned from its table, without opening any."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from benchmarks.plan_tasks import write_manifest
from penstock.errors import StaleIndexError
from penstock.manifests.manifest import Manifest

PLAN = """
import json, sys
from pathlib import Path
from benchmarks.plan_tasks import plan
print(json.dumps([plan(Path(sys.argv[1]), int(target)) for target in sys.argv[2:]]))
"""


def carried(tasks: list[ps.ReadTask]) -> list[ps.ReadTask]:
    return [pickle.loads(pickle.dumps(task)) for task in tasks]


def ids(tasks: list[ps.ReadTask]) -> list[int]:
    found = [batch["id"] for task in carried(tasks) for batch in task.batches()]
    return pa.chunked_array(found).to_pylist()


def test_a_million_shards_are_planned_from_the_table(tmp_path: Path) -> None:
    path = tmp_path / "m.manifest"
    write_manifest(path)
    command = [sys.executable, "-c", PLAN, str(path), str(128 << 20), "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    few, many = json.loads(done.stdout)
    print(few, many)
    assert (few["records"], many["records"], many["tasks"]) == (10_000_000, 10_000_000, 1_000_000)
    assert few["pickle_bytes"] < 10_000
    assert many["peak_mib"] < 1024


def some(num_records: int) -> pa.Table:
    rng = np.random.default_rng(3)
    text = pa.array([rng.bytes(400) for _ in range(num_records)], pa.binary())
    return pa.table({"id": np.arange(num_records), "text": text})


@pytest.mark.parametrize(
    ("ending", "index", "parts"), [("npz", False, 5), ("tfrecord", True, 5), ("tfrecord", False, 1)]
)
def test_a_large_shard_is_cut_by_its_records(
    tmp_path: Path, ending: str, index: bool, parts: int
) -> None:
    """One whose format needs an index for that is cut only if it has one."""
    path = str(tmp_path / f"a.{ending}")
    ps.write(some(21_000), path, index=index)
    ps.manifest(path, str(tmp_path / "a.manifest"))
    tasks = ps.open(str(tmp_path / "a.manifest")).tasks(1)
    assert len(tasks) == parts
    assert sum(task.num_records or 0 for task in tasks) == 21_000
    assert sum(task.num_bytes for task in tasks) == pytest.approx(
        Path(path).stat().st_size, abs=parts
    )
    assert ids(tasks) == list(range(21_000))


def test_tasks_need_no_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ps.write({"id": range(30)}, "a.tfrecord", num_shards=3)
    ps.manifest("a-*.tfrecord", "a.manifest")
    for view in (ps.open("a.manifest"), ps.open("a.manifest").filter("id >= 0")):
        tasks = carried(view.tasks(1))
        Path("a.manifest").rename("b.manifest")
        monkeypatch.chdir("/")
        assert ids(tasks) == list(range(30))
        monkeypatch.chdir(tmp_path)
        Path("b.manifest").rename("a.manifest")


def test_a_shard_with_other_records_than_listed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ps.write({"id": range(30)}, "a.tfrecord", num_shards=3)
    ps.manifest("a-*.tfrecord", "a.manifest")
    listed = Manifest.listed

    def wrong(manifest: Manifest, shards: range) -> list[object]:
        return [one._replace(num_records=9) for one in listed(manifest, shards)]

    monkeypatch.setattr(Manifest, "listed", wrong)
    (task,) = carried(ps.open("a.manifest").tasks())
    with pytest.raises(StaleIndexError, match="planned"):
        list(task.batches())

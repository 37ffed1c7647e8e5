"""stats, schemas and manifest on a cluster: what they find is what threads find."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import worker_tasks
from cluster_sets import damage, shards_in, table

import penstock as ps
from penstock.ray import Cluster
from remote.servers.seaweed import Seaweed

pytestmark = pytest.mark.usefixtures("nodes")
BOTH = Cluster(shared_paths=True)


def of_each_format(folder: Path) -> dict[str, list[str]]:
    """The shards of each format."""
    found: dict[str, list[str]] = {}
    for path in shards_in(folder):
        found.setdefault(path.rsplit("-", 1)[-1], []).append(path)
    return found


def test_stats_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.verbs.inspect.stats.TASK_BYTES", 5000)
    sets = of_each_format(tmp_path / "set")
    for paths in sets.values():
        assert ps.stats(paths, on=BOTH) == ps.stats(paths)
    made = sets["00003.tfrecord"]
    calls: list[tuple[int, int, int]] = []
    where = "x > 0.5 and id < 200"
    found = ps.stats(
        made, columns=["x", "text"], where=where, on=BOTH, progress=lambda *c: calls.append(c)
    )
    assert found == ps.stats(made, columns=["x", "text"], where=where)
    assert calls[-1][0] == found.num_records
    damage(made)
    here, there = (ps.open(made, damage="skip", index="never") for _ in range(2))
    assert ps.stats(there, on=BOTH) == ps.stats(here)
    assert there.damage == here.damage != []
    with pytest.raises(ps.FormatError) as caught:
        ps.stats(made, on=BOTH)
    assert caught.value.file in made


def test_stats_of_structs_pictures_and_large_sums_are_the_same(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    images = ps.encode_images(list(rng.integers(0, 255, (60, 9, 9, 3), dtype=np.uint8)), "png")
    values = rng.standard_normal(60) * 10.0 ** rng.integers(-200, 200, 60)
    data = pa.table(
        {
            "image": images,
            "inside": pa.array([{"a": n, "b": str(n)} for n in range(60)]),
            "x": values,
            "list": [[1.5] * (n % 4) for n in range(60)],
        }
    )
    made = ps.write(data, str(tmp_path / "x.parquet"), num_shards=5)
    paths = list(made.paths)
    assert ps.stats(paths, on=BOTH) == ps.stats(paths, threads=1)


def test_schemas_are_the_same(tmp_path: Path) -> None:
    for paths in of_each_format(tmp_path / "set").values():
        assert ps.schemas(paths, everything=True, on=BOTH) == ps.schemas(paths, everything=True)
    ps.write({"id": [1], "more": [2.5]}, str(tmp_path / "y-0.tfrecord"))
    ps.write({"id": [1]}, str(tmp_path / "y-1.tfrecord"))
    assert ps.schemas(f"{tmp_path}/y-*", on="ray") == ps.schemas(f"{tmp_path}/y-*")


def test_manifests_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for ending, paths in of_each_format(tmp_path / "set").items():
        names = [f"set/{Path(path).name}" for path in paths]
        here, there = f"here.{ending}.manifest", f"there.{ending}.manifest"
        made = ps.manifest(names[:2], here)
        assert ps.manifest(names[:2], there, on=BOTH).num_records == made.num_records
        assert _rows(there) == _rows(here)
        again = ps.manifest(names, there, on=BOTH)  # the third is new
        assert again.notes == ps.manifest(names, here).notes != ()
        assert _rows(there) == _rows(here)
        assert ps.verify_manifest(there).ok


def _rows(path: str) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    return pq.read_table(path).to_pylist()


def test_objects_of_a_store_are_summarised(seaweed: Seaweed, prefix: str) -> None:
    options = {**seaweed.options(), "pickle_secrets": True}
    url = f"s3://{prefix}/x.tfrecord"
    paths = list(ps.write(table(), url, num_shards=3, storage_options=options).paths)
    how: dict[str, Any] = {"storage_options": options}
    assert ps.stats(paths, on="ray", **how) == ps.stats(paths, **how)
    assert ps.schemas(paths, on="ray", **how) == ps.schemas(paths, **how)
    made = ps.manifest(
        paths, f"s3://{prefix}/x.manifest", on="ray", target_storage_options=options, **how
    )
    assert made.num_records == 240
    with pytest.raises(ps.UnsupportedError, match="secrets"):
        ps.stats(paths, on="ray", storage_options=seaweed.options())


def test_an_error_names_the_file_of_which_workers_died(tmp_path: Path) -> None:
    names = [f"{tmp_path}/{name}.tfrecord" for name in ("a", "poison")]
    for name in names:
        ps.write(table(), name)
    with pytest.raises(ps.PenstockError, match=r"poison.*died 1 times"):
        ps.schemas(names, on=Cluster(retries=0), storage=worker_tasks.Deadly())

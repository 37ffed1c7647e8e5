"""convert on a cluster: the same bytes, and nothing left, whatever dies."""

from __future__ import annotations

import io
import os
import random
import shutil
import tarfile
import threading
from functools import partial
from pathlib import Path
from typing import Any

import deaths
import numpy as np
import pytest
import worker_tasks

import penstock as ps
from penstock.ray import Cluster
from remote.servers.seaweed import Seaweed

pytestmark = pytest.mark.usefixtures("nodes")
RECORDS = 4000


@pytest.fixture
def source(tmp_path: Path) -> str:
    rng = np.random.default_rng(0)
    data = {
        "id": np.arange(RECORDS),
        "text": [f"caption {n}" for n in range(RECORDS)],
        "data": [rng.bytes(200) for _ in range(RECORDS)],
    }
    (tmp_path / "in").mkdir()
    ps.write(data, tmp_path / "in" / "x-{shard}.tfrecord", num_shards=3)
    return str(tmp_path / "in")


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder, those of penstock too."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


WAYS: dict[str, dict[str, Any]] = {
    "one file a shard": {"format": "parquet"},
    "cut": {"num_shards": 5},
    "shuffled": {"shuffle": 3, "num_shards": 2, "prove": True},
    "chosen": {"where": "id % 3 == 0 and len(text) > 9", "columns": ["text", "id"]},
    "sampled": {"sample": 0.1, "shard_records": 150},
}


@pytest.mark.parametrize("way", WAYS)
def test_the_bytes_are_those_of_a_conversion_here(way: str, source: str, tmp_path: Path) -> None:
    options = WAYS[way]
    name = "" if "format" in options else "x.tar"
    made: list[ps.Summary] = []
    for folder, on in (("here", None), ("there", "ray")):
        (tmp_path / folder).mkdir()
        target = os.path.join(tmp_path, folder, name)
        made.append(ps.convert(source, target, index=name != "", on=on, **options))
    assert contents(tmp_path / "here") == contents(tmp_path / "there")
    here, there = made
    assert (here.num_records, here.num_bytes, here.notes) == (
        there.num_records, there.num_bytes, there.notes,
    )  # fmt: skip
    assert here.text_columns == there.text_columns


def test_a_condition_chooses_before_columns_are_computed(tmp_path: Path) -> None:
    prices = ["n/a" if n % 9 == 7 else f"{n}.5" for n in range(400)]
    ps.write({"price": prices}, tmp_path / "a.tfrecord", num_shards=2)
    ds = ps.open(str(tmp_path / "a-*.tfrecord")).with_columns({"f": 'cast(price, "float64")'})
    how: dict[str, Any] = {"where": 'price != "n/a"', "num_shards": 2}
    for folder, on in (("here", None), ("there", "ray")):
        (tmp_path / folder).mkdir()
        ps.convert(ds, tmp_path / folder / "x.parquet", on=on, **how)
    assert contents(tmp_path / "here") == contents(tmp_path / "there")
    found = ps.open(str(tmp_path / "there")).to_table()["f"].to_pylist()
    assert found == [float(price) for price in prices if price != "n/a"]


def test_a_function_and_progress_go_along(source: str, tmp_path: Path) -> None:
    seen: list[int] = []
    ps.convert(
        source,
        tmp_path / "out.tfrecord",
        where=lambda batch: np.asarray(batch["id"]) < 100,
        reads=["id"],
        num_shards=4,
        on=Cluster(),
        progress=lambda records, done, total: seen.append(records),
    )
    assert seen[-1] == 100
    assert len(ps.open(str(tmp_path / "out-*.tfrecord"))) == 100


def test_a_conversion_in_a_store_ends_with_the_same_objects(
    source: str, tmp_path: Path, seaweed: Seaweed, prefix: str
) -> None:
    options = {**seaweed.options(), "pickle_secrets": True}
    how = {"target_storage_options": options, "num_shards": 4, "prove": True}
    ps.convert(source, f"s3://{prefix}/there/x.parquet", on="ray", **how)
    ps.convert(source, tmp_path / "here" / "x.parquet", num_shards=4)
    bucket, _, folder = prefix.partition("/")
    names = seaweed.client.keys(bucket, f"{folder}/there/")
    here = contents(tmp_path / "here")
    assert {name.rsplit("/", 1)[-1] for name in names} == set(here)
    again = ps.open(f"s3://{prefix}/there/*.parquet", storage_options=seaweed.options())
    assert again.to_table().equals(ps.open(source).select(again.schema.names).to_table())


def test_arrays_of_many_shapes_and_relative_names_go_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for shard in range(2):
        with tarfile.open(f"a-{shard}.tar", "w") as tar:
            for n in range(20):
                data = io.BytesIO()
                np.save(data, np.full((n % 3 + 1, 2), n, np.float32))
                member = tarfile.TarInfo(f"{shard}{n:03d}.npy")
                member.size = data.tell()
                data.seek(0)
                tar.addfile(member, data)
    how: dict[str, Any] = {"num_shards": 3, "where": '__url__ != "b"'}
    ps.convert("a-*.tar", "here/x.parquet", **how)
    ps.convert("a-*.tar", "there/x.parquet", on="ray", **how)
    assert contents(tmp_path / "here") == contents(tmp_path / "there")


def test_what_cannot_be_divided_is_refused(source: str, tmp_path: Path) -> None:
    with pytest.raises(ps.UnsupportedError, match="shard_bytes") as caught:
        ps.convert(source, tmp_path / "x.tfrecord", shard_bytes=1000, on="ray")
    assert "num_shards" in str(caught.value.hint)
    skipping = ps.open(source, damage="skip")
    with pytest.raises(ps.UnsupportedError, match="damage") as caught:
        ps.convert(skipping, tmp_path / "x.tfrecord", on="ray")
    assert "repair" in str(caught.value.hint)
    assert not list(tmp_path.glob("x*"))


def test_a_part_of_which_workers_die_is_missing_and_the_others_are_kept(
    source: str, tmp_path: Path
) -> None:
    os.rename(f"{source}/x-1.tfrecord", f"{source}/x-1-poison.tfrecord")
    ps.convert(source, tmp_path / "here" / "x.tfrecord", num_shards=6)
    convert = partial(ps.convert, source, tmp_path / "out" / "x.tfrecord", num_shards=6)
    with pytest.raises(ps.PenstockError, match="died 2 times"):
        convert(on=Cluster(retries=1), storage=worker_tasks.Deadly())
    kept = [path for path in (tmp_path / "out").iterdir() if "part" in path.name]
    assert len(kept) >= 4  # of six parts, two need the middle shard
    convert(on="ray")
    assert contents(tmp_path / "here") == contents(tmp_path / "out")


def once(number: int, nodes: Any, source: str, folder: Path, kind: str) -> None:
    """Convert while something dies at a random moment, and go on after it."""
    chance = random.Random(number)
    here, there = folder / "here", folder / f"there-{number}"
    on = Cluster(shared_paths=True, retries=20)
    options = {"num_shards": 4 + number % 3, "shuffle": 5, "overwrite": True}
    ps.convert(source, here / "x.parquet", **options)
    convert = partial(ps.convert, source, there / "x.parquet", **options, on=on)
    if kind == "worker":
        with deaths.killing(nodes, chance, 3):
            convert()
    elif kind == "driver":
        program = (
            "import penstock as ps\nfrom penstock.ray import Cluster\n"
            f"ps.convert({source!r}, {str(there / 'x.parquet')!r}, **{options!r}, on={on!r})"
        )
        deaths.kill_driver(program, nodes, chance.uniform(0, 2.5))
        convert()
    else:
        thread = threading.Timer(chance.uniform(0, 1), deaths.replace_node, [nodes])
        thread.start()
        convert()
        thread.join()
    assert contents(here) == contents(there)
    shutil.rmtree(here)


@pytest.mark.parametrize("kind", ["worker", "driver"])
def test_the_bytes_are_the_same_whatever_dies(
    kind: str, nodes: Any, source: str, tmp_path: Path
) -> None:
    once(0, nodes, source, tmp_path, kind)


@pytest.mark.stress
@pytest.mark.parametrize("number", range(1, 51))
def test_the_bytes_are_the_same_whatever_dies_at_fifty_moments(
    number: int, nodes: Any, source: str, tmp_path: Path
) -> None:
    once(number, nodes, source, tmp_path, ["worker", "driver", "node"][number % 3])

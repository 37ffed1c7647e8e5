"""Changes of fields on a cluster: the same bytes, and nothing left, whatever dies."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import deaths
import numpy as np
import pyarrow as pa
import pytest
import worker_tasks

import penstock as ps
from penstock.ray import Cluster
from remote.servers.seaweed import Seaweed

pytestmark = pytest.mark.usefixtures("nodes")
RECORDS, SHARDS = 600, 3
BY_KEY = pa.table({"id": np.arange(0, RECORDS, 2), "score": np.arange(0, RECORDS, 2) * 3})
Change = Callable[..., ps.Summary]

CHANGES: dict[str, Change] = {
    "an array and a constant": lambda *to, **how: ps.add_fields(
        *to, {"rank": np.arange(RECORDS), "split": "train"}, **how
    ),
    "a table by a key": lambda *to, **how: ps.add_fields(
        *to, BY_KEY, by="id", missing="null", **how
    ),
    "a function": lambda *to, **how: ps.add_fields(*to, worker_tasks.doubled, reads=["id"], **how),
    "some records": lambda *to, **how: ps.replace_fields(
        *to, {"x": np.zeros(RECORDS, np.float32)}, where="id % 5 == 0", **how
    ),
    "dropped": lambda *to, **how: ps.drop_fields(*to, "x", **how),
    "renamed": lambda *to, **how: ps.rename_fields(*to, {"x": "y"}, **how),
}


def shards(folder: Path, extension: str) -> list[str]:
    folder.mkdir()
    data = {
        "id": np.arange(RECORDS),
        "x": np.arange(RECORDS).astype(np.float32),
        "text": [f"record {n}" for n in range(RECORDS)],
    }
    return list(ps.write(data, folder / f"a-{{shard}}.{extension}", num_shards=SHARDS).paths)


def contents(folder: Path) -> dict[str, bytes]:
    """All files but the indexes, which know the time of their files, and the lock."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".penstock"
    }


def left(folder: Path) -> list[str]:
    """The journals and unfinished files below a folder."""
    return [p.name for p in folder.rglob("*") if "penstock-fields" in p.name and p.is_file()] + [
        p.name for p in folder.rglob("*.tmp")
    ]


@pytest.mark.parametrize("extension", ["tfrecord", "parquet"])
@pytest.mark.parametrize("name", CHANGES)
def test_new_files_have_the_bytes_of_a_change_here(
    name: str, extension: str, tmp_path: Path
) -> None:
    paths, change = shards(tmp_path / "in", extension), CHANGES[name]
    here = change(paths, into=tmp_path / "here/", verify=True)
    there = change(paths, into=tmp_path / "there/", verify=True, on="ray")
    assert contents(tmp_path / "here") == contents(tmp_path / "there")
    assert (here.num_records, here.num_bytes, here.notes) == (
        there.num_records, there.num_bytes, there.notes,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["a function", "some records", "an array and a constant"])
def test_files_in_place_and_overlays_have_the_bytes_of_a_change_here(
    name: str, tmp_path: Path
) -> None:
    change, made = CHANGES[name], list[dict[str, bytes]]()
    for on in (None, "ray"):
        for how in ({"in_place": True}, {}):
            folder = tmp_path / f"{on}-{len(how)}"
            change(shards(folder, "tfrecord"), on=on, **how)
            assert not left(folder)
            made.append(contents(folder))
    assert made[0] == made[2]
    assert {n: b for n, b in made[1].items() if not n.endswith("overlay")} == {
        n: b for n, b in made[3].items() if not n.endswith("overlay")
    }
    tables = [ps.open(str(tmp_path / f"{on}-0")).to_table() for on in (None, "ray")]
    assert tables[0].equals(tables[1])


def test_overlays_are_baked_on_a_cluster(tmp_path: Path) -> None:
    paths = shards(tmp_path / "in", "tfrecord")
    CHANGES["a function"](paths)
    ps.bake_fields(paths, into=tmp_path / "here/")
    ps.bake_fields(paths, into=tmp_path / "there/", on="ray")
    assert contents(tmp_path / "here") == contents(tmp_path / "there")
    ps.bake_fields(paths, in_place=True, on="ray")
    assert ps.open(paths).to_table().equals(ps.open(str(tmp_path / "here")).to_table())


def test_overlays_of_many_files_are_baked_in_place_on_a_cluster(tmp_path: Path) -> None:
    """The last tasks begin when the first files have changed."""
    paths = [str(tmp_path / f"{n:02}.tfrecord") for n in range(12)]
    for path in paths:
        ps.write({"id": range(100)}, path)
    ps.add_fields(paths, {"twice": np.arange(1200)})
    ps.bake_fields(paths, in_place=True, on="ray")
    assert ps.open(paths, overlays=False).to_table()["twice"].to_pylist() == list(range(1200))


def test_a_record_without_a_value_is_an_error_before_a_file_is_written(tmp_path: Path) -> None:
    paths = shards(tmp_path / "in", "tfrecord")
    with pytest.raises(ps.SchemaError, match="no row for 1") as caught:
        ps.add_fields(paths, BY_KEY, by="id", into=tmp_path / "out/", on="ray")
    assert caught.value.file == paths[0]
    assert caught.value.record == 1
    assert not (tmp_path / "out").exists()


def test_objects_are_changed_on_a_cluster(tmp_path: Path, seaweed: Seaweed, prefix: str) -> None:
    paths = shards(tmp_path / "in", "tfrecord")
    options = {**seaweed.options(), "pickle_secrets": True}
    change = CHANGES["a function"]
    into = f"s3://{prefix}/out/"
    made = change(paths, into=into, verify=True, target_storage_options=options, on="ray")
    change(paths, into=tmp_path / "here/")
    found = ps.open(list(made.paths), storage_options=seaweed.options())
    assert found.to_table().equals(ps.open(str(tmp_path / "here")).to_table())
    bucket, _, folder = prefix.partition("/")
    names = [key.rsplit("/", 1)[-1] for key in seaweed.client.keys(bucket, f"{folder}/out/")]
    here = [path.name for path in (tmp_path / "here").iterdir()]
    assert sorted(names) == sorted(here)


def once(number: int, nodes: Any, folder: Path, kind: str) -> None:
    """Change fields while something dies at a random moment, and go on after it."""
    chance = random.Random(number)
    inputs = [shards(folder / f"{side}-{number}", "tfrecord") for side in ("here", "there")]
    on = Cluster(shared_paths=True, retries=20)
    in_place = bool(number % 2)
    how = [{"in_place": True} if in_place else {"into": f"{folder}/{side}-{number}/out/"} for side in ("here", "there")]  # fmt: skip
    ps.add_fields(inputs[0], worker_tasks.slowly_doubled, reads=["id"], **how[0])
    change = partial(
        ps.add_fields, inputs[1], worker_tasks.slowly_doubled, reads=["id"], on=on, **how[1]
    )
    if kind == "worker":
        with deaths.killing(nodes, chance, 3):
            change()
    else:
        program = (
            "import penstock as ps, worker_tasks\nfrom penstock.ray import Cluster\n"
            f"ps.add_fields({inputs[1]!r}, worker_tasks.slowly_doubled, reads=['id'], on={on!r}, **{how[1]!r})"
        )
        deaths.kill_driver(program, nodes, chance.uniform(0, 2.5))
        change(overwrite=not in_place)
    here, there = folder / f"here-{number}", folder / f"there-{number}"
    assert contents(here) == contents(there)
    assert not left(there)


@pytest.mark.parametrize("kind", ["worker", "driver"])
def test_the_new_files_are_the_same_whatever_dies(kind: str, nodes: Any, tmp_path: Path) -> None:
    once(kind == "driver", nodes, tmp_path, kind)


@pytest.mark.stress
@pytest.mark.parametrize("number", range(2, 52))
def test_the_new_files_are_the_same_whatever_dies_at_fifty_moments(
    number: int, nodes: Any, tmp_path: Path
) -> None:
    once(number, nodes, tmp_path, ["worker", "driver"][number // 2 % 2])

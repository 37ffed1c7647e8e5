"""verify, index and repair on a cluster: as in threads, for files that are whole, damaged, or deadly."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import worker_tasks
from cluster_sets import damage, files_in, shards_in, table

import penstock as ps
from penstock.framing.index import sidecar
from penstock.ray import Cluster
from penstock.storage import MemoryStorage
from penstock.storage.local import LocalStorage
from remote.servers.seaweed import Seaweed

pytestmark = pytest.mark.usefixtures("nodes")
BOTH = Cluster(shared_paths=True)
"""Both nodes, since they see the same files."""


class Progress:
    def __init__(self) -> None:
        self.calls: list[tuple[int, int, int]] = []

    def __call__(self, *done: int) -> None:
        self.calls.append(done)  # pyright: ignore[reportArgumentType]


def test_verify_finds_the_same_in_files_of_others(corpus: Path) -> None:
    paths = [
        str(path)
        for path in sorted(corpus.rglob("*"))
        if path.is_file() and path.stat().st_size < 100_000 and path.suffix not in (".md", ".json")
    ][::3]
    mine, there = Progress(), Progress()
    here = ps.verify(paths, progress=mine)
    assert ps.verify(paths, on=BOTH, progress=there) == here
    assert len({finding.kind for finding in here.findings}) > 3
    assert there.calls[-1] == mine.calls[-1]
    assert sorted(there.calls) == there.calls


def test_verify_finds_the_same_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = shards_in(tmp_path / "set")
    assert ps.verify(paths, on=BOTH).ok
    damage(paths)
    monkeypatch.chdir(tmp_path)
    relative = [f"set/{Path(path).name}" for path in paths]
    here = ps.verify(relative, decode=True)
    assert not here.ok
    assert ps.verify(relative, decode=True, on=BOTH) == here
    assert ps.verify(relative, decode=True, on="ray", threads=2) == here


def test_a_file_that_kills_its_workers_is_reported_and_the_others_are_checked(
    tmp_path: Path,
) -> None:
    names = [f"{tmp_path}/{name}.tfrecord" for name in ("a", "poison", "z")]
    for name in names:
        ps.write(table(), name)
    whole = ps.verify(names)
    found = ps.verify(names, on=Cluster(retries=1), storage=worker_tasks.Deadly())
    assert found.num_records == whole.num_records * 2 // 3
    (finding,) = found.findings
    assert (finding.kind, finding.file) == ("unchecked", names[1])
    assert "died 2 times" in finding.message
    assert finding.end_byte == Path(names[1]).stat().st_size
    assert not found.ok
    assert found.num_lost is None


def test_other_verbs_finish_the_other_files_before_they_raise(tmp_path: Path) -> None:
    names = [f"{tmp_path}/{name}.tfrecord" for name in ("a", "poison", "z")]
    for name in names:
        ps.write(table(), name, index=False)
    how: dict[str, Any] = {"on": Cluster(retries=0), "storage": worker_tasks.Deadly()}
    with pytest.raises(ps.PenstockError, match=r"poison.*died 1 times"):
        ps.index(names, folder=str(tmp_path / "indexes"), **how)
    indexes = sorted(path.name for path in (tmp_path / "indexes").iterdir())
    assert [name for name in indexes if "tfrecord" in name] == indexes
    assert len(indexes) == 2
    with pytest.raises(ps.PenstockError, match="poison"):
        ps.repair(names, into=str(tmp_path / "new") + "/", index=False, **how)
    made = sorted(path.name for path in (tmp_path / "new").glob("*.tfrecord"))
    assert made == ["a.tfrecord", "z.tfrecord"]


def test_a_file_is_read_again_if_its_store_does_not_answer(tmp_path: Path) -> None:
    made = ps.write(table(), str(tmp_path / "x.tfrecord"), num_shards=4)
    (tmp_path / "notes").mkdir()
    storage = worker_tasks.Failing(tmp_path / "notes")
    assert ps.verify(made.paths, on=BOTH, storage=storage) == ps.verify(made.paths)


def test_index_makes_the_same_indexes_once(tmp_path: Path) -> None:
    paths = shards_in(tmp_path / "here")
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    there = [path.replace("/here/", "/there/") for path in paths]
    made = ps.index(paths, checksums=True)
    progress = Progress()
    assert ps.index(there, checksums=True, on=BOTH, progress=progress) == [
        path.replace("/here/", "/there/") for path in made
    ]
    assert len(progress.calls) == len(paths)
    for mine, others in zip(made, ps.index(there, checksums=True), strict=True):
        one, other = (sidecar.load(path, LocalStorage()) for path in (mine, others))
        assert (one.num_records, one.blocks) == (other.num_records, other.blocks)
        assert one.ends.tolist() == other.ends.tolist()
    before = {path: Path(path).stat().st_mtime_ns for path in ps.index(there, on=BOTH)}
    ps.index(there, on=BOTH)
    assert before == {path: Path(path).stat().st_mtime_ns for path in before}
    assert ps.verify(there).ok


def test_repair_writes_the_same_bytes_and_leaves_nothing(tmp_path: Path) -> None:
    paths = [path for path in shards_in(tmp_path / "set") if not path.endswith(".npz")]
    damage(paths)
    here = ps.repair(paths, into=f"{tmp_path}/here/", index=False)
    there = ps.repair(paths, into=f"{tmp_path}/there/", index=False, on=BOTH)
    assert there.paths == tuple(path.replace("/here/", "/there/") for path in here.paths)
    assert (there.num_records, there.findings) == (here.num_records, here.findings)
    assert files_in(tmp_path / "there") == files_in(tmp_path / "here")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        ps.repair(paths, into=f"{tmp_path}/there/", index=False, on=BOTH)
    assert files_in(tmp_path / "there") == files_in(tmp_path / "here")


def test_a_repair_that_is_stopped_while_it_removes_its_notes_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [path for path in shards_in(tmp_path / "set") if not path.endswith(".npz")]
    damage(paths)
    here = ps.repair(paths, into=f"{tmp_path}/here/", index=False)

    def stopped(storage: LocalStorage, notes: Iterable[str]) -> None:
        storage.remove(next(iter(notes)))
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("penstock.verbs.check.repair.remove_all", stopped)
        ps.repair(paths, into=f"{tmp_path}/there/", index=False, on=BOTH)
    there = ps.repair(paths, into=f"{tmp_path}/there/", index=False, on=BOTH)
    assert (there.num_records, there.findings) == (here.num_records, here.findings)
    assert there.paths == tuple(path.replace("/here/", "/there/") for path in here.paths)
    assert files_in(tmp_path / "there") == files_in(tmp_path / "here")


def test_a_repair_without_overlays_removes_those_of_replaced_files(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("a.tfrecord", "b.tfrecord")]
    for path in paths:
        ps.write({"id": range(50)}, path)
        ps.add_fields(path, {"score": range(50)})
    damage(paths[1:])
    with pytest.raises(ps.UnsupportedError, match="the overlay 'score'"):
        ps.repair(paths, in_place=True, on=BOTH)
    made = ps.repair(paths, in_place=True, overlays=False, on=BOTH)
    assert made.paths == tuple(paths[1:])
    assert ps.open(paths[0]).schema.names == ["id", "score"]
    assert ps.open(paths[1]).schema.names == ["id"]
    assert not [name for name in files_in(tmp_path) if "b.tfrecord.penstock-fields" in name]


def test_repair_in_place_gives_the_same_files(tmp_path: Path) -> None:
    paths = [path for path in shards_in(tmp_path / "here") if not path.endswith(".npz")]
    damage(paths)
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    here = ps.repair(paths, in_place=True)
    others = [path.replace("/here/", "/there/") for path in paths]
    there = ps.repair(others, in_place=True, on=BOTH)
    assert there.num_records == here.num_records
    assert [f.message for f in there.findings] == [f.message for f in here.findings]
    mine, its = files_in(tmp_path / "here"), files_in(tmp_path / "there")
    assert mine.keys() == its.keys()
    assert all(mine[name] == its[name] for name in mine if not name.endswith(".penstock"))


def test_objects_of_a_store_are_checked_indexed_and_repaired(
    seaweed: Seaweed, prefix: str, tmp_path: Path
) -> None:
    secret = seaweed.options()
    options = {**secret, "pickle_secrets": True}
    paths = shards_in(tmp_path / "set")
    damage(paths)
    urls = [f"s3://{prefix}/{Path(path).name}" for path in paths]
    for path, url in zip(paths, urls, strict=True):
        seaweed.client.put(url.removeprefix("s3://"), Path(path).read_bytes())
    here = ps.verify(urls, storage_options=options)
    assert ps.verify(urls, storage_options=options, on="ray") == here
    with pytest.raises(ps.UnsupportedError, match="secrets") as caught:
        ps.verify(urls, storage_options=secret, on="ray")
    assert "pickle_secrets" in str(caught.value.hint)

    framed = [url for url in urls if not url.endswith(".npz")]
    made = ps.repair(
        framed, into=f"s3://{prefix}/new/", on="ray", index=False,
        storage_options=options, target_storage_options=options,
    )  # fmt: skip
    ps.repair(
        [path for path in paths if not path.endswith(".npz")], into=f"{tmp_path}/new/", index=False
    )
    client = seaweed.client
    keys = client.keys(f"{prefix}/new/".partition("/")[0])
    new = [key for key in keys if "/new/" in f"/{key}"]
    assert sorted(Path(key).name for key in new) == sorted(Path(path).name for path in made.paths)
    for path in made.paths:
        got = client.get(path.removeprefix("s3://"))
        assert got == (tmp_path / "new" / Path(path).name).read_bytes()
    indexes = ps.index(list(made.paths), storage_options=options, on="ray")
    assert indexes == ps.index(list(made.paths), storage_options=options)


def test_files_in_memory_are_refused() -> None:
    storage = MemoryStorage()
    ps.write(table(), "a.tfrecord", storage=storage)
    for verb in (ps.verify, ps.index):
        with pytest.raises(ps.UnsupportedError, match="memory of this process"):
            verb("a.tfrecord", storage=storage, on="ray")

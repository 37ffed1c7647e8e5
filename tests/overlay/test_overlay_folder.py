"""Overlays in a folder of the user (`overlays=`): the folder of the data stays as it is, and may be read-only."""

from __future__ import annotations

import ctypes
import os
import pickle
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from overlaying import folder_of
from penstock.overlay.places import OverlayFolder, Place, places_of
from penstock.storage import MemoryStorage
from penstock.storage.local import LocalStorage

COUNT = 60
SHARDS = ("a/x.tfrecord", "a/y.tfrecord", "b/x.tfrecord")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three shards in two folders, two of which have the same name, with their indexes."""
    each = COUNT // len(SHARDS)
    for number, name in enumerate(SHARDS):
        path = tmp_path / "shared" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        ids = range(number * each, (number + 1) * each)
        ps.write({"id": ids, "label": [n % 4 for n in ids]}, path)
    ps.open(tmp_path / "shared").to_table()  # the first reader completes the indexes
    return tmp_path / "shared"


@pytest.fixture
def mine(tmp_path: Path) -> str:
    """A folder that does not exist yet."""
    return str(tmp_path / "home" / "my-overlays")


def state(folder: Path) -> dict[str, Any]:
    """All that a listing of a folder shows, and the bytes of its files."""
    found: dict[str, Any] = {}
    for path in [folder, *folder.rglob("*")]:
        told = path.stat()
        facts = told.st_mode, told.st_size, told.st_mtime_ns, told.st_ino
        found[str(path)] = facts, path.read_bytes() if path.is_file() else b""
    return found


def rows(source: Any, **options: Any) -> list[dict[str, Any]]:
    return ps.open(source, **options).to_table().to_pylist()


# -- the verbs ------------------------------------------------------------------------------------


def test_every_change_is_stored_in_the_folder_and_nothing_next_to_the_data(
    data: Path, mine: str, tmp_path: Path
) -> None:
    before = state(data)
    plain = rows(data)
    scores = np.arange(COUNT) / 2
    made = ps.add_fields(data, {"score": scores}, overlays=mine)
    assert made.num_records == COUNT and all(path.startswith(mine) for path in made.paths)
    ps.replace_fields(data, {"label": 9}, where="score < 5", overlays=mine)
    ps.rename_fields(data, {"score": "quality"}, overlays=mine)
    ps.drop_fields(data, "id", overlays=mine)
    wanted = [{"label": 9 if n < 10 else n % 4, "quality": n / 2} for n in range(COUNT)]
    assert rows(data, overlays=mine) == wanted
    ds = ps.open(data, overlays=mine)
    assert ds.take([COUNT - 1, 0]).to_pylist() == [wanted[-1], wanted[0]]
    assert ps.open(data).schema.names == ["id", "label"]
    assert ps.overlays(data) == []
    found = ps.overlays(data, overlays=mine)
    assert [(one.name, one.num_shards, one.folder) for one in found] == [
        (name, len(SHARDS), mine) for name in ("score", "label", "rename-score", "drop-id")
    ]
    assert ps.verify(data, overlays=mine).ok
    ps.convert(ds, tmp_path / "out.parquet")
    assert rows(tmp_path / "out.parquet") == wanted
    ps.bake_fields(data, into=tmp_path / "baked-{shard}.tfrecord", overlays=mine)
    assert rows(tmp_path / "baked-*.tfrecord") == wanted
    for one in found[::-1]:
        removed = ps.remove_overlay(data, one.name, overlays=mine)
        assert len(removed) == len(SHARDS)
    assert os.listdir(mine) == []
    assert rows(data) == plain
    assert state(data) == before


def test_a_dataset_knows_its_folder(data: Path, mine: str) -> None:
    ps.add_fields(data, {"score": 1}, overlays=mine)
    ds = ps.open(data, overlays=mine)
    ps.add_fields(ds, {"more": 2})
    ds = ps.open(data, overlays=mine)
    ps.rename_fields(ds, {"more": "other"})
    assert ps.open(data, overlays=mine)[0] == {"id": 0, "label": 0, "score": 1, "other": 2}
    assert [one.name for one in ps.overlays(ds)] == ["score", "more", "rename-more"]
    ps.remove_overlay(ds, "rename-more")
    assert ps.open(data).schema.names == ["id", "label"]
    for call in (
        lambda: ps.add_fields(ds, {"x": 1}, overlays=mine),
        lambda: ps.overlays(ds, overlays=mine),
        lambda: ps.remove_overlay(ds, "score", overlays=mine),
        lambda: ps.bake_fields(ds, into="x", overlays=mine),
    ):
        with pytest.raises(TypeError, match="give overlays= to"):
            call()


def test_an_interrupted_addition_is_completed_and_other_values_are_refused(
    data: Path, mine: str
) -> None:
    made = ps.add_fields(data, {"score": range(COUNT)}, overlays=mine)
    os.unlink(made.paths[1])
    ps.add_fields(data, {"score": range(COUNT)}, overlays=mine)
    assert [row["score"] for row in rows(data, overlays=mine)] == list(range(COUNT))
    with pytest.raises(FileExistsError, match="overwrite=True"):
        ps.add_fields(data, {"score": 7}, overlays=mine)
    with pytest.raises(ps.SchemaError, match="already have this field"):
        ps.add_fields(data, {"label": 7}, overlays=mine)
    with pytest.raises(ps.SchemaError, match="do not have a value for each record"):
        ps.add_fields(data, {"wrong": [1]}, overlays=mine)


# -- where an overlay is --------------------------------------------------------------------------


def test_files_of_one_name_have_overlays_of_their_own(data: Path, mine: str) -> None:
    ps.add_fields(data / "a" / "x.tfrecord", {"score": 1}, overlays=mine)
    ps.add_fields(data / "b" / "x.tfrecord", {"score": 2}, overlays=mine)
    assert rows(data / "a" / "x.tfrecord", overlays=mine)[0]["score"] == 1
    assert rows(data / "b" / "x.tfrecord", overlays=mine)[0]["score"] == 2
    assert [row["score"] for row in rows(data, overlays=mine)] == [1] * 20 + [None] * 20 + [2] * 20
    beside = os.path.relpath(folder_of(str(data / "b" / "x.tfrecord")), "/")
    assert os.listdir(os.path.join(mine, beside)) == ["score.overlay"]


def test_a_link_to_a_file_has_the_overlays_of_the_file(
    data: Path, mine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ps.add_fields(data, {"score": 1}, overlays=mine)
    (tmp_path / "link").symlink_to(data)
    assert ps.open(tmp_path / "link" / "a", overlays=mine)[0]["score"] == 1
    monkeypatch.chdir(data / "a")
    assert ps.open("../b/x.tfrecord", overlays="../../home/my-overlays/")[0]["score"] == 1


def test_overlays_are_moved_with_their_data(data: Path, mine: str, tmp_path: Path) -> None:
    """The folder repeats the folders of the data, so that both can be moved in the same way."""
    ps.add_fields(data, {"score": range(COUNT)}, overlays=mine)
    data.rename(tmp_path / "elsewhere")
    with pytest.warns(UserWarning, match=r"has no overlays of these files; those of .* would be"):
        assert ps.open(tmp_path / "elsewhere", overlays=mine).schema.names == ["id", "label"]
    kept = mine + os.path.realpath(tmp_path)
    os.rename(f"{kept}/shared", f"{kept}/elsewhere")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rows(tmp_path / "elsewhere", overlays=mine)[-1]["score"] == COUNT - 1


def test_names_of_objects_are_paths_inside_the_folder() -> None:
    place = Place(LocalStorage(), "/home/me/mine", are_here=False)
    wanted = {
        "s3://bucket/a/x.tar": "s3:/bucket/a/.x.tar.penstock-fields",
        "https://user:word@host/x.tar?sign=secret": "https:/host/.x.tar.penstock-fields",
        "../../x.tar": "%2E%2E/%2E%2E/.x.tar.penstock-fields",
        "a//./x.tar": "a/%/%2E/.x.tar.penstock-fields",
        "bucket/images/": "bucket/.images.penstock-fields",
    }
    for name, folder in wanted.items():
        assert place.folder_of(name) == f"/home/me/mine/{folder}"
    two = ["https://host/x.tar?id=1", "https://host/x.tar?id=2"]
    assert len(set(map(place.folder_of, two))) == 1, "write_overlay refuses two such files"


def test_files_of_another_storage_have_overlays_on_this_machine(mine: str) -> None:
    storage = MemoryStorage()
    ps.write({"id": range(9)}, "x.parquet", num_shards=3, storage=storage)
    how: dict[str, Any] = {"storage": storage, "overlays": mine}
    before = sorted(storage.files)
    ps.add_fields("x-*.parquet", {"score": range(9)}, **how)
    assert sorted(storage.files) == before
    assert [row["score"] for row in rows("x-*.parquet", **how)] == list(range(9))
    assert ps.verify("x-*.parquet", **how).ok
    assert len(ps.remove_overlay("x-*.parquet", "score", **how)) == 3


# -- with overlays next to the data ---------------------------------------------------------------


def test_the_folder_comes_after_what_is_next_to_the_data(
    data: Path, mine: str, tmp_path: Path
) -> None:
    ps.rename_fields(data, {"label": "class"})
    ps.add_fields(data, {"score": range(COUNT)})
    before = state(data)
    with pytest.raises(ps.SchemaError, match="already have this field"):
        ps.add_fields(data, {"score": 0}, overlays=mine)
    ps.add_fields(data, {"score": 0}, replace=True, overlays=mine)
    ps.drop_fields(data, "class", overlays=mine)
    assert state(data) == before
    assert rows(data, overlays=mine)[7] == {"id": 7, "score": 0}
    assert rows(data)[7] == {"id": 7, "class": 3, "score": 7}
    names = [(one.name, one.folder) for one in ps.overlays(data, overlays=mine)]
    assert names[:2] == [("rename-label", None), ("score", None)]
    assert names[2:] == [("score-2", mine), ("drop-class", mine)]
    with pytest.raises(ValueError, match=f"in {mine}; there are: drop-class, score-2"):
        ps.remove_overlay(data, "score", overlays=mine)
    with pytest.raises(ps.UnsupportedError, match=f"bake --in-place SOURCE --overlays {mine} "):
        ps.add_fields(data, {"more": 1}, into=tmp_path / "more", overlays=mine)
    ps.bake_fields(data, into=tmp_path / "baked-{shard}.tfrecord", overlays=mine)
    assert rows(tmp_path / "baked-*.tfrecord")[7] == {"id": 7, "score": 0}
    ps.add_fields(data, {"later": 5})
    assert rows(data, overlays=mine)[7] == {"id": 7, "later": 5, "score": 0}


def test_baking_in_place_removes_what_was_baked(data: Path, mine: str) -> None:
    ps.add_fields(data, {"first": 1})
    ps.add_fields(data, {"score": range(COUNT)}, overlays=mine)
    wanted = rows(data, overlays=mine)
    ps.bake_fields(data, in_place=True, overlays=mine)
    assert rows(data) == wanted
    assert ps.overlays(data, overlays=mine) == []
    assert os.listdir(mine) == []


def test_a_killed_bake_is_continued_with_the_same_folder_only(data: Path, mine: str) -> None:
    ps.add_fields(data, {"first": 1})
    ps.add_fields(data, {"score": range(COUNT)}, overlays=mine)
    wanted = rows(data, overlays=mine)
    victim = os.fork()
    if victim == 0:
        # It dies after the overlays of the first shard were removed.
        os.rmdir = lambda path, **_: mine in str(path) and os._exit(9)
        ps.bake_fields(data, in_place=True, threads=1, overlays=mine)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(victim, 0)[1]) == 9
    with pytest.raises(ps.PenstockError, match="unfinished"):
        ps.bake_fields(data, in_place=True)
    ps.bake_fields(data, in_place=True, overlays=mine)
    assert rows(data) == wanted
    assert ps.overlays(data, overlays=mine) == []
    assert os.listdir(mine) == []


# -- other ways to read ---------------------------------------------------------------------------


class Pickling:
    """Runs the tasks of verbs in this process, as they arrive on another machine."""

    def __init__(self) -> None:
        self.paths: set[str] = set()

    def run(
        self, function: Callable[[Any], Any], tasks: Sequence[Any], paths: Iterable[str]
    ) -> Generator[tuple[int, Any]]:
        self.paths |= set(paths)
        for number, task in enumerate(tasks):
            there, what = pickle.loads(pickle.dumps((function, task)))
            yield number, there(what)


def _twice(batch: pa.RecordBatch) -> dict[str, Any]:
    return {"twice": [2 * value.as_py() for value in batch["score"]]}


def test_the_folder_travels_with_datasets_tasks_and_verbs(
    data: Path, mine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ps.add_fields("shared", {"score": range(COUNT)}, overlays="home/my-overlays")
    ds = ps.open("shared", overlays="home/my-overlays")
    view = ds.filter("score >= 20").select(["score"])
    sent = pickle.dumps((ds, view, ds.tasks(1)))
    on = Pickling()
    ps.convert(ds, "out.parquet", on=on)
    assert mine in on.paths
    monkeypatch.chdir("/")
    there, part, tasks = pickle.loads(sent)
    assert there.to_table()["score"].to_pylist() == list(range(COUNT))
    assert part.to_table()["score"].to_pylist() == list(range(20, COUNT))
    batches = [batch for task in tasks for batch in task.batches()]
    assert pa.Table.from_batches(batches)["score"].to_pylist() == list(range(COUNT))
    ps.add_fields(there, _twice, reads=["score"], on=on)
    assert rows(data, overlays=mine)[3] == {"id": 3, "label": 3, "score": 3, "twice": 6}
    assert rows(tmp_path / "out.parquet")[3] == {"id": 3, "label": 3, "score": 3}
    shutil.rmtree(mine)
    with pytest.raises(FileNotFoundError, match="no such folder for overlays"):
        list(pickle.loads(sent)[2][0].batches())


def test_a_loader_reads_the_fields(data: Path, mine: str) -> None:
    ps.add_fields(data, {"score": range(COUNT)}, overlays=mine)
    ds = ps.open(data, overlays=mine)
    seen: list[int] = []
    loader = ps.Loader(ds, 16, order=ps.Shuffled(seed=1))
    for batch in loader:
        assert (batch["score"] == batch["id"]).all()
        seen += batch["score"].tolist()
    assert sorted(set(seen)) == list(range(COUNT))
    assert ds.fingerprint != ps.open(data).fingerprint


def test_a_manifest_does_not_list_the_fields_of_the_folder(
    data: Path, mine: str, tmp_path: Path
) -> None:
    ps.add_fields(data, {"score": range(COUNT)}, overlays=mine)
    path = tmp_path / "all.manifest"
    ps.manifest(ps.open(data, overlays=mine), path)
    assert ps.open(path).schema.names == ["id", "label"]
    assert rows(path, overlays=mine)[5] == {"id": 5, "label": 1, "score": 5}


# -- errors ---------------------------------------------------------------------------------------


def test_values_never_reach_records_that_changed(data: Path, mine: str) -> None:
    ps.add_fields(data, {"score": range(COUNT)}, overlays=mine)
    changed = data / "a" / "y.tfrecord"
    ps.write({"id": range(20), "label": [0] * 20}, changed, overwrite=True)
    with pytest.raises(ps.StaleIndexError) as raised:
        rows(data, overlays=mine)
    assert raised.value.file == str(changed)
    assert f"penstock fields remove {changed} score --overlays {mine}" in str(raised.value)
    findings = ps.verify(data, overlays=mine).findings
    assert [(one.kind, one.file) for one in findings] == [("stale_overlay", str(changed))]
    assert ps.verify(data).ok
    ps.remove_overlay(changed, "score", overlays=mine)
    assert [row["score"] for row in rows(data, overlays=mine)][20:40] == [None] * 20


def test_a_damaged_overlay_in_the_folder_is_named(data: Path, mine: str) -> None:
    made = ps.add_fields(data, {"score": range(COUNT)}, overlays=mine)
    place = Path(made.paths[0])
    place.write_bytes(place.read_bytes()[:-1])
    with pytest.raises(ps.FormatError) as raised:
        ps.open(data, overlays=mine)
    assert str(place) in str(raised.value)
    assert f"penstock fields remove SOURCE NAME --overlays {mine}" in str(raised.value)


def test_a_folder_that_is_none_is_an_error(data: Path, mine: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for call in (ps.open, ps.verify, ps.overlays):
        with pytest.raises(FileNotFoundError, match="no such folder for overlays"):
            call(data, overlays=mine)
    with pytest.raises(NotADirectoryError, match="is a file"):
        ps.open(data, overlays=file)
    with pytest.raises(ValueError, match="is not a folder"):
        ps.open(data, overlays="")
    with pytest.raises(TypeError, match="True, False or a folder"):
        ps.open(data, overlays=3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="takes a folder here"):
        ps.add_fields(data, {"x": 1}, overlays=False)  # pyright: ignore[reportArgumentType]
    assert not os.path.exists(mine)
    with pytest.raises(ps.UnsupportedError, match="objects in a store"):
        places_of(LocalStorage(), OverlayFolder("s3://bucket/mine"))


def _obey_permissions() -> None:
    """Take from root, in a new process, the right to write where its permissions do not allow it. Others have no such
    right."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        if prctl is not None:
            prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


ADD = """
import sys
from click.testing import CliRunner
from penstock.cli.program import program

words = ["fields", "add", sys.argv[1], "--set", "a=1"]
refused = CliRunner().invoke(program, words)
print(refused.exit_code, refused.stderr)
sys.exit(CliRunner().invoke(program, [*words, "--overlays", sys.argv[2]]).exit_code)
"""


def test_a_folder_that_must_not_be_written_to_is_no_obstacle(tmp_path: Path) -> None:
    data, mine = tmp_path / "shared", tmp_path / "mine"
    data.mkdir()
    path = data / "x.tfrecord"
    ps.write({"id": range(3)}, path)
    before = state(data)
    data.chmod(0o555)
    try:
        done = subprocess.run(
            [sys.executable, "-c", ADD, path, mine],
            check=False,
            capture_output=True,
            text=True,
            preexec_fn=_obey_permissions,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"2 {path}: fields cannot be stored next to this file")
        assert "--overlays with a folder of yours" in done.stdout
    finally:
        data.chmod(0o755)
    assert rows(path, overlays=mine) == [{"id": n, "a": 1} for n in range(3)]
    after = state(data)
    for one in (before, after):
        del one[str(data)]  # its permissions were changed here
    assert after == before

"""A writer that is killed at any system call leaves the old data with its types, or the new data with the new types.
If only the sidecar has the types, they are on disk before the file gets its name."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from kill_at_each_call import WAYS

import penstock as ps
from penstock.framing.index import ahead, sidecar
from penstock.storage.hidden import TEMPORARY_SUFFIX
from penstock.storage.local import LocalStorage
from penstock.storage.local_sink import Calls
from reading import ROOT, index_of

SCRIPT = str(Path(__file__).with_name("kill_at_each_call.py"))
OLD, NEW = list(range(6)), list(range(50, 56))
NAMES = ["x.tfrecord", "x.msgpack", "x.npy"]


WHAT = [(way, name) for way in WAYS for name in NAMES if (way, name) != ("repair", "x.npy")]
"""npy files have no checksums, so damage in them cannot be detected."""


@pytest.mark.parametrize(("way", "name"), WHAT)
def test_no_kill_separates_data_and_types(way: str, name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, way, name, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *moments, last = map(json.loads, done.stdout.splitlines())
    assert last == {"left": []} and len(moments) > 10
    seen = set[str]()
    for found in moments:
        for column, type_, values in found.values():
            is_old = set(values) <= set(OLD) and (len(values) > 2 or way == "repair")
            assert is_old or set(values) <= set(NEW)
            assert type_ == ("int8" if is_old or way == "append a shard" else "int16")
            assert column == ["m"] or column == ["n"]
        seen.add(json.dumps(found))
    assert len(seen) > 1 or way == "repair", "some kills come before, and some after"


def killed(folder: Path, name: str) -> Path:
    """A file whose writer was killed before its sidecar had a name."""

    class Killed(Calls):
        def rename(self, old: str, new: str) -> None:
            if new.endswith(sidecar.SIDECAR_SUFFIX):
                raise KeyboardInterrupt
            super().rename(old, new)

        def unlink(self, path: str) -> None:
            if ".penstock." not in os.path.basename(path):
                super().unlink(path)

    with pytest.raises(KeyboardInterrupt):
        ps.write({"n": pa.array(NEW, pa.int16())}, folder / name, storage=LocalStorage(Killed()))
    assert not index_of(folder / name).exists()
    assert [p.name.endswith(TEMPORARY_SUFFIX) for p in folder.iterdir()].count(True) == 1
    return folder / name


def types_of(path: Path, **how: str) -> list[pa.DataType]:
    return ps.open(path, **how).schema.types


@pytest.mark.parametrize("name", NAMES)
def test_the_first_reader_gives_the_sidecar_its_name(name: str, tmp_path: Path) -> None:
    path = killed(tmp_path, name)
    assert types_of(path, index="never") == [pa.int64() if name != "x.npy" else pa.int16()]
    assert not index_of(path).exists()
    assert types_of(path) == [pa.int16()] and ps.info(path).types in ("kept", "stored")
    assert index_of(path).exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == [index_of(path).name, name]


def test_a_reader_without_write_permission_reads_it_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = killed(tmp_path, "x.tfrecord")

    def refused(old: str, new: str) -> None:
        raise PermissionError(new)

    monkeypatch.setattr(os, "replace", refused)
    assert types_of(path) == [pa.int16()]
    assert len(list(tmp_path.glob(f".*{TEMPORARY_SUFFIX}"))) == 1


@pytest.mark.parametrize("name", ["x.tfrecord", "x.msgpack"])
def test_another_file_of_the_same_name_does_not_get_its_types(name: str, tmp_path: Path) -> None:
    path = killed(tmp_path, name)
    copy = tmp_path / "copy"
    shutil.copyfile(path, copy)  # the same bytes, with a different inode
    os.replace(copy, path)
    assert types_of(path) == [pa.int64()]
    path = killed(tmp_path / "more" if (tmp_path / "more").mkdir() is None else path, name)
    with path.open("r+b") as file:  # the same file, written to
        file.write(path.read_bytes())
    assert types_of(path) == [pa.int64()]


def test_if_the_name_is_taken_meanwhile_no_early_sidecar_is_left(tmp_path: Path) -> None:
    class Slower(Calls):
        def link(self, old: str, new: str) -> None:
            if not os.path.exists(new):
                ps.write({"n": pa.array(OLD, pa.int8())}, new)
            super().link(old, new)

    with pytest.raises(FileExistsError):
        ps.write(
            {"n": pa.array(NEW, pa.int16())},
            tmp_path / "x.tfrecord",
            storage=LocalStorage(Slower()),
        )
    assert types_of(tmp_path / "x.tfrecord") == [pa.int8()]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_longest_name_has_a_sidecar_ahead_of_it(tmp_path: Path) -> None:
    path = killed(tmp_path, "x" * 240 + ".tfrecord")
    assert types_of(path) == [pa.int16()]


def test_it_is_open_to_no_more_people_than_its_file(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write({"n": [1]}, path)
    path.chmod(0o600)
    seen: list[int] = []

    class Watching(Calls):
        def rename(self, old: str, new: str) -> None:
            super().rename(old, new)
            seen.append(os.stat(new).st_mode & 0o777)

        def close(self, fd: int) -> None:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                seen.append(os.fstat(fd).st_mode & 0o777)
            super().close(fd)

    ps.write({"n": [2]}, path, overwrite=True, storage=LocalStorage(Watching()))
    assert len(seen) == 4 and set(seen) == {0o600}
    assert ahead.left_of(str(path), None) is None


def test_a_folder_of_indexes_is_made_if_there_are_indexes(tmp_path: Path) -> None:
    ps.write({"n": pa.array(OLD, pa.int8())}, tmp_path / "x.tfrecord")
    kept = tmp_path / "kept"
    ps.convert(tmp_path / "x.tfrecord", tmp_path / "x.parquet", index=str(kept))
    assert not kept.exists()
    ps.convert(tmp_path / "x.parquet", tmp_path / "y.tfrecord", index=str(kept))
    assert types_of(tmp_path / "y.tfrecord", index=str(kept)) == [pa.int8()]

"""`clean` finds what killed processes left on this machine, and touches nothing else."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

import penstock as ps


class StoppedError(Exception):
    pass


def stopped_conversion(folder: Path) -> None:
    """Leave the journal and a finished part of a conversion, as a kill does."""

    def progress(done: int, *_: int) -> None:
        if done > 10:
            raise StoppedError

    ps.write({"id": list(range(20))}, folder / "x.tfrecord", overwrite=True)
    with pytest.raises(StoppedError):
        ps.convert(folder / "x.tfrecord", folder / "y.parquet", num_shards=2, progress=progress)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_leftovers_are_listed_and_removed(tmp_path: Path) -> None:
    ps.write({"id": [1]}, tmp_path / "a.tfrecord")
    ps.add_fields(tmp_path / "a.tfrecord", {"score": [1]})
    stopped_conversion(tmp_path)
    data = {name for name in names(tmp_path) if "-part-" not in name and "-convert-" not in name}
    (tmp_path / ".a.tfrecord.0123456789ab.penstock-tmp").write_bytes(b"12345")
    before = names(tmp_path)
    found = ps.clean(tmp_path, older_than=0)
    assert [(left.kind, left.is_removed) for left in found] == [
        ("temporary file", False), ("journal", False), ("part", False),
    ]  # fmt: skip
    assert found[0].num_bytes == 5
    assert names(tmp_path) == before
    removed = ps.clean(tmp_path, older_than=0, remove=True)
    assert [(left.path, left.is_removed) for left in removed] == [(x.path, True) for x in found]
    assert names(tmp_path) == data
    assert ps.open(tmp_path / "a.tfrecord")[0] == {"id": 1, "score": 1}


def test_young_files_stay(tmp_path: Path) -> None:
    left = tmp_path / ".a.0123456789ab.penstock-tmp"
    left.touch()
    assert ps.clean(tmp_path, remove=True) == []
    day = time.time() - 90_000
    os.utime(left, (day, day))
    (found,) = ps.clean(tmp_path, remove=True)
    assert 89_000 < found.age_s < 91_000
    assert names(tmp_path) == set()


def test_a_running_conversion_is_not_touched(tmp_path: Path) -> None:
    ps.write({"id": list(range(20))}, tmp_path / "x.tfrecord")
    found: list[ps.Left] = []

    def progress(*_: int) -> None:
        found.extend(ps.clean(tmp_path, older_than=0, remove=True))

    ps.convert(tmp_path / "x.tfrecord", tmp_path / "y.parquet", num_shards=2, progress=progress)
    assert found == []
    assert len(ps.open(tmp_path / "y@2.parquet")) == 20


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ps.clean(tmp_path / "missing")


def test_journals_of_changed_fields_are_leftovers(tmp_path: Path) -> None:
    (tmp_path / ".penstock-fields-0123456789abcdef.json").write_text("{}")
    data = pa.table({"id": [1], "x": [2]})
    ps.write(data, tmp_path / "a.tfrecord")
    (found,) = ps.clean(tmp_path, older_than=0)
    assert found.kind == "journal"

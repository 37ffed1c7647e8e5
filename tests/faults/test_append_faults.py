"""Whatever fails during an append, the file keeps its old records, and gets all new records or none."""

from __future__ import annotations

import errno
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
from storage_double import FailingCalls, FullDisk, RecordingCalls

import penstock as ps
from penstock.storage import append_journal as journal
from penstock.storage.local import LocalStorage
from penstock.storage.local_sink import TEMPORARY_SUFFIX
from reading import index_of

OLD = {"id": range(300), "text": [f"record {n}" * 5 for n in range(300)]}
NEW = {"id": range(300, 500), "text": [f"record {n}" * 5 for n in range(300, 500)]}
NAMES = ["x.tfrecord", "x.tfrecord.gz"]


def started(folder: Path, name: str) -> Path:
    folder.mkdir()
    ps.write(OLD, folder / name, threads=1, member_bytes=4096)
    return folder / name


def appended(path: Path, calls: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an index that cannot be written is a warning
        storage = LocalStorage(calls)
        ps.append(NEW, path, threads=1, storage=storage, member_bytes=4096)


def ids(path: Path) -> list[int]:
    return [n for batch in ps.open(path).scan(["id"], threads=1) for n in batch["id"].to_pylist()]


def before_and_after(tmp_path: Path, name: str) -> tuple[bytes, bytes, int]:
    path = started(tmp_path / "reference", name)
    before = path.read_bytes()
    counting = FailingCalls(None)
    appended(path, counting)
    return before, path.read_bytes(), counting.seen


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
@pytest.mark.parametrize("name", NAMES)
def test_every_failing_call_leaves_all_new_records_or_none(
    tmp_path: Path, name: str, error: int
) -> None:
    before, after, num_calls = before_and_after(tmp_path, name)
    told = set()
    for failing in range(num_calls + 2):
        path = started(tmp_path / str(failing), name)
        calls = FailingCalls(failing, error)
        raised = None
        try:
            appended(path, calls)
        except OSError as caught:
            raised = caught
            told.add(calls.failed)
        # The caller may try again after an error, so nothing must have been added.
        assert path.read_bytes() == (before if raised else after), (failing, calls.failed)
        assert ids(path) == list(range(300 if raised else 500))
        assert ps.verify(path).findings == ()
        left = {p.name for p in path.parent.iterdir()} - {name, str(index_of(name))}
        assert all(other.endswith(TEMPORARY_SUFFIX) for other in left), left
        shutil.rmtree(path.parent)
    assert {"open", "write", "fsync", "rename", "unlink"} <= told


@pytest.mark.parametrize("name", NAMES)
def test_a_disk_that_stays_full_leaves_all_new_records_or_none(tmp_path: Path, name: str) -> None:
    before, after, num_calls = before_and_after(tmp_path, name)
    for failing in range(num_calls):
        path = started(tmp_path / str(failing), name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                appended(path, FullDisk(failing, errno.ENOSPC))
            except OSError as caught:
                assert caught.errno == errno.ENOSPC
        assert path.read_bytes().startswith(before)
        assert ids(path) in (list(range(300)), list(range(500)))
        assert path.read_bytes() in (before, after)
        assert not Path(journal.path_for(str(path))).exists()
        shutil.rmtree(path.parent)


@pytest.mark.parametrize("name", NAMES)
def test_a_power_cut_after_any_call_leaves_all_new_records_or_none(
    tmp_path: Path, name: str
) -> None:
    path = started(tmp_path / "real", name)
    before = path.read_bytes()
    calls = RecordingCalls(str(path.parent))
    appended(path, calls)
    after = path.read_bytes()
    seen = set()
    for number, states in enumerate(calls.moments):
        for state in {tuple(sorted(found.items())) for found in states}:
            folder = tmp_path / "found"
            folder.mkdir()
            for file, data in state:
                (folder / file).write_bytes(data)
            found = folder / name
            assert found.read_bytes().startswith(before), number
            seen.add(found.read_bytes() in (before, after))
            assert ids(found) in (list(range(300)), list(range(500))), number
            assert found.read_bytes() in (before, after), number
            assert ps.verify(found).ok
            assert not Path(journal.path_for(str(found))).exists()
            shutil.rmtree(folder)
    assert seen == {True, False}, "no moment showed half an append"
    for state in calls.moments[-1]:
        assert state[name] == after


def test_the_double_notices_a_missing_fsync(tmp_path: Path) -> None:
    class Forgetful(RecordingCalls):
        def fsync(self, fd: int) -> None:
            self._after()

    path = started(tmp_path / "real", "x.tfrecord")
    before = path.read_bytes()
    calls = Forgetful(str(path.parent))
    appended(path, calls)
    assert any(
        "x.tfrecord" in state
        and state["x.tfrecord"] != before
        and ".x.tfrecord.penstock-append" not in state
        for states in calls.moments[:-5]
        for state in states[:4]
    )


def test_an_interrupt_takes_the_append_back(tmp_path: Path) -> None:
    class Interrupted(FailingCalls):
        def _count(self, name: str) -> None:
            number, self.seen = self.seen, self.seen + 1
            if number == self.failing:
                raise KeyboardInterrupt

    before, after, num_calls = before_and_after(tmp_path, "x.tfrecord")
    for failing in range(num_calls):
        path = started(tmp_path / str(failing), "x.tfrecord")
        with pytest.raises(KeyboardInterrupt):
            appended(path, Interrupted(failing))
        assert ids(path) in (list(range(300)), list(range(500)))
        assert path.read_bytes() in (before, after)


def test_an_append_whose_first_page_was_lost_is_undone(tmp_path: Path) -> None:
    path = started(tmp_path / "real", "x.tfrecord")
    before, stop = path.read_bytes(), KeyboardInterrupt

    class Cut(FailingCalls):
        def fsync(self, fd: int) -> None:
            if os.fstat(fd).st_ino == path.stat().st_ino:
                raise stop  # everything is written, but nothing is durable
            super().fsync(fd)

        def truncate(self, fd: int, size: int) -> None:
            raise OSError(errno.EIO, "the power is gone")

    with pytest.raises(stop):
        appended(path, Cut(None))
    data = bytearray(path.read_bytes())
    page = -(-len(before) // 4096) * 4096
    assert len(before) < page < len(data)
    data[len(before) : page] = bytes(page - len(before))  # the page after it was written
    path.write_bytes(data)
    assert ids(path) == list(range(300))
    assert path.read_bytes() == before

"""Whatever fails while a file is written, its name refers to the old file, to no file, or to the new file."""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from storage_double import CrashingCalls, FailingCalls

from penstock.storage.local import LocalStorage
from penstock.storage.local_sink import TEMPORARY_SUFFIX
from penstock.verbs.write.write import write

TABLE = pa.table({"id": range(500), "text": [f"record {n}" * 20 for n in range(500)]})
OPTIONS: dict[str, dict[str, object]] = {
    "one file": {},
    "gzip, in members": {"compression": "gzip", "member_bytes": 4096},
    "three shards": {"num_shards": 3},
    "shards whose number is known at the end": {"shard_records": 200},
}


def everything(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def written(folder: Path, storage: LocalStorage | None = None, **options: object) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a failing index is a warning, tested below
        write(TABLE, folder / "x.tfrecord", threads=1, storage=storage, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
@pytest.mark.parametrize("replacing", [False, True], ids=["new", "replacing"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_every_failing_call_leaves_whole_files(
    tmp_path: Path, options: dict[str, object], replacing: bool, error: int
) -> None:
    reference = tmp_path / "reference"
    reference.mkdir()
    counting = FailingCalls(None)
    written(reference, LocalStorage(counting), **options)
    whole = everything(reference)
    old = dict.fromkeys(whole, b"old") if replacing else {}
    for failing in range(counting.seen + 4):
        folder = tmp_path / str(failing)
        folder.mkdir()
        for name, data in old.items():
            (folder / name).write_bytes(data)
        calls = FailingCalls(failing, error)
        raised = None
        try:
            written(folder, LocalStorage(calls), overwrite=replacing, **options)
        except OSError as caught:
            raised = caught
        assert raised is None or raised.errno == error
        for name, data in everything(folder).items():
            if name.endswith(TEMPORARY_SUFFIX):
                # It may stay only if its removal failed.
                assert calls.failed == "unlink"
            else:
                assert data in (old.get(name), whole[name]), (failing, calls.failed, name)
        if calls.failed is None:
            assert everything(folder) == whole
        elif raised is None:
            data_files = {
                n: d for n, d in everything(folder).items() if not n.endswith(".penstock")
            }
            wanted = {n: d for n, d in whole.items() if not n.endswith(".penstock")}
            assert {n: d for n, d in data_files.items() if n in wanted} == wanted


def moments(folder: Path, old: dict[str, bytes], **options: object) -> CrashingCalls:
    calls = CrashingCalls(str(folder), old)
    written(folder, LocalStorage(calls), overwrite=bool(old), index=False, **options)
    return calls


@pytest.mark.parametrize("replacing", [False, True], ids=["new", "replacing"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_a_crash_after_any_call_leaves_whole_files(
    tmp_path: Path, options: dict[str, object], replacing: bool
) -> None:
    written(tmp_path, index=False, **options)
    whole = everything(tmp_path)
    for name in whole:
        os.unlink(tmp_path / name)
    old = dict.fromkeys(whole, b"the old file") if replacing else {}
    calls = moments(tmp_path, old, **options)
    for number, states in enumerate(calls.moments):
        for state in states:
            for name, data in state.items():
                if not name.endswith(TEMPORARY_SUFFIX):
                    assert data in (old.get(name), whole[name]), (number, name)
    for state in calls.moments[-1]:
        assert {n: d for n, d in state.items() if not n.endswith(TEMPORARY_SUFFIX)} == whole


def test_the_double_notices_a_missing_fsync(tmp_path: Path) -> None:
    class Forgetful(CrashingCalls):
        def fsync(self, fd: int) -> None:
            self._after()

    calls = Forgetful(str(tmp_path), {})
    written(tmp_path, LocalStorage(calls), index=False)
    assert any(
        data == b""
        for states in calls.moments
        for state in states
        for name, data in state.items()
        if name == "x.tfrecord"
    )


def test_an_index_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    written(tmp_path)
    whole = everything(tmp_path)["x.tfrecord"]
    os.unlink(tmp_path / "x.tfrecord")
    calls = FailingCalls(None)
    write(TABLE, tmp_path / "x.tfrecord", index=False, threads=1, storage=LocalStorage(calls))
    calls = FailingCalls(calls.seen, errno.ENOSPC)
    os.unlink(tmp_path / "x.tfrecord")
    with pytest.warns(UserWarning, match="its index is not"):
        write(TABLE, tmp_path / "x.tfrecord", threads=1, storage=LocalStorage(calls))
    assert (tmp_path / "x.tfrecord").read_bytes() == whole


def test_a_failing_source_leaves_nothing(tmp_path: Path) -> None:
    def batches() -> object:
        yield pa.record_batch({"n": [1]})
        raise RuntimeError("the stream broke")

    cuts: list[Callable[[], object]] = [
        lambda: write(batches(), tmp_path / "x.tfrecord"),
        lambda: write(batches(), tmp_path / "x.tfrecord", num_shards=2),
        lambda: write(batches(), tmp_path / "x.tfrecord", shard_records=1),
    ]
    for cut in cuts:
        with pytest.raises(RuntimeError, match="the stream broke"):
            cut()
        assert not everything(tmp_path)

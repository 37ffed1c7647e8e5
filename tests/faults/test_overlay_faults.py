"""Whatever fails while overlays are written next to shards, each shard has the old overlay, none, or the new one, and
every overlay file is complete."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from storage_double import CrashingCalls, FailingCalls

import penstock as ps
from overlaying import folder_of, path_of
from penstock.storage.local import LocalStorage
from penstock.storage.local_sink import TEMPORARY_SUFFIX
from penstock.verbs.fields.overlays import write_overlay

SHARDS = 3
VICTIM = str(Path(__file__).with_name("overlay_forever.py"))
KILLS = 60


def shards(folder: Path) -> list[str]:
    folder.mkdir(exist_ok=True)
    ps.write({"id": range(300)}, folder / "a.tfrecord", num_shards=SHARDS)
    return list(ps.open(folder).paths)


def keep(
    paths: list[str], factor: int, storage: LocalStorage | None = None, *, overwrite: bool = False
) -> None:
    dataset = ps.open(paths, storage=storage)
    schema = pa.schema([("score", pa.int64())])

    def columns_of_shard(shard: int) -> list[pa.RecordBatch]:
        values = np.arange(100 * shard, 100 * shard + 100) * factor
        return [pa.record_batch([pa.array(values)], schema=schema)]

    write_overlay(dataset, "score", schema, columns_of_shard, overwrite=overwrite)


def scores(path: str) -> list[int] | None:
    """The values that one shard returns; None if it has no overlay."""
    batch = ps.open(path).take(range(100))
    return batch.column("score").to_pylist() if "score" in batch.schema.names else None


def of_shard(shard: int, factor: int) -> list[int]:
    return [n * factor for n in range(100 * shard, 100 * shard + 100)]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
@pytest.mark.parametrize("replacing", [False, True], ids=["new", "replacing"])
def test_every_failing_call_leaves_whole_overlays(
    tmp_path: Path, replacing: bool, error: int
) -> None:
    counting = FailingCalls(None)
    paths = shards(tmp_path / "counted")
    if replacing:
        keep(paths, 2)
    keep(paths, 3, LocalStorage(counting), overwrite=replacing)
    for failing in range(counting.seen):
        paths = shards(tmp_path / str(failing))
        if replacing:
            keep(paths, 2)
        calls = FailingCalls(failing, error)
        with pytest.raises(OSError, match=r".") as raised:
            keep(paths, 3, LocalStorage(calls), overwrite=replacing)
        assert raised.value.errno == error
        for shard, path in enumerate(paths):
            old = of_shard(shard, 2) if replacing else None
            assert scores(path) in (old, of_shard(shard, 3)), (failing, calls.failed)
            if os.path.isdir(folder_of(path)) and calls.failed != "unlink":
                left = [n for n in os.listdir(folder_of(path)) if n.endswith(TEMPORARY_SUFFIX)]
                assert not left, (failing, calls.failed)
        keep(paths, 3, overwrite=replacing)
        assert [scores(path) for path in paths] == [of_shard(n, 3) for n in range(SHARDS)]


@pytest.mark.parametrize("replacing", [False, True], ids=["new", "replacing"])
def test_a_crash_after_any_call_leaves_a_whole_overlay(tmp_path: Path, replacing: bool) -> None:
    path = shards(tmp_path / "a")[0]
    kept_at = Path(path_of(path, "score"))
    keep([path], 3)
    new = kept_at.read_bytes()
    ps.remove_overlay(path, "score")
    old: dict[str, bytes] = {}
    if replacing:
        keep([path], 2)
        old = {kept_at.name: kept_at.read_bytes()}
    kept_at.parent.mkdir(exist_ok=True)
    calls = CrashingCalls(str(kept_at.parent), old)
    keep([path], 3, LocalStorage(calls), overwrite=replacing)
    assert calls.moments
    # A replacement has the next sequence number, so its bytes differ.
    last = calls.moments[-1][0][kept_at.name]
    assert replacing or last == new
    for states in calls.moments:
        for state in states:
            whole = (old.get(kept_at.name), last)
            assert all(d in whole for n, d in state.items() if not n.endswith(TEMPORARY_SUFFIX))
    for state in calls.moments[-1]:
        assert state[kept_at.name] == last


def test_kills_leave_every_shard_with_old_or_new_values(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    moment = random.Random(seed)
    paths = shards(tmp_path / "a")
    seen: set[int] = set()
    with subprocess.Popen(
        [sys.executable, VICTIM, *paths], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdin is not None
        assert starter.stdout is not None
        for _ in range(KILLS):
            starter.stdin.write("go\n")
            starter.stdin.flush()
            victim = int(starter.stdout.readline())
            time.sleep(moment.uniform(0, 0.05))
            os.kill(victim, signal.SIGKILL)
            assert starter.stdout.readline() == "gone\n"
            for shard, path in enumerate(paths):
                values = scores(path)
                if values is not None:
                    factor = values[-1] // (100 * shard + 99)
                    assert values == of_shard(shard, factor), f"seed {seed}"
                    seen.add(factor)
        starter.stdin.close()
    assert len(seen) > 1, "the victims wrote nothing, or only once"
    keep(paths, 7, overwrite=True)
    assert [scores(path) for path in paths] == [of_shard(n, 7) for n in range(SHARDS)]

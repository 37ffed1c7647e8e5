"""Baking in place, killed at random moments, 60 times: no value is ever lost."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from tests.faults.bake_when_asked import bake
from tests.faults.test_kill import is_alive

KILLS = 60
SHARDS = 12
RECORDS = 50
VICTIM = str(Path(__file__).with_name("bake_when_asked.py"))


def make(folder: Path) -> list[str]:
    """Shards with two overlays. The later overlay has different values for a field."""
    count = SHARDS * RECORDS
    rows = {"id": np.arange(count), "text": ["some text"] * count}
    paths = list(ps.write(rows, folder / "s.tfrecord", num_shards=SHARDS).paths)
    ps.add_fields(paths, {"score": -np.arange(count), "word": [f"w{n}" for n in range(count)]})
    ps.add_fields(paths, {"score": np.arange(count) * 3}, replace=True, name="later")
    return paths


def wanted(shard: int) -> list[dict[str, object]]:
    return [
        {"id": n, "text": "some text", "score": 3 * n, "word": f"w{n}"}
        for n in range(RECORDS * shard, RECORDS * (shard + 1))
    ]


def rows_of(path: str, *, overlays: bool) -> list[dict[str, object]]:
    rows = ps.open(path, overlays=overlays)[:].to_pylist()
    # After a kill between the renames of a file and of its sidecar, only the file itself has the
    # types.
    return [{k: v.decode() if isinstance(v, bytes) else v for k, v in row.items()} for row in rows]


def where_values_are(path: str, shard: int) -> str:
    """ "inside" or "beside"; fails if a shard has its values in neither place."""
    inside = rows_of(path, overlays=False)
    if "score" in inside[0]:
        assert inside == wanted(shard)
        return "inside"
    assert rows_of(path, overlays=True) == wanted(shard)
    return "beside"


def only_shards_and_indexes(folder: Path) -> bool:
    wanted = (".tfrecord", ".tfrecord.penstock")
    left = [path.name for path in folder.iterdir() if not path.name.endswith(wanted)]
    assert not left, left
    return True


def test_a_bake_killed_before_it_removes_an_empty_folder_leaves_no_folder(tmp_path: Path) -> None:
    """The process is killed after it removed the last overlay of a shard and before it removes the folder."""
    make(tmp_path)
    victim = os.fork()
    if victim == 0:
        os.rmdir = lambda path, **_: os.listdir(path) or os._exit(9)
        bake(str(tmp_path))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(victim, 0)[1]) == 9
    assert [path for path in tmp_path.glob("*.penstock-fields") if not list(path.iterdir())]
    bake(str(tmp_path))
    assert only_shards_and_indexes(tmp_path)


def test_a_killed_bake_loses_no_value_and_is_finished_later(tmp_path: Path) -> None:
    originals, folder = tmp_path / "originals", tmp_path / "folder"
    originals.mkdir()
    make(originals)
    shutil.copytree(originals, folder)
    paths = sorted(str(path) for path in folder.glob("*.tfrecord"))
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    moment = random.Random(seed)
    mixed = stale = finished = 0
    with subprocess.Popen(
        [sys.executable, VICTIM, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    ) as starter:
        assert starter.stdin is not None
        assert starter.stdout is not None
        for _ in range(KILLS):
            starter.stdin.write("\n")
            starter.stdin.flush()
            victim = int(starter.stdout.readline())
            time.sleep(moment.uniform(0, 0.2))
            if is_alive(victim):
                os.kill(victim, signal.SIGKILL)
            while is_alive(victim):
                time.sleep(0.0005)
            found = [where_values_are(path, shard) for shard, path in enumerate(paths)]
            mixed += len(set(found)) == 2
            # At most one shard has its values twice: the job was killed after it renamed the shard
            # and before it removed the overlays.
            twice = [
                path
                for path, place in zip(paths, found, strict=True)
                if place == "inside" and ps.overlays(path)
            ]
            assert len(twice) <= 1, f"seed {seed}"
            stale += len(twice)
            if set(found) == {"inside"} and not twice:
                finished += 1
                shutil.rmtree(folder)
                shutil.copytree(originals, folder)
        starter.stdin.close()
    print(f"{mixed} times some were baked, {stale} with overlays left, {finished} times all were")
    assert mixed, f"seed {seed}"
    if any(ps.overlays(path) for path in paths):
        bake(str(folder))
    assert [where_values_are(p, n) for n, p in enumerate(paths)] == ["inside"] * SHARDS
    assert ps.overlays(paths) == []
    with pytest.raises(ValueError, match="has no overlays"):
        bake(str(folder))
    assert only_shards_and_indexes(folder)

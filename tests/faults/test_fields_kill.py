"""A change of fields in place, killed at random moments: 200 times in the long tests, and 50 times in the others, or
more often until a kill came between two shards."""

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
import pyarrow as pa
import pytest

import penstock as ps
from tests.faults.add_fields_when_asked import add
from tests.faults.test_kill import is_alive

MOST_KILLS = 200
SHARDS = 20
VICTIM = str(Path(__file__).with_name("add_fields_when_asked.py"))


def make(folder: Path) -> None:
    for shard in range(SHARDS):
        rows = pa.table({"id": np.arange(50) + 50 * shard, "text": ["some text"] * 50})
        ps.write(rows, folder / f"s{shard:02d}.tfrecord")


def contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.glob("*.tfrecord"))]


def put_back(folder: Path, originals: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(originals, folder)


@pytest.mark.parametrize("kills", [50, pytest.param(MOST_KILLS, marks=pytest.mark.stress)])
def test_a_killed_change_leaves_every_shard_old_or_new_and_is_finished_later(
    tmp_path: Path, kills: int
) -> None:
    originals, reference, folder = (tmp_path / name for name in ("old", "new", "folder"))
    originals.mkdir()
    make(originals)
    shutil.copytree(originals, reference)
    add(str(reference))
    old, new = contents(originals), contents(reference)
    assert all(a != b for a, b in zip(old, new, strict=True))
    shutil.copytree(originals, folder)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    moment = random.Random(seed)
    mixed = finished = 0
    with subprocess.Popen(
        [sys.executable, VICTIM, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    ) as starter:
        assert starter.stdin is not None
        assert starter.stdout is not None
        for kill in range(MOST_KILLS):
            if kill >= kills and mixed:
                break
            starter.stdin.write("\n")
            starter.stdin.flush()
            victim = int(starter.stdout.readline())
            time.sleep(moment.uniform(0, 0.2))
            if is_alive(victim):
                os.kill(victim, signal.SIGKILL)
            while is_alive(victim):
                time.sleep(0.0005)
            found = contents(folder)
            assert len(found) == SHARDS, f"a shard is gone; seed {seed}"
            done = [is_new(*three, seed) for three in zip(found, old, new, strict=True)]
            mixed += any(done) and not all(done)
            if all(done):
                finished += 1
                put_back(folder, originals)
        starter.stdin.close()
    print(f"{mixed} times some shards were new and some old, {finished} times all were new")
    assert mixed
    if contents(folder) != new:
        add(str(folder))
    assert contents(folder) == new
    whole = (".tfrecord", ".tfrecord.penstock")
    left = [path.name for path in folder.iterdir() if not path.name.endswith(whole)]
    assert not left
    assert len(ps.open(str(folder / "*.tfrecord"), columns=["score"])) == SHARDS * 50


def is_new(found: bytes, old: bytes, new: bytes, seed: int) -> bool:
    assert found in (old, new), f"a shard is torn; seed {seed}"
    return found == new

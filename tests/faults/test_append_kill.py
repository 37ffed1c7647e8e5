"""After an append is killed at a random moment, all old records are there, and all new records or none."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from append_forever import PAD, STEP
from test_kill import is_alive

import penstock as ps
from penstock.storage import append_journal as journal
from penstock.storage.local_sink import TEMPORARY_SUFFIX

VICTIM = str(Path(__file__).with_name("append_forever.py"))
NAMES = ["x.tfrecord", "x.tfrecord.gz"]
MOST_CALLS = 25
"""An append makes at most this many system calls."""
LARGE_BYTES = 8 << 20


def test_50_kills_leave_whole_appends(tmp_path: Path) -> None:
    killed(tmp_path, 50)


@pytest.mark.stress
def test_2000_kills_leave_whole_appends(tmp_path: Path) -> None:
    killed(tmp_path, 2000)


def killed(folder: Path, kills: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    moment = random.Random(seed)
    data = folder / "data"
    data.mkdir()
    grown = torn = 0
    with subprocess.Popen(
        [sys.executable, VICTIM, str(folder / "warm")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as starter:
        assert starter.stdin is not None
        assert starter.stdout is not None
        for kill in range(kills):
            path = data / NAMES[kill % 2]
            if not path.exists() or path.stat().st_size > LARGE_BYTES:
                first = {"id": range(STEP), "pad": [PAD] * STEP}
                ps.write(first, path, overwrite=True, threads=1)
            before = path.read_bytes()
            # Victims are killed at every call in turn, first while they append to one file and then
            # to the other. In between, victims are killed at random moments.
            last = -1 if kill % 5 == 4 else kill // 2 % MOST_CALLS
            starter.stdin.write(f"{last} {path}\n")
            starter.stdin.flush()
            victim = int(starter.stdout.readline())
            if last < 0:
                time.sleep(moment.uniform(0, 0.05))
                os.kill(victim, signal.SIGKILL)
            if kill + 1 < kills:
                while is_alive(victim):
                    time.sleep(0.0005)
            found = path.read_bytes()
            assert found.startswith(before), f"old bytes are gone; seed {seed}"
            torn += os.path.exists(journal.path_for(str(path)))
            grown += look_at(path, before, seed)
        starter.stdin.close()
    print(f"{grown} appends seen, {torn} killed between their first byte and their last")
    assert grown
    assert torn


def look_at(path: Path, before: bytes, seed: int) -> int:
    """Open the file, which completes an unfinished append, check it, and remove temporary files. Returns the number
    of appends since then."""
    ds = ps.open(path)
    ids = [n for batch in ds.scan(["id"], threads=1) for n in batch["id"].to_pylist()]
    assert len(ids) % STEP == 0, f"half an append; seed {seed}"
    assert ids == list(range(len(ids))), f"an append is lost; seed {seed}"
    assert len(ds) == len(ids)
    report = ps.verify(path, threads=1)
    assert report.ok, f"{report}; seed {seed}"
    assert path.read_bytes().startswith(before)
    assert not os.path.exists(journal.path_for(str(path)))
    for other in path.parent.iterdir():
        if other.name.endswith(TEMPORARY_SUFFIX):
            other.unlink()
    return len(ids) // STEP - 1

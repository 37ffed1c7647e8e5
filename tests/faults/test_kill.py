"""A writer that is killed at random moments never leaves an incomplete file under a final name. It is killed 200 times
in the long tests, and 60 times in the others, or more often until there are whole files and temporary ones."""

from __future__ import annotations

import gzip
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.storage.local_sink import TEMPORARY_SUFFIX
from penstock.verbs.write.write import write

MOST_KILLS = 200
VICTIM = str(Path(__file__).with_name("write_forever.py"))


def frames(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def whole_contents(folder: Path) -> set[bytes]:
    table = pa.table({"id": range(2000), "text": ["some text of a record"] * 2000})
    write(table, folder / "a.tfrecord", index=False)
    write(table, folder / "b.tfrecord", num_shards=2, index=False)
    return {frames(path) for path in folder.iterdir()}


@pytest.mark.parametrize("kills", [60, pytest.param(MOST_KILLS, marks=pytest.mark.stress)])
def test_kills_leave_no_half_file(tmp_path: Path, kills: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    moment = random.Random(seed)
    reference, folder = tmp_path / "reference", tmp_path / "folder"
    reference.mkdir()
    folder.mkdir()
    whole = whole_contents(reference)
    seen = torn = 0
    with subprocess.Popen(
        [sys.executable, VICTIM, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as starter:
        assert starter.stdin is not None
        assert starter.stdout is not None
        for kill in range(MOST_KILLS):
            if kill >= kills and seen and torn:
                break
            starter.stdin.write(f"{kill}\n")
            starter.stdin.flush()
            victim = int(starter.stdout.readline())
            time.sleep(moment.uniform(0, 0.08))
            os.kill(victim, signal.SIGKILL)
            if kill % 10 == 9:
                # The next answer comes only after the victim has ended; do not wait for it here.
                while is_alive(victim):
                    time.sleep(0.001)
                found = look_at(folder, whole, seed)
                seen, torn = seen + found[0], torn + found[1]
        starter.stdin.close()
    print(f"{seen} whole files seen, {torn} temporaries left behind")
    assert seen
    assert torn


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def look_at(folder: Path, whole: set[bytes], seed: int) -> tuple[int, int]:
    """Check all files, and remove files that would accumulate. Returns (complete files, temporary files)."""
    seen = torn = 0
    for path in folder.iterdir():
        if path.name.endswith(TEMPORARY_SUFFIX):
            torn += 1
            path.unlink()
        elif path.name.endswith(".tfrecord"):
            assert frames(path) in whole, f"{path.name} is torn; seed {seed}"
            seen += 1
            if path.name.startswith("n-"):
                path.unlink()
    return seen, torn

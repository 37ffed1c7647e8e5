"""kill -9 in the middle of training; a new process continues from the last saved state."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from loader.torturing import write
from reading import ROOT

COUNT = 3000
BATCH = 16
ORDER = ps.Blocked(seed=8, window_chunks=4, chunk_records=50)

# One line for each step, written before the next step begins: the records of the step, then the
# state.
TRAIN = """
import json, os, sys, time
import numpy as np
import penstock as ps

source, log, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
order = ps.Blocked(seed=8, window_chunks=4, chunk_records=50)
loader = ps.Loader(ps.open(source), 16, order=order, threads=4)
lines = open(log).read().splitlines() if os.path.exists(log) else []
whole = [line for line in lines if line.endswith("}")]
if whole:
    loader.load_state_dict(json.loads(whole[-1])["state"])
with open(log, "a") as file:
    file.write("\\n")
    print("ready", flush=True)
    while True:
        for batch in loader:
            time.sleep(0.001)
            line = {"ids": [int(n) for n in batch["id"]], "state": loader.state_dict()}
            file.write(json.dumps(line) + "\\n")
            file.flush()
            os.fsync(file.fileno())
"""


def outside(pid: int) -> list[str]:
    """Everything that could outlive a running process: its shared memory and its child processes."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    children = [child for task in tasks for child in (task / "children").read_text().split()]
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return children + [line for line in maps if "/dev/shm" in line or "/SYSV" in line]


def train(source: str, log: Path, temporary: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", TRAIN, source, str(log), "0"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(temporary)},
        start_new_session=True,
    )


def group_is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def check_kills(name: str, kills: int, folder: Path) -> None:
    source = write(name, folder, COUNT)
    log, temporary = folder / "log", folder / "tmp"
    temporary.mkdir()
    before = {str(path) for path in folder.iterdir() if path.suffix != ".penstock"}
    rng = random.Random(kills)
    for _ in range(kills):
        process = train(source, log, temporary)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(rng.random() * 0.4)
        assert process.poll() is None
        if sys.platform == "linux":
            assert outside(process.pid) == []
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        process.stdout.close()
        assert group_is_gone(process.pid), "a process of its own was left behind"
        assert not list(temporary.iterdir()), "a temporary file was left behind"
    after = {str(path) for path in folder.iterdir() if path.suffix != ".penstock"}
    assert after == before | {str(log)}
    check_log(source, log)


def check_log(source: str, log: Path) -> None:
    """The complete lines must equal those of one uninterrupted run."""
    steps: list[dict[str, Any]] = []
    for line in log.read_text().splitlines():
        if line.endswith("}"):
            steps.append(json.loads(line))
    seen = np.concatenate([step["ids"] for step in steps])
    epochs = -(-len(seen) // COUNT)
    loader = ps.Loader(ps.open(source), BATCH, order=ORDER, threads=0)
    expected = [int(n) for _ in range(epochs) for batch in loader for n in batch["id"]]
    assert seen.tolist() == expected[: len(seen)]
    assert len(steps) > 5


@pytest.mark.parametrize("name", ["plain.tfrecord", "deflated.npz"])
def test_a_killed_training_continues_and_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    check_kills(name, 2, tmp_path)


@pytest.mark.stress
@pytest.mark.parametrize("name", ["plain.tfrecord", "deflated.npz", "x.parquet", "x.tar"])
def test_a_hundred_kills(name: str, tmp_path: Path) -> None:
    check_kills(name, 25, tmp_path)

"""Reading in subprocesses, so that a crash or a hang is a result too."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import penstock as ps
from reading import ROOT

PROGRAM = Path(__file__).with_name("read_hostile.py")
SILENCE = 60.0
"""If there is no answer for this many seconds, the file counts as hanging."""


class Program:
    """Runs `read_hostile.py`, and restarts it if a file kills it. Files in `warm` are read before any file that is
    measured, so that imports at first use are not counted."""

    def __init__(self, warm: Sequence[str]) -> None:
        self._warm = warm
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, task: dict[str, Any]) -> dict[str, Any]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "ignore", str(PROGRAM), *self._warm],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=ROOT,
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(task).encode() + b"\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], SILENCE)
        line = process.stdout.readline() if ready else b""
        if line:
            return json.loads(line)
        self._process = None
        if not ready:
            process.kill()
        process.communicate()
        died = f"exit {process.returncode}" if ready else f"no answer in {SILENCE:.0f} s"
        return {"path": task["path"], "died": died}

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate()


def warm_files(folder: Path) -> list[str]:
    """A small file of each format whose library takes time to import."""
    endings = ("tfrecord", "arrow", "parquet", "h5", "npz", "npy", "msgpack", "tar")
    paths = [str(folder / f"warm.{ending}") for ending in endings]
    for path in paths:
        ps.write({"x": [1, 2]}, path, index=False)
    return paths


def answers(tasks: list[dict[str, Any]], warm: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The result of each task, in order; two programs share the tasks."""

    def some(part: list[dict[str, Any]]) -> list[dict[str, Any]]:
        program = Program(warm)
        try:
            return [program.ask(task) for task in part]
        finally:
            program.close()

    found: list[dict[str, Any]] = [{}] * len(tasks)
    with ThreadPoolExecutor(2) as pool:
        found[::2], found[1::2] = pool.map(some, (tasks[::2], tasks[1::2]))
    return found

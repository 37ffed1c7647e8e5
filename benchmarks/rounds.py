"""Runs the rows of one case in turn, round after round, each in a separate process.

All rows of a case take part in every round, so that a disturbance of the machine affects all of them.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.cases import Case
from benchmarks.data import Data
from benchmarks.worker import busy_seconds

ANSWER_SECONDS = 600
QUIET_CORES = 0.2
ATTEMPTS = 4


@dataclass
class Row:
    """The measurements of one row of the table."""

    case: Case
    engine: str
    role: str
    name: str
    num_records: int = 0
    rounds: list[dict[str, Any]] = field(default_factory=list)
    problem: str = ""
    clock: str = "wall"

    @property
    def label(self) -> str:
        """The name of the row in goals and in the table."""
        return f"{self.engine}: {self.name}"

    @property
    def judged(self) -> bool:
        """Whether the figures can be compared with a goal. CPU time shows neither how well threads run in parallel
        nor how long the program waits for a disk."""
        return self.clock == "wall" or self.case.measure == "megabytes"

    def figures(self) -> list[float]:
        """One figure per round, in the measure of the case."""
        if self.case.measure == "megabytes":
            return [r["megabytes"] for r in self.rounds]
        cpu = self.clock == "cpu"
        seconds = [r["seconds"] * (r["cores"] if cpu else 1.0) for r in self.rounds]
        if self.case.measure == "seconds":
            return seconds
        return [self.num_records / s for s in seconds]


class Worker:
    """The process that runs one row."""

    def __init__(
        self, row: Row, python: Path, data: Data | None, environment: dict[str, str]
    ) -> None:
        self.row = row
        self.log = tempfile.TemporaryFile("w+")
        where = (str(data.folder.parent), data.size) if data else ("", "")
        self.process = subprocess.Popen(
            [python, "-m", "benchmarks.worker", row.engine, row.case.name, row.name, *where],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            cwd=Path(__file__).parent.parent,
            env={**os.environ, **environment},
        )

    def ask(self, word: str) -> dict[str, Any]:
        """Sends one word and returns the answer, or an "error" if there is none."""
        assert self.process.stdin and self.process.stdout
        try:
            self.process.stdin.write(f"{word}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return {"error": self.last_words()}
        ready, _, _ = select.select([self.process.stdout], [], [], ANSWER_SECONDS)
        if not ready:
            self.process.kill()
            return {"error": f"no answer in {ANSWER_SECONDS} s"}
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"error": self.last_words()}

    def last_words(self) -> str:
        """The last line of output of a process that died."""
        self.process.wait()
        self.log.seek(0)
        lines = [line.strip() for line in self.log.read().splitlines() if line.strip()]
        return lines[-1] if lines else f"ended with status {self.process.returncode}"

    def close(self) -> None:
        """Ends the process."""
        assert self.process.stdin and self.process.stdout
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.log.close()


def rows_of(case: Case, engines: list[str], clock: str = "wall") -> list[Row]:
    """The rows that the chosen engines offer for a case, in the order of the table."""
    rows = []
    for engine in engines:
        module = importlib.import_module(f"benchmarks.engines.{engine}")
        rows += [
            Row(case, engine, module.ROLE, name, clock=clock)
            for name in module.JOBS.get(case.name, {})
        ]
    return rows


def wait_for_quiet(seconds: float) -> None:
    """Waits, up to `seconds`, until all other processes together leave the cores idle for a moment."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        busy, start = busy_seconds(), time.monotonic()
        time.sleep(0.3)
        if busy_seconds() - busy < QUIET_CORES * (time.monotonic() - start):
            return


def run_once(worker: Worker, quiet: float) -> dict[str, Any]:
    """One round of one row. With `--quiet`, a disturbed round is repeated and the least disturbed one is kept,
    because other work on the machine distorts the figure."""
    kept: dict[str, Any] = {}
    for _ in range(ATTEMPTS if quiet else 1):
        wait_for_quiet(quiet)
        answer = worker.ask("run")
        if "error" in answer:
            return answer
        if not kept or answer["others_cores"] < kept["others_cores"]:
            kept = answer
        if kept["others_cores"] < QUIET_CORES:
            break
    return kept


def measure(
    case: Case,
    rows: list[Row],
    pythons: dict[str, Path],
    data: Data | None,
    num_rounds: int,
    environment: dict[str, str],
    quiet: float = 0.0,
) -> None:
    """Fills in `rounds`, or `problem` if a row could not run or read something wrong."""

    def start(row: Row) -> Worker | None:
        venv = importlib.import_module(f"benchmarks.engines.{row.engine}").VENV
        if not pythons[venv].exists():
            row.problem = f"no environment at {pythons[venv]}; run benchmarks/setup"
            return None
        return Worker(row, pythons[venv], data, environment)

    def step(worker: Worker, word: str) -> None:
        answer = run_once(worker, quiet) if word == "run" else worker.ask(word)
        if "error" in answer:
            worker.row.problem = answer["error"]
        elif word == "check":
            worker.row.num_records = answer["num_records"]
        else:
            worker.row.rounds.append(answer)

    workers: list[Worker] = []
    try:
        for row in rows:
            print(f"  {case.name}: {row.label} ...", file=sys.stderr, flush=True)
            if worker := start(row):
                step(worker, "check")
                if case.fresh or row.problem:
                    worker.close()
                else:
                    workers.append(worker)
        for _ in range(num_rounds):
            if case.fresh:
                workers = [w for row in rows if not row.problem and (w := start(row))]
            for worker in workers:
                if not worker.row.problem:
                    step(worker, "run")
                if case.fresh:
                    worker.close()
    finally:
        for worker in workers:
            if not worker.log.closed:
                worker.close()

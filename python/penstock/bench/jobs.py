"""Runs jobs in subprocesses, whose memory can be measured and which can be killed.

A job is sent to `python -m penstock.bench` as JSON on stdin, and its result comes back on stdout. The process has its
own session, so Ctrl-C reaches only the waiting process, which then kills the job.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from typing import Any

_PREFIX = "penstock-bench-"


class FailedJobError(Exception):
    """A job failed. The message is the reason."""


def run_job(job: dict[str, Any], most_seconds: float) -> dict[str, Any]:
    """Run a job in a subprocess, and return its result.

    `job` has `kind` and the values that this kind needs, see `penstock.bench.__main__`. The job is killed after
    `most_seconds`.

    Raises:
        FailedJobError: the job failed, ended without a result, or took too long.
    """
    command = [sys.executable, "-m", "penstock.bench"]
    process = subprocess.Popen(  # noqa: S603  this interpreter, with fixed arguments
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    try:
        out, err = process.communicate(json.dumps(job).encode(), timeout=most_seconds)
    except subprocess.TimeoutExpired:
        raise FailedJobError(f"took longer than {most_seconds:.0f} s and was killed") from None
    finally:
        if process.poll() is None:
            _kill(process)
    if process.returncode < 0:
        raise FailedJobError(f"killed by {signal.Signals(-process.returncode).name}")
    try:
        answer: dict[str, Any] = json.loads(out)
    except ValueError:
        last = err.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise FailedJobError(last or f"exit status {process.returncode}") from None
    if "failed" in answer:
        raise FailedJobError(answer["failed"])
    return answer


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@contextlib.contextmanager
def workplace(folder: str | None) -> Generator[str]:
    """Create a new folder inside `folder` (None for the system's temporary folder). It is removed with its contents,
    even after an interrupt."""
    made = tempfile.mkdtemp(prefix=_PREFIX, dir=folder)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)

"""Work in a process of its own, whose memory can be measured and which can be given up.

The job goes to `python -m penstock.bench` as JSON on stdin, its result comes back on stdout. The
process is in a session of its own, so Ctrl-C reaches only the one who waits, who ends it.
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


class FailedApartError(Exception):
    """A job could not be done; its text says why."""


def run_apart(job: dict[str, Any], most_seconds: float) -> dict[str, Any]:
    """Do a job in a process of its own.

    Args:
        job: `kind` and what that kind needs; see `penstock.bench.__main__`.
        most_seconds: it is ended after so many.

    Returns:
        What the job gives.

    Raises:
        FailedApartError: the job failed, ended without a result, or took too long.
    """
    command = [sys.executable, "-m", "penstock.bench"]
    process = subprocess.Popen(  # noqa: S603  this very interpreter, and nothing from outside
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
        raise FailedApartError(f"took longer than {most_seconds:.0f} s and was ended") from None
    finally:
        if process.poll() is None:
            _end(process)
    if process.returncode < 0:
        raise FailedApartError(f"ended by {signal.Signals(-process.returncode).name}")
    try:
        answer: dict[str, Any] = json.loads(out)
    except ValueError:
        last = err.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise FailedApartError(last or f"exit status {process.returncode}") from None
    if "failed" in answer:
        raise FailedApartError(answer["failed"])
    return answer


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@contextlib.contextmanager
def workplace(folder: str | None) -> Generator[str]:
    """A new folder inside `folder` (None: the system's place for temporary files), which goes with
    all that is in it, also when the work is interrupted."""
    made = tempfile.mkdtemp(prefix=_PREFIX, dir=folder)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)

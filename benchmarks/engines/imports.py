"""Timing an import from inside a new interpreter, so that starting Python is not counted."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.job import Job, Outcome


def job(modules: str) -> Job:
    """Imports the comma-separated modules once a round."""
    code = f"import time; t = time.perf_counter(); import {modules}; print(time.perf_counter() - t)"

    def work(check: bool) -> Outcome:
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        return Outcome(0, measured=float(done.stdout.split()[-1]))

    return Job(work)

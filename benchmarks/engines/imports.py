"""Timing an import from inside a new interpreter, so that starting Python is not counted."""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.job import Job, Outcome


def job(modules: str) -> Job:
    """Imports the comma-separated modules once a round."""
    code = f"import time; t = time.perf_counter(); import {modules}; print(time.perf_counter() - t)"

    # As installed: an installer compiles the modules, a checkout does so at the first import.
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}

    def work(check: bool) -> Outcome:
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, check=True, capture_output=True, env=kept)
        return Outcome(0, measured=float(done.stdout.split()[-1]))

    return Job(work)

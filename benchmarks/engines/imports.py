"""Measures the time of an import inside a new interpreter, so that the start of Python is not included."""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.job import Job, Outcome


def job(modules: str) -> Job:
    """Imports the comma-separated modules, once per round."""
    code = f"import time; t = time.perf_counter(); import {modules}; print(time.perf_counter() - t)"

    # Compile the modules first, as an installer does; in a checkout, the first import would do it.
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}

    def work(check: bool) -> Outcome:
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, check=True, capture_output=True, env=kept)
        return Outcome(0, measured=float(done.stdout.split()[-1]))

    return Job(work)

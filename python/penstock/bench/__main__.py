"""`python -m penstock.bench` runs one job in this process and measures it. See `jobs`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import penstock as ps
from penstock.bench.formats_job import format_job
from penstock.bench.images_job import image_job

JOBS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "format": format_job,
    "image": image_job,
}


def main() -> None:
    """Read a job from stdin, run it, and write its result to stdout."""
    job = json.load(sys.stdin)
    # Redirect the output of libraries, so that stdout has only the result.
    answers = os.dup(1)
    os.dup2(2, 1)
    try:
        answer = JOBS[job["kind"]](job)
    except (ps.PenstockError, OSError, ValueError, TypeError, ImportError) as error:
        answer = {"failed": getattr(error, "message", "") or str(error) or type(error).__name__}
    with open(answers, "w", encoding="utf-8") as out:
        json.dump(answer, out)


if __name__ == "__main__":
    main()

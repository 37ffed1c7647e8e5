"""A program that verifies, indexes or repairs files on a cluster, and writes the result to FOLDER/result.json.

python drive_checks.py VERB ADDRESS FOLDER NOTES SECONDS
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import worker_tasks

import penstock as ps
from penstock.ray import Cluster


def result(verb: str, source: Path, folder: Path, **how: Any) -> Any:
    """What a verb finds in a folder `source`, and writes to `folder`, which is left out of its name."""
    paths = sorted(str(path) for path in source.iterdir() if path.name[0] != ".")
    if verb == "index":
        found: Any = ps.index(paths, folder=str(folder / "indexes"), **how)
    elif verb == "repair":
        found = ps.repair(paths, into=f"{folder}/new/", index=False, **how).to_dict()
    else:
        found = ps.verify(paths, **how).to_dict()
    return json.loads(json.dumps(found).replace(str(folder), ""))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    verb, address, folder, notes, seconds = sys.argv[1:]
    storage = worker_tasks.Slow(Path(notes), float(seconds))
    on = Cluster(address, shared_paths=True, retries=20)
    there = Path(folder, "there")
    there.mkdir(exist_ok=True)
    found = result(verb, Path(folder, "set"), there, on=on, storage=storage)
    written = Path(folder, "result.json.tmp")
    written.write_text(json.dumps(found))
    written.rename(Path(folder, "result.json"))

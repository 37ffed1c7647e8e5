"""Code that the tests of appending share."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import penstock as ps

OLD = {"id": range(1000), "text": [f"text {n}" * (n % 9) for n in range(1000)]}
NEW = {"id": range(1000, 1300), "text": [f"new {n}" for n in range(300)]}
NAMES = ["x.tfrecord", "x.tfrecord.gz"]


def ids(path: Any) -> list[int]:
    return [n for batch in ps.open(path).scan(["id"]) for n in batch["id"].to_pylist()]


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def in_parallel(calls: list[Any]) -> None:
    failed: list[BaseException] = []

    def run(call: Any) -> None:
        try:
            call()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed

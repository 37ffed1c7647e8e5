"""Functions that the tests run on workers."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import penstock as ps


def squared(number: int) -> int:
    return number * number


def node_of(_: int) -> str:
    import ray

    return ray.get_runtime_context().get_node_id()


def raising(number: int) -> int:
    if number == 2:
        raise ps.FormatError("no magic", file="a.tfrecord")
    return number


def dying_once(place: str) -> str:
    """Kill the own process in the first attempt."""
    marker = Path(place)
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return place


def always_dying(number: int) -> int:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def without_answer(place: str) -> str:
    """Fail as a store that does not answer, in the first two attempts."""
    attempts = len(list(Path(place).parent.glob(f"{Path(place).name}-*")))
    if attempts < 2:
        Path(f"{place}-{attempts}").touch()
        raise ps.StorageError("no answer")
    return place


def slow(place: str) -> str:
    Path(f"{place}-begun").touch()
    time.sleep(60)
    return place

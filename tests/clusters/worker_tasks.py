"""Functions that the tests run on workers."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

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


def dying_in_the_middle(batch: dict[str, Any], place: str) -> dict[str, Any]:
    """Kill the own process at the second batch of a task, in the first attempt of this task."""
    name = f"{int(batch['id'][0]) // 100}"
    if batch["id"][0] % 100:
        dying_once(f"{place}/{name}")
    return batch


def slowly(batch: dict[str, Any], place: str) -> dict[str, Any]:
    """Take some time. Meanwhile, a file names the process."""
    marker = Path(place) / str(os.getpid())
    marker.touch()
    time.sleep(0.02)
    marker.unlink(missing_ok=True)
    return batch


def of_two_types(batch: dict[str, Any]) -> dict[str, Any]:
    return {"value": batch["id"] + 0.5 if batch["id"][0] else batch["id"]}


def decoded(batch: dict[str, Any]) -> dict[str, Any]:
    """Decode a column of images, as the documentation shows it."""
    return {"pixels": ps.decode_images(batch["png"], ps.Image(size=4, crop="center"))}

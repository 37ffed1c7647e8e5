"""An error that was caught must keep no file open: its traceback must not hold the objects it passed through."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import frames
import penstock as ps

PAYLOADS = [bytes([n]) * 50 for n in range(50)]
STARTS = frames.starts_of(PAYLOADS)
WAYS: dict[str, Callable[[ps.Dataset], Any]] = {
    "scan": lambda dataset: list(dataset.scan(threads=1)),
    "two threads": lambda dataset: list(dataset.scan(threads=2)),
    "take": lambda dataset: dataset.take([19, 20]),
    "one": lambda dataset: dataset[20],
}


@pytest.fixture(autouse=True)
def without_collecting() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def times_open(path: Path) -> int:
    held = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            held += os.readlink(f"/proc/self/fd/{number}") == str(path)
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
    return held


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("damage", ["error", "stop", "skip"])
@pytest.mark.parametrize("kind", ["payload", "head", "cut"])
def test_a_file_is_closed_with_its_dataset(
    tmp_path: Path, kind: str, damage: str, way: str
) -> None:
    data = bytearray(frames.file_of(PAYLOADS))
    if kind == "cut":
        del data[-10:]
    else:
        data[STARTS[20] + (20 if kind == "payload" else 1)] ^= 1
    path = tmp_path / "x.tfrecord"
    path.write_bytes(data)
    dataset: Any = ps.open(path, raw=True, damage=damage, index="never")
    try:
        WAYS[way](dataset)
    except (ps.PenstockError, IndexError):
        pass
    del dataset
    end = (
        time.monotonic() + 5
    )  # A thread may be about to end. Objects that only the collector frees would stay.
    while times_open(path) and time.monotonic() < end:
        time.sleep(0.02)
    assert times_open(path) == 0

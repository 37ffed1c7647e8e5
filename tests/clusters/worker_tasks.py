"""Functions that the tests run on workers."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

import penstock as ps
from penstock.storage.base import Source
from penstock.storage.local import LocalStorage


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


class Deadly(LocalStorage):
    """Files of this machine, of which those with "poison" in their names kill each worker that opens them."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = os.getpid()

    def source(self, path: str, *, mmap: bool = False) -> Source:
        if "poison" in path and os.getpid() != self.driver:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().source(path, mmap=mmap)


class Failing(LocalStorage):
    """Files of this machine, which cannot be read in the first attempt."""

    def __init__(self, notes: Path) -> None:
        super().__init__()
        self.driver, self.notes = os.getpid(), notes

    def source(self, path: str, *, mmap: bool = False) -> Source:
        note = self.notes / Path(path).name
        if os.getpid() != self.driver and not note.exists():
            note.touch()
            raise ps.StorageError("no answer", file=path)
        return super().source(path, mmap=mmap)


class Slow(LocalStorage):
    """Files of this machine that take a while to open. Each worker notes its process first."""

    def __init__(self, notes: Path, seconds: float = 60) -> None:
        super().__init__()
        self.driver, self.notes, self.seconds = os.getpid(), notes, seconds

    def source(self, path: str, *, mmap: bool = False) -> Source:
        if os.getpid() != self.driver:
            (self.notes / str(os.getpid())).touch()
            time.sleep(self.seconds)
        return super().source(path, mmap=mmap)


def doubled(batch: pa.RecordBatch) -> dict[str, list[int]]:
    return {"twice": [2 * value.as_py() for value in batch["id"]]}


def slowly_doubled(batch: pa.RecordBatch) -> dict[str, list[int]]:
    time.sleep(0.2)
    return doubled(batch)


def memory() -> tuple[int, int, int]:
    """The number of this process, the bytes that it has in memory, and the most that it had since this was last asked."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    now, most = (int(status[name].split()[0]) << 10 for name in ("VmRSS", "VmHWM"))
    Path("/proc/self/clear_refs").write_text("5")
    return os.getpid(), now, most


def growth_of(paths: list[str], threads: int) -> int:
    """How many bytes `verify` and `stats` add to the memory of this process."""
    _, before, _ = memory()
    ps.verify(paths, threads=threads)
    ps.stats(paths, threads=threads)
    return memory()[2] - before


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


def dying_at_2500(number: int) -> int:
    if number == 2500:
        os.kill(os.getpid(), signal.SIGKILL)
    return number

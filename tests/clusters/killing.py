"""Kills workers at random moments, while `worker_tasks.slowly` runs on them."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def kill_a_worker(place: Path, rng: random.Random) -> bool:
    """Kill one of the processes that run now. Returns whether there was one."""
    found = sorted(place.iterdir())
    if not found:
        return False
    marker = rng.choice(found)
    with suppress(ProcessLookupError):
        os.kill(int(marker.name), signal.SIGKILL)
    marker.unlink(missing_ok=True)
    return True


@contextmanager
def at_random_moments(
    kill: Callable[[random.Random], bool], count: int, seed: int, most_seconds: float = 0.3
) -> Iterator[list[int]]:
    """Kill so often during the block, if it takes long enough. Yields a list that has an item for each kill."""
    rng, killed, is_over = random.Random(seed), list[int](), threading.Event()

    def run() -> None:
        while len(killed) < count and not is_over.is_set():
            time.sleep(rng.uniform(0, most_seconds))
            if kill(rng):
                killed.append(1)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield killed
    finally:
        is_over.set()
        thread.join()

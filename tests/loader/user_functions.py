"""Functions that the tests pass to worker processes, which have to import them."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np

Batch = dict[str, Any]


def doubled(batch: Batch) -> Batch:
    return {**batch, "id": batch["id"] * 2, "pid": np.full(len(batch["id"]), os.getpid())}


def keyed(batch: Batch, keys: np.ndarray) -> Batch:
    return {**batch, "keys": keys}


def counted(record: Batch, keys: int) -> Batch:
    return {"id": record["id"] + 1, "name": record["name"], "key": np.uint64(keys)}


def slow_for_odd(batch: Batch) -> Batch:
    time.sleep(0.03 * (int(batch["id"][0]) % 2))
    return batch


def with_torch_threads(batch: Batch) -> Batch:
    import torch

    return {**batch, "threads": np.full(len(batch["id"]), torch.get_num_threads())}


def with_three_torch_threads(batch: Batch) -> Batch:
    import torch

    torch.set_num_threads(3)
    return with_torch_threads(batch)


def failing(batch: Batch) -> Batch:
    if 20 in batch["id"]:
        raise ValueError(f"no good: {batch['id'].tolist()}")
    return batch


def failing_at_14(batch: Batch) -> Batch:
    """Fail for record 14, in a batch or alone."""
    if 14 in np.atleast_1d(batch["id"]):
        raise KeyError("caption")
    return batch


def failing_column(column: Any) -> np.ndarray:
    if 14 in column.to_pylist():
        raise KeyError("caption")
    return column.to_numpy()


class OddError(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def failing_oddly(batch: Batch) -> Batch:
    raise OddError(1, 2)


def killed(batch: Batch) -> Batch:
    if 20 in batch["id"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return batch


def exits(batch: Batch) -> Batch:
    os._exit(7)


def gives_a_lock(batch: Batch) -> Any:
    import threading

    return threading.Lock()


def writes(batch: Batch) -> Batch:
    batch["id"][:] = 0
    return batch


def sleeps(batch: Batch) -> Batch:
    time.sleep(60)
    return batch


def busy(batch: Batch) -> Batch:
    """A loop in Python that holds the GIL."""
    total = 0
    for n in range(300_000):
        total += n % 7
    return {**batch, "total": np.full(len(batch["id"]), total)}


def sleeps_later(batch: Batch) -> Batch:
    if batch["id"][0]:
        time.sleep(60)
    return batch


def nothing(batch: Batch) -> Batch:
    return batch


def spins(batch: Batch) -> Batch:
    while True:
        pass


def tokens_of(record: Batch) -> Batch:
    return {"tok": [1] * len(record["text"])}

"""The choice of the records to convert and of their order: filtered, sampled, shuffled, or given by numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.conditions import Filter, Where, filter_of
from penstock.datasets.dataset import Dataset
from penstock.datasets.tasks import ReadTask
from penstock.engine.cluster import Machines, all_of
from penstock.orders import Shuffled
from penstock.orders.keys import Draw, checked_seed, permuted

_TASK_BYTES = 128 << 20
"""The most bytes of several files whose records one task looks at."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which records are chosen, and in which order."""

    where: Where | None = None
    reads: list[str] | None = None
    sample: float | None = None
    sample_rest: float | None = None
    shuffle: int | None = None
    seed: int = 0
    numbers: np.ndarray | None = None
    """The numbers of the records in the order to be written. The other fields are not used then."""

    @property
    def is_all(self) -> bool:
        asked = (self.where, self.sample, self.sample_rest, self.shuffle, self.numbers)
        return all(one is None for one in asked)


def chosen(
    dataset: Dataset, choice: Choice, threads: int | None, on: Machines | None = None
) -> np.ndarray | None:
    """Return the numbers of the chosen records, int64, in the order of writing, or None for all records in the order
    of the files. A condition is evaluated on the machines `on`. Raise ValueError for an invalid `sample`."""
    if choice.is_all:
        return None
    if choice.numbers is not None:
        return choice.numbers
    numbers = _sampled(_fulfilling(dataset, choice, threads, on), choice)
    if choice.shuffle is not None:
        numbers = numbers[Shuffled(choice.shuffle).take(len(numbers), 0, 0, len(numbers))]
    return numbers


def _sampled(numbers: np.ndarray, choice: Choice) -> np.ndarray:
    """Return a sample of the records, or the records that are not in the sample, in their order."""
    if choice.sample is None and choice.sample_rest is None:
        return numbers
    if choice.sample is not None and choice.sample_rest is not None:
        raise ValueError("sample= and sample_rest= choose complementary records; use one at a time")
    total = len(numbers)
    order = permuted(total, checked_seed(choice.seed), 0, Draw.SAMPLES, 0, total)
    if choice.sample is not None:
        order = order[: _count("sample", choice.sample, total)]
    elif choice.sample_rest is not None:
        order = order[_count("sample_rest", choice.sample_rest, total) :]
    return numbers[np.sort(order)]


def _fulfilling(
    dataset: Dataset, choice: Choice, threads: int | None, on: Machines | None
) -> np.ndarray:
    if choice.where is None:
        return np.arange(len(dataset))
    asked = filter_of(choice.where, dataset.schema.names, choice.reads)
    if on is None:
        parts = [_numbers(dataset.scan(columns=asked.columns, threads=threads), asked)]
    else:
        parts = all_of(
            on.run(
                partial(_numbers_of, asked),
                dataset.whole_tasks(_TASK_BYTES),
                dataset.files.read_paths,
            )
        )
    found: list[np.ndarray] = [np.zeros(0, np.int64)]
    done = 0
    for numbers, count in parts:
        found.append(done + numbers)
        done += count
    asked.warn()
    return np.concatenate(found)


def _numbers_of(asked: Filter, task: ReadTask) -> tuple[np.ndarray, int]:
    return _numbers(task.batches(asked.columns), asked)


def _numbers(batches: Iterable[pa.RecordBatch], asked: Filter) -> tuple[np.ndarray, int]:
    """The numbers of the records that fulfil a condition, and how many records there are."""
    found: list[np.ndarray] = [np.zeros(0, np.int64)]
    done = 0
    for batch in batches:
        found.append(done + np.flatnonzero(asked.holds(batch)))
        done += batch.num_rows
    return np.concatenate(found), done


def _count(option: str, sample: float, num_records: int) -> int:
    if isinstance(sample, bool) or not sample > 0:
        raise ValueError(
            f"{option}= must be a fraction up to 1 or a number of records, not {sample!r}"
        )
    if isinstance(sample, float):
        if sample > 1:
            raise ValueError(f"{option}={sample} is above 1; a number of records must be an int")
        return round(num_records * sample)
    if sample > num_records:
        raise ValueError(f"{option}={sample} is more than the {num_records} records")
    return sample

"""The choice of the records to convert and of their order: filtered, sampled, shuffled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.conditions import Where, filter_of
from penstock.datasets.dataset import Dataset


@dataclass(frozen=True, slots=True)
class Choice:
    where: Where | None = None
    reads: list[str] | None = None
    sample: float | None = None
    shuffle: int | None = None
    seed: int = 0

    @property
    def is_all(self) -> bool:
        return self.where is None and self.sample is None and self.shuffle is None


def chosen(dataset: Dataset, choice: Choice, threads: int | None) -> np.ndarray | None:
    """Return the numbers of the chosen records, int64, in the order of writing, or None for all records in the order
    of the files. Raise ValueError for an invalid `sample`."""
    if choice.is_all:
        return None
    numbers = _fulfilling(dataset, choice, threads)
    if choice.sample is not None:
        count = _count(choice.sample, len(numbers))
        rng = np.random.default_rng([choice.seed, 1])
        numbers = numbers[np.sort(rng.permutation(len(numbers))[:count])]
    if choice.shuffle is not None:
        numbers = numbers[np.random.default_rng(choice.shuffle).permutation(len(numbers))]
    return numbers


def _fulfilling(dataset: Dataset, choice: Choice, threads: int | None) -> np.ndarray:
    if choice.where is None:
        return np.arange(len(dataset))
    asked = filter_of(choice.where, dataset.schema.names, choice.reads)
    found: list[np.ndarray] = []
    done = 0
    for batch in dataset.scan(columns=asked.columns, threads=threads):
        found.append(done + np.flatnonzero(asked.holds(batch)))
        done += batch.num_rows
    return np.concatenate([np.zeros(0, np.int64), *found]).astype(np.int64)


def _count(sample: float, num_records: int) -> int:
    if isinstance(sample, bool) or not sample > 0:
        raise ValueError(
            f"sample= must be a fraction up to 1 or a number of records, not {sample!r}"
        )
    if isinstance(sample, float):
        if sample > 1:
            raise ValueError(f"sample={sample} is above 1; a number of records must be an int")
        return round(num_records * sample)
    if sample > num_records:
        raise ValueError(f"sample={sample} is more than the {num_records} records")
    return sample

"""Makes the batches of a rank: a whole epoch on threads, ahead of the loop, or a single batch in the calling thread."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Generator, Iterator
from itertools import count, islice
from math import inf

import numpy as np

from penstock import _core
from penstock.engine.pipeline import Tasks, in_order
from penstock.loader._plan import BatchPart, EpochPlan
from penstock.loader._recipe import Made, Recipe, Shared
from penstock.loader._sequence import Reading, RecordSequence, Source, WindowReading
from penstock.loader._sources import Taken
from penstock.loader.stats import SAMPLED, Clock
from penstock.tuned import LOADER_SPARED_BYTES, LOADER_TASK_BATCHES


class BatchMaker:
    def __init__(
        self,
        sequence: RecordSequence,
        source: Source,
        plan: EpochPlan,
        rank: int,
        recipe: Recipe,
        threads: int,
        memory_bytes: int,
    ) -> None:
        self._sequence = sequence
        self._source = source
        self._plan = plan
        self._rank = rank
        self._recipe = recipe
        self._threads = threads
        self._processes = 0 if recipe.workers is None else recipe.workers.count
        self._room = memory_bytes - min(memory_bytes // 2, LOADER_SPARED_BYTES)
        self.pool = _core.BufferPool(memory_bytes // 4)
        """A pool of memory for images, which is kept for the next epoch."""
        self._making_bytes: int | None = None
        """The most memory that making a batch has needed; None before the first batch."""

    def one(self, epoch: int, position: int, step: int) -> Made:
        """Make the batch of one step, counted from a position of an epoch, in the calling thread."""
        part = self._plan.part(position, step, self._rank)
        # No windows are loaded even if the order has them: a single batch needs only a small part of each.
        reading = Reading(self._source)
        numbers, clock = self._sequence.numbers(self._plan, part, epoch), Clock()
        taken = reading.take(self._plan, part, numbers, clock)
        return self._make(part, epoch, numbers, taken, Shared(self.pool), clock)

    def epoch(
        self, epoch: int, position: int, first: int, every: int
    ) -> Generator[tuple[Made, BatchPart]]:
        """Yield every `every`-th batch of an epoch from a position on, beginning with number `first`."""
        parts = iter(islice(self._plan.parts(position, self._rank), first, None, every))
        shared = Shared(self.pool)
        # The windows of an order such as Blocked may take up to two thirds of the memory.
        reading = self._reading(epoch, position, self._room * 2 // 3, shared.go_on)
        batches = count()
        tasks: Tasks[BatchPart] = Tasks(self._most_batches)

        def make(task: list[BatchPart]) -> Iterator[tuple[Made, BatchPart]]:
            begun = time.perf_counter()
            clock = Clock(is_sample=next(batches) % SAMPLED == 0)
            numbers = [self._sequence.numbers(self._plan, part, epoch) for part in task]
            several = reading.take_several(self._plan, task, numbers, clock)
            for part, asked, taken in zip(task, numbers, several, strict=True):
                made = self._make(part, epoch, asked, taken, shared, clock)
                clock = Clock()
                self._making_bytes = max(made.making_bytes, self._making_bytes or 0)
                yield made, part._replace(num_records=len(asked))
            tasks.lasted(time.perf_counter() - begun, len(task))

        planned = read = 0
        in_loop = 0  # bytes of the batch that the loop currently uses

        def need() -> float:
            return inf if self._making_bytes is None else self._making_bytes * tasks.size

        results = in_order(
            [lambda: tasks.of(parts)],
            make,
            lambda result: result[0].num_bytes,
            # A thread that waits for a worker process uses no CPU.
            max(self._threads, 1) + self._processes,
            lambda: self._room - reading.num_bytes - in_loop,
            ahead=self._threads + self._processes > 0,
            need=need,
        )
        try:
            for result in results:
                in_loop = result[0].num_bytes
                planned += result[1].num_records
                read += result[0].num_records
                yield result
                del result
        finally:
            shared.end()
            results.close()
            if planned and not read and self._recipe.source.damage_mode == "skip":
                warnings.warn(
                    f"all {planned} records of epoch {epoch} were damaged and skipped, so it has no batch with "
                    "records; loader.damage says why",
                    stacklevel=2,
                )

    def _reading(
        self, epoch: int, position: int, most_bytes: int, go_on: Callable[[], None]
    ) -> Reading:
        windows = self._sequence.windows(epoch)
        if windows is None:
            return Reading(self._source, views=self._recipe.takes_views)
        return WindowReading(
            self._source, windows, self._plan, self._rank, position, most_bytes, go_on
        )

    def _most_batches(self) -> int:
        """The most batches of a task. All batches of a task are ready together, so the loop waits long for a large
        task."""
        if self._threads == 0 or self._processes:
            return 1
        return min(self._room // 32 // max(self._making_bytes or 0, 1), LOADER_TASK_BATCHES)

    def _make(
        self,
        part: BatchPart,
        epoch: int,
        numbers: np.ndarray,
        taken: Taken,
        shared: Shared,
        clock: Clock,
    ) -> Made:
        mask = self._sequence.mask(self._plan, part, epoch)
        lengths = self._sequence.pad_to(part, epoch)
        return self._recipe.make(numbers, taken, mask, epoch, shared, clock, lengths)

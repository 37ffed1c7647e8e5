"""An order over a source: which records are at which positions, and how they are read.

Most orders are read record by record. An order that shuffles within windows (`penstock.Blocked`) is read
window by window: the records of a window form a few contiguous runs, each of which is read once, from front to
back, and batches are assembled from them in memory.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.joined import join
from penstock.datasets.take import reordered
from penstock.engine.locks import Lock
from penstock.loader._plan import Part, Plan
from penstock.loader._sources import EndToEnd, Records
from penstock.loader.stats import Clock
from penstock.orders import Blocked, Mixture, Order, Window
from penstock.orders.keys import digest

_PART_BYTES = 64 << 20
"""Approximate size of the part of a window that one call reads: no column outgrows what Arrow can hold, and the
records of a batch are in few parts."""
_FIRST_RECORDS = 16
"""Records read first to estimate the size of the others."""
_TOGETHER_RECORDS = 4096
"""The most records of several batches that one call reads."""
_END = 1 << 63

Taken = tuple[pa.RecordBatch, np.ndarray]
"""Records, and their indices among those requested."""


class RecordSequence:
    """The records of a source in an order; read from `copy`, if there is one."""

    def __init__(
        self, order: Order, source: Records | EndToEnd, copy: Records | EndToEnd | None = None
    ) -> None:
        self.order = order
        self.source = source if copy is None else copy
        # An order that mixes datasets needs the size of each; any other sees them as one.
        self._sizes: Any = len(source)
        if isinstance(order, Mixture) and isinstance(source, EndToEnd):
            self._sizes = source.sizes
        self._layout: dict[str, Any] = {}
        lengths = getattr(source, order.layout) if order.layout else None
        if order.layout and lengths is not None:
            self._layout = {order.layout: np.asarray(lengths, np.int64)}
        self.length = order.length(self._sizes)

    def spec(self) -> dict[str, Any]:
        """Everything that determines the order, including the division of the files into chunks or shards."""
        laid_out = {name: digest(lengths) for name, lengths in self._layout.items()}
        return {**self.order.spec(), **laid_out}

    def numbers(self, plan: Plan, part: Part, epoch: int) -> np.ndarray:
        """The records of a batch, int64[n]."""
        ranges = [self.at(epoch, start, stop) for start, stop in plan.positions(part)]
        return ranges[0] if len(ranges) == 1 else np.concatenate(ranges)

    def at(self, epoch: int, start: int, stop: int) -> np.ndarray:
        """The records at some positions of an epoch, int64[stop - start]."""
        return self.order.take(self._sizes, epoch, start, stop, **self._layout)

    def reading(
        self,
        plan: Plan,
        rank: int,
        epoch: int,
        position: int,
        window_bytes: int,
        go_on: Callable[[], None],
        *,
        lend: bool,
    ) -> Reading:
        """How a rank reads an epoch from a position on.

        Args:
            window_bytes: the most that all windows together may hold.
            go_on: raises if the loop was left; called between the parts of a window.
            lend: columns of bytes may be views into the buffers read. Ignored for windows, which stay in memory.
        """
        if not isinstance(self.order, Blocked):
            return Reading(self.source, lend=lend)
        windows = self.order.windows(self._sizes, epoch, **self._layout)
        return WindowReading(self, windows, plan, rank, position, window_bytes, go_on)


class Reading:
    """Reads records directly from the source, a batch at a time."""

    def __init__(self, source: Records | EndToEnd, *, lend: bool = False) -> None:
        self.source = source
        self._lend = lend

    @property
    def num_bytes(self) -> int:
        """Bytes held from batch to batch."""
        return 0

    def take(self, plan: Plan, part: Part, numbers: np.ndarray, clock: Clock) -> Taken:
        """The records of a batch, and their indices in `numbers`."""
        return self.source.take(numbers, clock, lend=self._lend)

    def take_several(
        self, plan: Plan, parts: Sequence[Part], numbers: Sequence[np.ndarray], clock: Clock
    ) -> Iterator[Taken]:
        """The records of several batches. Small batches are read by one call, which costs as much as a
        single one."""
        taken: Taken | None = None
        if len(parts) > 1 and sum(map(len, numbers)) <= _TOGETHER_RECORDS:
            # Errors are raised by the batch that has them: read batch by batch below.
            with suppress(Exception):
                taken = self.take(plan, parts[0], np.concatenate(numbers), clock)
        if taken is not None:
            batch, kept = taken
            edges = np.cumsum([0, *map(len, numbers)])
            borders = np.searchsorted(kept, edges)
            for first, a, b in zip(edges[:-1], borders[:-1], borders[1:], strict=True):
                yield batch.slice(a, b - a), kept[a:b] - first
            return
        for part, asked in zip(parts, numbers, strict=True):
            yield self.take(plan, part, asked, clock)


class WindowReading(Reading):
    """Takes records from windows in memory, each of which is read once.

    If a window exceeds its memory limit, only its first records in file order are in
    memory; the others are read with the batch that has them.
    """

    def __init__(
        self,
        sequence: RecordSequence,
        windows: Any,
        plan: Plan,
        rank: int,
        position: int,
        most_bytes: int,
        go_on: Callable[[], None],
    ) -> None:
        super().__init__(sequence.source)
        self._windows = windows
        self._most_bytes = most_bytes
        self._told = False
        self.go_on = go_on
        self.likely_bytes = 0.0
        """The largest mean record size of a window so far, in bytes; 0 if none was read."""
        self._plan = plan
        self._rank = rank
        self._position = position
        self._held: OrderedDict[int, _Held] = OrderedDict()
        self._lock = Lock()

    @property
    def num_bytes(self) -> int:
        """See Reading.num_bytes."""
        with self._lock:
            return sum(held.num_bytes for held in self._held.values())

    def take_several(
        self, plan: Plan, parts: Sequence[Part], numbers: Sequence[np.ndarray], clock: Clock
    ) -> Iterator[Taken]:
        """See Reading.take_several. Windows are in memory, so nothing is read together."""
        for part, asked in zip(parts, numbers, strict=True):
            yield self.take(plan, part, asked, clock)

    def take(self, plan: Plan, part: Part, numbers: np.ndarray, clock: Clock) -> Taken:
        """See Reading.take."""
        batches: list[pa.RecordBatch] = []
        kept: list[np.ndarray] = []
        done = 0
        # Batches of several threads meet in a window, and may span several small ones.
        edges = self._windows.edges
        across = np.searchsorted(edges, part.end) - np.searchsorted(edges, part.first, "right")
        most_held = 2 + 2 * int(max(across, 0))
        for start, stop in plan.positions(part):
            first = start
            while first < stop:
                window = self._windows.at(first)
                last = min(window.last, stop)
                asked = numbers[done : done + last - first]
                if start < part.first:  # wrapped to the beginning of the epoch, long out of memory
                    batch, places = self.source.take(asked, clock)
                else:
                    held = self._holding(window, most_held, clock)
                    batch, places = held.take(asked)
                    late = np.flatnonzero(asked >= held.end)
                    if len(late):
                        batches.append(batch)
                        kept.append(done + places)
                        batch, places = self.source.take(asked[late], clock)
                        places = late[places]
                batches.append(batch)
                kept.append(done + places)
                done += len(asked)
                first = last
        filled = [batch for batch in batches if batch.num_rows] or batches[:1]
        found = np.concatenate(kept)
        if (found[1:] > found[:-1]).all():
            return join(filled), found
        order = np.argsort(found, kind="stable")
        return reordered(join(filled), order), found[order]

    def _holding(self, window: Window, most_held: int, clock: Clock) -> _Held:
        with self._lock:
            held = self._held.get(window.number)
            if held is None:
                held = self._held[window.number] = _Held()
            self._held.move_to_end(window.number)
            while len(self._held) > most_held:
                self._held.popitem(last=False)
        most_bytes = self._most_bytes // most_held
        held.fill(self, window, most_bytes, clock)
        self.likely_bytes = max(self.likely_bytes, held.record_bytes)
        if held.end < _END and not self._told:
            self._told = True
            warnings.warn(
                f"a window of the order holds more than {most_bytes >> 20} MiB, which is its part of"
                " memory_bytes; what is beyond is read with each batch, which takes longer: give"
                " more memory_bytes=, or ps.Blocked(..., window_chunks=) less than"
                f" {window.chunks.size}",
                stacklevel=2,
            )
        return held

    def wanted(self, window: Window) -> np.ndarray:
        """The records of a window that this rank has, in file order."""
        positions = np.arange(max(window.first, self._position), window.last)
        numbers = self._windows.take(int(positions[0]), window.last)
        if self._plan.world_size > 1:
            step, place = np.divmod(positions - self._position, self._plan.step_records)
            whole = step < (self._plan.length - self._position) // self._plan.step_records
            mine = place // self._plan.batch_size == self._rank
            numbers = numbers[mine | ~whole]
        return np.sort(numbers)


class _Held:
    """The records of one window in memory, in file order."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._parts: list[pa.RecordBatch] | None = None
        self._numbers: list[np.ndarray] = []
        self.num_bytes = 0
        self.record_bytes = 0.0
        self.end = _END
        """Records from this one on are not in memory."""

    def fill(self, reading: WindowReading, window: Window, most_bytes: int, clock: Clock) -> None:
        """Read as many records as fit, unless another thread has done so."""
        with self._lock:
            if self._parts is not None:
                return
            numbers = reading.wanted(window)
            parts: list[pa.RecordBatch] = []
            found: list[np.ndarray] = []
            num_bytes = 0
            start = 0
            while start < len(numbers):
                reading.go_on()
                if parts and num_bytes >= most_bytes:
                    self.end = int(numbers[start])
                    break
                # As many as fit at the size of those before; cautiously while these are few.
                each = max(num_bytes / max(start, 1), reading.likely_bytes, 1)
                count = int(min(most_bytes - num_bytes, _PART_BYTES) / each)
                if not reading.likely_bytes:
                    count = min(count, start)
                asked = numbers[start : start + max(count, _FIRST_RECORDS)]
                batch, kept = reading.source.take(asked, clock)
                parts.append(batch)
                found.append(asked[kept])
                num_bytes += batch.nbytes
                start += len(asked)
            self._parts, self._numbers = parts, found
            self.num_bytes, self.record_bytes = num_bytes, num_bytes / max(start, 1)

    def take(self, numbers: np.ndarray) -> Taken:
        """Some of the records, and the indices of `numbers` that could be read."""
        assert self._parts is not None
        batches: list[pa.RecordBatch] = []
        places: list[np.ndarray] = []
        for part, held in zip(self._parts, self._numbers, strict=True):
            if not len(held):
                continue
            rows = np.minimum(np.searchsorted(held, numbers), len(held) - 1)
            here = np.flatnonzero(held[rows] == numbers)
            if len(here):
                batches.append(reordered(part, rows[here]))
                places.append(here)
        if not batches:
            return self._parts[0].slice(0, 0), np.arange(0)
        found = np.concatenate(places)
        order = np.argsort(found, kind="stable")
        batch = batches[0] if len(batches) == 1 else reordered(join(batches), order)
        return batch, found[order]

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
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.columns.joined import join
from penstock.datasets.take import reordered
from penstock.engine.locks import Lock
from penstock.loader._plan import BatchPart, EpochPlan
from penstock.loader._sources import Records, Taken
from penstock.loader.stats import Clock
from penstock.orders import Blocked, Mixture, Order, Window, Windows
from penstock.orders.keys import digest
from penstock.tuned import LOADER_TOGETHER_RECORDS

_PART_BYTES = 64 << 20
"""Approximate size of the part of a window that one call reads: no column outgrows what Arrow can hold, and the
records of a batch are in few parts."""
_FIRST_RECORDS = 16
"""Records read first to estimate the size of the others."""
_END = 1 << 63


class Source(Protocol):
    """A source of records: `Records`, or their copy."""

    def take(self, numbers: np.ndarray, clock: Clock, *, views: bool = False) -> Taken:
        """See Records.take."""
        ...


class RecordSequence:
    """The records of a loader in its order."""

    def __init__(self, order: Order, records: Records) -> None:
        self.order = order
        # An order that mixes datasets needs the size of each; any other sees them as one.
        self._sizes: Any = records.sizes if isinstance(order, Mixture) else len(records)
        lengths = getattr(records, order.layout) if order.layout else None
        self._layout: dict[str, Any] = {}
        if order.layout and lengths is not None:
            self._layout[order.layout] = np.asarray(lengths, np.int64)
        self.length = order.length(self._sizes)

    def spec(self) -> dict[str, Any]:
        """Everything that determines the order, including the division of the files into chunks or shards."""
        lengths = {name: digest(lengths) for name, lengths in self._layout.items()}
        return {**self.order.spec(), **lengths}

    def numbers(self, plan: EpochPlan, part: BatchPart, epoch: int) -> np.ndarray:
        """The records of a batch, int64[n]."""
        ranges = [self.at(epoch, start, stop) for start, stop in plan.positions(part)]
        return ranges[0] if len(ranges) == 1 else np.concatenate(ranges)

    def at(self, epoch: int, start: int, stop: int) -> np.ndarray:
        """The records at some positions of an epoch, int64[stop - start]."""
        return self.order.take(self._sizes, epoch, start, stop, **self._layout)

    def windows(self, epoch: int) -> Windows | None:
        """The windows of an epoch, for an order that shuffles within windows."""
        if not isinstance(self.order, Blocked):
            return None
        return self.order.windows(self._sizes, epoch, **self._layout)


class Reading:
    """Reads records directly from the source, a batch at a time. `views`: see `Records.take`."""

    def __init__(self, source: Source, *, views: bool = False) -> None:
        self._source = source
        self._views = views

    @property
    def num_bytes(self) -> int:
        """Bytes held from batch to batch."""
        return 0

    def take(self, plan: EpochPlan, part: BatchPart, numbers: np.ndarray, clock: Clock) -> Taken:
        """The records of a batch, and their indices in `numbers`."""
        return self._source.take(numbers, clock, views=self._views)

    def take_several(
        self,
        plan: EpochPlan,
        parts: Sequence[BatchPart],
        numbers: Sequence[np.ndarray],
        clock: Clock,
    ) -> Iterator[Taken]:
        """Read the records of several batches. Small batches are read by one call, which costs as much as a call for a
        single batch."""
        taken: Taken | None = None
        if len(parts) > 1 and sum(map(len, numbers)) <= LOADER_TOGETHER_RECORDS:
            # An error must be raised by the batch that contains it, so batches are then read one by one below.
            with suppress(Exception):
                taken = self._source.take(np.concatenate(numbers), clock, views=self._views)
        if taken is None:
            for part, asked in zip(parts, numbers, strict=True):
                yield self.take(plan, part, asked, clock)
            return
        batch, kept = taken
        edges = np.cumsum([0, *map(len, numbers)])
        borders = np.searchsorted(kept, edges)
        for first, a, b in zip(edges[:-1], borders[:-1], borders[1:], strict=True):
            yield batch.slice(a, b - a), kept[a:b] - first


class WindowReading(Reading):
    """Takes records from windows in memory, each of which is read once.

    If a window exceeds its memory limit, only its first records in file order are in
    memory; the others are read with the batch that has them.

    Args:
        position: the position at which the rank begins its epoch.
        most_bytes: the most that all windows together may hold.
        go_on: raises if the loop was left; called between the parts of a window.
    """

    def __init__(
        self,
        source: Source,
        windows: Windows,
        plan: EpochPlan,
        rank: int,
        position: int,
        most_bytes: int,
        go_on: Callable[[], None],
    ) -> None:
        super().__init__(source)
        self._windows = windows
        self._plan = plan
        self._rank = rank
        self._position = position
        self._most_bytes = most_bytes
        self._go_on = go_on
        self._has_warned = False
        self._record_bytes = 0.0
        """The largest mean record size of a window so far; 0 if none was read."""
        self._loaded: OrderedDict[int, _Loaded] = OrderedDict()
        self._lock = Lock()

    @property
    def num_bytes(self) -> int:
        """See Reading.num_bytes."""
        with self._lock:
            return sum(loaded.num_bytes for loaded in self._loaded.values())

    def take_several(
        self,
        plan: EpochPlan,
        parts: Sequence[BatchPart],
        numbers: Sequence[np.ndarray],
        clock: Clock,
    ) -> Iterator[Taken]:
        """See Reading.take_several. Windows are in memory, so nothing is read together."""
        for part, asked in zip(parts, numbers, strict=True):
            yield self.take(plan, part, asked, clock)

    def take(self, plan: EpochPlan, part: BatchPart, numbers: np.ndarray, clock: Clock) -> Taken:
        """See Reading.take."""
        batches: list[pa.RecordBatch] = []
        kept: list[np.ndarray] = []
        done = 0
        # Batches of several threads meet in a window, and may span several small ones.
        edges = self._windows.edges
        across = np.searchsorted(edges, part.end) - np.searchsorted(edges, part.first, "right")
        most_windows = 2 + 2 * int(max(across, 0))
        for start, stop in plan.positions(part):
            first = start
            while first < stop:
                window = self._windows.at(first)
                last = min(window.last, stop)
                asked = numbers[done : done + last - first]
                if (
                    start < part.first
                ):  # wrapped to the beginning of the epoch, which has left the memory
                    found = [self._source.take(asked, clock)]
                else:
                    found = self._from_window(window, asked, most_windows, clock)
                for batch, places in found:
                    batches.append(batch)
                    kept.append(done + places)
                done += len(asked)
                first = last
        return _together(batches, kept)

    def _from_window(
        self, window: Window, asked: np.ndarray, most_windows: int, clock: Clock
    ) -> list[Taken]:
        with self._lock:
            loaded = self._loaded.get(window.number)
            if loaded is None:
                loaded = self._loaded[window.number] = _Loaded()
            self._loaded.move_to_end(window.number)
            while len(self._loaded) > most_windows:
                self._loaded.popitem(last=False)
        most_bytes = self._most_bytes // most_windows
        self._fill(loaded, window, most_bytes, clock)
        taken = [loaded.take(asked)]
        if loaded.end < _END and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"a window of the order holds more than {most_bytes >> 20} MiB, its share of"
                " memory_bytes; its other records are read with each batch, which takes longer: give"
                " more memory_bytes=, or ps.Blocked(..., window_chunks=) less than"
                f" {window.chunks.size}",
                stacklevel=2,
            )
        late = np.flatnonzero(asked >= loaded.end)
        if len(late):
            batch, places = self._source.take(asked[late], clock)
            taken.append((batch, late[places]))
        return taken

    def _fill(self, loaded: _Loaded, window: Window, most_bytes: int, clock: Clock) -> None:
        """Read as many records of a window as fit, unless another thread has done so."""
        with loaded.lock:
            if loaded.parts:
                return
            numbers = self._wanted(window)
            parts: list[tuple[pa.RecordBatch, np.ndarray]] = []
            num_bytes = start = 0
            while start < len(numbers):
                self._go_on()
                if parts and num_bytes >= most_bytes:
                    loaded.end = int(numbers[start])
                    break
                # As many records as fit, estimated from the previous records, and cautiously while these are few.
                each = max(num_bytes / max(start, 1), self._record_bytes, 1)
                count = int(min(most_bytes - num_bytes, _PART_BYTES) / each)
                if not self._record_bytes:
                    count = min(count, start)
                asked = numbers[start : start + max(count, _FIRST_RECORDS)]
                batch, kept = self._source.take(asked, clock)
                parts.append((batch, asked[kept]))
                num_bytes += batch.nbytes
                start += len(asked)
            loaded.parts, loaded.num_bytes = parts, num_bytes
            self._record_bytes = max(self._record_bytes, num_bytes / max(start, 1))

    def _wanted(self, window: Window) -> np.ndarray:
        """The records of a window that this rank has, in file order."""
        positions = np.arange(max(window.first, self._position), window.last)
        numbers = self._windows.take(int(positions[0]), window.last)
        if self._plan.world_size > 1:
            step, place = np.divmod(positions - self._position, self._plan.step_records)
            is_whole = step < (self._plan.length - self._position) // self._plan.step_records
            is_mine = place // self._plan.batch_size == self._rank
            numbers = numbers[is_mine | ~is_whole]
        return np.sort(numbers)


class _Loaded:
    """The records of one window in memory, in file order."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.parts: list[tuple[pa.RecordBatch, np.ndarray]] = []
        """Records and their numbers."""
        self.num_bytes = 0
        self.end = _END
        """Records from this index on are not in memory."""

    def take(self, numbers: np.ndarray) -> Taken:
        """Some of the records, and the indices of `numbers` that could be read."""
        batches: list[pa.RecordBatch] = []
        places: list[np.ndarray] = []
        for part, known in self.parts:
            if not len(known):
                continue
            rows = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
            here = np.flatnonzero(known[rows] == numbers)
            if len(here):
                batches.append(reordered(part, rows[here]))
                places.append(here)
        if not batches:
            return self.parts[0][0].slice(0, 0), np.arange(0)
        return _together(batches, places)


def _together(batches: list[pa.RecordBatch], places: list[np.ndarray]) -> Taken:
    """Records of several batches, in the order of their places."""
    found = np.concatenate(places)
    batch = join([one for one in batches if one.num_rows] or batches[:1])
    if (found[1:] > found[:-1]).all():
        return batch, found
    order = np.argsort(found, kind="stable")
    return reordered(batch, order), found[order]

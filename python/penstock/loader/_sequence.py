"""Applies an order to a source: which records are at which positions, and how they are read.

Most orders are read record by record. `penstock.Blocked` shuffles within windows and is read window by window. The
records of a window form a few contiguous runs. Each run is read once from front to back, and batches are assembled
in memory.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.columns.joined import join
from penstock.datasets.take import reordered
from penstock.engine.locks import Lock
from penstock.errors import raise_unless_damage
from penstock.loader._plan import BatchPart, EpochPlan
from penstock.loader._sources import Records, Taken
from penstock.loader._windows_ahead import PART_BYTES, WindowsAhead, end_of_part
from penstock.loader.stats import Clock
from penstock.orders import Blocked, Mixture, Order, Window, Windows
from penstock.orders.keys import digest
from penstock.tuned import LOADER_TOGETHER_RECORDS

_PART_BYTES = 64 << 20
"""Approximate number of bytes that one call reads of a window: small enough for Arrow's columns, and large enough
that the records of a batch are in few parts."""
_FIRST_RECORDS = 16
"""How many records are read first, to estimate the size of the others."""
_END = 1 << 63


class Source(Protocol):
    def take(self, numbers: np.ndarray, clock: Clock, *, views: bool = False) -> Taken: ...

    def want(self, numbers: np.ndarray) -> Sequence[object] | None: ...


class RecordSequence:
    def __init__(self, order: Order, records: Records) -> None:
        # A Mixture needs the size of each dataset. Any other order sees them as one dataset.
        self._sizes: Any = records.sizes if isinstance(order, Mixture) else len(records)
        lengths = getattr(records, order.layout) if order.layout else None
        self._layout: dict[str, Any] = {}
        if order.layout and lengths is not None:
            self._layout[order.layout] = np.asarray(lengths, np.int64)
        self.order = _sized(order, records, lengths)
        self.length = self.num_records = order.length(self._sizes)
        """`length` is the number of positions in an epoch, `num_records` that of its records."""

    def spec(self) -> dict[str, Any]:
        """Everything that determines the order, including the lengths of chunks or shards if the order uses them."""
        lengths = {name: digest(lengths) for name, lengths in self._layout.items()}
        return {**self.order.spec(), **lengths}

    def numbers(self, plan: EpochPlan, part: BatchPart, epoch: int) -> np.ndarray:
        ranges = [self.at(epoch, start, stop) for start, stop in plan.positions(part)]
        return ranges[0] if len(ranges) == 1 else np.concatenate(ranges)

    def mask(self, plan: EpochPlan, part: BatchPart, epoch: int) -> np.ndarray | None:
        """Which records of a batch are real, bool[num_records]; None if there is no mask."""
        return plan.mask(part) if plan.uneven == "pad" else None

    def pad_to(self, part: BatchPart, epoch: int) -> dict[str, tuple[int, ...]]:
        """The length of the lists of each column in a batch, if that depends on the batch."""
        return {}

    def at(self, epoch: int, start: int, stop: int) -> np.ndarray:
        """The record numbers at some positions of an epoch, int64[stop - start]."""
        return self.order.take(self._sizes, epoch, start, stop, **self._layout)

    def begin(self, epoch: int) -> int:
        """The position at which an epoch begins. It is 0 unless the number of steps depends on the epoch."""
        return 0

    def divided(self, plan: EpochPlan) -> RecordSequence:
        """The same sequence for the ranks of another plan."""
        return self

    def batch_lengths(self, plan: EpochPlan, epoch: int, position: int) -> set[int]:
        """The different numbers of records in the batches of an epoch, from a position on."""
        return plan.batch_lengths(position)

    def placed(self, epoch: int, position: int = 0) -> tuple[int, int]:
        """An epoch and a position, which is moved forward to the beginning of the epoch if it is before that."""
        return epoch, max(position, self.begin(epoch))

    def longest(self) -> dict[str, tuple[int, ...]]:
        """The lengths of the lists of each column in the batch with the longest, if that depends on the batch."""
        return {}

    def state(self, epoch: int, position: int) -> dict[str, Any]:
        """What a state says about a position: `position` is how many records come before it on all ranks together."""
        return {"position": position}

    def resume(self, epoch: int, state: Mapping[str, Any]) -> int:
        """The position at which an epoch continues from a state.

        Raises:
            StateError: the state does not fit the sequence.
        """
        return state["position"]

    def restart(self) -> None:
        """Undo `resume`: all epochs start at their beginning again."""

    def windows(self, epoch: int) -> Windows | None:
        """The windows of an epoch; None unless the order is Blocked."""
        if not isinstance(self.order, Blocked):
            return None
        return self.order.windows(self._sizes, epoch, **self._layout)


def _sized(order: Order, records: Records, lengths: Sequence[int] | None) -> Order:
    """The order, with windows that suit the data. They depend on the files alone, so that every rank and every process
    that resumes has the same."""
    if not isinstance(order, Blocked):
        return order
    num_chunks = len(records) / order.chunk_records if lengths is None else len(lengths)
    return order.sized(records.num_bytes / max(num_chunks, 1))


class Reading:
    """Reads the records of each batch directly from the source. `views`: see `Records.take`."""

    def __init__(self, source: Source, *, views: bool = False) -> None:
        self._source = source
        self._views = views

    @property
    def num_bytes(self) -> int:
        """Bytes of records that are in memory between batches."""
        return 0

    def take(self, plan: EpochPlan, part: BatchPart, numbers: np.ndarray, clock: Clock) -> Taken:
        """Read the records of a batch; return them with their indices in `numbers`."""
        return self._take(plan, [part], numbers, clock)

    def _take(
        self, plan: EpochPlan, parts: Sequence[BatchPart], numbers: np.ndarray, clock: Clock
    ) -> Taken:
        """Read the records of several batches as if they were one."""
        return self._source.take(numbers, clock, views=self._views)

    def take_several(
        self,
        plan: EpochPlan,
        parts: Sequence[BatchPart],
        numbers: Sequence[np.ndarray],
        clock: Clock,
    ) -> Iterator[Taken]:
        """Read the records of several batches. Small batches are read in one call, because most of its cost does not
        depend on the number of records."""
        taken: Taken | None = None
        if len(parts) > 1 and sum(map(len, numbers)) <= LOADER_TOGETHER_RECORDS:
            try:
                taken = self._take(plan, parts, np.concatenate(numbers), clock)
            except Exception as error:  # noqa: BLE001  read one by one below, so that the right batch raises it
                raise_unless_damage(error)  # a store that failed once is not asked again
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
    """Reads each window once, and takes the records of batches from the windows in memory.

    If a window exceeds its share of `most_bytes`, the memory limit of all windows, only its first records in file
    order are loaded. The others are read with the batches that contain them. `position` is where the rank begins its
    epoch. `go_on` is called between the parts of a window, and raises if the loop was left.
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
        """The largest mean record size of a window so far; 0 before the first window."""
        self._loaded: OrderedDict[int, _Loaded] = OrderedDict()
        self._ahead = WindowsAhead(source, windows, self._wanted, most_bytes // 4)
        self._lock = Lock()

    @property
    def num_bytes(self) -> int:
        with self._lock:
            return self._ahead.num_bytes + sum(one.num_bytes for one in self._loaded.values())

    def _take(
        self, plan: EpochPlan, parts: Sequence[BatchPart], numbers: np.ndarray, clock: Clock
    ) -> Taken:
        edges = self._windows.edges
        # Threads work on different batches at the same time, and these may span several small windows.
        ends = np.searchsorted(edges, [part.end for part in parts])
        across = ends - np.searchsorted(edges, [part.first for part in parts], "right")
        most_windows = 2 + 2 * max(int(across.sum()), 0)
        places: dict[int, list[np.ndarray]] = {}
        done = 0
        for part in parts:
            for start, stop in plan.positions(part):
                first = start
                while first < stop:
                    number = int(np.searchsorted(edges, first, "right")) - 1
                    last = min(int(edges[number + 1]), stop)
                    # A batch that wraps around to the beginning of the epoch finds its window no longer in memory.
                    window = -1 if start < part.first else number
                    places.setdefault(window, []).append(np.arange(done, done + last - first))
                    done += last - first
                    first = last
        batches: list[pa.RecordBatch] = []
        kept: list[np.ndarray] = []
        for number, several in places.items():
            here = several[0] if len(several) == 1 else np.concatenate(several)
            if number < 0:
                found = [self._source.take(numbers[here], clock)]
            else:
                window = self._windows[number]
                found = self._from_window(window, numbers[here], most_windows, clock)
            for batch, rows in found:
                batches.append(batch)
                kept.append(here[rows])
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
            others = sum(one.num_bytes for one in self._loaded.values() if one is not loaded)
        # A window may use what others do not, up to half.
        left = min(self._most_bytes // 2, self._most_bytes - others)
        most_bytes = max(self._most_bytes // most_windows, left)
        self._fill(loaded, window, most_bytes, clock)
        taken = [loaded.take(asked)]
        with self._lock:
            loaded.num_taken += len(asked)
            if loaded.num_taken == loaded.num_records:
                self._loaded.pop(window.number, None)  # all of its batches are made
        if loaded.end < _END and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"a window of the order holds more than {most_bytes >> 20} MiB, its share of"
                " memory_bytes; the records beyond it are read with each batch, which takes longer: give"
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
        """Read as many records of a window as fit, unless another thread has already done so."""
        with loaded.lock:
            if loaded.parts:
                return
            numbers = self._wanted(window)
            loaded.num_records = len(numbers)
            parts: list[tuple[pa.RecordBatch, np.ndarray]] = []
            num_bytes = start = 0
            latest = 0.0  # the mean size of the latest records
            while start < len(numbers):
                self._go_on()
                if parts and num_bytes >= most_bytes:
                    loaded.end = int(numbers[start])
                    break
                # Estimate how many records fit from those read so far. In the first window, at most double their number.
                each = max(num_bytes / max(start, 1), latest, self._record_bytes, 1)
                part_bytes = PART_BYTES if self._ahead.is_used else _PART_BYTES
                count = int(min(most_bytes - num_bytes, part_bytes) / each)
                if not self._record_bytes:
                    count = min(count, start)
                stop = start + max(count, _FIRST_RECORDS)
                asked = numbers[start : end_of_part(window, numbers, start, stop)]
                if start or self._record_bytes:
                    self._ahead.ask(window.number, start + len(asked), each)
                batch, kept = self._source.take(asked, clock)
                parts.append((batch, asked[kept]))
                num_bytes += batch.nbytes
                last = batch.slice(max(batch.num_rows - _FIRST_RECORDS, 0))
                latest = last.nbytes / max(last.num_rows, 1)
                start += len(asked)
                self._ahead.is_read(window.number, start)
            self._ahead.is_loaded(window.number)
            loaded.parts, loaded.num_bytes = parts, num_bytes
            self._record_bytes = max(self._record_bytes, num_bytes / max(start, 1))

    def _wanted(self, window: Window) -> np.ndarray:
        """The records of a window that this rank will read, in file order."""
        positions = np.arange(max(window.first, self._position), window.last)
        numbers = self._windows.take(int(positions[0]), window.last)
        if self._plan.world_size > 1:
            step, place = np.divmod(positions - self._position, self._plan.step_records)
            is_whole = step < (self._plan.length - self._position) // self._plan.step_records
            is_mine = place // self._plan.batch_size == self._rank
            numbers = numbers[is_mine | ~is_whole]
        return np.sort(numbers)


class _Loaded:
    def __init__(self) -> None:
        self.lock = Lock()
        self.parts: list[tuple[pa.RecordBatch, np.ndarray]] = []
        """Records and their numbers."""
        self.num_bytes = self.num_records = self.num_taken = 0
        self.end = _END
        """Records with this number or a higher one are not in memory."""

    def take(self, numbers: np.ndarray) -> Taken:
        """The requested records that are in memory, and their indices in `numbers`."""
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
    """Join records of several batches, sorted by their places."""
    found = np.concatenate(places)
    batch = join([one for one in batches if one.num_rows] or batches[:1])
    if (found[1:] > found[:-1]).all():
        return batch, found
    order = np.argsort(found, kind="stable")
    return reordered(batch, order), found[order]

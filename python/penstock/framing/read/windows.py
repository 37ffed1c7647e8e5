"""Read a plain shard in windows, with several threads in parallel.

The length of a record is stored only in its header, so records must be found in order. Their bytes need not be read in
order. The call for a window reads its bytes, waits until the previous call reports where the window's first record
starts, finds the records from there on, and reports where the next window's first record starts.

The first record of a window starts in the window before it, so a window is read with a margin in front. If headers have
checksums, a call does not wait before it walks. It starts at the first place that looks like a header, and keeps the
result if its walk passed through the start that the previous call reports, as nearly all do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from penstock import _core
from penstock.contract.format import Chunk, Stretch
from penstock.engine.threads import wait_for
from penstock.framing.read.held import Held
from penstock.framing.read.shard import CHUNK_BYTES, LARGE_BYTES, LARGE_CHUNK_BYTES, Shard
from penstock.framing.streams.stream import Walked

_FIRST_BYTES = 256 << 10
"""The first window is small: all others wait for it, because its records decide how large they are."""
_WINDOW_BYTES = 2 * CHUNK_BYTES
"""Large windows need fewer handovers between threads."""
_FIRST_MARGIN = 64 << 10
_LEAST_MARGIN = 4 << 10


@dataclass(frozen=True, slots=True)
class _Start:
    """What the call for one window reports to the next."""

    at: int
    """Where the next frame starts: in the next window or before it."""
    record: int
    """The record number of that frame."""
    end: int = 0
    """The earliest possible end of that frame: a window that ends before it has no record to find."""
    margin: int = _FIRST_MARGIN
    """How far before its window the first record probably starts: at least twice the mean frame size."""
    fault: _core.Fault | None = None
    """Why no frame starts there. The next call raises it, after the records of this one. Where reading continues after
    damage: why a damage scan must find the records from there on."""
    ended: bool = False
    """No later call has anything to do."""


class _Handover:
    """Passes a start from one call to the next."""

    def __init__(self, start: _Start | None = None) -> None:
        self._start = start
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)

    def put(self, start: _Start) -> None:
        with self._lock:
            self._start = start
            self._changed.notify_all()

    def get(self) -> _Start:
        with self._lock:
            wait_for(self._changed, lambda: self._start is not None)
        assert self._start is not None
        return self._start


@dataclass(frozen=True, slots=True)
class _Window:
    """Bytes read before the start of their first record is known, and perhaps a trial walk over them."""

    base: int
    buffer: _core.Buffer
    trial: Walked | None = None


class Windows:
    """The windows of a shard of `size` bytes.

    Iterate for calls that return what they find: a chunk, nothing if no record ends in the window, or the region that is
    skipped if reading stops at a fault. A call may wait for the one
    before it, which must already be running. Errors come after the records before them, as from `walked_chunks`. Where
    reading continues after damage, no errors are raised: calls find the records before the damage, and `left` returns
    where the rest starts.
    """

    def __init__(self, shard: Shard, size: int) -> None:
        self._shard = shard
        self._size = size
        self._latest = _Start(shard.begin, 0)
        """The latest start that any call reported. Read without a lock: it only avoids needless reads."""
        self._last = _Handover(self._latest)

    def __iter__(self) -> Iterator[Callable[[], Sequence[Stretch]]]:
        begin, length = self._shard.begin, _FIRST_BYTES
        before = self._last
        while True:
            after = self._last = _Handover()
            yield partial(self._chunk, begin, begin + length, before, after)
            # One more call than there are windows, for a fault after the last one.
            if begin >= self._size or self._latest.ended:
                return
            is_first = begin == self._shard.begin
            begin, before = begin + length, after
            if is_first:
                length = _length(after.get())

    def left(self) -> tuple[int, int] | None:
        """The offset at which a fault ends the windows, and the number of the record there. None if they end with the
        stream. Waits for the last call."""
        last = self._last.get()
        return None if last.fault is None else (last.at, last.record)

    def _chunk(
        self, begin: int, end: int, before: _Handover, after: _Handover
    ) -> Sequence[Stretch]:
        told = replace(self._latest, ended=True)  # after an error, nothing is left to do
        try:
            window = self._read(begin, end)
            found, told = self._cut(before.get(), end, window)
            return () if found is None else (found,)
        finally:
            self._latest = told
            after.put(told)

    def _read(self, begin: int, end: int) -> _Window | None:
        """Read a window with its margin; None if it is not needed."""
        known, shard = self._latest, self._shard
        base = max(begin - known.margin, shard.begin)
        # A record that continues into this window is read from its start, by the call that finds
        # its end.
        is_within_a_record = known.end > begin and known.at < base
        if known.ended or known.fault or is_within_a_record or begin >= self._size:
            return None
        length = min(end, self._size) - base
        if not shard.framing.is_checked:
            return _Window(base, shard.stream.read(base, length))
        limit, prove = shard.record_bytes, shard.proves_found(known.margin / 2)
        trial = shard.stream.walk(shard.framing, base, length, limit, prove=prove, find=True)
        return _Window(base, trial.frames.buffer, trial)

    def _cut(
        self, start: _Start, end: int, window: _Window | None
    ) -> tuple[Stretch | None, _Start]:
        """The chunk of a window, and what to report to the next call."""
        if start.fault is not None:
            is_passed = start.fault.kind == "limit" and self._shard.passes_long
            if not (self._shard.goes_on or is_passed):
                rest = self._shard.stop_at(start.fault, start.record, start.at)
                return rest, replace(start, ended=True, fault=None)
            return None, replace(start, ended=True)
        at_end = end >= self._size
        end = min(end, self._size)
        if start.ended or start.at >= end or (start.end > end and not at_end):
            return None, start
        frames, consumed, need, fault, num_bytes = self._walked(start, end, window)
        if self._shard.proves_to_find and (wrong := frames.verify()):
            return None, replace(start, fault=wrong[0])
        at_end = self._shard.is_last(start.at, end - start.at, num_bytes) or at_end
        count, at = len(frames), start.at + consumed
        chunk, margin = None, start.margin
        if count:
            chunk = Chunk(start.record, count, start.at, at, Held(frames))
            margin = max(_LEAST_MARGIN, 2 * consumed // count)
        next_end = at
        if fault is None and need:
            if at_end:
                fault = self._shard.cut(num_bytes - consumed, at, need)
            else:
                next_end += need if count else self._shard.framing.more_bytes(need, num_bytes)
        margin = min(max(margin, end - at), CHUNK_BYTES)
        return chunk, _Start(at, start.record + count, next_end, margin, fault)

    def _walked(self, start: _Start, end: int, window: _Window | None) -> Walked:
        """The frames from a start on: from the trial walk if it passed through that start, otherwise from a new walk
        over the bytes read."""
        shard, limit, at = self._shard, self._shard.record_bytes, start.at
        if window is None or at < window.base:
            prove = shard.proves_found(start.margin / 2)
            return shard.stream.walk(shard.framing, at, end - at, limit, prove=prove)
        skipped = at - window.base
        trial = window.trial
        if trial and not trial.fault and (rest := trial.frames.since(at)) is not None:
            consumed, num_read = trial.consumed - skipped, trial.num_read - skipped
            return Walked(rest, consumed, trial.need, None, num_read)
        part = window.buffer.slice(skipped, end - at)
        last = end == self._size or len(part) < end - at
        return Walked(*_core.walk(shard.framing.name, part, at, limit, last), len(part))


def _length(start: _Start) -> int:
    """Bytes of each window after the first, depending on the record sizes in the first."""
    return LARGE_CHUNK_BYTES if start.margin >= 2 * LARGE_BYTES else _WINDOW_BYTES

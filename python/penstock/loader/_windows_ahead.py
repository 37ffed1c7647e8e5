"""Requests the records of the next windows of `Blocked` while a window is read, from storage with slow access."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from penstock.engine.locks import Lock
from penstock.orders import Window, Windows

PART_BYTES = 32 << 20
"""Approximate number of bytes that one call reads of a window: small enough for requests to follow while it is decoded."""
_ASK_BYTES = 16 << 20
"""Approximate number of bytes that are requested together."""
_AHEAD_BYTES = 64 << 20
"""Approximate number of bytes that are requested and not read yet: half a second of a fast link."""


class Wanting(Protocol):
    def want(self, numbers: np.ndarray) -> Sequence[object] | None: ...


class WindowsAhead:
    """What was requested and not read yet: at most about `most_bytes`."""

    def __init__(
        self,
        source: Wanting,
        windows: Windows,
        wanted: Callable[[Window], np.ndarray],
        most_bytes: int,
    ) -> None:
        self._source = source
        self._windows = windows
        self._wanted = wanted
        self._most_bytes = min(most_bytes, _AHEAD_BYTES)
        self._at = (-1, 0)
        """The window and the place in it up to which records were requested."""
        self._numbers: tuple[int, np.ndarray] = (-1, np.zeros(0, np.int64))
        """The records of the window of `_at`."""
        self._held: list[tuple[int, int, Sequence[object]]] = []
        """The window and the place at which requested records end, and what their requests are held by."""
        self.is_used = False
        """Whether records were requested ahead."""
        self._lock = Lock()

    def ask(self, window: int, place: int, record_bytes: float) -> None:
        """Request the records from a place in a window on, as far as there is room. Those before it are being read, and
        were requested before or are read without."""
        count = max(int(_ASK_BYTES / record_bytes), 1)
        most = max(int(self._most_bytes / record_bytes) // count, 1)
        with self._lock:
            if not self._most_bytes:
                return
            self._at = max(self._at, (window, place))
            while len(self._held) < most and self._at[0] < len(self._windows):
                number, start = self._at
                numbers = self._of(number)
                if start == len(numbers):
                    self._at = (number + 1, 0)
                    continue
                stop = end_of_part(self._windows[number], numbers, start, start + count)
                held = self._source.want(numbers[start:stop])
                if held is None:
                    return
                if not held:
                    self._most_bytes = 0  # nothing is gained
                    return
                self._at = (number, stop)
                self._held.append((*self._at, held))
                self.is_used = True

    @property
    def num_bytes(self) -> int:
        """Approximate number of bytes that were requested and not read yet."""
        return len(self._held) * _ASK_BYTES

    def is_read(self, window: int, place: int) -> None:
        """Records of a window were read up to a place."""
        with self._lock:
            self._held = [one for one in self._held if one[0] != window or one[1] > place]

    def is_loaded(self, window: int) -> None:
        """No more of a window is read."""
        with self._lock:
            self._held = [one for one in self._held if one[0] != window]
            self._at = max(self._at, (window + 1, 0))

    def _of(self, window: int) -> np.ndarray:
        if self._numbers[0] != window:
            self._numbers = window, self._wanted(self._windows[window])
        return self._numbers[1]


def end_of_part(window: Window, numbers: np.ndarray, start: int, stop: int) -> int:
    """Where a part of a window's records ends, at `stop` at the latest: if possible at the end of a chunk, so that no
    chunk is read for two parts."""
    if stop >= len(numbers):
        return len(numbers)
    ends = np.searchsorted(numbers, window.ends)
    before = int(np.searchsorted(ends, stop, "right"))
    return int(ends[before - 1]) if before and ends[before - 1] > start else stop

"""Records from many places of a shard, brought together in one buffer: what `take` reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from penstock import _core
from penstock.columns.numbers import as_arrow
from penstock.engine.pipeline import in_order
from penstock.framing.index.sidecar import Index
from penstock.framing.streams.stream import Stream
from penstock.storage.base import Source

_EMPTY = _core.Buffer.from_bytes(b"")


def gather(
    source: Source, stream: Stream, index: Index, starts: np.ndarray, ends: np.ndarray
) -> tuple[_core.Buffer, np.ndarray]:
    """The bytes at these places of the stream (uint64) in one buffer, and where in it each begins.

    A plain file is read range by range, or borrowed where it is mapped; a compressed one is
    inflated around the places.
    """
    lengths = ends - starts
    mapped = getattr(source, "mapped", None)
    if mapped is not None and not index.compression:
        return mapped, starts
    if index.compression:
        buffer = _inflated(stream, index, starts, ends)
    else:
        buffer = source.gather(as_arrow(starts), as_arrow(lengths))
    return buffer, np.cumsum(lengths) - lengths


_Stretch = tuple[np.ndarray, int, int]
"""Which of the asked frames lie in it, where the first starts, and where the last ends."""


def _inflated(stream: Stream, index: Index, starts: np.ndarray, ends: np.ndarray) -> _core.Buffer:
    """Frames of a compressed stream: each stretch between two points is inflated once, several
    of them side by side."""
    points = np.array([p.plain_start for p in index.points], dtype=np.uint64)
    if not len(points):
        points = np.unique(starts)  # nothing may be inflated that was not asked for
    group = np.searchsorted(points, starts, "right")

    def stretches() -> Iterator[_Stretch]:
        for number in np.unique(group):
            inside = np.flatnonzero(group == number)
            yield inside, int(starts[inside].min()), int(ends[inside].max())

    def inflate(stretch: _Stretch) -> Iterable[list[tuple[int, _core.Buffer]]]:
        inside, low, high = stretch
        window = stream.read(low, high - low)
        # Cut out at once, so that a window goes when its frames have been copied.
        frames = [(int(n), int(starts[n]) - low, int(ends[n] - starts[n])) for n in inside]
        return [[(n, _core.Buffer.join([window.slice(at, size)])) for n, at, size in frames]]

    parts = [_EMPTY] * len(starts)
    alone = len(starts) == 1 or len(np.unique(group)) == 1
    for found in in_order([stretches], inflate, lambda found: 0, 1 if alone else None):
        for number, frame in found:
            parts[number] = frame
    return _core.Buffer.join(parts)

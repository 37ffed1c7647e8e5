"""Copies records from many places of a shard into one buffer, for `take`."""

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
    """The bytes of these stream ranges (uint64) in one buffer, and where each range begins in it. A mapped plain file
    is itself the buffer; a compressed file is inflated around the ranges."""
    lengths = ends - starts
    if source.mapped is not None and not index.compression:
        return source.mapped, starts
    if index.compression:
        buffer = _inflated(stream, index, starts, ends)
    else:
        buffer = source.gather(as_arrow(starts), as_arrow(lengths))
    return buffer, np.cumsum(lengths) - lengths


_Stretch = tuple[np.ndarray, int, int]
"""The numbers of the requested frames in a stretch, where the first starts, and where the last ends."""


def _inflated(stream: Stream, index: Index, starts: np.ndarray, ends: np.ndarray) -> _core.Buffer:
    """Frames of a compressed stream. Each stretch between two seek points is inflated once. Several stretches are
    inflated in parallel."""
    points = np.array([p.plain_start for p in index.points], dtype=np.uint64)
    if not len(points):
        points = np.unique(starts)  # so that no stretch includes unrequested frames
    group = np.searchsorted(points, starts, "right")

    def stretches() -> Iterator[_Stretch]:
        for number in np.unique(group):
            inside = np.flatnonzero(group == number)
            yield inside, int(starts[inside].min()), int(ends[inside].max())

    def inflate(stretch: _Stretch) -> Iterable[list[tuple[int, _core.Buffer]]]:
        inside, low, high = stretch
        window = stream.read(low, high - low)
        # Copied, so that the window can be freed.
        frames = [(int(n), int(starts[n]) - low, int(ends[n] - starts[n])) for n in inside]
        return [[(n, _core.Buffer.join([window.slice(at, size)])) for n, at, size in frames]]

    parts = [_EMPTY] * len(starts)
    alone = len(starts) == 1 or len(np.unique(group)) == 1
    for found in in_order([stretches], inflate, lambda found: 0, 1 if alone else None):
        for number, frame in found:
            parts[number] = frame
    return _core.Buffer.join(parts)

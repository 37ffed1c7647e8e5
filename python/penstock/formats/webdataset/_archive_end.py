"""Checks the end of a tar archive. `verify` reports a wrong end in addition to damaged records, and `repair` fixes it.
A reader that skips damage lists it.

Other programs stop reading at the first block of zeros. An archive without such a block may have been truncated between
two members, which nothing else would show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property

import numpy as np

from penstock import _core
from penstock.columns.numbers import as_arrow, as_numpy
from penstock.contract.format import Part, SkippedRegion, Stretch
from penstock.formats.webdataset._comment import END_BYTES, stored_in
from penstock.framing.damage import Bad, DamageScan, Found, FoundFrames, Task
from penstock.framing.read.framed import FramedReader
from penstock.framing.write.output import joined

_NO_END = "the archive has no end: it may have been truncated after a member"
_EARLY_END = "an archive ends here and another follows, which webdataset and tar do not read"


class ArchiveScan(DamageScan):
    """A damage scan that also reports an archive that ends too early, or has no end."""

    def tasks(self) -> Iterator[Task]:
        end: tuple[int, int] | None = None  # end offset of the last record, and its final zeros
        for task in super().tasks():
            if isinstance(task, FoundFrames):
                zeros = as_numpy(_core.tar_end_bytes(task.frames)).astype(np.int64)
                borders = as_numpy(task.frames.starts()) + as_numpy(task.frames.lengths())
                ends = borders.astype(np.int64)
                if end is not None:
                    ends, zeros = np.append(end[0], ends), np.append(end[1], zeros)
                for place in np.flatnonzero(zeros[:-1]):
                    start = int(ends[place] - zeros[place])
                    yield self._finding("early_end", start, int(ends[place]), _EARLY_END, 0)
                end = int(ends[-1]), int(zeros[-1])
            else:
                end = None  # the damage is reported separately
            yield task
        if end is not None and end[1] < END_BYTES:
            yield self._finding("no_end", end[0] - end[1], end[0], _NO_END, None)

    def _finding(self, kind: str, start: int, end: int, message: str, lost: int | None) -> Found:
        return Found((Bad(self._scope.finding(kind, None, start, end, message, lost)),), 0)


class ArchiveReader(FramedReader):
    """Reads an archive. If damage is skipped, the missing end of an archive that penstock wrote is a skipped region,
    because records may be missing with it."""

    def found_by(self, threads: int) -> Iterator[Stretch | Callable[[], Sequence[Stretch]]]:
        yield from super().found_by(threads)
        yield lambda: self._lost_end

    @property
    def uncounted(self) -> Sequence[SkippedRegion]:
        return (*super().uncounted, *self._lost_end)

    @property
    def notes(self) -> Sequence[str]:
        return (_NO_END,) if self._has_no_end else ()

    @cached_property
    def _has_no_end(self) -> bool:
        """Whether a plain archive has no end. If its last member ends in as many zeros, only `verify` finds that."""
        if self._shard.stream.container:
            return False
        start = max(0, self.source.size - END_BYTES)
        return any(self.source.read(start, END_BYTES).to_bytes())

    @cached_property
    def _lost_end(self) -> tuple[SkippedRegion, ...]:
        shard, size = self._shard, self.source.size
        if shard.options.damage == "error" or not self._has_no_end:
            return ()
        with suppress(_core.KernelError):  # a damaged comment is reported with the first record
            is_own = stored_in(shard.stream) is not None
            if is_own and not any(gap.end_byte >= size for gap in self.index.gaps):
                return (shard.skipped(size, size, None, _NO_END),)
        return ()


def without_ends(
    parts: Sequence[Part], lengths: np.ndarray, checksums: np.ndarray
) -> tuple[Sequence[Part], np.ndarray, np.ndarray]:
    """Return whole records without the zeros that end an archive and count as part of a record. Lengths and checksums
    are new."""
    data = joined(parts)
    starts = np.cumsum(lengths, dtype=np.uint64) - lengths
    places = as_arrow(starts)
    frames = _core.frames_at("webdataset", data, places, as_arrow(lengths), places)
    zeros = as_numpy(_core.tar_end_bytes(frames))
    if not zeros.any():
        return parts, lengths, checksums
    lengths, checksums, kept = lengths - zeros, checksums.copy(), list[_core.Buffer]()
    for record, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        kept.append(data.slice(int(start), int(length)))
        if zeros[record]:
            checksums[record] = kept[-1].crc32c()
    return kept, lengths, checksums

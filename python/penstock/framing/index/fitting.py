"""Decides whether an index is valid for the current file, which may have been rewritten or damaged since.

| the file is | if | the index is |
|---|---|---|
| the same | the system reports no change since the index was made | kept |
| rewritten | it was written or replaced since (`was_written`), and its own framing is intact | rebuilt |
| damaged | no write is known, or its own framing is broken | kept, to find what differs |

The reasons are in docs/decisions/0003-index-is-tied-by-content.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Literal

import numpy as np

from penstock import _core
from penstock.columns.numbers import as_arrow, as_numpy
from penstock.errors import StaleIndexError
from penstock.framing.framings import Framing, Read
from penstock.framing.index.sidecar import Index, SeekPoint, state_now
from penstock.framing.streams.forward import Inflation
from penstock.storage.base import Source
from penstock.storage.local import LocalSource

_SAMPLES = 64
_MOST_SAMPLES = 4096
"""The same for small objects, which are read whole."""
_COMPARED_BYTES = 1 << 30
"""Up to this size, a file is read completely if its headers are not enough to compare it with the index."""
_FRONT_BYTES = 64 << 20
"""The same limit after records were appended. It is lower because records may be appended again and again."""
_REMOTE_BYTES = 4 << 20
"""The most bytes to read from a file that is not on this machine."""
_HEAD_BYTES = 64 << 10
_ENDS_BYTES = 64
"""`Framing.agrees` looks at the first `_HEAD_BYTES` of a record, or, if the framing has checksums, only at both ends."""
_PIECE_BYTES = 4 << 20
_INFLATED_BYTES = 16 << 20
"""Up to this size, the data after a seek point is inflated to examine it: the points of an invalid sidecar may be
anywhere."""


def covers(index: Index, source: Source, framing: Framing) -> Literal["all", "front", "nothing"]:
    """The part of a file for which an index is valid: the front if records were appended, nothing if rewritten."""
    if index.layout == "none":
        return "nothing"  # it has no positions
    if index.data_bytes != source.size:
        is_front = _begins(index, source, framing)
        is_front = is_front and not _is_rewritten(index, source, framing, _FRONT_BYTES)
        return "front" if is_front else "nothing"
    if is_same(index, source):
        return "all"
    if index.layout != "plain":
        return "all" if _fits_inflated(index, source, framing) else "nothing"
    if was_written(index, source):
        return "nothing" if _is_rewritten(index, source, framing) else "all"
    # A sidecar copied here with a different file of the same size matches none of its records.
    share = _agreeing(index, source, framing)
    return "all" if share > 0 or index.num_records < 2 else "nothing"


def is_same(index: Index, source: Source) -> bool:
    """Whether the system reports no change of the file since the index was made."""
    return index.state.is_known and index.state == state_now(source)


def was_written(index: Index, source: Source) -> bool:
    """Whether the system reports that a file was written, replaced or copied since its index was made. The index of a
    writer does not store the file's state; the file is then compared with the time when the index was made."""
    now = state_now(source)
    if not now.is_known:
        return False  # the storage reports nothing
    if source.storage is not None:
        return index.state != now  # the state of an object has no time
    return index.state != now if index.state.is_known else now.mtime_ns > index.made_ns


def fits(index: Index, source: Source, framing: Framing) -> bool:
    """Whether an index may belong to this file: its size matches, and at least half of a sample of its records do."""
    if index.data_bytes != source.size:
        return False
    if index.layout != "plain":
        return is_same(index, source) or _fits_inflated(index, source, framing)
    return 2 * _agreeing(index, source, framing) >= 1


def _agreeing(index: Index, source: Source, framing: Framing) -> float:
    """The share of sampled records that are where the index says; 0 if there are no records."""
    records = _spread(index.num_records, _SAMPLES)
    read: Read = source.read
    if source.storage is not None and source.size <= _REMOTE_BYTES:
        records = _spread(index.num_records, _MOST_SAMPLES)
        read = _read_whole(source)
    elif source.storage is not None:
        read = _read_together(index, source, framing, records)
    agreeing = sum(_agrees(index, source, framing, record, read) for record in records)
    return agreeing / max(len(records), 1)


def _read_whole(source: Source) -> Read:
    """Read a small file by one request."""
    whole = source.read(0, source.size)

    def read(start: int, length: int) -> _core.Buffer:
        start = min(start, len(whole))
        return whole.slice(start, min(length, len(whole) - start))

    return read


def _read_together(index: Index, source: Source, framing: Framing, records: list[int]) -> Read:
    """Read the bytes that `Framing.agrees` looks at, for all of these records in one call."""
    limit = min(index.data_bytes, source.size)
    begins = np.minimum(index.starts[records], np.uint64(limit))
    ends = np.minimum(index.starts[np.asarray(records, np.int64) + 1], np.uint64(limit))
    most = np.uint64(_ENDS_BYTES if framing.is_checked else _HEAD_BYTES)
    sizes = np.minimum(ends - np.minimum(begins, ends), most)
    starts, lengths = begins, sizes
    if framing.is_checked:
        starts, lengths = np.concatenate([begins, ends - sizes]), np.concatenate([sizes, sizes])
    held = source.gather(as_arrow(starts), as_arrow(lengths))
    at = np.cumsum(lengths) - lengths
    places = list(zip(starts.tolist(), lengths.tolist(), at.tolist(), strict=True))

    def read(start: int, length: int) -> _core.Buffer:
        for begin, size, place in places:
            if begin <= start and start + length <= begin + size:
                return held.slice(place + start - begin, length)
        return source.read(start, length)

    return read


def _is_rewritten(
    index: Index, source: Source, framing: Framing, most_bytes: int = _COMPARED_BYTES
) -> bool:
    """Whether the records of a modified file differ from the index. All headers of a local file are read. For framings
    other than TFRecord, that takes the whole file, so large files are only sampled. Remote files are sampled, too."""
    if index.layout != "plain":
        return False  # `_begins` and `_fits_inflated` already examine nearly all of it
    first, end = int(index.starts[0]), int(index.starts[-1])
    if not first < end:
        return source.size > 0
    is_large = not framing.is_checked and source.size > most_bytes
    if is_large or not isinstance(source, LocalSource):
        return _agreeing(index, source, framing) < 1
    found, stored, fault = _core.index_file(framing.name, source.file, end, first, end - first)
    starts, checksums = as_numpy(found), as_numpy(stored)
    if framing.is_checked:
        return not _are_indexed(index, 0, starts, checksums, source.read, framing)
    if fault:
        return 2 * _agreeing(index, source, framing) < 1
    return not (np.array_equal(starts, index.starts) and np.array_equal(checksums, index.checksums))


def _fits_inflated(index: Index, source: Source, framing: Framing) -> bool:
    chosen = _chosen(index, source)
    if not chosen:
        # There is nothing to compare, and another file may have the same size.
        return is_same(index, source) or not source.size
    changed = _changed(index, source, chosen)
    looked_at = [changed[place] for place in _spread(len(changed), _SAMPLES)]
    broken = 0
    for point in looked_at:
        now = _records_behind(index, source, framing, point)
        if now == "others":
            return False
        broken += now == "none"
    return 2 * broken * len(changed) <= len(chosen) * max(len(looked_at), 1)


def _begins(index: Index, source: Source, framing: Framing) -> bool:
    """Whether an index was made of the first part of this file. All records of a sample must match, and the sample must
    have at least one."""
    end = index.plain_bytes if index.compression else index.data_bytes
    if not index.data_bytes < source.size or int(index.starts[-1]) != end:
        return False
    if index.layout != "plain":
        chosen = _chosen(index, source, _FRONT_BYTES)
        return bool(chosen) and not _changed(index, source, chosen)
    records = _spread(index.num_records, _SAMPLES)
    return bool(records) and all(_agrees(index, source, framing, record) for record in records)


def ends_whole(index: Index, source: Source, framing: Framing) -> bool:
    """Whether the last record of a plain file has an intact header and ends exactly at the end of the file."""
    last = index.num_records - 1
    return int(index.starts[-1]) == source.size and _agrees(index, source, framing, last)


def kept_records(index: Index, source: Source, framing: Framing) -> int | None:
    """The number of records that are left of a plain file that was cut between two records since it was indexed. None if
    it was not: the rest must agree with the index in a sample of its records."""
    if index.layout != "plain" or source.size >= index.data_bytes:
        return None
    count = int(np.searchsorted(index.starts, np.uint64(source.size)))
    if source.size and int(index.starts[count]) != source.size:
        return None
    count = count if source.size else 0
    agrees = all(_agrees(index, source, framing, record) for record in _spread(count, _SAMPLES))
    return count if agrees else None


def with_checks(points: Iterable[SeekPoint], source: Source) -> tuple[SeekPoint, ...]:
    """The seek points, each with the checksum of the compressed bytes up to the next one."""
    bare = list(points)
    return tuple(
        replace(point, check=_crc32c(source, *span))
        for point, span in zip(bare, _spans(bare, source.size), strict=True)
    )


# -- a sample --------------------------------------------------------------------------------------


def _spread(count: int, most: int) -> list[int]:
    """Up to `most` numbers below `count`, evenly spread from the first to the last."""
    if count <= most:
        return list(range(count))
    return [i * (count - 1) // (most - 1) for i in range(most)]


def _agrees(
    index: Index, source: Source, framing: Framing, record: int, read: Read | None = None
) -> bool:
    start, end = int(index.starts[record]), int(index.starts[record + 1])
    if not start < end <= index.data_bytes:
        return False
    return framing.agrees(read or source.read, start, end, int(index.checksums[record]))


def _chosen(index: Index, source: Source, most_bytes: int = _COMPARED_BYTES) -> list[int]:
    """Seek points to check: all, or as many as can be read within `most_bytes`."""
    most_bytes = most_bytes if isinstance(source, LocalSource) else _REMOTE_BYTES
    count = len(index.points)
    return _spread(count, max(2, count * most_bytes // max(index.data_bytes, 1)))


def _changed(index: Index, source: Source, points: list[int]) -> list[int]:
    """The seek points after which the compressed bytes do not match their checksum."""
    spans = _spans(index.points, index.data_bytes)
    return [p for p in points if _crc32c(source, *spans[p]) != index.points[p].check]


def _spans(points: Iterable[SeekPoint], end: int) -> list[tuple[int, int]]:
    return list(pairwise([*(point.compressed_bit // 8 for point in points), end]))


def _crc32c(source: Source, start: int, end: int) -> int:
    crc = 0
    end = min(end, source.size)  # a sidecar cannot be trusted
    for at in range(start, end, _PIECE_BYTES):
        crc = source.read(at, min(_PIECE_BYTES, end - at)).crc32c(crc)
    return crc


# -- all records -----------------------------------------------------------------------------------


def _records_behind(
    index: Index, source: Source, framing: Framing, point: int
) -> Literal["same", "others", "none"]:
    """Classify the data after a seek point whose bytes have changed: "same" if some indexed records are intact and the
    others damaged, "others" if there are other intact records, "none" if nothing is intact."""
    borders = [p.plain_start for p in index.points[point : point + 2]]
    last = index.num_records
    first = int(np.searchsorted(index.starts[:-1], np.uint64(borders[0])))
    if len(borders) == 2:
        last = int(np.searchsorted(index.starts[:-1], np.uint64(borders[1])))
    start, end = int(index.starts[first]), int(index.starts[last])
    if not borders[0] <= start < end <= borders[0] + _INFLATED_BYTES:
        return "none"
    try:
        inflation = Inflation(source, index.compression, index.points[point])
        inflation.skip_to(start)
        plain = inflation.read(end - start)
    except (_core.KernelError, StaleIndexError):
        return "none"
    frames, _, _, _ = _core.walk(framing.name, plain, start, end - start)
    begin, checksums = as_numpy(frames.starts()), as_numpy(frames.checksums())
    ends = begin + framing.frame_bytes(as_numpy(frames.lengths()))
    found = np.concatenate([begin, ends[-1:]])
    read: Read = lambda at, length: plain.slice(at - start, length)  # noqa: E731
    if not _are_indexed(index, first, found, checksums, read, framing):
        return "others"
    is_known = bool((checksums == index.checksums[first : first + len(checksums)]).any())
    return "same" if is_known else "none"


def _are_indexed(
    index: Index,
    first: int,
    starts: np.ndarray,
    checksums: np.ndarray,
    read: Read,
    framing: Framing,
) -> bool:
    if not np.array_equal(starts, index.starts[first : first + len(starts)]):
        return False
    # If a record's stored checksum differs from the index, the record is new if its payload matches
    # that checksum, and damaged if not.
    known = index.checksums[first : first + len(checksums)]
    for record in np.flatnonzero(checksums != known):
        frame = read(int(starts[record]), int(starts[record + 1] - starts[record]))
        payload = frame.slice(framing.head_bytes, len(frame) - framing.least_bytes)
        tail = frame.slice(len(frame) - framing.tail_bytes, framing.tail_bytes).to_bytes()
        if framing.proves(payload, tail):
            return False
    return True

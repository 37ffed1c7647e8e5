"""Chunks around damage, for readers that skip it.

A reader uses the damage scan of `verify` for the damaged chunk if there is an index, or else for the rest of the shard.
It therefore skips exactly what `verify` reports and `repair` leaves out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np

from penstock import _core
from penstock.columns.numbers import as_numpy
from penstock.contract.format import Chunk, SkippedRegion, Stretch
from penstock.framing.damage._header_chains import MOST_BYTES
from penstock.framing.damage._parts import Bad, FoundFrames
from penstock.framing.damage._scan import DamageScan
from penstock.framing.index.sidecar import Index, SeekPoint
from penstock.framing.read.held import FrameChunk, Held, frames_in
from penstock.framing.read.shard import OpenShard
from penstock.framing.streams.inflated import POINT_BYTES


def chunks_around_damage(
    shard: OpenShard, at: int, first: int, points: list[SeekPoint] | None = None
) -> Iterator[Stretch]:
    """The chunks and skipped regions from offset `at` on. Record `first` starts there. For `points` see
    `walked_chunks`."""
    scan = _damage_scan(shard, None, 0 if points is None else POINT_BYTES)
    for task in scan.walk(at, first):
        for part in scan.opened(task):
            first, frames, skipped = _believed(shard, part, first)
            if skipped is not None:
                yield skipped
            if frames is None:
                continue
            start, end = frames.start, frames.end
            held = Held(frames.frames)
            yield Chunk(first, len(held.frames), start, end, held)
            first += len(held.frames)
    if points is not None:
        points.extend(scan.points())


def frames_around_damage(shard: OpenShard, chunk: FrameChunk, index: Index) -> Held:
    """The readable frames of a chunk whose boundaries come from an index, and its skipped regions."""
    shard.check_unchanged()
    first = chunk.first_record
    found: list[FoundFrames] = []
    regions: list[SkippedRegion] = []
    scan = _damage_scan(shard, index)
    # Damage after the chunk is reported with the next chunk. In compressed files, findings have offsets in the file.
    is_inside = not shard.stream.container and chunk.end_byte < index.plain_bytes
    until = chunk.end_byte if is_inside else MOST_BYTES
    for part in scan.between(chunk.start_byte, chunk.end_byte, first):
        first, frames, skipped = _believed(shard, part, first, until)
        if skipped is not None:
            regions.append(skipped)
        if frames is not None:
            found.append(frames)
            first += len(frames.frames)
    starts = _joined([as_numpy(part.frames.starts()) for part in found])
    lengths = _joined([as_numpy(part.frames.lengths()) for part in found])
    sizes = shard.framing.frame_bytes(lengths)
    data = _core.Buffer.join([part.data for part in found])
    frames = frames_in(shard.framing, data, starts, sizes)
    checksums = _checksums(frames, index, starts)
    records, believed = _vouched(chunk, index, starts, sizes, checksums)
    # Damaged compressed data may inflate to records that were never written.
    for row in np.flatnonzero(~believed):
        end = int(starts[row] + sizes[row])
        reason = "the index has no such record there"
        regions.append(shard.skipped(int(starts[row]), end, None, reason))
    held = Held(frames, checksums, records, tuple(regions))
    return held.select(np.flatnonzero(believed), chunk.first_record)


def _checksums(frames: _core.Frames, index: Index, starts: np.ndarray) -> np.ndarray:
    """The checksum to verify each frame with: the stored one. If that does not match, it may itself be damaged, so the
    index's is used."""
    checksums = as_numpy(frames.checksums()).copy()
    for fault in frames.verify(None):
        row = fault.record or 0
        known = index.checksum_at(int(starts[row]))
        if known is not None:
            checksums[row] = known
    return checksums


def _vouched(
    chunk: FrameChunk, index: Index, starts: np.ndarray, sizes: np.ndarray, checksums: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The record number of each frame (-1 if unknown), and whether the index has such a record at all. Broken
    compressed data may inflate to intact records at wrong offsets or to copies of a record, so frames are matched to
    the index in order, by size and checksum."""
    first, end = chunk.first_record, chunk.first_record + chunk.num_records
    begins = index.starts[first:end]
    facts = list(
        zip(
            (index.ends[first:end] - begins).tolist(),
            index.checksums[first:end].tolist(),
            strict=True,
        )
    )
    places = {begin: row for row, begin in enumerate(begins.tolist())}
    by_facts: dict[tuple[int, int], list[int]] = {}
    for row, fact in enumerate(facts):
        by_facts.setdefault(fact, []).append(row)
    records = np.full(len(starts), -1, np.int64)
    believed = np.zeros(len(starts), dtype=bool)
    last = -1
    asked = zip(starts.tolist(), sizes.tolist(), checksums.tolist(), strict=True)
    for at, (start, size, checksum) in enumerate(asked):
        alike = by_facts.get((size, checksum), [])
        row = places.get(start, -1)
        if row < 0 or facts[row] != (size, checksum):
            later = bisect_right(alike, last)
            if later == len(alike):
                continue
            row = alike[later]
        believed[at] = True
        last = row
        if places.get(start) == row or len(alike) == 1:
            records[at] = first + row
    return records, believed


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, np.uint64), *parts])


def _damage_scan(shard: OpenShard, index: Index | None, point_bytes: int = 0) -> DamageScan:
    return DamageScan(
        shard.source,
        shard.framing,
        shard.stream.container,
        shard.options.limits,
        index,
        proves=shard.verifies,
        point_bytes=point_bytes,
    )


def _believed(
    shard: OpenShard, part: FoundFrames | Bad, first: int, until: int = MOST_BYTES
) -> tuple[int, FoundFrames | None, SkippedRegion | None]:
    """For one part of a scan: the number of the next record, the readable frames (None if there are none), and the
    skipped region up to `until` (None if nothing is skipped). A restored payload gets a new frame."""
    if isinstance(part, FoundFrames):
        return max(first, part.first_record or 0), part, None
    found = part.finding
    # A missing checksum has no bytes of its own, but everything before it is unverified.
    missing = found.kind == "cut_trailer"
    skipped = None
    if missing or found.end_byte > found.start_byte or found.num_records != 0:
        end = min(found.end_byte, until)
        skipped = shard.skipped(found.start_byte, end, found.num_records, found.message)
    first += found.num_records or 0
    if part.payload is None:
        return first, None, skipped
    data = shard.framing.frames([part.payload.to_bytes()]).data
    frames = _core.walk(shard.framing.name, data, found.start_byte, shard.record_bytes)[0]
    return first, FoundFrames(frames, data, found.record, 0), skipped

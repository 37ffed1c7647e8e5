"""The index of a TFRecord file: found by its heads, by its members, or by one pass over it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.errors import StaleIndexError
from penstock.faults import error_from
from penstock.format import Options
from penstock.formats.tfrecord_raw import FRAMING, RawDecoder
from penstock.framing import gzip_members, sidecar
from penstock.framing.forward import ForwardStream
from penstock.framing.framed import FramedReader
from penstock.framing.gzip_members import Member
from penstock.framing.inflated import POINT_BYTES, Stream
from penstock.framing.sidecar import Index, SeekPoint
from penstock.pipeline import in_order
from penstock.storage import LocalSource, LocalStorage, Source

OVERHEAD_BYTES = 16


def load_index(source: Source, options: Options) -> Index | None:
    """The sidecar of a file, if there is one and it fits."""
    if options.index == "never":
        return None
    storage = LocalStorage()
    explicit = options.index != "auto"
    folders = [options.index] if explicit else [None, sidecar.cache_folder()]
    for folder in folders:
        path = sidecar.path_for(source.path, folder)
        try:
            index = sidecar.load(path, storage)
        except (OSError, StaleIndexError):
            continue  # not there, not readable, or none: an index can be made again
        if sidecar.fits(index, source, FRAMING):
            return index
        if sidecar.begins(index, source, FRAMING):
            longer = extended(index, source, options)
            if longer is not None:
                if sidecar.worth_saving(index.num_records, longer.num_records):
                    with suppress(OSError):  # then it is extended again the next time
                        sidecar.save(longer, source.path, storage, folder)
                return longer
    return None


def extended(index: Index, source: Source, options: Options) -> Index | None:
    """The index of a file to which records were appended, made from that of its first part without
    looking at it again. None where what follows is damaged, or is nothing of which an index can be
    made by itself."""
    start, limit = index.data_bytes, options.limits.record_bytes
    if index.layout == "plain":
        if not isinstance(source, LocalSource):
            return None
        starts, checksums, fault = _core.index_file(FRAMING, source.file, limit, start)
        if fault is not None:
            return None
        found = pa.array(starts).to_numpy() - np.uint64(start)
        stored = pa.array(checksums).to_numpy()
        size = source.size - start
        more = Index(len(stored), size, size, "", found, stored)
    else:
        members = gzip_members.hop_to_end(source, start) if index.compression == "gzip" else []
        more = _index_of_members(source, members, options)
    return None if more is None else sidecar.joined(index, more)


def build_index(
    source: Source, stream: Stream, compression: str, options: Options, keep: bool = True
) -> Index:
    """Find all records of a file, and keep what was found in a sidecar.

    A plain local file is read by its heads alone. A file with damage raises its error, unless the
    damage is to be passed over; then the index lists the records that are delivered, and is not
    kept, since it says nothing about the file as it was meant to be.
    """
    if compression:
        index, whole = _index_compressed(source, compression, options)
    elif isinstance(source, LocalSource):
        index, whole = _index_plain(source, stream, options)
    else:
        index, whole = _index_by_walking(source, stream, options)
    if whole and keep and options.index != "never":
        save_index(index, source.path, None if options.index == "auto" else options.index)
    return index


def save_index(index: Index, data_path: str, folder: str | None) -> str | None:
    """Keep an index beside its file, or in the user's cache where that folder is not writable."""
    storage = LocalStorage()
    if folder is not None:
        os.makedirs(folder, exist_ok=True)
        return sidecar.save(index, data_path, storage, folder)
    try:
        return sidecar.save(index, data_path, storage)
    except OSError:
        cache = sidecar.cache_folder()
        try:
            os.makedirs(cache, exist_ok=True)
            return sidecar.save(index, data_path, storage, cache)
        except OSError:
            return None  # an index is a convenience: it can be made again


def _index_plain(source: LocalSource, stream: Stream, options: Options) -> tuple[Index, bool]:
    limit = options.limits.record_bytes
    starts, checksums, fault = _core.index_file(FRAMING, source.file, limit)
    if fault is not None:
        if options.damage == "error":
            raise error_from(fault, file=source.path, record=fault.record)
        return _index_by_walking(source, stream, options)
    found = pa.array(starts).to_numpy()
    return _index(source, found, pa.array(checksums).to_numpy(), "", (), "plain"), True


def _index(
    source: Source,
    starts: np.ndarray,
    checksums: np.ndarray,
    compression: str,
    points: tuple[SeekPoint, ...],
    layout: str,
) -> Index:
    return Index(
        len(checksums), source.size, int(starts[-1]), compression, starts, checksums, points, layout
    )


def _index_by_walking(source: Source, stream: Stream, options: Options) -> tuple[Index, bool]:
    """An index made of the records that a scan delivers."""
    regions: list[Any] = []
    walking = Options(
        damage=options.damage,
        limits=options.limits,
        index="never",
        raw=True,
        skipped=regions.append,
    )
    reader = FramedReader(source, stream, FRAMING, walking, RawDecoder(), lambda: index, None)
    starts: list[np.ndarray] = []
    ends: list[np.ndarray] = []
    checksums: list[np.ndarray] = []
    for chunk in reader.chunks():
        frames = reader.frames(chunk)
        begin = pa.array(frames.starts()).to_numpy()
        starts.append(begin)
        ends.append(begin + pa.array(frames.lengths()).to_numpy() + np.uint64(16))
        checksums.append(pa.array(frames.checksums()).to_numpy())
    begin = np.concatenate([*starts, np.zeros(0, np.uint64)])
    end = np.concatenate([*ends, np.zeros(0, np.uint64)])
    stored = np.concatenate([*checksums, np.zeros(0, np.uint32)])
    edges = np.concatenate([begin, end[-1:] if len(end) else np.zeros(1, np.uint64)])
    index = _index(source, edges, stored, "", (), "plain")
    return (replace(index, gap_ends=end) if regions else index), not regions


def _index_compressed(source: Source, compression: str, options: Options) -> tuple[Index, bool]:
    """By its members where penstock wrote the file; else by one pass, that notes where inflating
    may start again."""
    if compression == "gzip":
        index = index_members(source, options)
        if index is not None:
            return index, True
    forward = ForwardStream(source, compression, POINT_BYTES)
    index, whole = _index_by_walking(source, forward, options)
    found = [SeekPoint(*point) for point in forward.inflater.take_points()]
    points = sidecar.with_checks(found, source)
    return replace(index, compression=compression, points=points, layout="points"), whole


def index_members(source: Source, options: Options, threads: int | None = None) -> Index | None:
    """The index of a gzip file whose members are all penstock's, inflated side by side.

    None where they are not, or where one is broken: then a plain pass says what is wrong.
    """
    return _index_of_members(source, gzip_members.hop_to_end(source), options, threads)


def _index_of_members(
    source: Source, members: list[Member], options: Options, threads: int | None = None
) -> Index | None:
    """The index of some members, as of a file that has only these."""
    if not members:
        return None
    start = members[0].start
    limit = options.limits.member_bytes + gzip_members.GROUP_BYTES

    def heads(run: list[Member]) -> Iterable[tuple[np.ndarray, np.ndarray] | None]:
        try:
            plain = gzip_members.inflate(source, run, limit)
            frames, consumed, _, _ = _core.walk(FRAMING, plain, 0, options.limits.record_bytes)
        except _core.KernelError:
            return [None]
        whole = consumed == len(plain) and len(frames) == sum(m.num_records for m in run)
        lengths = pa.array(frames.lengths()).to_numpy() + np.uint64(OVERHEAD_BYTES)
        return [(lengths, pa.array(frames.checksums()).to_numpy()) if whole else None]

    def runs() -> Iterator[list[Member]]:
        return iter(gzip_members.groups(members))

    found: list[tuple[np.ndarray, np.ndarray]] = []
    for part in in_order([runs], heads, lambda part: 0, threads):
        if part is None:
            return None
        found.append(part)
    lengths = np.concatenate([np.zeros(1, np.uint64), *(part[0] for part in found)])
    plain_starts = np.cumsum([0, *(m.plain_bytes for m in members)]).tolist()
    bare = [SeekPoint(8 * m.start, at) for m, at in zip(members, plain_starts, strict=False)]
    points = [
        replace(point, compressed_bit=point.compressed_bit - 8 * start)
        for point in sidecar.with_checks(bare, source)
    ]
    starts = np.cumsum(lengths, dtype=np.uint64)
    checksums = np.concatenate([part[1] for part in found])
    index = _index(source, starts, checksums, "gzip", tuple(points), "members")
    return replace(index, data_bytes=members[-1].end - start)

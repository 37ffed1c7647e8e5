"""`verify` reads and checks whole files, and reports all damage, not only the first error."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

from penstock import formats
from penstock.contract.around import parts_around
from penstock.contract.format import Chunk, Format, Options, Reader
from penstock.contract.opening import open_shard
from penstock.contract.report import Finding, Report
from penstock.errors import (
    ChangedError,
    FormatError,
    PenstockError,
    SchemaError,
    StaleIndexError,
    UnsupportedError,
    command,
    shown,
)
from penstock.framing.damage import Bad, DamageScan, Found, FoundFrames
from penstock.framing.format import FramedFormat
from penstock.framing.index import blocks, fitting, sidecar
from penstock.framing.index.sidecar import Index
from penstock.framing.read.framed import FramedReader
from penstock.limits import Limits, limits_from, raise_limit
from penstock.manifests.names import storage_of
from penstock.overlay.overlays import Overlays
from penstock.overlay.places import Place, folder_option, places_of
from penstock.storage.base import Source, Storage
from penstock.storage.paths import reading_index
from penstock.verbs.check._named import named_by, notes_of_empty
from penstock.verbs.check._pictures import Pictures, pictures_in
from penstock.verbs.check._tallies import Tally, Task, tallies_here, tallies_on
from penstock.verbs.check.findings import empty_file, found_in, is_empty_file, is_misfit, place_in
from penstock.verbs.machines import Counter
from penstock.verbs.progress import Progress

_BLOCKS_BYTES = 64 << 20
"""The number of bytes that one task compares with the checksums in an index."""


def verify(
    source: Any,
    *,
    format: str | None = None,
    payloads: bool = True,
    decode: bool = False,
    index: str = "auto",
    overlays: str | os.PathLike[str] | None = None,
    limits: Limits | dict[str, int] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    on: Any = None,
    storage: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **format_options: Any,
) -> Report:
    """Check all bytes of files that can be checked, and report all damage.

    For TFRecord this checks both checksums of every record, the structure to the last byte, and the checksums of the
    compression. Reading continues after damage. Damage that TensorFlow silently ignores is reported, too. In every
    format records are decoded, and each record that cannot be decoded is a finding. These are the records that
    `open(..., damage="skip")` skips and `repair` leaves out. A record that can be decoded, but does not fit the schema
    inferred from the first records, is not damaged.

    Args:
        source: as for `open`.
        format: the name of the format, instead of detecting it from the bytes.
        payloads: also decode the records of TFRecord, WebDataset and RecordIO files. False checks only their frames
            and checksums, in less time.
        decode: also decode every picture to its last pixel, in all formats. Pictures are the values of image columns,
            and of columns of bytes whose first values are pictures.
        index: "auto" uses a valid sidecar to find which records are damaged; "never" uses no sidecar; a
            path is the folder with the sidecars. `verify` never writes a sidecar.
        overlays: a folder whose overlays of these files are checked, too, as for `add_fields`. Those next to the files
            always are.
        limits: as for `open`.
        threads: the number of threads that read; None for all cores.
        progress: called with the records done, the bytes done, and the total bytes.
        on: where the files are read: None for this process, "ray", "ray://host:port" or a `penstock.ray.Cluster` for
            the machines of a cluster. A task checks one file, with `threads` threads; None for the cores of the task. A
            file of which the workers die is a finding of the kind "unchecked", and the others are checked.
        storage_options: as for `open`.
        format_options: options of the format, such as `compression="gzip"` for TFRecord.

    Returns:
        A Report; `report.ok` is True if there is no damage.

    Raises:
        FileNotFoundError: there is no such file. One of several paths in a list, or of the shards of a numbered set or a
            manifest, that is missing is a finding, and the others are checked.
        SchemaError: the only file can be read only with an option, such as `group="data/*"`. The error names it. One
            of several files is a finding, and the others are checked.
        ChangedError: a file was changed while it was read.
        StorageError: a store did not deliver all bytes, of which nothing is known then.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [1, 2, 3]}, "numbers.tfrecord", overwrite=True)
        >>> report = ps.verify("numbers.tfrecord")
        >>> report.ok, report.num_records
        (True, 3)
    """
    place = storage_of(source, storage, storage_options)
    follows = format_options.get("follow_links") is True
    paths, total, missing, empty = named_by(source, place, follow_links=follows)
    index = reading_index(index)
    options = Options(
        index=index,
        limits=limits_from(limits),
        stores_index=False,
        format_options=dict(format_options),
    )
    examine = partial(
        _tasks,
        storage=place,
        places=places_of(place, folder_option(overlays)),
        format=format,
        options=options,
        payloads=payloads,
        decode=decode,
        is_alone=len(paths) + len(missing) == 1,
    )
    counter = Counter(progress, total)
    findings = missing
    num_records = 0
    tallies = (
        tallies_here(examine, paths, threads, counter)
        if on is None
        else tallies_on(on, examine, paths, threads, counter, place)
    )
    for tally in tallies:
        num_records += tally.num_records
        findings.extend(tally.findings)
    findings += notes_of_empty(empty, num_records, findings)
    return Report(num_records, tuple(findings), total, tuple(map(shown, paths)))


def _tasks(
    path: str,
    *,
    storage: Storage,
    places: Sequence[Place],
    format: str | None,
    options: Options,
    payloads: bool,
    decode: bool,
    is_alone: bool,
) -> Iterator[Task]:
    with closing(storage.source(path)) as source:
        try:
            kind = format_of(source, format)
            if is_empty_file(source, kind):
                yield partial(_just, Tally(0, (empty_file(kind, path),), 0))
                return
            for finding in overlay_findings(kind, source, options, places):
                yield partial(_just, Tally(0, (finding,), 0))
            yield from _block_tasks(source, options, storage)
            if isinstance(kind, FramedFormat) and kind.finds_next:
                stale = stale_index(source, kind, options, storage)
                if stale is not None:
                    yield partial(_just, Tally(0, (stale,), 0))
                source.read_in_order()
                scan = kind.damage_scan(source, options, payloads=payloads)
                for task in scan.tasks():
                    yield partial(_scanned, scan, task)
            else:
                yield from _chunk_tasks(kind, source, options)
            if decode:
                reader = decoding(kind, source, replace(options, damage="skip"))
                for pictures in pictures_in(reader, path):
                    yield partial(_decoded, pictures, options.limits)
        except PenstockError as error:
            if _is_undamaged(error):
                if is_alone:
                    raise error.at(file=path) from error.__cause__
                error.message += f"; try: {error.hint}"
            yield partial(_just, Tally(0, (found_in(error, path, 0, source.size),), source.size))


def _block_tasks(source: Source, options: Options, storage: Storage) -> Iterator[Task]:
    """Yield tasks that compare a file with the checksums of each MiB that its index may have."""
    if options.index == "never":
        return
    kept = blocks.kept(source.path, options.index, storage)
    if kept is None:
        return
    index = kept[1]
    if index.data_bytes != source.size:
        message = (
            f"the file has {source.size} bytes, and had {index.data_bytes} when it was indexed"
        )
        yield partial(_just, Tally(0, (_differs(source, index, 0, source.size, message),), 0))
        return
    for start in range(0, source.size, _BLOCKS_BYTES):
        yield partial(_compared, source, index, start, min(start + _BLOCKS_BYTES, source.size))


def _compared(source: Source, index: Index, start: int, end: int) -> Iterable[Tally]:
    assert index.blocks is not None, "only files with checksums are compared"
    message = "these bytes differ from the bytes that were indexed"
    try:
        found = [
            _differs(source, index, *span, message)
            for span in blocks.differing(source, index.blocks, start, end)
        ]
    except PenstockError as error:
        found = [found_in(error, source.path, start, end)]
    return [Tally(0, tuple(found), 0)]


def _differs(source: Source, index: Index, start: int, end: int, message: str) -> Finding:
    """Return a finding for bytes that differ from the index. They are damaged, unless the file was written since."""
    kind = "data_checksum"
    if fitting.was_written(index, source):
        kind = "changed"
        again = command("penstock", "index", "--checksums", "--force", source.path)
        message += (
            f", and the file was written since: if it was rewritten, {again} renews its index; "
        )
        message += "if not, these bytes are damaged"
    return Finding(kind, source.path, None, start, end, message, None)


def _just(tally: Tally) -> Iterable[Tally]:
    return [tally]


def _scanned(scan: DamageScan, task: Any) -> Iterable[Tally]:
    try:
        for found in scan.run(task):
            yield tally_of(found)
    except PenstockError as error:
        place = error.byte or 0
        yield Tally(0, (found_in(error, error.file or "", place, place),), 0)


def _decoded(pictures: Pictures, limits: Limits) -> Iterable[Tally]:
    findings = tuple(pictures.findings(limits))
    bad = {finding.record for finding in findings if finding.severity == "error"}
    return [Tally(-len(bad), findings, 0)]  # they were counted as intact


def tally_of(found: Found) -> Tally:
    """Return the counts and findings without the records."""
    right = sum(len(part.frames) for part in found.parts if isinstance(part, FoundFrames))
    bad = [part for part in found.parts if isinstance(part, Bad)]
    restored = sum(part.payload is not None for part in bad)
    return Tally(right + restored, tuple(part.finding for part in bad), found.file_bytes)


def format_of(source: Source, name: str | None) -> Format:
    """Return the format of this name, or detect it from the file's bytes."""
    if name is not None:
        return formats.by_name(name)
    return formats.of(source)


def stale_index(
    source: Source, kind: FramedFormat, options: Options, storage: Storage
) -> Finding | None:
    """Return a note if a sidecar does not fit this file, or a fault if it lists records that were cut off."""
    if options.index == "never":
        return None
    for folder in sidecar.folders(options.index):
        kept_at = sidecar.path_for(source.path, folder)
        try:
            index = sidecar.load(kept_at, storage)
            if fitting.covers(index, source, kind.framing) != "nothing":
                return None
            kept = fitting.kept_records(index, source, kind.framing)
            if kept is not None:
                return _cut(source, index, kept)
            reason = "was made for another state of the file"
        except StaleIndexError as error:
            reason = error.message
        except OSError:
            continue  # there is no sidecar
        message = f"the index {kept_at} is not used: it {reason}; open and index will replace it"
        return Finding("stale_index", source.path, None, 0, source.size, message, 0, "note")
    return None


def _cut(source: Source, index: Index, kept: int) -> Finding:
    """Return the finding for a file that ends between two of the records in its index."""
    again = command("penstock", "index", "--force", source.path)
    message = (
        f"the file ends after {kept} of the {index.num_records} records in its index; "
        f"if it was shortened on purpose, {again} renews the index"
    )
    lost = index.num_records - kept
    return Finding("truncated", source.path, kept, source.size, index.data_bytes, message, lost)


def overlay_findings(
    kind: Format, source: Source, options: Options, places: Sequence[Place]
) -> list[Finding]:
    """Return findings for overlays that are damaged or were made for another state of the file."""
    path = source.path
    if not any(place.paths_of(path) for place in places):
        return []
    try:
        overlays = Overlays([path], places, options.limits)
    except FormatError as error:
        return [Finding("overlay", path, None, 0, source.size, str(error), 0)]
    found: list[Finding] = []
    try:
        stale = overlays.stale(0, _counting(kind, source, options), source, counted=True)
    except PenstockError:
        stale = None  # the file is damaged, which is reported separately
    if stale is not None:
        found.append(Finding("stale_overlay", path, None, 0, source.size, stale.message, 0))
    for overlay in overlays.of(0):
        try:
            overlay.verify()
        except ChangedError as error:
            found.append(Finding("overlay", path, None, 0, source.size, str(error), 0))
        finally:
            overlay.close()
    return found


def _counting(kind: Format, source: Source, options: Options) -> Reader:
    """Return a reader that knows the record numbers without storing an index."""
    try:
        reader = open_shard(kind, source, replace(options, raw=True))
    except UnsupportedError:
        return open_shard(kind, source, options)
    if getattr(reader, "has_index", True):
        return reader
    return open_shard(kind, source, replace(options, raw=True, index="never"))


# -- formats that store the positions of their records ---------------------------------------------


def _chunk_tasks(kind: Format, source: Source, options: Options) -> Iterator[Task]:
    reader = decoding(kind, source, options)
    if isinstance(kind, FramedFormat):
        # Each chunk is decoded when it is found, and then dropped.
        long: list[Finding] = []
        tell_long(reader, source, long)
        for chunk in reader.chunks():
            num_bytes = chunk.end_byte - chunk.start_byte
            yield partial(_decode, reader, source.path, chunk, num_bytes)
        yield partial(_just, Tally(0, tuple(long), 0))
        return
    for check in list(reader.checks()):
        yield partial(_checked, check, source)
    chunks, fault = _chunks_of(reader)
    share = source.size // max(1, len(chunks))
    for number, chunk in enumerate(chunks):
        rest = source.size - share * (len(chunks) - 1)
        yield partial(_decode, reader, source.path, chunk, rest if number == 0 else share)
    if not chunks:
        yield partial(_just, Tally(0, (), source.size))
    if fault is not None:
        end = chunks[-1].end_byte if chunks else 0
        yield partial(_just, Tally(0, (found_in(fault, source.path, end, source.size),), 0))


def _chunks_of(reader: Reader) -> tuple[list[Chunk[Any]], PenstockError | None]:
    """Return the chunks of a file up to the first damage that hides the next ones, and that damage."""
    chunks: list[Chunk[Any]] = []
    try:
        for chunk in reader.chunks():
            chunks.append(chunk)  # noqa: PERF402  those before an error are kept
    except PenstockError as error:
        return chunks, error
    return chunks, None


def tell_long(reader: Reader, source: Source, findings: list[Finding]) -> None:
    """Report records longer than the limit, and let the reader continue after them."""

    def tell(start: int, end: int, record: int) -> None:
        message = "the record is longer than the limit record_bytes"
        advice = f"pass {raise_limit('record_bytes', end - start)}"
        place = record, start, end
        findings.append(Finding("limit", source.path, *place, f"{message}; {advice}", 1))

    if isinstance(reader, FramedReader):
        reader.on_long = tell


def _checked(check: Callable[[], None], source: Source) -> Iterable[Tally]:
    try:
        check()
    except PenstockError as error:
        return [Tally(0, (found_in(error, source.path, 0, source.size),), 0)]
    return []


def decoding(kind: Format, source: Source, options: Options) -> Reader:
    """Return a reader that decodes records as a scan does. If the records of a framed file have no common schema, it
    reads raw records."""
    try:
        return open_shard(kind, source, options)
    except SchemaError:
        if not isinstance(kind, FramedFormat):
            raise
        return open_shard(kind, source, replace(options, raw=True))


def _decode(reader: Reader, path: str, chunk: Chunk[Any], num_bytes: int) -> Iterable[Tally]:
    num_records, findings = 0, list[Finding]()
    try:
        for part in reader.parts(chunk, None):
            for first, end, found in parts_around(reader, part):
                if not isinstance(found, PenstockError) or is_misfit(found, reader):
                    num_records += end - first
                    continue
                place = place_in(reader, part, first, end)
                if (
                    end == first + 1
                    and found.record is not None
                    and not isinstance(reader, FramedReader)
                ):
                    place = (reader.place(found.record) or ("", *place))[1:]
                findings.append(found_in(found, path, *place, part, end - first))
    except PenstockError as error:  # the chunk cannot be divided
        findings.append(found_in(error, path, chunk.start_byte, chunk.end_byte, chunk))
    return [Tally(num_records, tuple(findings), num_bytes)]


def _is_undamaged(error: PenstockError) -> bool:
    """Whether only an option, or a package, is missing to read a file."""
    needs_it = isinstance(error, SchemaError) or isinstance(error.__cause__, ImportError)
    return needs_it and error.hint is not None

"""Saves the intact records of one file, for `repair`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.numbers import as_arrow, as_numpy
from penstock.contract.around import parts_around
from penstock.contract.format import Chunk, Format, Options, Reader, Writer
from penstock.contract.opening import open_shard
from penstock.contract.report import Finding
from penstock.engine.pipeline import in_order
from penstock.errors import PenstockError
from penstock.framing.damage import DamageScan, Found, FoundFrames, left_out
from penstock.framing.format import FramedFormat
from penstock.framing.framings import Framing
from penstock.framing.index.sidecar import Index
from penstock.framing.write.writer import FramedWriter
from penstock.storage.base import Sink, Source
from penstock.verbs.check._pictures import Pictures, picture_columns, pictures_in
from penstock.verbs.check.findings import found_in, is_misfit, place_in
from penstock.verbs.check.verify import decoding, tally_of, tell_long


@dataclass(frozen=True, slots=True)
class How:
    """What counts as an intact record."""

    options: Options
    salvage: bool
    payloads: bool
    decode: bool
    """Whether the pictures of a record have to be decodable."""
    threads: int
    tell: Callable[..., None]
    """Reports progress, see `_Work.tell`."""


def saving_of(source: Source, kind: Format, how: How) -> Saving:
    if isinstance(kind, FramedFormat) and kind.finds_next:
        return _Framed(source, kind, how)
    return _Chunks(source, kind, how)


class Saving:
    """Saves the records of one file. `look` counts the good records and finds damage; `save` also writes them."""

    def look(self) -> tuple[int, list[Finding]]:
        raise NotImplementedError

    def save(self, sink: Sink) -> tuple[int, list[Finding]]:
        raise NotImplementedError

    def index(self) -> Index | None:
        raise NotImplementedError

    def abort(self) -> None:
        """Stop the writer after an error: end its threads, and close its temporary files."""
        raise NotImplementedError


class _Framed(Saving):
    """Saves the records of a framed file by copying their frames."""

    def __init__(self, source: Source, kind: FramedFormat, how: How) -> None:
        self._source = source
        self._kind = kind
        self._how = how
        self._writer: FramedWriter | None = None

    def _damage_scan(self) -> DamageScan:
        how = self._how
        return self._kind.damage_scan(
            self._source, how.options, payloads=how.payloads, salvage=how.salvage
        )

    def look(self) -> tuple[int, list[Finding]]:
        return self._each(lambda found: None, self._damage_scan())

    def save(self, sink: Sink) -> tuple[int, list[Finding]]:
        threads = self._how.threads
        scan = self._damage_scan()
        writer = self._kind.create_copy(sink, scan.compression, threads)
        self._writer = writer
        done = self._each(partial(_copy, writer, self._kind.framing), scan)
        writer.close()
        return done

    def _each(self, then: Callable[[Found], None], scan: DamageScan) -> tuple[int, list[Finding]]:
        faults, findings = self._pictures()
        num_records = 0

        def run(task: Any) -> Iterator[Found]:
            for found in scan.run(task):
                parts = (
                    left_out(part, faults) if isinstance(part, FoundFrames) else [part]
                    for part in found.parts
                )
                yield replace(found, parts=tuple(chain.from_iterable(parts)))

        tasks = [scan.tasks]
        for found in in_order(
            tasks, run if faults else scan.run, lambda f: f.num_bytes, self._how.threads
        ):
            then(found)
            tally = tally_of(found)
            num_records += tally.num_records
            findings.extend(tally.findings)
            self._how.tell(num_records, tally.num_bytes)
        return num_records, findings

    def _pictures(self) -> tuple[dict[int, Finding], list[Finding]]:
        """Return a finding for each record with a damaged picture, by the byte where the record starts, and notes."""
        how = self._how
        if not how.decode:
            return {}, []
        reader = decoding(self._kind, self._source, replace(how.options, damage="skip"))

        def run(pictures: Pictures) -> Iterator[Finding]:
            yield from pictures.findings(how.options.limits)

        tasks = [partial(pictures_in, reader, self._source.path)]
        found = list(in_order(tasks, run, lambda finding: 0, how.threads))
        faults = [finding for finding in found if finding.severity == "error"]
        by_start = {finding.start_byte: finding for finding in reversed(faults)}
        return by_start, [finding for finding in found if finding.severity != "error"]

    def index(self) -> Index | None:
        return None if self._writer is None else self._writer.index()

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.abort()


def _copy(writer: FramedWriter, framing: Framing, found: Found) -> None:
    for part in found.parts:
        if isinstance(part, FoundFrames):
            lengths = framing.frame_bytes(as_numpy(part.frames.lengths()))
            checksums = as_numpy(part.frames.checksums())
            writer.write_frames([part.data], lengths, checksums)
        elif part.payload is not None:
            framed = framing.frames([part.payload.to_bytes()])
            lengths, checksums = as_numpy(framed.lengths), as_numpy(framed.checksums)
            writer.write_frames([framed.data], lengths, checksums)


class _Chunks(Saving):
    """Saves the records of a file of chunks. Chunks that can be decoded are written again."""

    def __init__(self, source: Source, kind: Format, how: How) -> None:
        self._source = source
        self._kind = kind
        self._how = how
        # Raw records, if the format has them, are copied without loss. The files of a folder keep their names.
        given = how.options.format_options
        kept = {"file_names": True, **given} if kind.info.is_folder else given
        options = replace(how.options, raw=isinstance(kind, FramedFormat), format_options=kept)
        self._writer: Writer | None = None
        self._reader: Reader = open_shard(kind, source, options)
        self._decoding = self._reader
        if isinstance(kind, FramedFormat) and how.payloads:
            self._decoding = decoding(kind, source, replace(options, raw=False))
        self._pictures: list[str] = []
        if how.decode:
            skipping = replace(options, raw=False, damage="skip")
            self._pictures = picture_columns(decoding(kind, source, skipping))

    def look(self) -> tuple[int, list[Finding]]:
        return self._each(lambda batch: None)

    def save(self, sink: Sink) -> tuple[int, list[Finding]]:
        options = self._reader.options_alike() or self._kind.write_options()
        threads = self._how.threads
        writer = self._kind.create(sink, self._reader.schema, options, threads)
        self._writer = writer
        done = self._each(writer.write)
        writer.close()
        return done

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.abort()

    def index(self) -> Index | None:
        return self._writer.index() if isinstance(self._writer, FramedWriter) else None

    def _each(self, then: Callable[[pa.RecordBatch], None]) -> tuple[int, list[Finding]]:
        path, size = self._source.path, self._source.size
        findings: list[Finding] = []
        last: list[Finding] = []
        num_records = 0

        def decode(chunk: Chunk[Any]) -> Iterable[pa.RecordBatch | Finding]:
            for first, end, found in parts_around(self._decoding, chunk):
                if isinstance(found, PenstockError) and not is_misfit(found, self._decoding):
                    place = place_in(self._decoding, chunk, first, end)
                    yield found_in(found, path, *place, chunk, end - first)
                    continue
                rows = np.arange(end - first)
                if self._pictures and isinstance(found, pa.RecordBatch):
                    seen = Pictures(self._decoding, path, chunk, self._pictures)
                    bad = list(seen.of_batch(found, first, self._how.options.limits))
                    yield from (finding for _, finding in sorted(dict(reversed(bad)).items()))
                    rows = np.setdiff1d(rows, [row for row, f in bad if f.severity == "error"])
                if self._decoding is not self._reader:
                    yield self._reader.decode(chunk, first + rows, None)
                    continue
                assert not isinstance(found, PenstockError), "every record read is written"
                yield found if len(rows) == found.num_rows else found.take(as_arrow(rows))

        tell_long(self._reader, self._source, findings)

        def chunks() -> Iterator[Chunk[Any]]:
            try:
                for chunk in self._reader.chunks():
                    yield from self._reader.parts(chunk, None)
            except PenstockError as error:
                last.append(found_in(error, path, 0, size))

        for result in in_order([chunks], decode, _held_bytes, self._how.threads):
            if isinstance(result, Finding):
                findings.append(result)
                continue
            then(result)
            num_records += result.num_rows
            self._how.tell(num_records)
        self._how.tell(num_records, size)
        return num_records, findings + last


def _held_bytes(result: Any) -> int:
    return 0 if isinstance(result, Finding) else int(result.get_total_buffer_size())

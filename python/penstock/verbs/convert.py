"""`convert`: the same records in another format, compression or cut; resumable, and provable.

A conversion is a list of parts, each a range of the source's records that becomes one file. A part
is written under a name of its own; when all are whole they get their final names together. What is
finished is noted in a journal (`convert_journal`), so a killed job goes on where it stood, and ends
with the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any
from uuid import uuid4

import pyarrow as pa

from penstock import formats
from penstock.dataset import open as open_dataset
from penstock.errors import PenstockError, SchemaError
from penstock.format import (
    Format,
    Options,
    Summary,
    Surveyed,
    TextIndexed,
    is_indexed,
    open_shard,
)
from penstock.formats.webdataset import URL, WebDatasetFormat
from penstock.paths import index_option
from penstock.pipeline import checked_threads
from penstock.schema import is_raw
from penstock.storage import LocalStorage
from penstock.verbs import textindex
from penstock.verbs.choice import Choice
from penstock.verbs.convert_journal import FinishedPart, Journal, refuse_existing
from penstock.verbs.convert_reading import Reading, is_tfrecord, opened
from penstock.verbs.incoming import Incoming
from penstock.verbs.shards import Names
from penstock.verbs.write import (
    check_cuts,
    drop_old_indexes,
    format_and_options,
    format_of,
    write,
)

Progress = Callable[[int, int, int], None]
"""Called now and then with the records done, the bytes of the source done, and those in all."""


_IMAGE_WORDS = {"image_mode", "jpeg_quality", "max_side"}


def convert(
    source: Any,
    target: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    rename: Mapping[str, str] | None = None,
    where: str | Callable[[pa.RecordBatch], Any] | None = None,
    reads: Sequence[str] | None = None,
    sample: float | None = None,
    shuffle: int | None = None,
    seed: int = 0,
    images: str | Sequence[str] | None = "auto",
    prove: bool = False,
    format: str | None = None,
    compression: str | None = None,
    num_shards: int | None = None,
    shard_records: int | None = None,
    shard_bytes: int | None = None,
    index: bool | str = True,
    overwrite: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    write_options: Mapping[str, Any] | None = None,
    **format_options: Any,
) -> Summary:
    """Write the records of a dataset in another format, compression or number of shards.

    TFRecord holds int64, float32 and bytes, and lists of these; what becomes of other types stands
    with its writer: a float64 becomes the nearest float32, unless float64="exact" is asked for, and
    what has no counterpart is a SchemaError. Arrow types that TFRecord has no name for (int32,
    timestamps, strings) come back as what they were stored as. From TFRecord
    to TFRecord payloads are copied without being parsed, unless columns or names change.

    A conversion that was killed goes on when it is called again the same way, and ends with the
    same bytes. Until all is done, nothing lies under a final name.

    Args:
        source: as for `open`, or a Dataset, for one opened with options of its own. One that
            passes over damage is read once more, to count the records that it delivers; these
            are written.
        target: a file; a name for numbered shards, or with `{shard}` in it, as for `write`; or a
            folder (one that exists, or a name that ends in "/"), for one file a shard of the
            source under the same names with a new suffix.
        columns: those wanted, in that order; None for all.
        rename: new names of columns, {old: new}.
        where: only records for which this holds: comparisons in words, such as
            `label >= 3 and split == "train"` (also `in [1, 2]`, `is null`, `is not null`), or a
            function of a batch that gives a truth value for each record.
        reads: the columns that a function `where` is given; None for all.
        sample: only so many of the records, a part of 1 (a float) or a number (an int), drawn
            without repeats by `seed`, in their order.
        shuffle: a seed; the records are written in an order of its own, over all shards. The order
            takes 8 bytes of memory a record, and records are read at random: fast where that is
            (TFRecord, Arrow), many passes over large Parquet files.
        seed: of `sample`.
        images: the columns that hold encoded images; "auto" finds them, by their type or, where the
            format written has a place for images, by their bytes. With `image_mode` ("jpg", "png",
            "webp" or "raw"), `jpeg_quality` or `max_side` (pixels) they are encoded anew, whatever
            the format; see the pages of formats that have such options of their own.
        prove: read the result again and compare every value with the source, after the writer's
            conversions, before it gets its name. Images that the format written encodes anew
            are compared by their pixels, JPEG and WebP by the means of squares of them.
        format: the format to write; None goes by the target's name. A folder needs it.
        compression: as the format knows it, as for `write`.
        num_shards: so many shards, contiguous, whose sizes differ by one record at most.
        shard_records: a shard ends with this record.
        shard_bytes: a shard ends with the record that brings it to so many bytes, see `write`. A
            killed job then starts again.
        index: write an index with each file, where its format has one; a folder puts them there.
        overwrite: replace existing files.
        threads: how many to use; None for all cores.
        progress: called with the records done, the bytes of the source done, and those in all.
        write_options: options of the written format by name, also of those that share it with a
            keyword above, such as HDF5's `shuffle`.
        format_options: of the written format; an unknown one is an error.

    Returns:
        A Summary of what was written.

    Raises:
        FileExistsError: a target exists and `overwrite` is False.
        ValueError: `where` is no condition, or there are fewer records than `sample`.
        SchemaError: a column or value that the format cannot hold; of columns before anything is
            written.
        FormatError: the source is damaged, or (with `prove`) a value written is not the one read.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [1, 2, 3]}, "numbers.tfrecord", overwrite=True)
        >>> ps.convert("numbers.tfrecord", "numbers.parquet", overwrite=True).num_records
        3
    """
    to = os.fspath(target)
    num_shards, shard_records, shard_bytes = check_cuts(num_shards, shard_records, shard_bytes)
    index, threads = index_option(index), checked_threads(threads)
    is_folder = to.endswith(("/", os.sep)) or os.path.isdir(to)
    if format is not None and formats.by_name(format).info.is_folder:
        to, is_folder = to.rstrip("/"), False  # the folder is the shard
    if is_folder and format is None:
        raise ValueError(f"{to} is a folder; format= says what to write there")
    named = f"x.{format}" if is_folder else to
    choice = Choice(where, None if reads is None else list(reads), sample, shuffle, seed)
    words = {field.name for field in fields(format_of(named, format).write_options)}
    asked = {
        word: format_options.pop(word) for word in _IMAGE_WORDS - words if word in format_options
    }
    format_options |= write_options or {}
    kind, options = format_and_options(named, format, compression, format_options)
    if prove and getattr(options, "max_side", None) is not None:
        raise ValueError("max_side changes the images that prove=True would compare; leave one out")
    # What reads fields, or changes them, has to have them parsed.
    whole_records = columns is None and not rename and where is None and not asked
    dataset = opened(source, kind, options, whole_records=whole_records)
    if columns is None:
        dataset = dataset.complete()
    reading = Reading(dataset, columns, rename, choice, (images, asked), kind, threads)
    writing = _Writing(kind, options, format_options, index, threads)
    total_bytes = dataset.files.total_bytes
    tell = _Progress(progress, reading.num_records, total_bytes)
    if shard_bytes is not None:
        if is_folder:
            raise ValueError("a folder gets one file a shard; shard_bytes needs a file name")
        if prove:
            raise ValueError("prove=True needs shards that are cut by records, not by bytes")
        batches = tell.watch(reading.batches(0, reading.num_records, lend=True))
        stream = Incoming(reading.schema, batches, None)
        Names(to, kind.info.extensions, is_sharded=True, total=None).drop_unfinished()
        cuts = {"shard_records": shard_records, "shard_bytes": shard_bytes, "overwrite": overwrite}
        return writing.file(stream, to, **cuts)
    parts = _plan(reading, kind, to, is_folder, num_shards, shard_records, compression)
    return _run(parts, to, reading, writing, tell, prove=prove, overwrite=overwrite)


# -- what to do -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """One file to write: records [first, last) of the order in which they are read."""

    number: int
    first: int
    last: int
    final: str


def _plan(
    reading: Reading,
    kind: Format,
    target: str,
    is_folder: bool,
    num_shards: int | None,
    shard_records: int | None,
    compression: str | None,
) -> list[_Part]:
    dataset = reading.dataset
    if is_folder:
        if num_shards is not None or shard_records is not None:
            raise ValueError("a folder gets one file a shard; num_shards needs a file name")
        os.makedirs(target, exist_ok=True)
        edges = [int(first) for first in reading.firsts]
        finals = [_in_folder(path, target, kind, compression) for path in dataset.paths]
    else:
        edges = _edges(reading.num_records, num_shards, shard_records)
        is_sharded = num_shards is not None or shard_records is not None
        names = Names(target, kind.info.extensions, is_sharded, len(edges) - 1)
        finals = [names.final(number, len(edges) - 1) for number in range(len(edges) - 1)]
    if len(set(finals)) < len(finals):
        raise ValueError(f"{len(finals)} shards would be {len(set(finals))} files in {target}")
    is_local = isinstance(dataset.files.storage, LocalStorage)
    for path in dataset.paths if is_local else ():
        for final in finals:
            if os.path.exists(final) and os.path.samefile(path, final):
                raise ValueError(f"{path} is read, and cannot be written at the same time")
    return [_Part(n, edges[n], edges[n + 1], final) for n, final in enumerate(finals)]


def _edges(total: int, num_shards: int | None, shard_records: int | None) -> list[int]:
    """Where shards begin and end, as `write` cuts them."""
    if num_shards is not None:
        base, longer = divmod(total, num_shards)
        return [n * base + min(n, longer) for n in range(num_shards + 1)]
    if shard_records is not None:
        return [*range(0, max(total, 1), shard_records), total]
    return [0, total]


def _in_folder(path: str, folder: str, kind: Format, compression: str | None) -> str:
    """The name of a source's shard with the suffix of another format."""
    name = os.path.basename(path).removesuffix(".gz")
    suffix = kind.info.extensions[0] + (
        ".gz" if compression == "gzip" and isinstance(kind, Surveyed) else ""
    )
    known = [ext for fmt in formats.FORMATS for ext in fmt.info.extensions]
    for ending in sorted(known, key=len, reverse=True):
        if name.endswith(ending):
            return os.path.join(folder, name[: -len(ending)] + suffix)
        if f"{ending}-" in name:  # train.tfrecord-00000-of-00010
            return os.path.join(folder, name.replace(f"{ending}-", "-", 1) + suffix)
    return os.path.join(folder, name + suffix)


# -- writing --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Writing:
    """How files are written."""

    kind: Format
    options: Any
    format_options: dict[str, Any]
    index: bool | str
    threads: int | None

    def file(self, data: Incoming, path: str, **more: Any) -> Summary:
        """Write records to one file or to several."""
        return write(
            data,
            path,
            format=self.kind.info.name,
            compression=getattr(self.options, "compression", None),
            index=self.index,
            threads=self.threads,
            **more,
            **{k: v for k, v in self.format_options.items() if k != "compression"},
        )


class _Progress:
    """Tells how far a job is, in records and bytes of the source."""

    def __init__(self, told: Progress | None, num_records: int, total_bytes: int) -> None:
        self._told = told
        self._num_records = max(1, num_records)
        self._total_bytes = total_bytes
        self._done = 0

    def add(self, num_records: int) -> None:
        """So many more records are done."""
        self._done += num_records
        if self._told is not None:
            done_bytes = self._total_bytes * min(self._done, self._num_records) // self._num_records
            self._told(self._done, done_bytes, self._total_bytes)

    def watch(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches, counted as they are taken."""
        for batch in batches:
            yield batch
            self.add(batch.num_rows)


def _run(
    parts: list[_Part],
    target: str,
    reading: Reading,
    writing: _Writing,
    tell: _Progress,
    *,
    prove: bool,
    overwrite: bool,
) -> Summary:
    finals = [part.final for part in parts]
    folder = None if isinstance(writing.index, bool) else writing.index
    job = _job(parts, reading, writing)
    text = writing.kind.text_index if isinstance(writing.kind, TextIndexed) else None
    place = os.path.dirname(finals[0])
    journal = Journal(target, place, job, folder, LocalStorage(), text)
    journal.load(finals)
    if not overwrite and not journal.is_publishing:
        refuse_existing(finals)
    for part in parts:
        if part.number in journal.parts:
            tell.add(part.last - part.first)
            continue
        batches = tell.watch(reading.batches(part.first, part.last, lend=True))
        stream = Incoming(reading.schema, batches, None)
        path = journal.part_path(part.number)
        try:
            made = writing.file(stream, path, overwrite=True)
        except PenstockError as error:
            if error.file == path:
                error.file = part.final  # nobody knows the part by its own name
            if isinstance(error, SchemaError):
                journal.forget()  # no other run of this job would come further
            raise
        journal.finish(FinishedPart(part.number, made.num_records, made.num_bytes))
    if prove:
        for part in parts:
            path = journal.part_path(part.number)
            try:
                _prove(part, path if os.path.exists(path) else part.final, reading, writing)
            except PenstockError:
                if not journal.is_publishing:
                    journal.forget()
                raise
    done = [journal.parts[part.number] for part in parts]
    drop_old_indexes(finals, LocalStorage(), writing.index, overwrite=overwrite)
    if overwrite:
        for part in parts:
            _keep_text_index(journal.part_path(part.number), part.final, writing)
    journal.publish(finals, overwrite=overwrite)
    num_records = sum(part.num_records for part in done)
    return Summary(tuple(finals), num_records, sum(part.num_bytes for part in done))


def _keep_text_index(path: str, final: str, writing: _Writing) -> None:
    """Where a text index is kept beside a file that is to be replaced, give the part one that takes its place."""
    kind, storage = writing.kind, LocalStorage()
    text = textindex.kept(kind, final, storage)
    if text is None or not os.path.exists(path) or os.path.exists(text.path_for(path)):
        return
    kept_at = "never" if writing.index is False else "auto"
    kept_at = writing.index if isinstance(writing.index, str) else kept_at
    source = storage.source(path)
    try:
        reader = open_shard(kind, source, Options(raw=True, index=kept_at))
        assert is_indexed(reader), "formats with text indexes are framed"
        if reader.index.compression:
            textindex.drop(text, final, storage)
        else:
            textindex.write(text, reader.index, path, storage)
    finally:
        source.close()


@cache
def _version() -> str:
    from importlib.metadata import version

    return version("penstock")


def _job(parts: list[_Part], reading: Reading, writing: _Writing) -> dict[str, Any]:
    """All that decides what is written. Another job must not use what this one has finished."""
    files = reading.dataset.files
    sources: list[Any] = []
    for number, path in enumerate(files.paths):
        if isinstance(files.storage, LocalStorage):
            state = os.stat(path)
            sources.append([os.path.abspath(path), state.st_size, state.st_mtime_ns])
        else:
            # Nobody knows whether a file elsewhere is still what it was: a killed job starts again.
            sources.append([path, files.num_bytes(number), uuid4().hex])
    return {
        "version": _version(),
        "sources": sources,
        "overlays": [files.overlay_digests(n) for n in range(len(sources))],
        "read": reading.told,
        "written": [writing.kind.info.name, repr(writing.options)],
        "index": writing.index,
        "parts": [[part.number, part.first, part.last, part.final] for part in parts],
    }


def _prove(part: _Part, path: str, reading: Reading, writing: _Writing) -> None:
    """Compare a finished part with the records that it was made of."""
    # Only here: who does not ask for a proof need not wait for pyarrow.compute.
    from penstock.verbs.proof import Wire, as_stored, prove_equal

    wanted = reading.batches(part.first, part.last)
    how: dict[str, Any] = {"format": writing.kind.info.name, "index": "never"}
    if is_tfrecord(writing.kind):
        exact = getattr(writing.options, "float64", "exact") == "exact"
        wire = Wire(reading.schema, getattr(writing.options, "payload", None), exact_float64=exact)
        wanted = (wire.convert(batch) for batch in wanted)
        how |= {"raw": True} if wire.is_raw else {"schema": wire.schema}
    elif is_raw(reading.schema) and getattr(writing.options, "payload", "") in (
        None,
        "raw",
    ):
        how["raw"] = True
    if writing.kind.info.name == WebDatasetFormat.info.name and URL in reading.schema.names:
        # Where a record lies is not written, and other than where it lay.
        written = [name for name in reading.schema.names if name != URL]
        wanted = (batch.select(written) for batch in wanted)
    if "infer_records" in {field.name for field in fields(writing.kind.read_options)}:
        how["infer_records"] = "all"  # what is proved is all of it
    found = open_dataset(path, **how)
    if not writing.kind.info.lossless and "schema" not in how:
        wanted = (as_stored(batch, found.schema) for batch in wanted)
    prove_equal(wanted, found.scan(), part.final, part.first)

"""`convert`: the same records in another format, compression or number of shards; resumable.

A conversion is a list of parts, each a range of the source's records that becomes one file. A part
is written under a temporary name; when all are complete they get their final names together. A journal
lists the finished ones, so a killed job continues where it stopped, and ends with the same bytes. With
`shard_bytes`, which records become which file is known only after writing; such a job continues only if
all files were complete. One job at a time writes a target.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import fields
from typing import Any

from penstock import formats
from penstock.conditions import Where
from penstock.contract.format import Format, Summary
from penstock.engine.pipeline import checked_threads
from penstock.errors import not_local
from penstock.storage.paths import index_option
from penstock.verbs.convert._choice import Choice
from penstock.verbs.convert._parts import plan
from penstock.verbs.convert._reading import Reading, opened
from penstock.verbs.convert._run import Writing, run, run_by_bytes
from penstock.verbs.convert.journal import alone_at
from penstock.verbs.progress import Meter, Progress
from penstock.verbs.write.write import check_cuts, format_and_options, format_of, with_exact

_IMAGE_WORDS = {"image_mode", "jpeg_quality", "max_side"}


def convert(
    source: Any,
    target: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    rename: Mapping[str, str] | None = None,
    where: Where | None = None,
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
    exact: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    write_options: Mapping[str, Any] | None = None,
    **format_options: Any,
) -> Summary:
    """Write the records of a dataset in another format, compression or number of shards.

    TFRecord holds int64, float32 and bytes, and lists of these; what becomes of other types stands
    with its writer: a float64 becomes the nearest float32, unless exact=True is asked for, and
    what has no counterpart is a SchemaError. Arrow types that TFRecord has no name for (int32,
    timestamps, strings) come back as what they were stored as. From TFRecord
    to TFRecord payloads are copied without being parsed, unless columns or names change.

    A conversion that was killed continues when it is called again the same way, and ends with the
    same bytes. No file has its final name until all are complete.

    Args:
        source: as for `open`, or a Dataset, for one opened with options of its own. One that
            skips damage is read once more, to count the records that it delivers; these are
            written.
        target: a file; a name for numbered shards, or with `{shard}` in it, as for `write`; or a
            folder (one that exists, or a name that ends in "/"), for one file a shard of the
            source under the same names with a new suffix.
        columns: those wanted, in that order; None for all.
        rename: new names of columns, {old: new}.
        where: only the records for which this condition is true: a text, such as
            `label >= 3 and (split == "train" or len(tokens) > 10)` (docs/guide/conditions.md has
            the language), a pyarrow.compute.Expression, or a function of a batch that gives
            bool[num_rows].
        reads: the columns that a function or an expression reads; None for all.
        sample: only some of the records, a part of 1 (a float) or a number (an int), drawn
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
        num_shards: the number of shards: contiguous, with sizes that differ by one record at most.
        shard_records: the number of records after which a shard ends.
        shard_bytes: a shard ends with the record that brings it to this many bytes, see `write`. A
            job that was killed before all shards were complete then starts again.
        index: write an index with each file, where its format has one; a folder puts them there.
        overwrite: replace existing files.
        exact: refuse values that the format cannot hold exactly, as for `write`; and `image_mode` "jpg" or "webp" and
            `max_side`, which change pictures.
        threads: how many to use; None for all cores.
        progress: called with the records done, the bytes of the source done, and those in all.
        write_options: options of the written format by name, also of those that share it with a
            keyword above, such as HDF5's `shuffle`.
        format_options: of the written format; an unknown one is an error.

    Returns:
        A Summary of what was written, with notes of what was changed.

    Raises:
        FileExistsError: a target exists and `overwrite` is False.
        BlockingIOError: another conversion is writing the target.
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
    if "://" in to:
        raise not_local(to)
    num_shards, shard_records, shard_bytes = check_cuts(num_shards, shard_records, shard_bytes)
    index, threads = index_option(index), checked_threads(threads)
    to, is_folder = _place(to, format)
    named = f"x.{format}" if is_folder else to
    choice = Choice(where, None if reads is None else list(reads), sample, shuffle, seed)
    asked = _pop_image_options(format_of(named, format), format_options)
    format_options |= write_options or {}
    kind, options = format_and_options(named, format, compression, format_options, exact=exact)
    _refuse_contradictions(asked, options, is_folder, shard_bytes, prove=prove, exact=exact)
    # To read or change fields, records have to be parsed.
    whole_records = columns is None and not rename and where is None and not asked
    dataset = opened(source, kind, options, whole_records=whole_records)
    place = to if is_folder else os.path.dirname(to)
    with _made(place) if is_folder else nullcontext(), alone_at(to, place):
        if columns is None:
            dataset = dataset.complete()
        reading = Reading(dataset, columns, rename, choice, (images, asked), kind, threads)
        written_options = with_exact(kind, format_options, exact=exact)
        writing = Writing(kind, options, written_options, index, threads)
        meter = Meter(progress, reading.num_records, dataset.files.total_bytes)
        if shard_bytes is not None:
            limits = {"shard_records": shard_records, "shard_bytes": shard_bytes}
            return run_by_bytes(to, limits, reading, writing, meter, overwrite=overwrite)
        parts = plan(reading, kind, to, is_folder, num_shards, shard_records, compression)
        return run(parts, to, reading, writing, meter, prove=prove, overwrite=overwrite)


def _place(to: str, format: str | None) -> tuple[str, bool]:
    """The target, and whether it is a folder that gets a file for each shard."""
    if format is not None and formats.by_name(format).info.is_folder:
        return to.rstrip("/"), False  # the folder is the shard
    is_folder = to.endswith(("/", os.sep)) or os.path.isdir(to)
    if is_folder and format is None:
        raise ValueError(f"{to} is a folder; format= says what to write there")
    return to, is_folder


def _pop_image_options(kind: Format, format_options: dict[str, Any]) -> dict[str, Any]:
    """Take the options of images out of a format's, unless the format has them itself."""
    own = {field.name for field in fields(kind.write_options)}
    words = (_IMAGE_WORDS - own) & format_options.keys()
    return {word: format_options.pop(word) for word in words}


def _refuse_contradictions(
    asked: Mapping[str, Any],
    options: Any,
    is_folder: bool,
    shard_bytes: int | None,
    *,
    prove: bool,
    exact: bool,
) -> None:
    is_changed = asked.get("image_mode") in ("jpg", "webp") or asked.get("max_side") is not None
    if exact and is_changed:
        raise ValueError("exact=True changes no picture; leave it out, or image_mode and max_side")
    if prove and getattr(options, "max_side", None) is not None:
        raise ValueError("max_side changes the images that prove=True would compare; leave one out")
    if is_folder and shard_bytes is not None:
        raise ValueError("a folder gets one file a shard; shard_bytes needs a file name")
    if prove and shard_bytes is not None:
        raise ValueError("prove=True needs shards that are cut by records, not by bytes")


@contextmanager
def _made(folder: str) -> Generator[None]:
    """Make a folder, and remove it again if it stays empty."""
    is_new = not os.path.isdir(folder)
    os.makedirs(folder, exist_ok=True)
    try:
        yield
    finally:
        if is_new:
            with suppress(OSError):
                os.rmdir(folder)

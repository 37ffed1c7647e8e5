"""`convert`: the same records in another format, compression or cut; resumable, and provable.

A conversion is a list of parts, each a range of the source's records that becomes one file. A part
is written under a name of its own; when all are whole they get their final names together. What is
finished is noted in a journal, so a killed job goes on where it stood, and ends
with the same bytes. Where shards end by bytes nobody knows before they are written which records
become which file; such a job goes on once all are whole. One job at a time writes a target.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import fields
from typing import Any

from penstock import formats
from penstock.conditions import Where
from penstock.contract.format import Summary
from penstock.engine.pipeline import checked_threads
from penstock.errors import not_local
from penstock.storage.paths import index_option
from penstock.verbs.convert._choice import Choice
from penstock.verbs.convert._parts import plan
from penstock.verbs.convert._reading import Reading, opened
from penstock.verbs.convert._run import Progress, Telling, Writing, run, run_by_bytes
from penstock.verbs.convert.journal import alone_at
from penstock.verbs.write.write import (
    check_cuts,
    format_and_options,
    format_of,
    with_exact,
)

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
        where: only the records for which this condition is true: a text, such as
            `label >= 3 and (split == "train" or len(tokens) > 10)` (docs/guide/conditions.md has
            the language), a pyarrow.compute.Expression, or a function of a batch that gives
            bool[num_rows].
        reads: the columns that a function or an expression reads; None for all.
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
            job that was killed before all shards were whole then starts again.
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
    kind, options = format_and_options(named, format, compression, format_options, exact=exact)
    _refuse_other_pictures(asked, exact=exact)
    if prove and getattr(options, "max_side", None) is not None:
        raise ValueError("max_side changes the images that prove=True would compare; leave one out")
    # What reads fields, or changes them, has to have them parsed.
    whole_records = columns is None and not rename and where is None and not asked
    dataset = opened(source, kind, options, whole_records=whole_records)
    place = to if is_folder else os.path.dirname(to)
    with _there(place) if is_folder else nullcontext(), alone_at(to, place):
        if columns is None:
            dataset = dataset.complete()
        reading = Reading(dataset, columns, rename, choice, (images, asked), kind, threads)
        writing = Writing(
            kind, options, with_exact(kind, format_options, exact=exact), index, threads
        )
        tell = Telling(progress, reading.num_records, dataset.files.total_bytes)
        if shard_bytes is not None:
            if is_folder:
                raise ValueError("a folder gets one file a shard; shard_bytes needs a file name")
            if prove:
                raise ValueError("prove=True needs shards that are cut by records, not by bytes")
            limits = {"shard_records": shard_records, "shard_bytes": shard_bytes}
            return run_by_bytes(to, limits, reading, writing, tell, overwrite=overwrite)
        parts = plan(reading, kind, to, is_folder, num_shards, shard_records, compression)
        return run(parts, to, reading, writing, tell, prove=prove, overwrite=overwrite)


def _refuse_other_pictures(asked: Mapping[str, Any], *, exact: bool) -> None:
    is_other = asked.get("image_mode") in ("jpg", "webp") or asked.get("max_side") is not None
    if exact and is_other:
        raise ValueError("exact=True changes no picture; leave it out, or image_mode and max_side")


@contextmanager
def _there(folder: str) -> Generator[None]:
    """Make a folder, and take it away again if nothing has come into it."""
    is_new = not os.path.isdir(folder)
    os.makedirs(folder, exist_ok=True)
    try:
        yield
    finally:
        if is_new:
            with suppress(OSError):
                os.rmdir(folder)

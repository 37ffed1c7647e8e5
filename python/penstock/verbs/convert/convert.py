"""`convert` writes the same records in another format, compression or number of shards. It is resumable.

A conversion is a list of parts. Each part is a range of the source's records and becomes one file. Parts are written
under temporary names, and get their final names together when all are complete. A journal lists the finished parts,
so a killed job continues where it stopped, and its result has the same bytes. With `shard_bytes` the ranges are known
only after writing, so such a job continues only if all files were complete. Only one job at a time can write a target.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Unpack

import pyarrow as pa

from penstock import describe, formats
from penstock.conditions import Where
from penstock.contract.format import Format
from penstock.contract.keywords import ConvertOptions
from penstock.contract.summary import Summary
from penstock.datasets.dataset import Dataset
from penstock.datasets.open import of_one_call
from penstock.datasets.open import open as open_dataset
from penstock.engine.cluster import Machines, machines_of
from penstock.engine.pipeline import checked_threads
from penstock.errors import UnsupportedError
from penstock.storage.base import Storage
from penstock.storage.paths import index_option
from penstock.storage.places import storage_of
from penstock.storage.store_lock import StoreLock
from penstock.storage.urls import refuse_web_target
from penstock.verbs.convert._places import alone, folders_of
from penstock.verbs.convert._reading import Reading, opened
from penstock.verbs.convert._run import run, run_by_bytes
from penstock.verbs.convert._store_run import run_by_bytes_in_store, run_in_store
from penstock.verbs.convert._writing import Writing
from penstock.verbs.convert.by_value import by_value
from penstock.verbs.convert.choice import Choice
from penstock.verbs.convert.parts import Cut, OutputFile, Piece, plan, plan_pieces
from penstock.verbs.inspect.stats import stats
from penstock.verbs.manifest.last import Last
from penstock.verbs.progress import Meter, Progress
from penstock.verbs.write.names import refuse_unknown, with_notes_of_names, words_in
from penstock.verbs.write.write import check_cuts, format_and_options, format_of, with_exact

_IMAGE_WORDS = {"image_mode", "jpeg_quality", "max_side"}


def convert(
    source: Any,
    target: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    rename: Mapping[str, str] | None = None,
    types: Mapping[str, Any] | None = None,
    text: str | Sequence[str] | None = None,
    where: Where | None = None,
    reads: Sequence[str] | None = None,
    sample: float | None = None,
    sample_rest: float | None = None,
    shuffle: int | None = None,
    seed: int = 0,
    images: str | Sequence[str] | None = "auto",
    masks: Sequence[str] = (),
    prove: bool = False,
    format: str | None = None,
    compression: str | None = None,
    num_shards: int | None = None,
    shard_records: int | None = None,
    shard_bytes: int | None = None,
    index: bool | str = True,
    overwrite: bool = False,
    exact: bool = False,
    manifest: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    on: Any = None,
    write_options: Mapping[str, Any] | None = None,
    storage: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    target_storage: Storage | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
    **format_options: Unpack[ConvertOptions],
) -> Summary:
    """Write the records of a dataset in another format, compression or number of shards.

    TFRecord holds int64, float32 and bytes, and lists of these. The documentation of its writer says how other types
    are converted: a float64 becomes the nearest float32, unless exact=True, and a type without a counterpart is a
    SchemaError. Arrow types that do not exist in TFRecord (int32, timestamps, strings) are read back as the types in
    which they were stored. From TFRecord to TFRecord, payloads are copied without being parsed, unless columns or
    names change.

    After a kill, the same call continues the conversion, and the result has the same bytes. No file gets its final
    name until all files are complete, except in an object store, which cannot rename files: there each shard appears
    when it is complete.

    Args:
        source: as for `open`, or a Dataset, if it has to be opened with options. A Dataset that skips
            damage is read one extra time, to count its undamaged records; only these are written.
        target: a file name; a name for numbered shards, or with `{shard:05d}` in it, as for `write`; or a folder (an
            existing folder, or a name that ends in "/"). A folder gets one file for each shard of the source, under
            the same name with a new suffix. With names of columns in braces, `out/lang={lang}/{shard}.parquet`, each
            value gets files of its own, in the order of the source; `open("out")` gives a column `lang` back, so it
            is not written. Values are encoded as Hive does.
        columns: the columns to write, in this order; None for all.
        rename: new names of columns, {old: new}.
        types: {field: type}: the types of some fields, as for `open`.
        text: fields of bytes that hold UTF-8 and become strings (.txt members in tars). "auto" chooses the fields that
            are text in all records, as `stats` finds; JSON stays JSON. Bytes that are not UTF-8 are an error that names the record.
        where: write only the records for which this condition is true: a text, such as
            `label >= 3 and (split == "train" or len(tokens) > 10)` (see docs/guide/conditions.md), a
            pyarrow.compute.Expression, or a function that takes a batch and returns bool[num_rows].
        reads: the columns that a function or an expression reads; None for all.
        sample: write only a random sample of the records, in their order and without repeats: a fraction (a float up
            to 1) or a number of records (an int). `seed` determines the sample.
        sample_rest: write only the records that `sample` with the same value and `seed` would leave out.
        shuffle: a seed for a random order of the records over all shards, as `penstock.Shuffled` makes it. The order
            takes 8 bytes of memory per record. Records are read at random positions, which is fast for TFRecord and
            Arrow, but takes many passes over large Parquet files.
        images: the columns that hold encoded images. "auto" finds them by their type or, if the target format stores
            images specially, by their bytes. With `image_mode` ("jpg", "png", "webp" or "raw"), `jpeg_quality` or
            `max_side` (pixels) the images are encoded again, in every format. Some formats have further image
            options, see their pages.
        masks: columns of images whose pixels are numbers of classes or instances. They are shrunk by taking the nearest
            pixels, never a mixture, and written as PNGs with their depth and palette, whatever `image_mode` is.
        prove: before the result gets its name, read it again and compare every value with the source, after the
            writer's conversions. Images that the target format encodes again are compared by their pixels; JPEG and
            WebP images are compared by the mean values of squares of 16 x 16 pixels.
        format: the format to write; None infers it from the target's name. Required for a folder.
        compression: a compression of the target format, as for `write`.
        num_shards: the number of shards. Shards are contiguous; their sizes differ by at most 1 record.
        shard_records: the number of records after which a shard ends.
        shard_bytes: a shard ends with the record that brings it to this many bytes, see `write`. A
            job that was killed before all shards were complete then starts again.
        index: write an index with each file, if its format has one; a path is the folder for them.
        exact: refuse values that the format cannot hold exactly, as for `write`. Also refuse `image_mode` "jpg" and
            "webp" and `max_side`, because they change pictures.
        manifest: the path of a manifest to write, last of all: who opens it sees all of the files or nothing.
        threads: the number of threads; None for all cores.
        progress: called with the records done, the source bytes done, and the total source bytes.
        on: where the files are written: "ray", "ray://host:port" or a penstock.ray.Cluster; a file is a task
            (docs/guide/ray.md). None for the threads of this process. The bytes are the same.
        write_options: options of the target format by name, for an option with the same name as a keyword above,
            such as HDF5's `shuffle`.
        storage: the storage of the source, as for `open`.
        storage_options: as for `open`, for the source.
        target_storage: the storage of the target. None for this machine, and for names such as s3://bucket/key.
        target_storage_options: as for `open`, for the target. None for those of the environment.
        format_options: options of the target format; an unknown option is an error.

    Returns:
        A Summary of the written files, with notes on changed values. Without `text`, its `text_columns` lists the
        columns of bytes that `text` could make strings, if the target format has strings.

    Raises:
        FileExistsError: a target exists and `overwrite` is False.
        BlockingIOError: another conversion is writing the target.
        ValueError: `where` is not a condition, there are fewer records than `sample`, a word in braces is not a column,
            or a column in braces has more than 10,000 values.
        SchemaError: the format cannot hold a column or a value. Columns are checked before anything is written.
        FormatError: the source is damaged, or (with `prove`) a written value differs from the source.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [1, 2, 3]}, "numbers.tfrecord", overwrite=True)
        >>> ps.convert("numbers.tfrecord", "numbers.parquet", overwrite=True).num_records
        3
    """
    listed = None if reads is None else list(reads)
    choice = Choice(where, listed, sample, sample_rest, shuffle, seed)
    how = How(
        columns=columns,
        rename=rename,
        images=images,
        masks=masks,
        prove=prove,
        format=format,
        compression=compression,
        num_shards=num_shards,
        shard_records=shard_records,
        shard_bytes=shard_bytes,
        index=index,
        overwrite=overwrite,
        exact=exact,
        threads=threads,
        progress=progress,
        on=None if on is None else machines_of(on),
        write_options=write_options,
        format_options=dict(format_options),
        finds_text=text is None,
        storage=storage,
        storage_options=storage_options,
        target_storage=target_storage,
        target_storage_options=target_storage_options,
    )
    place = target_storage, target_storage_options
    last = Last(manifest, os.fspath(target), *place, overwrite=overwrite)
    source = of_one_call(source)
    if types or text:
        source = _typed(source, types or {}, text or [], threads, how.source)
    if words_in(to := os.fspath(target)):
        if shard_bytes is not None:
            raise ValueError(
                "with a column in the target's name, use shard_records= or num_shards="
            )
        own = {} if isinstance(source, Dataset) else how.source
        found = by_value(source, to, columns, rename, choice, threads, how.on, own)
        how = replace(how, columns=found.columns, rename=found.rename)
        made = write_chosen(found.source, to, found.choice, how, found.pieces)
        return last.of(found.finished(made))
    return last.of(write_chosen(source, target, choice, how))


def _typed(
    source: Any,
    types: Mapping[str, Any],
    text: str | Sequence[str],
    threads: int | None,
    where: dict[str, Any],
) -> Dataset:
    """Return the source with other types for some fields. `where` has the keywords of its storage."""
    dataset = source if isinstance(source, Dataset) else open_dataset(source, **where)
    if isinstance(text, str) and text != "auto":
        raise TypeError(f'text takes a list of names, such as [{text!r}], or "auto"')
    if text == "auto":
        found = [one for one in stats(dataset, threads=threads).fields if one.is_text]
        # JSON is text already, and its fields may be read.
        found = [one for one in found if not isinstance(one.type, pa.JsonType)]
        text = [one.name for one in found if one.name in dataset.schema.names]
    return dataset.with_types({**dict.fromkeys(text, "string"), **types})


@dataclass(slots=True)
class How:
    """The other options of `convert`, by the names of its keywords."""

    columns: Sequence[str] | None = None
    rename: Mapping[str, str] | None = None
    images: str | Sequence[str] | None = "auto"
    masks: Sequence[str] = ()
    prove: bool = False
    format: str | None = None
    compression: str | None = None
    num_shards: int | None = None
    shard_records: int | None = None
    shard_bytes: int | None = None
    index: bool | str = True
    overwrite: bool = False
    exact: bool = False
    threads: int | None = None
    progress: Progress | None = None
    on: Machines | None = None
    write_options: Mapping[str, Any] | None = None
    format_options: dict[str, Any] = field(default_factory=dict[str, Any])
    finds_text: bool = False
    """Whether to look for columns of bytes that are text."""
    storage: Storage | None = None
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)  # has secrets
    target_storage: Storage | None = None
    target_storage_options: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def source(self) -> dict[str, Any]:
        """The keywords with which the source is opened."""
        return {"storage": self.storage, "storage_options": self.storage_options}


def write_chosen(
    source: Any,
    target: str | os.PathLike[str],
    choice: Choice,
    how: How,
    pieces: Sequence[Piece] = (),
) -> Summary:
    """Write the chosen records. See `convert`.

    Args:
        pieces: parts of the records, each of which is written to separate files; empty for one target.
    """
    to = os.fspath(target)
    refuse_web_target(to)
    if not pieces:
        refuse_unknown(to)
    cuts = check_cuts(how.num_shards, how.shard_records, how.shard_bytes)
    how = replace(
        how, index=index_option(how.index), threads=checked_threads(how.threads),
        num_shards=cuts[0], shard_records=cuts[1], shard_bytes=cuts[2],
    )  # fmt: skip
    to, is_folder = (to, False) if pieces else _place(to, how.format)
    named = f"x.{how.format}" if is_folder else to
    own = {**how.format_options}
    asked = _pop_image_options(format_of(named, how.format), own)
    own |= how.write_options or {}
    kind, options = format_and_options(named, how.format, how.compression, own, exact=how.exact)
    _refuse_contradictions(asked, options, is_folder, how)
    _check_masks(how.masks, options)
    # To read or change fields, records have to be parsed.
    whole_records = how.columns is None and not how.rename and choice.where is None and not asked
    storage = _target_storage(to, kind, how)
    dataset = opened(source, kind, options, how.source, whole_records=whole_records)
    _refuse_on(how, dataset)
    place, folders = folders_of(to, is_folder, pieces)
    with alone(storage, to, place, folders) as lock:
        if how.columns is None:
            dataset = dataset.complete()
        images = (how.images, asked)
        reading = Reading(
            dataset, how.columns, how.rename, choice, images, kind, how.threads, storage,
            options=options, masks=how.masks, finds_text=how.finds_text, on=how.on,
        )  # fmt: skip
        written_options = with_exact(kind, own, exact=how.exact)
        writing = Writing(kind, options, written_options, how.index, how.threads, how.exact)
        meter = Meter(how.progress, reading.num_records, dataset.files.total_bytes)
        if how.shard_bytes is not None:
            limits = {"shard_records": how.shard_records, "shard_bytes": how.shard_bytes}
            by_bytes = run_by_bytes if lock is None else run_by_bytes_in_store
            made = by_bytes(to, limits, reading, writing, meter, overwrite=how.overwrite)
            return _with_note_of_damage(with_notes_of_names(made, to), dataset)
        cut = Cut(how.num_shards, how.shard_records)
        if pieces:
            parts = plan_pieces(reading, kind, pieces, cut)
        else:
            parts = plan(reading, kind, to, is_folder, cut, how.compression)
        made = _run(parts, to, place, reading, writing, meter, lock, how)
        made = made if pieces else with_notes_of_names(made, to)
        return _with_note_of_damage(made, dataset)


def _with_note_of_damage(made: Summary, dataset: Dataset) -> Summary:
    """Add a note if damaged records were left out."""
    if not (regions := dataset.damage):
        return made
    where = "1 damaged place was" if len(regions) == 1 else f"{len(regions)} damaged places were"
    known = [one.num_records for one in regions if one.num_records is not None]
    lost = describe.records(sum(known)) if len(known) == len(regions) else "records"
    note = f"{where} left out, with {lost}; Dataset.damage lists them"
    return replace(made, notes=(*made.notes, note))


def _refuse_on(how: How, dataset: Dataset) -> None:
    """Refuse what cannot be divided into tasks for `on=` before it is read."""
    if how.on is None:
        return
    if how.shard_bytes is not None:
        raise UnsupportedError(
            "where a shard ends is known only after it was written, so on= cannot be used with shard_bytes=",
            hint="num_shards= or shard_records= instead of shard_bytes=",
        )
    if dataset.options.damage != "error":
        raise UnsupportedError(
            f"damage={dataset.options.damage!r} hides which records a task has, so on= cannot be used with it",
            hint="run penstock repair first, or convert without on=",
        )


def _run(
    parts: list[OutputFile],
    to: str,
    place: str,
    reading: Reading,
    writing: Writing,
    meter: Meter,
    lock: StoreLock | None,
    how: How,
) -> Summary:
    whole = {"prove": how.prove, "overwrite": how.overwrite}
    if lock is None:
        return run(parts, to, place, reading, writing, meter, how.on, **whole)
    return run_in_store(parts, to, place, reading, writing, meter, lock, how.on, **whole)


def _target_storage(to: str, kind: Format, how: How) -> Storage:
    storage = storage_of(to, how.target_storage, how.target_storage_options)
    if kind.info.is_folder and not storage.changes_in_place:
        storage.folder_sink(to)  # refuses
    return storage


def _place(to: str, format: str | None) -> tuple[str, bool]:
    """Return the target, and whether it is a folder that gets one file per source shard."""
    if format is not None and formats.by_name(format).info.is_folder:
        return to.rstrip("/"), False  # in this format a shard is a folder
    is_folder = to.endswith(("/", os.sep)) or os.path.isdir(to)
    if is_folder and format is None:
        raise ValueError(f"{to} is a folder; format= must name the format to write")
    return to, is_folder


def _pop_image_options(kind: Format, format_options: dict[str, Any]) -> dict[str, Any]:
    """Remove and return the image options that the format itself does not have."""
    own = {field.name for field in fields(kind.write_options)}
    words = (_IMAGE_WORDS - own) & format_options.keys()
    return {word: format_options.pop(word) for word in words}


def _refuse_contradictions(
    asked: Mapping[str, Any], options: Any, is_folder: bool, how: How
) -> None:
    prove, exact, shard_bytes = how.prove, how.exact, how.shard_bytes
    is_changed = asked.get("image_mode") in ("jpg", "webp") or asked.get("max_side") is not None
    if exact and is_changed:
        raise ValueError(
            "exact=True changes no picture; leave it out, or leave out image_mode and max_side"
        )
    if prove and getattr(options, "max_side", None) is not None:
        raise ValueError("max_side changes the images that prove=True would compare; leave one out")
    if is_folder and shard_bytes is not None:
        raise ValueError("a folder gets one file per source shard; shard_bytes needs a file name")
    if prove and shard_bytes is not None:
        raise ValueError("prove=True needs shards split by records, not by bytes")


def _check_masks(masks: Sequence[str], options: Any) -> None:
    if isinstance(masks, str):
        raise TypeError(f"masks takes a list of names, such as [{masks!r}]")
    if masks and hasattr(options, "max_side"):
        raise UnsupportedError(
            "this format encodes pictures itself, as colours, so it cannot keep the values of masks",
            field=masks[0],
            hint="leave masks out of the columns, or write another format, such as Parquet",
        )

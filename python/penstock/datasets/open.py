"""The function `open`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from penstock import formats
from penstock.contract.keywords import Checksums, Damage, Dialect, MissingShards, OpenOptions
from penstock.datasets._hive import folders_with_keys
from penstock.datasets._one_set import without_foreign
from penstock.datasets._opened import check_are_names
from penstock.datasets._splits import expand_split, folder_of_other_classes
from penstock.datasets.dataset import Dataset, dataset_of
from penstock.datasets.unfinished import warn_if_unfinished
from penstock.errors import shown
from penstock.limits import Limits, limits_from
from penstock.manifests.manifest import Paths
from penstock.manifests.names import storage_of
from penstock.overlay.places import OverlayFolder, overlays_option
from penstock.storage.local import LocalStorage
from penstock.storage.paths import reading_index
from penstock.storage.skipped import warning_about

if TYPE_CHECKING:
    from penstock.storage.cache import Cache

_CHOICES = {
    "checksums": ("all", "headers", "none", "index"),
    "damage": ("error", "stop", "skip"),
    "dialect": ("protobuf", "tensorflow"),
    "missing_shards": ("error", "ignore"),
}
_SALVAGE = "; penstock.repair(..., salvage=True), or `penstock repair --salvage`, writes a file with all that can be saved"


# Complexity: one line for each keyword that is checked or has a default.
def open(
    source: Any,
    *,
    format: str | None = None,
    schema: Any = None,
    types: Mapping[str, Any] | None = None,
    columns: Sequence[str] | None = None,
    raw: bool = False,
    checksums: Checksums = "all",
    damage: Damage = "error",
    index: str | os.PathLike[str] = "auto",
    mmap: bool = False,
    overlays: bool | str | os.PathLike[str] = True,
    hive: bool | None = None,
    limits: Limits | dict[str, int] | None = None,
    dialect: Dialect = "protobuf",
    split: str | None = None,
    missing_shards: MissingShards = "error",
    storage: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    cache: Cache | str | os.PathLike[str] | None = None,
    **format_options: Unpack[OpenOptions],
) -> Dataset:
    """Open data in place.

    Args:
        source: a path, a list of paths, a glob (`**` for folders at any depth), a folder (all data files below
            it), `name@N` for numbered shards, or WebDataset's `name-{000..099}.tar`, `a::b` and JSON index of
            shards. The files of a folder or a glob must have the same format. `Dataset.skipped_files` lists
            the files that are left out, and a warning names those that look like data.
        format: the name of the format; None detects it from the content.
        schema: a pyarrow.Schema, {name: penstock.features...}, or a protobuf message class or
            descriptor; None infers one from the first records. A nullable column that a file lacks is null there.
        types: {field: type}: the types of some fields, such as {"caption": "string", "label": "int32"}. The types of
            other fields are found as usual. A type is a name or a pyarrow type; for lists it is the type of their
            values.
        columns: the columns to read, in this order. Other columns are not decoded.
        raw: return the payloads undecoded, in one binary_view column `record`.
        checksums: "all" verifies all checksums that the format stores; "headers" verifies only those of headers;
            "none" verifies none, and so can read files that were written without checksums. "index" verifies all, and
            for formats without checksums also compares each MiB that is read with the checksums stored by
            `index(checksums=True)`.
        damage: "error" raises; "stop" reads each file up to its damage; "skip" skips damaged records and lists
            them in `Dataset.damage`. Only `repair(..., salvage=True)` keeps unverified frames. Unless it is the only
            file, a file too damaged to be opened has no records with "stop" and "skip", and is listed as one region.
        index: where sidecars (penstock's files with an index of a data file) are read and stored. "auto" reads them
            next to the data and in the user's cache, and stores new ones in the cache, or next to the data if one
            is already there. "beside" stores them next to the data, and a path stores them in that folder. "never"
            reads and stores none. The environment variable `PENSTOCK_INDEX` sets the meaning of "auto". For files
            of another storage, sidecars are stored only if this is a path.
        mmap: map local files into memory instead of reading them. This is faster for large records, but the process
            is killed if a file is truncated meanwhile.
        overlays: include the fields of overlays as if they were in the files. A path is a folder with more overlays of
            these files (`overlays=` of `add_fields`), which are applied after those next to the files. raw=True never
            includes any.
        hive: whether the names of folders such as `year=2024` are columns, as Hive and Spark write them: int64 if all
            values are integers, else strings. Conditions on them skip whole files. None: only if `source` is a folder
            and all its files are in such folders of it. True also takes the folders above it.
        limits: limits on the memory for a file, as a penstock.Limits or a dict of some of its fields.
        dialect: the rules for Examples that were written in an unusual way, "protobuf" or "tensorflow".
        split: open only the files of this split, such as "train": those in a folder of this name, or with this name in
            front of their number (`train-00000…`, `mnist-train.tfrecord-00000…`, `data-train-7.tar`). Of an HDF5 file
            with groups, the groups that `mask/train` lists.
        missing_shards: "error" raises if a shard of a numbered set is missing; "ignore" reads the others. A glob that
            selects some numbers, such as `train-0000[0-4]*`, is about these only.
        storage: the storage of the files: a penstock.storage.Storage, a file system of fsspec or pyarrow, or a store of
            obstore. None for local files, and for names such as s3://bucket/key, gs://, az:// and https://, which are
            read in place (docs/guide/object-stores.md).
        storage_options: options of the client of an object store, such as `aws_endpoint_url` and `aws_region`. They
            come before those of the environment (`AWS_ENDPOINT_URL`, …), which are used otherwise.
        cache: a folder on a local disk, or a penstock.Cache, that keeps what was read from an object store
            (docs/guide/cache.md). It has no effect on local files, and does not work with a Storage of your own.
        format_options: options of the format. `infer_records="all"` is one of every format: the schema has the fields of
            all files, and a field that a file lacks is null there.

    Opening reads a few kilobytes and a sample of the records of the first file.

    Raises:
        FileNotFoundError: there is no such file, a shard of a numbered set is missing, or there is no folder `overlays`.
        ValueError: there are no files of the split; the message lists the splits.
        FormatError: the content is not in a known format, or is damaged; or the files of a folder have several formats.
        SchemaError: the records do not fit the schema, or have no common schema.
        StaleIndexError: a file has changed since its overlay was made.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [1, 2], "name": ["a", "b"]}, "two.tfrecord", overwrite=True)
        >>> ps.open("two.tfrecord", columns=["name"])[0]
        {'name': 'a'}
    """
    choices = {"checksums": checksums, "damage": damage, "dialect": dialect}
    _check_choices({**choices, "missing_shards": missing_shards})
    check_are_names(columns)
    index = reading_index(index)
    added = overlays_option(overlays)
    if checksums == "index":
        _check_can_use_index(index, mmap)
    _check_together(schema, types, raw=raw, hive=bool(hive))
    kept = None
    if cache is not None:
        from penstock.storage.cache import cache_of  # rarely needed

        kept = cache_of(cache)
    place = storage_of(source, storage, storage_options, kept)
    with formats.loading(beside=place.reads_at_once is not None):
        is_folder = format is not None and formats.by_name(format).info.is_folder
        follows = format_options.get("follow_links") is True
        options: dict[str, Any] = dict(format_options)
        paths, skipped, sets, listed, _, jobs = expand_split(
            source,
            split,
            place,
            is_folder=is_folder,
            follow_links=follows,
            as_table=format is not None,
            missing_shards=missing_shards,
            is_inside=partial(_set_split, split, format, options),
        )
        if sets and format is None:
            paths, skipped = without_foreign(paths, skipped, sets, place, damage)
        call = {
            "source": paths,
            "format": format,
            "schema": schema,
            "columns": None if columns is None else list(columns),
            "raw": raw,
            "named": frozenset(types) if isinstance(types, Mapping) else frozenset[str](),
            **choices,
            "index": index,
            "mmap": mmap,
            "overlays": added,
            "hive": _hive_of(source, paths, sets) if hive is None else hive,
            "limits": limits_from(limits),
            "storage": None if storage is None and isinstance(place, LocalStorage) else place,
            "format_options": options,
        }
        dataset = dataset_of(call, listed, skipped)
    if isinstance(added, OverlayFolder) and not (added.may_be_missing or raw):
        _warn_if_unused(dataset)
    if split is not None:
        _warn_of_other_classes(dataset, source, split)
    if isinstance(paths, list) and place.is_here(paths[0]):
        warn_if_unfinished(paths, jobs, stacklevel=2)
    if types:
        dataset = dataset.with_types(types)
    message = warning_about([*skipped, *dataset.files.skipped(opened_only=True)])
    if message is not None:
        warnings.warn(message, stacklevel=2)
    return dataset


def opened(
    source: Any,
    storage: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    *,
    overlays: Any = None,
    **how: Any,
) -> Dataset:
    """Return a source of a verb as a dataset: open it with the options `how`, unless it is a Dataset.

    Raises:
        TypeError: there are options of a storage, or a folder of overlays, for a Dataset, which is already open.
    """
    if not isinstance(source, Dataset):
        how["overlays"] = True if overlays is None else overlays
        return open(source, storage=storage, storage_options=storage_options, **how)
    given = {"storage": storage, "storage_options": storage_options or None, "overlays": overlays}
    for name, value in given.items():
        if value is not None:
            raise TypeError(f"give {name}= to penstock.open: the dataset is already open")
    return source


def _warn_if_unused(dataset: Dataset) -> None:
    """Warn if the folder of overlays has none of these files. It may have those of the same files under other paths."""
    files = dataset.files
    place = files.overlay_places[-1]
    if files.overlays is None or not files.overlays.has_any_in(place):
        message = (
            f"{place.folder} has no overlays of these files; those of {shown(files.paths[0])} would be in "
            f"{place.folder_of(files.paths[0])}"
        )
        warnings.warn(message, stacklevel=3)


def _warn_of_other_classes(dataset: Dataset, source: Any, split: str) -> None:
    """Warn if classes, which are folders, have other numbers in another split."""
    labels = [field.name for field in dataset.schema if pa.types.is_dictionary(field.type)]
    if not (labels and dataset.files.info(0).is_folder):
        return
    other = folder_of_other_classes(source, split)
    if other is not None:
        warnings.warn(
            f"{os.fsdecode(source)}: the splits {split!r} and {other!r} do not have the same classes, so a class may have"
            f" another number in each; give both loaders one list: class_names={{{labels[0]!r}: [...]}}",
            stacklevel=3,
        )


def _set_split(
    split: str | None, format: str | None, options: dict[str, Any], paths: Sequence[str]
) -> bool:
    """Set the option for a split inside the files, if their format has splits. Return whether it has."""
    try:
        kind = formats.by_path(paths[0]) if format is None else formats.by_name(format)
    except ValueError:
        return False
    if kind.split_option:
        options[kind.split_option] = split
    return bool(kind.split_option)


def _hive_of(source: Any, paths: Sequence[str], sets: Sequence[Sequence[str]]) -> bool | str:
    """What `hive=None` means for a source."""
    if isinstance(paths, Paths):
        listed = paths.manifest.hive
        return (folders_with_keys(listed, paths) or True) if isinstance(listed, str) else listed
    return bool(sets) and folders_with_keys(source, paths)


def _check_choices(choices: dict[str, str]) -> None:
    for word, value in choices.items():
        if value not in _CHOICES[word]:
            listed = ", ".join(map(repr, _CHOICES[word]))
            instead = _SALVAGE if value == "salvage" else ""
            raise ValueError(f"{word}={value!r} is not one of {listed}{instead}")


def _check_together(schema: Any, types: Any, *, raw: bool, hive: bool) -> None:
    if raw and schema is not None:
        raise ValueError("raw=True returns bytes without a schema; leave out raw= or schema=")
    if raw and hive:
        raise ValueError("raw=True returns one column; leave out raw= or hive=")
    if types is not None and (raw or schema is not None):
        other = "raw=True" if raw else "schema="
        raise ValueError(
            f"types= changes the types that penstock finds, but {other} sets them; leave out one of them"
        )


def _check_can_use_index(index: Any, mmap: bool) -> None:
    if mmap:
        raise ValueError(
            'checksums="index" verifies each read, but mmap=True reads nothing; leave out one of them'
        )
    if index == "never":
        raise ValueError('checksums="index" needs an index, but index="never" does not read one')


def of_one_call(source: Any) -> Any:
    """Return the source of a verb that reports damage. Of a Dataset, only what this call skips."""
    return source.with_own_damage() if isinstance(source, Dataset) else source

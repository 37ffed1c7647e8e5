"""`overlays` and `remove_overlay`, and writing overlays for all shards of a dataset."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.contract.summary import Summary
from penstock.datasets.dataset import Dataset
from penstock.datasets.open import opened
from penstock.errors import ChangedError, SchemaError, StorageError, UnsupportedError, shown
from penstock.limits import limits_from
from penstock.manifests.names import expand, storage_of
from penstock.overlay.file import Overlay, OverlayWriter, find
from penstock.overlay.identity import Identity, identity_of
from penstock.overlay.places import (
    FOLDER_SUFFIX,
    Place,
    folder_option,
    name_in,
    places_of,
)
from penstock.overlay.view import Changes
from penstock.storage.base import Sink, Storage
from penstock.storage.local import sink_for
from penstock.storage.urls import is_web, real_path


@dataclass(frozen=True, slots=True)
class OverlayInfo:
    """Fields stored in files next to shards, and fields that are dropped or renamed there. `shards` lists the files
    that have the overlay, out of `num_shards`. Overlays are applied in the order of `sequence`, so the latest value of
    a field is read; those in a `folder` of the user are applied after those next to the files."""

    name: str
    sequence: int
    fields: pa.Schema
    shards: tuple[str, ...]
    num_shards: int
    num_bytes: int
    dropped: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    """Pairs of old and new name."""
    folder: str | None = None
    """The folder that `overlays=` named; None: next to the shards."""


def overlays(
    source: Any,
    *,
    overlays: str | os.PathLike[str] | None = None,
    storage: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> list[OverlayInfo]:
    """Return the overlays of some files, in the order in which they were made.

    This reads a few hundred bytes of each overlay. `verify` reports overlays that no longer fit their files, and `open`
    refuses them.

    Args:
        source: a Dataset, or anything that `penstock.open` takes.
        overlays: a folder with more overlays of these files, as for `add_fields`.
        storage, storage_options: as for `open`.

    Raises:
        FormatError: one of the overlay files is not an overlay.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [1, 2, 3]}, "numbers.tfrecord", overwrite=True)
        >>> ps.overlays("numbers.tfrecord")
        []
    """
    paths, places = _shards(source, overlays, storage, storage_options)
    return overlays_in(places, paths)


def overlays_in(places: Sequence[Place], paths: Sequence[str]) -> list[OverlayInfo]:
    """Return the overlays of some files, in the order in which they are applied."""
    limits = limits_from(None)
    infos: list[OverlayInfo] = []
    for place in places:
        place.look(paths)
        found: dict[str, list[tuple[str, Overlay]]] = {}
        for path in paths:
            for overlay in find(path, place, limits):
                found.setdefault(overlay.name, []).append((path, overlay))
        made = (_info(name, parts, len(paths)) for name, parts in found.items())
        infos += sorted(made, key=lambda info: (info.sequence, info.name))
    return infos


def _info(name: str, parts: list[tuple[str, Overlay]], num_shards: int) -> OverlayInfo:
    newest = max((overlay for _, overlay in parts), key=lambda overlay: overlay.sequence)
    return OverlayInfo(
        name,
        newest.sequence,
        newest.schema,
        tuple(path for path, _ in parts),
        num_shards,
        sum(overlay.num_bytes for _, overlay in parts),
        newest.changes.drop,
        tuple(newest.changes.rename.items()),
        newest.place.folder,
    )


def remove_overlay(
    source: Any,
    name: str,
    *,
    overlays: str | os.PathLike[str] | None = None,
    storage: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> list[str]:
    """Remove an overlay from all shards that have it. The shards are not changed.

    A stale or damaged overlay is removed as well, and values that a killed call has computed for it. If the call is interrupted, the same call again removes the overlay
    from the remaining shards.

    Args:
        source: a Dataset, or anything that `penstock.open` takes.
        name: the overlay's name, as returned by `overlays`.
        overlays: the folder that has the overlay, as for `add_fields`; None for those next to the files, or for the
            folder with which the Dataset was opened.
        storage, storage_options: as for `open`.

    Returns:
        The files that were removed.

    Raises:
        ValueError: no shard has an overlay of this name; the message lists the existing overlays.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [1, 2, 3]}, "numbers.tfrecord", overwrite=True)
        >>> ps.remove_overlay("numbers.tfrecord", "score")
        Traceback (most recent call last):
        ValueError: numbers.tfrecord has no overlay 'score'; there are: none
    """
    paths, places = _shards(source, overlays, storage, storage_options)
    return remove_from(places[-1], paths, name)


def remove_from(place: Place, paths: Sequence[str], name: str) -> list[str]:
    """Remove an overlay of some files from one place, and return the removed files."""
    place.look(paths)
    there = {path: place.paths_of(path) for path in paths}
    removed: list[str] = []
    for path in paths:
        kept_at = [one for one in there[path] if one == place.path_of(path, name)]
        kept_at += place.unfinished_of(path, name)
        for one in kept_at:
            place.storage.remove(one)
        if kept_at:
            place.remove_if_empty(path)
            removed += kept_at
    if not removed:
        # List the names without opening the overlays, since an overlay may be damaged.
        listed = sorted({name_in(kept_at) for found in there.values() for kept_at in found})
        first = shown(paths[0]) if len(paths) == 1 else f"none of {len(paths)} files"
        where = "" if place.folder is None else f" in {place.folder}"
        raise ValueError(
            f"{first} has {'no' if len(paths) == 1 else 'an'} overlay {name!r}{where}; there are: "
            f"{', '.join(listed) or 'none'}"
        )
    return removed


def _shards(
    source: Any,
    overlays: Any,
    storage: Storage | None,
    storage_options: Mapping[str, Any] | None,
) -> tuple[list[str], Sequence[Place]]:
    if isinstance(source, Dataset):
        source = opened(source, storage, storage_options, overlays=overlays)
        files = source.whole("changing overlays").files
        return list(files.paths), files.overlay_places
    place = storage_of(source, storage, storage_options)
    return list(expand(source, place).paths), places_of(place, folder_option(overlays))


# -- writing --------------------------------------------------------------------------------------


_NOTHING = Changes()
_HINT = "overlays= with a folder of yours, which stores them there"
_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)


def write_overlay(
    dataset: Dataset,
    name: str,
    schema: pa.Schema,
    columns_of_shard: Callable[[int], Iterable[pa.RecordBatch]],
    *,
    overwrite: bool = False,
    changes: Changes = _NOTHING,
    shards: Iterable[int] | None = None,
) -> Summary:
    """Write an overlay for every shard of a dataset.

    All files are written and synced before the first gets its name. If the process dies while the files are renamed,
    only some shards have the overlay. `overlays` lists these shards, and the same call adds the missing files: an
    existing file with the same bytes stays unchanged. The shards are identified, which builds missing indexes.

    Args:
        dataset: the records.
        name: the overlay's name.
        schema: the schema of the new fields.
        columns_of_shard: returns the values for one shard's records, in order, as batches of any length.
        overwrite: replace an overlay of this name; the new overlay then counts as the latest.
        changes: the fields that it drops or renames.
        shards: the numbers of all shards, in the order in which their values are there. None: in theirs.

    Raises:
        FileExistsError: there is an overlay of this name with other values.
        ValueError: the dataset contains a file twice.
        SchemaError: the values do not fit the schema, or their number is not the number of records.
        PermissionError: the caller may not write there; `overlays=` names another folder.
    """
    place = dataset.files.overlay_places[-1]
    storage = place.storage
    if is_web(place.folder_of(dataset.paths[0])):
        message = "penstock does not write to web servers"
        raise UnsupportedError(message, file=dataset.paths[0], hint=_HINT)
    _refuse_repeated(schema.names, changes, place, dataset.paths)
    known = [find(path, place, dataset.options.limits) for path in dataset.paths]
    sequence = _sequence(known, name, overwrite)
    waiting: list[tuple[int, Sink]] = []
    num_records = num_bytes = 0
    try:
        for shard in range(len(dataset.paths)) if shards is None else shards:
            path = dataset.paths[shard]
            place.make_folder(path)
            old = {overlay.name: overlay for overlay in known[shard]}.get(name)
            is_replaced = overwrite or old is not None
            sink = sink_for(storage, place.path_of(path, name), path, overwrite=is_replaced)
            waiting.append((shard, sink))
            writer = OverlayWriter(sink, name, sequence, schema, changes)
            for batch in columns_of_shard(shard):
                writer.write(batch)
            writer.finish(identify(dataset, shard))
            sink.finish()
            num_records += writer.num_records
            num_bytes += writer.num_bytes
            if old is not None and not overwrite:
                _refuse_other_values(old, writer.digest)
                waiting.pop()[1].abort()
        for _, sink in waiting:
            sink.commit()
    except BaseException as error:
        for shard, sink in waiting:
            sink.abort()
            place.remove_if_empty(dataset.paths[shard])
        if place.folder is None and isinstance(error, OSError) and _is_of_overlays(error):
            raise _not_allowed(error, dataset.paths[0]) from None
        raise
    made = tuple(place.path_of(path, name) for path in dataset.paths)
    return Summary(made, num_records, num_bytes)


def _refuse_repeated(
    names: list[str], changes: Changes, place: Place, paths: Sequence[str]
) -> None:
    if not (names or changes) or len(set(names)) < len(names):
        raise SchemaError("an overlay needs fields, each with a different name")
    for each in (real_path, place.folder_of):
        if len(set(map(each, paths))) < len(paths):
            raise ValueError("the dataset contains a file twice, so it cannot have an overlay")


def _is_of_overlays(error: OSError) -> bool:
    """Whether an error says that the caller may not write into the folder of a shard's overlays."""
    path = error.file if isinstance(error, StorageError) else error.filename
    return error.errno in _NOT_ALLOWED and FOLDER_SUFFIX in str(path)


def _not_allowed(error: OSError, path: str) -> OSError:
    """The error for files next to which the caller may not write."""
    message = "fields cannot be stored next to this file, because its folder cannot be written to"
    if isinstance(error, StorageError):
        error.hint = _HINT
        return error
    return type(error)(error.errno, f"{message}; try: {_HINT}", path)


def _refuse_other_values(old: Overlay, digest: Any) -> None:
    if old.digest != digest:
        message = f"{old.path} exists with other values; pass overwrite=True to replace it"
        raise FileExistsError(message)


def _sequence(known: list[list[Overlay]], name: str, overwrite: bool) -> int:
    """Return the next sequence number, or the number of the existing overlay of this name if it is to be completed."""
    found = [overlay for overlays in known for overlay in overlays]
    mine = [overlay.sequence for overlay in found if overlay.name == name]
    if mine and not overwrite:
        return max(mine)
    return max((overlay.sequence for overlay in found), default=0) + 1


def identify(dataset: Dataset, shard: int) -> Identity:
    """Return the identity of a shard in the state in which the dataset has opened it."""
    path, num_bytes = dataset.paths[shard], dataset.files.num_bytes(shard)
    with closing(dataset.files.storage.source(path)) as source:
        if source.size != num_bytes:
            message = "the file changed while its new fields were computed"
            raise ChangedError(message, file=path, expected=num_bytes, found=source.size)
        return identity_of(dataset.files.own(shard), source)

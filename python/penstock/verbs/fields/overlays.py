"""`overlays` and `remove_overlay`, and writing overlays for all shards of a dataset."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.contract.summary import Summary
from penstock.datasets.dataset import Dataset
from penstock.datasets.open import opened
from penstock.errors import ChangedError, SchemaError, shown
from penstock.limits import limits_from
from penstock.manifests.names import expand, storage_of
from penstock.overlay.file import (
    Overlay,
    OverlayWriter,
    find,
    folder_of,
    name_in,
    path_of,
    paths_of,
)
from penstock.overlay.identity import Identity, identity_of
from penstock.overlay.view import Changes
from penstock.storage.base import Sink, Storage
from penstock.storage.local import sink_for
from penstock.storage.urls import real_path, refuse_web_target


@dataclass(frozen=True, slots=True)
class OverlayInfo:
    """Fields stored in files next to shards, and fields that are dropped or renamed there. `shards` lists the files
    that have the overlay, out of `num_shards`. Overlays are applied in the order of `sequence`, so the latest value of
    a field is read."""

    name: str
    sequence: int
    fields: pa.Schema
    shards: tuple[str, ...]
    num_shards: int
    num_bytes: int
    dropped: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    """Pairs of old and new name."""


def overlays(
    source: Any,
    *,
    storage: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> list[OverlayInfo]:
    """Return the overlays of some files, in the order in which they were made.

    This reads a few hundred bytes of each overlay. `verify` reports overlays that no longer fit their files, and `open`
    refuses them.

    Args:
        source: a Dataset, or anything that `penstock.open` takes.
        storage, storage_options: as for `open`.

    Raises:
        FormatError: one of the overlay files is not an overlay.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [1, 2, 3]}, "numbers.tfrecord", overwrite=True)
        >>> ps.overlays("numbers.tfrecord")
        []
    """
    paths, place = _shards(source, storage, storage_options)
    limits = limits_from(None)
    place.look_beside(paths)
    found: dict[str, list[tuple[str, Overlay]]] = {}
    for path in paths:
        for overlay in find(path, place, limits):
            found.setdefault(overlay.name, []).append((path, overlay))
    infos = [_info(name, parts, len(paths)) for name, parts in found.items()]
    return sorted(infos, key=lambda info: (info.sequence, info.name))


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
    )


def remove_overlay(
    source: Any,
    name: str,
    *,
    storage: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> list[str]:
    """Remove an overlay from all shards that have it. The shards are not changed.

    A stale or damaged overlay is removed as well. If the call is interrupted, the same call again removes the overlay
    from the remaining shards.

    Args:
        source: a Dataset, or anything that `penstock.open` takes.
        name: the overlay's name, as returned by `overlays`.
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
    paths, place = _shards(source, storage, storage_options)
    place.look_beside(paths)
    kept_at = [path_of(path, name) for path in paths]
    there = {path for shard in paths for path in paths_of(shard, place)}
    removed = [path for path in kept_at if path in there]
    if not removed:
        # List the names without opening the overlays, since an overlay may be damaged.
        listed = sorted(set(map(name_in, there)))
        first = shown(paths[0]) if len(paths) == 1 else f"none of {len(paths)} files"
        raise ValueError(
            f"{first} has {'no' if len(paths) == 1 else 'an'} overlay {name!r}; there are: "
            f"{', '.join(listed) or 'none'}"
        )
    for path in removed:
        place.remove(path)
        place.remove_empty_folder(os.path.dirname(path))
    return removed


def _shards(
    source: Any, storage: Storage | None, storage_options: Mapping[str, Any] | None
) -> tuple[list[str], Storage]:
    if isinstance(source, Dataset):
        source = opened(source, storage, storage_options).whole("changing overlays")
        return list(source.paths), source.files.storage
    place = storage_of(source, storage, storage_options)
    return list(expand(source, place).paths), place


# -- writing --------------------------------------------------------------------------------------


_NOTHING = Changes()


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
    """
    storage = dataset.files.storage
    refuse_web_target(dataset.paths[0])
    _refuse_repeated(schema.names, changes, tuple(dataset.paths))
    known = [find(path, storage, dataset.options.limits) for path in dataset.paths]
    sequence = _sequence(known, name, overwrite)
    waiting: list[tuple[int, Sink]] = []
    num_records = num_bytes = 0
    try:
        for shard in range(len(dataset.paths)) if shards is None else shards:
            path = dataset.paths[shard]
            storage.make_folder(folder_of(path), like=path)
            old = {overlay.name: overlay for overlay in known[shard]}.get(name)
            is_replaced = overwrite or old is not None
            sink = sink_for(storage, path_of(path, name), path, overwrite=is_replaced)
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
    except BaseException:
        for shard, sink in waiting:
            sink.abort()
            storage.remove_empty_folder(folder_of(dataset.paths[shard]))
        raise
    made = tuple(path_of(path, name) for path in dataset.paths)
    return Summary(made, num_records, num_bytes)


def _refuse_repeated(names: list[str], changes: Changes, paths: tuple[str, ...]) -> None:
    if not (names or changes) or len(set(names)) < len(names):
        raise SchemaError("an overlay needs fields, each with a different name")
    if len(set(map(real_path, paths))) < len(paths):
        raise ValueError("the dataset contains a file twice, so it cannot have an overlay")


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

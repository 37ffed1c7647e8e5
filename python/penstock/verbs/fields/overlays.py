"""`overlays` and `remove_overlay`, and writing overlays for all shards of a dataset."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.contract.format import Summary
from penstock.datasets import dataset as datasets
from penstock.errors import ChangedError, SchemaError, UnsupportedError
from penstock.limits import limits_from
from penstock.overlay.file import Overlay, OverlayWriter, find, folder_of, name_in, path_of
from penstock.overlay.identity import Identity, identity_of
from penstock.storage.base import Sink
from penstock.storage.local import LocalStorage
from penstock.storage.local_sink import sync_path
from penstock.storage.paths import expand


@dataclass(frozen=True, slots=True)
class OverlayInfo:
    """Fields that are kept beside some shards. `shards` are the files that have them, of
    `num_shards`; of several overlays with the same field, that with the highest `sequence` counts."""

    name: str
    sequence: int
    fields: pa.Schema
    shards: tuple[str, ...]
    num_shards: int
    num_bytes: int


def overlays(source: Any) -> list[OverlayInfo]:
    """The overlays of some files, in the order in which they were made.

    Reads a few hundred bytes of each; whether they still fit their files is told by `verify`, and
    by `open`, which refuses those that do not.

    Args:
        source: a Dataset, or anything that `penstock.open` takes.

    Returns:
        A list of OverlayInfo.

    Raises:
        FormatError: a file among them is no overlay.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [1, 2, 3]}, "numbers.tfrecord", overwrite=True)
        >>> ps.overlays("numbers.tfrecord")
        []
    """
    paths, storage = _shards(source)
    limits = limits_from(None)
    found: dict[str, list[tuple[str, Overlay]]] = {}
    for path in paths:
        for overlay in find(path, storage, limits):
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
    )


def remove_overlay(source: Any, name: str) -> list[str]:
    """Remove an overlay from all shards that have it. Their own bytes are not touched.

    An overlay that is stale or damaged is removed as well. Where this is interrupted, some shards
    still have it, and the same call removes it from them.

    Args:
        source: a Dataset, or anything that `penstock.open` takes.
        name: the overlay's name, as `overlays` tells it.

    Returns:
        The files that were removed.

    Raises:
        ValueError: no shard has an overlay of this name; the message lists those there are.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [1, 2, 3]}, "numbers.tfrecord", overwrite=True)
        >>> ps.remove_overlay("numbers.tfrecord", "score")
        Traceback (most recent call last):
        ValueError: numbers.tfrecord has no overlay 'score'; there are: none
    """
    paths, storage = _shards(source)
    kept_at = [path_of(path, name) for path in paths]
    removed = [path for path in kept_at if os.path.lexists(path)]
    if not removed:
        # Not by opening them: one of them may be broken.
        listed = sorted({shown for path in paths for shown in _names(path, storage)})
        first = paths[0] if len(paths) == 1 else f"none of {len(paths)} files"
        raise ValueError(
            f"{first} has {'no' if len(paths) == 1 else 'an'} overlay {name!r}; there are: "
            f"{', '.join(listed) or 'none'}"
        )
    for path in removed:
        os.unlink(path)
        folder = os.path.dirname(path)
        # Else one that comes back after a power cut would lie beside a file that it does not fit by then.
        sync_path(storage.calls, folder)
        _remove_empty(folder)
    return removed


def remove_empty_folder(shard: str) -> None:
    """Remove the folder of a shard's overlays, if there are none in it."""
    _remove_empty(folder_of(shard))


def _remove_empty(folder: str) -> None:
    with suppress(OSError):  # there is none, or something is in it
        os.rmdir(folder)


def _names(shard: str, storage: LocalStorage) -> list[str]:
    with suppress(FileNotFoundError, NotADirectoryError):
        return [name_in(path) for path in storage.list(folder_of(shard))]
    return []


def _shards(source: Any) -> tuple[list[str], LocalStorage]:
    """The files that a source means. They need not be readable, let alone with their overlays."""
    if isinstance(source, datasets.Dataset):
        return list(source.paths), _local(source.files.storage)
    storage = LocalStorage()
    return expand(source, storage).paths, storage


def _local(storage: Any) -> LocalStorage:
    if not isinstance(storage, LocalStorage):
        raise UnsupportedError("overlays are kept beside local files only")
    return storage


# -- writing --------------------------------------------------------------------------------------


def write_overlay(
    dataset: datasets.Dataset,
    name: str,
    schema: pa.Schema,
    columns_of_shard: Callable[[int], Iterable[pa.RecordBatch]],
    *,
    overwrite: bool = False,
) -> Summary:
    """Keep fields beside every shard of a dataset.

    All files are written, and durable, before the first gets its name. Where the process dies
    while they get theirs, some shards have the overlay, `overlays` says which, and the same call
    finishes it: a file that is there already with the same bytes is left as it is.

    Args:
        dataset: the records. Its shards are identified, which builds missing indexes.
        name: the overlay's name.
        schema: the fields.
        columns_of_shard: gives the values of one shard's records as batches of the schema, of any
            length, in the order of the records.
        overwrite: replace an overlay of this name; it then counts as the latest.

    Raises:
        FileExistsError: there is an overlay of this name with other values.
        ValueError: a file stands twice in the dataset.
        SchemaError: the values do not fit the schema, or are more or fewer than the records.
    """
    if not schema.names or len(set(schema.names)) != len(schema.names):
        raise SchemaError("an overlay needs fields, each of another name")
    storage = _local(dataset.files.storage)
    if len({os.path.realpath(path) for path in dataset.paths}) < len(dataset.paths):
        raise ValueError("a file that stands twice in a dataset cannot have an overlay of it")
    limits = dataset.options.limits
    known = [find(path, storage, limits) for path in dataset.paths]
    sequence = _sequence(known, name, overwrite)
    waiting: list[tuple[int, Sink]] = []
    num_records = num_bytes = 0
    try:
        for shard, path in enumerate(dataset.paths):
            storage.make_folder(folder_of(path), like=path)
            there = next((o for o in known[shard] if o.name == name), None)
            replaced = there is not None
            kept_at = path_of(path, name)
            sink = storage.sink(kept_at, overwrite=overwrite or replaced, like=path)
            waiting.append((shard, sink))
            writer = OverlayWriter(sink, name, sequence, schema)
            for batch in columns_of_shard(shard):
                writer.write(batch)
            identity = identify(dataset, shard)
            writer.finish(identity)
            sink.finish()
            num_records += writer.num_records
            num_bytes += writer.num_bytes
            if there is not None and not overwrite:
                if there.digest != writer.digest:
                    raise FileExistsError(
                        f"{there.path} exists with other values; pass overwrite=True to replace it"
                    )
                waiting.pop()[1].abort()
        for _, sink in waiting:
            sink.commit()
    except BaseException:
        for shard, sink in waiting:
            sink.abort()
            with suppress(OSError):  # overlays are in it
                os.rmdir(folder_of(dataset.paths[shard]))
        raise
    made = tuple(path_of(path, name) for path in dataset.paths)
    return Summary(made, num_records, num_bytes)


def _sequence(known: list[list[Overlay]], name: str, overwrite: bool) -> int:
    """A number behind all others; that of an overlay which is to be finished, if there is one."""
    found = [overlay for overlays in known for overlay in overlays]
    mine = [overlay.sequence for overlay in found if overlay.name == name]
    if mine and not overwrite:
        return max(mine)
    return max((overlay.sequence for overlay in found), default=0) + 1


def identify(dataset: datasets.Dataset, shard: int) -> Identity:
    """Which state of a shard its dataset has open."""
    path, num_bytes = dataset.paths[shard], dataset.files.num_bytes(shard)
    source = dataset.files.storage.source(path)
    try:
        if source.size != num_bytes:
            message = "the file changed while values were made for it"
            raise ChangedError(message, file=path, expected=num_bytes, found=source.size)
        return identity_of(dataset.files.own(shard), source)
    finally:
        source.close()

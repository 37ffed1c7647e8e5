"""`manifest` lists the shards of a dataset in one file: sizes, states, record counts, and the fields of a record."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from penstock.contract.report import Finding, Report
from penstock.contract.summary import Summary
from penstock.datasets.dataset import Dataset
from penstock.datasets.files import Files
from penstock.datasets.open import open as open_dataset
from penstock.datasets.open_file import checksum_of
from penstock.datasets.tasks import ReadTask
from penstock.engine.pipeline import in_order
from penstock.errors import UnsupportedError, shown
from penstock.framing.index import sidecar
from penstock.framing.read.framed import FramedReader
from penstock.manifests.manifest import Manifest
from penstock.manifests.names import manifest_at, storage_of
from penstock.manifests.table import GROUP_SHARDS, stored_name
from penstock.storage import places
from penstock.storage.base import Storage
from penstock.storage.urls import refuse_web_target
from penstock.verbs.machines import all_done, run_on
from penstock.verbs.manifest._table import OldRows, Row, TableWriter
from penstock.verbs.progress import Progress


def manifest(
    source: Any,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    on: Any = None,
    storage: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    target_storage: Storage | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
) -> Summary:
    """List the shards of a dataset in one file, which `penstock.open` opens in their place.

    A dataset that is opened by its manifest costs no listing and no request for each shard: the sizes, the states, the
    record counts and the fields are in the manifest. If the manifest is there already, it is brought up to date: what
    is known of shards that did not change is kept, new shards are added, and shards that are gone are left out. If
    `source` is the manifest itself, its own shards are looked at again.

    Args:
        source: as for `open`, or a Dataset that `open` returned.
        path: the manifest, such as `train.manifest`. It is a Parquet file. Shards in its folder or below are named
            relative to it, so that all can be moved together.
        overwrite: make it anew, and replace any other file of this name.
        threads: the number of shards that are read at the same time; None for all cores, or more for an object store.
        progress: called with the records done, the bytes done, and the total bytes as estimated so far.
        on: where the shards are opened: None for this process, "ray", "ray://host:port" or a `penstock.ray.Cluster` for
            the machines of a cluster. A task opens one shard.
        storage: where the shards are. None for this machine, and for names such as s3://bucket/key.
        storage_options: as for `open`.
        target_storage: where the manifest is written; None as for `storage`.
        target_storage_options: as for `open`, for the manifest.

    Returns:
        The manifest, and the number of records and bytes of its shards. A note says how many shards were new, changed
        and gone.

    Raises:
        FileExistsError: there is another file of this name, and `overwrite` is False.
        UnsupportedError: the source is a view of some records, or has addresses with signatures.
        FormatError: a shard is damaged so that its records cannot be counted.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [1, 2, 3]}, "part.tfrecord", num_shards=2, overwrite=True)
        >>> ps.manifest("part-*.tfrecord", "part.manifest", overwrite=True).num_records
        3
        >>> ps.open("part.manifest")[2]
        {'id': 3}
    """
    target = os.fspath(path)
    refuse_web_target(target)
    there = places.storage_of(target, target_storage, target_storage_options)
    old = None if overwrite else _old(target, there)
    named = _opened(source, old, threads, storage, storage_options)
    files, hive = named.whole("manifest").files, named.files.hive
    work = _Work(files, target, OldRows(old))
    made = TableWriter(there.sink(target, overwrite=overwrite or old is not None))
    try:
        at_once = threads or files.storage.reads_at_once
        rows = in_order([work.shards], work.row, _none, at_once)
        for row in rows if on is None else work.rows_on(on, named, at_once):
            made.add(row)
            if progress is not None:
                total = made.num_bytes * len(files.paths) // made.num_shards
                progress(made.num_records, made.num_bytes, total)
        if isinstance(hive, str):
            hive = stored_name(f"{hive}_", target)[:-1]
        has_overlays = files.overlays is not None
        made.finish(target, files.schema, files.types, has_overlays=has_overlays, hive=hive)
    except BaseException:
        made.abort()
        raise
    notes = () if old is None else (work.note(old.num_shards),)
    return Summary((target,), made.num_records, made.num_bytes, notes)


def verify_manifest(
    path: str | os.PathLike[str],
    *,
    threads: int | None = None,
    storage: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Report:
    """Compare a manifest with its shards: none is missing, changed or listed twice. No data is read; `verify` reads all
    records of the shards that a manifest lists.

    Args:
        path: the manifest.
        threads: the number of shards that are examined at the same time.
        storage: where the manifest and the shards are; None as for `open`.
        storage_options: as for `open`.

    Returns:
        A report. Its findings have the kinds "missing", "changed" and "listed_twice".

    Raises:
        FormatError: the file is not a manifest, or what it says is impossible.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [1, 2, 3]}, "part.tfrecord", num_shards=2, overwrite=True)
        >>> _ = ps.manifest("part-*.tfrecord", "part.manifest", overwrite=True)
        >>> ps.verify_manifest("part.manifest").ok
        True
    """
    name = os.fspath(path)
    place = storage_of(name, storage, storage_options)
    listed = Manifest(name, place)
    findings: list[Finding] = []
    num_records = num_bytes = 0
    seen: set[str] = set()
    for number, batch in enumerate(listed.groups()):
        shards = range(batch.num_rows)
        paths = batch.column("path").to_pylist()
        first = listed.first_shard(number)
        place.will_ask_states(paths)

        def fault(shard: int, first: int = first, paths: list[str] = paths) -> Iterator[Any]:
            yield _fault(listed, first + shard, paths[shard])

        at_once = threads or place.reads_at_once
        for shard, found in enumerate(in_order([lambda s=shards: iter(s)], fault, _none, at_once)):
            if paths[shard] in seen:
                found = "listed_twice", "the manifest lists this shard twice"
            seen.add(paths[shard])
            if found is None:
                num_records += batch.column("records")[shard].as_py()
                num_bytes += batch.column("bytes")[shard].as_py()
                continue
            size = batch.column("bytes")[shard].as_py()
            lost = batch.column("records")[shard].as_py()
            findings.append(Finding(found[0], shown(paths[shard]), None, 0, size, found[1], lost))
    return Report(num_records, tuple(findings), num_bytes, (name,))


def _fault(listed: Manifest, shard: int, path: str) -> tuple[str, str] | None:
    """The kind and the message of what is wrong with a shard, if anything is."""
    try:
        now = listed.storage.file_state(path)
    except FileNotFoundError:
        return "missing", "the manifest lists this shard, and it does not exist"
    if listed.listed(range(shard, shard + 1))[0].state.fits(now):
        return None
    return "changed", "the shard was changed since the manifest was made"


def _none(row: Any) -> int:
    del row
    return 0


def _old(target: str, storage: Storage) -> Manifest | None:
    """The manifest that is there already. Raises FileExistsError if there is another file of this name."""
    found = manifest_at(target, storage)
    if found is None and storage.exists(target):
        raise FileExistsError(
            errno.EEXIST,
            "the file exists and is no manifest; pass overwrite=True to replace it",
            shown(target),
        )
    return found


def _opened(
    source: Any,
    old: Manifest | None,
    threads: int | None,
    storage: Storage | None,
    options: Mapping[str, Any] | None,
) -> Dataset:
    """The dataset to list. If the source is the old manifest, it is opened by the names of the shards that are still
    there, because those that changed could not be opened through it."""
    if isinstance(source, Dataset):
        if source.options.raw or source.columns is not None:
            raise UnsupportedError(
                "a manifest lists whole shards, and this dataset has only some of their columns",
                hint="open the data without columns= and raw=True",
            )
        # Who opens the manifest does not have the caller's folder of overlays.
        return source if source.files.overlay_folder is None else source.reopened(overlays=True)
    if old is not None and _is_name(source) and os.fspath(source) == old.path:
        place = storage_of(source, storage, options)
        for batch in old.groups():
            place.will_ask_states(batch.column("path").to_pylist())
        there = in_order([lambda: iter(old.paths)], partial(_there, place), _none, threads)
        source = [path for path in there if path is not None]
        if not source:
            raise FileNotFoundError(errno.ENOENT, "none of its shards exists", shown(old.path))
        return open_dataset(source, storage=place)
    return open_dataset(source, storage=storage, storage_options=options)


def _is_name(source: Any) -> bool:
    return isinstance(source, (str, os.PathLike))


def _there(storage: Storage, path: str) -> Iterator[str | None]:
    try:
        storage.file_state(path)
    except FileNotFoundError:
        yield None
    else:
        yield path


def _row(files: Files, number: int, name: str, target: str) -> Row:
    """What the manifest says of a shard that is opened."""
    path = files.paths[number]
    with files.once(number) as opened:
        own, source = opened.own, opened.source
        records, checksum = own.num_records, checksum_of(own)
        source.check_unchanged(may_grow=False)
        beside = sidecar.path_for(path, None)
        has_index = isinstance(own, FramedReader) and files.storage.exists(beside)
        index = stored_name(beside, target) if has_index else None
        return Row(name, opened.format.info.name, records, source.file_state(), checksum, index)


def _row_of(target: str, shard: tuple[str, ReadTask]) -> Row:
    """The same in the task of one shard."""
    name, task = shard
    return _row(task.files(), 0, name, target)


class _Work:
    """Finds what a manifest says of each shard. What the old manifest says of an unchanged shard is kept."""

    def __init__(self, files: Files, target: str, old: OldRows) -> None:
        self._files = files
        self._target = target
        self._old = old
        self._new: list[str] = []
        self._changed: list[str] = []
        self._num_known = 0

    def shards(self) -> Iterator[tuple[int, str, Row | None]]:
        """The shards, with their names in the manifest and their old rows."""
        first, group = 0, list[str]()
        for path in self._files.paths:
            group.append(stored_name(path, self._target))
            if len(group) == GROUP_SHARDS:
                yield from self._with_old(first, group)
                first, group = first + len(group), []
        yield from self._with_old(first, group)

    def _with_old(self, first: int, names: list[str]) -> Iterator[tuple[int, str, Row | None]]:
        for place, old in enumerate(self._old.of(names)):
            self._num_known += old is not None
            yield first + place, names[place], old

    def row(self, shard: tuple[int, str, Row | None]) -> Iterator[Row]:
        """The row of a shard. It is opened only if it is new or changed."""
        known = self._known(shard)
        yield _row(self._files, shard[0], shard[1], self._target) if known is None else known

    def _known(self, shard: tuple[int, str, Row | None]) -> Row | None:
        """The old row of a shard that did not change; else None."""
        number, _, old = shard
        path = self._files.paths[number]
        if old is not None and old.state.fits(self._files.storage.file_state(path)):
            return old
        (self._new if old is None else self._changed).append(path)
        return None

    def rows_on(self, on: Any, dataset: Dataset, at_once: int | None) -> Iterator[Row]:
        """The rows of all shards, in order. Those that are new or changed are opened on a cluster."""

        def known(shard: tuple[int, str, Row | None]) -> Iterator[tuple[str, Row | None]]:
            yield shard[1], self._known(shard)

        rows = list(in_order([self.shards], known, _none, at_once))
        asked = [number for number, (_, row) in enumerate(rows) if row is None]
        tasks = dataset.file_tasks(asked)
        names = [self._files.paths[number] for number in asked]
        places = self._files.storage, [*names, self._target]
        work = partial(_row_of, self._target)
        pairs = [(rows[number][0], task) for number, task in zip(asked, tasks, strict=True)]
        made = iter(all_done(run_on(on, work, pairs, places), names, lambda _, row: None))
        for _, row in rows:
            yield next(made) if row is None else row

    def note(self, num_old: int) -> str:
        """What is different from the old manifest."""
        gone = num_old - self._num_known
        parts = [f"{len(self._new)} new", f"{len(self._changed)} changed", f"{gone} gone"]
        return f"shards: {', '.join(parts)}, {self._num_known - len(self._changed)} as before"

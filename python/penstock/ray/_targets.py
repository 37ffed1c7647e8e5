"""Where the tasks of `write` put their shards, and how all shards get their names after the last task.

A task may run several times, even at the same time. Each run is an attempt, and the driver publishes what those attempts
wrote whose results it got:

- On a file system, attempts write to a hidden folder beside the target. At the end, the driver gives these files their
  names by the journal of a conversion, and removes the folder. An attempt that still runs has no folder left to write to.
- A store renames nothing, so objects have their final names from the start: those of a task have its number and a token
  of the call. So a later attempt replaces the objects of an earlier one, and the driver removes what no result names.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.contract.format import Format
from penstock.errors import PenstockError, StorageError, UnsupportedError, shown
from penstock.framing.format import FramedFormat
from penstock.framing.index import sidecar
from penstock.storage.base import Storage
from penstock.storage.folder import remove
from penstock.storage.hidden import SIDECAR_SUFFIX
from penstock.storage.local_sink import temporary_beside
from penstock.verbs.check import textindex
from penstock.verbs.convert.journal import Journal, alone_at
from penstock.verbs.write.names import SHARD_PATTERN, Names
from penstock.verbs.write.write import drop_old_indexes, write


@dataclass(frozen=True)
class Written:
    """What an attempt of a task wrote."""

    task: int
    paths: tuple[str, ...]
    num_records: int
    num_bytes: int
    notes: tuple[str, ...]
    schema: pa.Schema


class Target(ABC):
    """A set of shards that is written. It is pickled, and each task writes through a copy of it.

    Args:
        path: as for `penstock.write`.
        kind: the format.
        storage: where it is.
        how: the other arguments of `penstock.write`.
    """

    def __init__(self, path: str, kind: Format, storage: Storage, how: dict[str, Any]) -> None:
        self.path = path
        self.kind = kind
        self._how = how
        self._index: bool | str = how["index"]
        self._folder = os.path.dirname(path)
        self._names = Names(path, kind.info.extensions, is_sharded=True, total=None)
        self._storage = storage
        self._token = os.urandom(4).hex()
        self._old = [p for p in self._there() if self._names.is_shard(os.path.basename(p))]
        self._storage = storage.no_more_open_than(self._old)

    def refuse_existing(self) -> None:
        """Raise FileExistsError if there are shards that the new ones would replace."""
        if self._old:
            name = shown(self._old[0])
            raise FileExistsError(f"{name} exists; pass overwrite=True to replace the set")

    @abstractmethod
    def _there(self) -> list[str]:
        """All files in the folder that may be shards."""

    @abstractmethod
    def attempts(self) -> AbstractContextManager[None]:
        """Surrounds all attempts and `publish`. Attempts that were not published are removed at the end."""

    @abstractmethod
    def _pattern(self, task: int) -> str:
        """The names of what a new attempt writes."""

    @abstractmethod
    def publish(self, found: Sequence[Written], *, overwrite: bool) -> list[str]:
        """Give the shards their names, in this order, and return the names. Remove other attempts and old shards."""

    @abstractmethod
    def _remove(self, path: str) -> None:
        """Remove a shard or something that belongs to one."""

    def write(
        self, task: int, schema: pa.Schema, batches: Callable[[], Iterable[pa.RecordBatch]]
    ) -> Written:
        """Write the records of a task. This runs on a worker."""
        data = pa.RecordBatchReader.from_batches(schema, batches())
        how: dict[str, Any] = {**self._how, "overwrite": True, "storage": self._storage}
        try:
            made = write(data, self._pattern(task), **how)
        except PenstockError as error:
            if error.file is not None:
                error.file = shown(self.path)  # the names of attempts mean nothing to the caller
            raise
        return Written(task, made.paths, made.num_records, made.num_bytes, made.notes, schema)

    def _remove_old(self, finals: Iterable[str]) -> None:
        """Remove the shards of the set that was there before, with all that belongs to them."""
        gone = set(self._old).difference(finals)
        if not gone:
            return
        stems = tuple(f".{os.path.basename(path)}{SIDECAR_SUFFIX}" for path in gone)
        own = self._storage.own_files(self._folder)
        beside = [path for path in own if os.path.basename(path).startswith(stems)]
        if isinstance(self.kind, FramedFormat) and self.kind.text_index is not None:
            texts = map(self.kind.text_index.path_for, gone)
            beside += [path for path in texts if self._storage.exists(path)]
        if isinstance(self._index, str):
            beside += [sidecar.path_for(path, self._index) for path in gone]
        for path in (*sorted(gone), *beside):
            self._remove(path)


class _Published(Journal):
    """The journal of shards that tasks have written to a folder of their own."""

    places: Sequence[str] = ()

    def part_path(self, number: int) -> str:
        return self.places[number]


class FolderTarget(Target):
    """A set of shards on a file system."""

    def __init__(self, path: str, kind: Format, storage: Storage, how: dict[str, Any]) -> None:
        super().__init__(path, kind, storage, how)
        self._job = os.path.abspath(temporary_beside(path))

    def _there(self) -> list[str]:
        with suppress(FileNotFoundError):  # `attempts` says so
            return [os.path.join(self._folder, name) for name in os.listdir(self._folder or ".")]
        return []

    @contextmanager
    def attempts(self) -> Generator[None]:
        with alone_at(self.path, self._folder):
            os.mkdir(self._job, 0o700)
            try:
                yield
            finally:
                self._remove_job()

    def _remove_job(self) -> None:
        for _ in range(100):  # an attempt may still create files
            with suppress(OSError):
                remove(self._job)
            if not os.path.exists(self._job):
                return

    def _pattern(self, task: int) -> str:
        return os.path.join(self._job, f"{task:06d}-{os.urandom(4).hex()}-{{shard:05d}}")

    def publish(self, found: Sequence[Written], *, overwrite: bool) -> list[str]:
        parts = [(path, one.notes) for one in found for path in one.paths]
        finals = [self._names.final(number, len(parts)) for number in range(len(parts))]
        if len(set(finals)) < len(finals):
            raise ValueError(f"{len(finals)} shards, but the pattern makes one name for several")
        folder = None if isinstance(self._index, bool) else self._index
        text = self.kind.text_index if isinstance(self.kind, FramedFormat) else None
        journal = _Published(self.path, self._folder, self._token, folder, self._storage, text)
        journal.places = [path for path, _ in parts]
        for number, (path, notes) in enumerate(parts):
            journal.add(number, self._storage.num_bytes(path), notes)
        if overwrite:
            self._drop_indexes(journal.places, finals)
        journal.publish(finals, overwrite=overwrite)
        self._remove_old(finals)
        return finals

    def _remove(self, path: str) -> None:
        self._storage.give_up(path)

    def _drop_indexes(self, places: Sequence[str], finals: list[str]) -> None:
        drop_old_indexes(finals, self._storage, self._index, overwrite=True)
        for place, final in zip(places, finals, strict=True):
            text = textindex.kept(self.kind, final, self._storage)
            if text is not None and not os.path.exists(text.path_for(place)):
                textindex.drop(text, final, self._storage)


class StoreTarget(Target):
    """A set of objects."""

    def __init__(self, path: str, kind: Format, storage: Storage, how: dict[str, Any]) -> None:
        if SHARD_PATTERN.search(os.path.basename(path)):
            raise UnsupportedError(
                "objects are named by the tasks that write them, so the name has no {shard}",
                file=shown(path),
                hint="leave out {shard}: x.tfrecord becomes x-<token>-<task>.tfrecord",
            )
        super().__init__(path, kind, storage, how)

    def _there(self) -> list[str]:
        return self._storage.list(self._folder)

    @contextmanager
    def attempts(self) -> Generator[None]:
        try:
            yield
        except BaseException:
            with suppress(StorageError):  # of which the caller knows another one
                self._remove_but(())
            raise

    def _pattern(self, task: int) -> str:
        is_cut = self._how["shard_records"] is not None or self._how["shard_bytes"] is not None
        return self._names.of_task(self._token, task, is_cut=is_cut)

    def publish(self, found: Sequence[Written], *, overwrite: bool) -> list[str]:
        del overwrite  # nobody else has this token
        finals = [path for one in found for path in one.paths]
        lost = set(finals).difference(self._there())
        if lost:
            raise StorageError("the object was written, but is not there", file=shown(min(lost)))
        self._remove_but(finals)
        self._remove_old(finals)
        return finals

    def _remove(self, path: str) -> None:
        self._storage.remove(path)

    def _remove_but(self, finals: Iterable[str]) -> None:
        """Remove the objects and uploads of this call, but these."""
        stem = os.path.basename(self._pattern(0).partition(f"-{self._token}-")[0])
        begin = f"{stem}-{self._token}-"
        kept = set(finals)
        for path in self._there():
            if os.path.basename(path).startswith(begin) and path not in kept:
                self._storage.remove(path)
        names = tuple(f".{os.path.basename(path)}{SIDECAR_SUFFIX}" for path in kept)
        for path in self._storage.own_files(self._folder):
            name = os.path.basename(path)
            is_sidecar = name.endswith(SIDECAR_SUFFIX)
            if name.startswith(f".{begin}") and not (is_sidecar and name.startswith(names)):
                # What is not a sidecar is the note of an upload that an attempt did not end.
                (self._storage.remove if is_sidecar else self._storage.give_up)(path)

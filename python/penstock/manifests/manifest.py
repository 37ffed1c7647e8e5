"""An open manifest: the shards of a dataset, read by group, so that a million of them cost no more than are touched."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, SupportsIndex, overload

import numpy as np
import pyarrow as pa

from penstock import _core, formats
from penstock.columns.numbers import as_numpy
from penstock.contract.format import Chunk, Options
from penstock.engine.locks import Lock
from penstock.errors import ChangedError, FormatError, command, shown
from penstock.limits import MIB, Limits
from penstock.manifests.table import (
    SCHEMA,
    Footer,
    Group,
    check_group,
    digest_of_place,
    footer_of,
    is_absolute,
    text_scalar,
)
from penstock.storage.base import FileState, Source, Storage
from penstock.storage.manifest_mark import KEY, MOST_FOOTER_BYTES, marked_footer
from penstock.storage.source_views import SourceView
from penstock.storage.urls import is_web

_LIMITS = Limits(
    record_bytes=256 * MIB, batch_bytes=256 * MIB, footer_bytes=MOST_FOOTER_BYTES, nesting=2
)
_KEPT_BYTES = 128 * MIB
"""Groups that were read are kept up to this size."""
_MOST_PARTS = 1 << 21
_FORMAT = "parquet"


class Listed(NamedTuple):
    """A shard, the state in which it must be, and its records, unless these are not counted."""

    path: str
    state: FileState
    num_records: int | None


class NoManifestError(FormatError):
    """The file is a table of another kind."""


class Manifest:
    """An open manifest. Safe to share between threads.

    Args:
        path: the manifest.
        storage: where it is, and where its shards are opened.
        digest: the digest of the facts in its footer, if it was open before.

    Raises:
        FormatError: it is not a manifest, or what it says is impossible.
        ChangedError: it is not the one that was open before.
    """

    def __init__(self, path: str, storage: Storage, digest: bytes | None = None) -> None:
        self.path = path
        self.storage = storage
        source = storage.source(path)
        try:
            footer = marked_footer(source)
            if footer is None:
                raise NoManifestError("this is not a manifest of penstock", file=shown(path))
            if source.storage is not None:
                source = _WithFooter(source, footer)
            self._reader = formats.by_name(_FORMAT).open(
                source, Options(limits=_LIMITS, as_table=True)
            )
        except BaseException:
            source.close()
            raise
        metadata = dict(self._reader.schema.metadata or {})
        if KEY not in metadata:
            raise NoManifestError("this is not a manifest of penstock", file=shown(path))
        self.digest = _digest(metadata[KEY])
        if digest is not None and digest != self.digest:
            raise ChangedError(
                "the manifest was changed since the data was opened",
                file=shown(path),
                hint="open the data again",
            )
        if not self._reader.schema.remove_metadata().equals(SCHEMA):
            raise FormatError("the columns are not those of a manifest", file=shown(path))
        self.footer: Footer = footer_of(metadata[KEY], path)
        self._chunks: list[Chunk[Any]] = list(self._reader.chunks())
        if len(self._chunks) != len(self.footer.records) or not self._chunks:
            raise FormatError(
                "the manifest has another number of row groups than its footer says",
                file=shown(path),
                expected=len(self.footer.records),
                found=len(self._chunks),
            )
        self._shards = _starts([chunk.num_records for chunk in self._chunks])
        self._records = _starts(self.footer.records)
        self.is_moved = digest_of_place(path) != self.footer.place
        """Whether it lies elsewhere than where it was written, so that the states of its shards say nothing."""
        self._groups: OrderedDict[int, Group] = OrderedDict()
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        path = self.path if "://" in self.path else os.path.abspath(self.path)
        return Manifest, (path, self.storage, self.digest)

    @property
    def num_shards(self) -> int:
        return int(self._shards[-1])

    @property
    def num_records(self) -> int:
        return int(self._records[-1])

    @property
    def hive(self) -> bool | str:
        """`hive=` of the dataset that was listed."""
        hive = self.footer.hive
        return self._name(hive) if isinstance(hive, str) else hive

    @property
    def paths(self) -> Paths:
        """The names of the shards. They are read when they are needed."""
        return Paths(self)

    def groups(self) -> Iterator[pa.RecordBatch]:
        """Yield the table of the shards by row group, in order, with their full names: the columns of SCHEMA. For plans
        over all shards. 16,384 shards take about 2 MB."""
        for batch in self.stored():
            for name in ("path", "index"):
                place = SCHEMA.get_field_index(name)
                batch = batch.set_column(place, SCHEMA.field(name), self._full(batch.column(place)))
            yield batch

    def first_shard(self, group: int) -> int:
        """The number of the first shard of a row group."""
        return int(self._shards[group])

    def stored(self) -> Iterator[pa.RecordBatch]:
        """Yield the table as it is stored, by row group."""
        for number in range(len(self._chunks)):
            yield self._read(number).batch

    def locate(self, records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The shard of each record, and the record's number in that shard. Reads only the groups with these records."""
        groups = np.searchsorted(self._records, records, "right") - 1
        shards, local = np.empty_like(groups), np.empty_like(records)
        for number in np.unique(groups).tolist():
            group, chosen = self._group(number), groups == number
            places = np.searchsorted(group.firsts, records[chosen], "right") - 1
            shards[chosen] = group.first_shard + places
            local[chosen] = records[chosen] - group.firsts[places]
        return shards, local

    @property
    def firsts(self) -> np.ndarray:
        """The number of each shard's first record, then the number of all records: int64[shards + 1]."""
        firsts = [as_numpy(batch.column("first_record")) for batch in self.stored()]
        return np.concatenate([*firsts, self._records[-1:]])

    def parts(self, part_bytes: int) -> np.ndarray:
        """The records of each part, if each shard is divided into equal parts of about `part_bytes`, or of more if there
        would be more than two million parts."""
        sizes = np.concatenate([as_numpy(batch.column("bytes")) for batch in self.stored()])
        records = np.concatenate([as_numpy(batch.column("records")) for batch in self.stored()])
        least = int(sizes.sum(dtype=np.float64)) // _MOST_PARTS
        counts = np.clip(
            sizes // max(part_bytes, least), 1, records
        )  # none in a shard without records
        base, longer = np.divmod(records, np.maximum(counts, 1))
        number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(base, counts) + (number < np.repeat(longer, counts))

    def value(self, shard: int, name: str) -> Any:
        """One value of a shard."""
        number = int(np.searchsorted(self._shards, shard, "right")) - 1
        group = self._group(number)
        return group.column(name)[shard - group.first_shard].as_py()

    def name(self, shard: int) -> str:
        """The path of a shard."""
        return self._name(self.value(shard, "path"))

    def state(self, shard: int) -> FileState:
        """The state of a shard when the manifest was made."""
        return FileState(
            *(self.value(shard, name) for name in ("bytes", "etag", "version", "modified_ns"))
        )

    def listed(self, shards: range) -> list[Listed]:
        """What is known of some consecutive shards, with the states in which they must be. Of a shard that was moved with
        the manifest, only the size is known."""
        found: list[Listed] = []
        at = shards.start
        while at < shards.stop:
            group = self._group(int(np.searchsorted(self._shards, at, "right")) - 1)
            count = min(shards.stop - at, group.batch.num_rows - (at - group.first_shard))
            rows = group.batch.slice(at - group.first_shard, count)
            names = ["path", "records", "bytes", "etag", "version", "modified_ns"]
            for stored, records, size, *signs in zip(*_lists(rows, names), strict=True):
                path = self._name(stored)
                is_moved = self.is_moved and path != stored
                state = FileState(size) if is_moved else FileState(size, *signs)
                found.append(Listed(path, state, records))
            at += count
        return found

    def open(self, shard: int, *, mmap: bool = False) -> Source:
        """Open a shard, in the state that is listed. If the manifest was moved, only the size is compared.

        Raises:
            ChangedError: the shard was changed since the manifest was made.
        """
        path, state, _ = self.listed(range(shard, shard + 1))[0]
        try:
            return self.storage.pinned(path, state, mmap=mmap)
        except (ChangedError, FileNotFoundError) as error:
            what = "changed" if isinstance(error, ChangedError) else "removed"
            raise ChangedError(
                f"the shard was {what} since the manifest {shown(self.path)} was made",
                file=shown(path),
                hint=f"{command('penstock', 'manifest', shown(self.path), '--refresh')}, which lists it as it is now",
            ) from None

    def close(self) -> None:
        self._reader.close()

    # -- groups ---------------------------------------------------------------------------------

    def _group(self, number: int) -> Group:
        with self._lock:
            if (found := self._groups.get(number)) is not None:
                self._groups.move_to_end(number)
                return found
            found = self._groups[number] = self._read(number)
            kept = sum(group.batch.nbytes for group in self._groups.values())
            while kept > _KEPT_BYTES and len(self._groups) > 1:
                kept -= self._groups.popitem(last=False)[1].batch.nbytes
            return found

    def _read(self, number: int) -> Group:
        batch = self._reader.decode(self._chunks[number], None, None)
        check_group(batch, int(self._records[number]), self.footer.records[number], self.path)
        return Group(int(self._shards[number]), batch)

    def _name(self, stored: str) -> str:
        if stored.startswith("/") or "://" in stored:
            return stored
        return self._folder + stored

    @property
    def _folder(self) -> str:
        path = self.path.partition("?")[0] if is_web(self.path) else self.path
        return os.path.join(os.path.dirname(path), "")

    def _full(self, paths: Any) -> Any:
        import pyarrow.compute as pc  # slow to import

        folder, nothing = text_scalar(self._folder), text_scalar("")
        joined: Any = pc.binary_join_element_wise(folder, paths, nothing)
        return pc.if_else(is_absolute(paths), paths, joined)


class Paths(Sequence[str]):
    """The names of the shards of a manifest, in order."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest

    def __reduce__(self) -> tuple[Any, ...]:
        return Paths, (self.manifest,)

    def __len__(self) -> int:
        return self.manifest.num_shards

    @overload
    def __getitem__(self, key: SupportsIndex) -> str: ...

    @overload
    def __getitem__(self, key: slice) -> list[str]: ...

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return [self.manifest.name(shard) for shard in range(*key.indices(len(self)))]
        return self.manifest.name(range(len(self))[key])

    def __iter__(self) -> Iterator[str]:
        for batch in self.manifest.groups():
            yield from batch.column("path").to_pylist()


class _WithFooter(SourceView):
    """A manifest in a store, whose footer was read already."""

    def __init__(self, source: Source, footer: Any) -> None:
        super().__init__(source)
        self._footer = footer
        self._start = source.size - len(footer)

    def read(self, start: int, length: int) -> Any:
        inside = start - self._start
        if inside >= 0:
            return self._footer.slice(inside, max(min(length, len(self._footer) - inside), 0))
        if start + length == self.size:  # a reader that does not know the length of the footer
            return _core.Buffer.join([self._source.read(start, -inside), self._footer])
        return self._source.read(start, length)


def _lists(batch: pa.RecordBatch, names: list[str]) -> list[list[Any]]:
    return [column.to_pylist() for column in batch.select(names).columns]


def _starts(counts: Sequence[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.asarray(counts, np.int64))]).astype(np.int64)


def _digest(text: bytes) -> bytes:
    import hashlib  # costs 3 ms at import, and is rarely needed

    return hashlib.blake2b(text, digest_size=16).digest()

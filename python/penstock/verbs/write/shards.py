"""Shards that are being written: where each shard ends, and the commit of all of them or none.

All shards are finished before the first gets its name, so an error leaves only the files that existed before.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.contract.format import Format, Writer, notes_of
from penstock.contract.summary import Summary
from penstock.errors import SchemaError
from penstock.framing.index import ahead, positions, sidecar
from penstock.framing.index.ahead import Ahead
from penstock.framing.index.kept_schema import finished, index_of_others
from penstock.framing.index.sidecar import Index
from penstock.framing.index.text import TextIndex
from penstock.framing.write.writer import FramedWriter
from penstock.storage.base import Sink, Storage
from penstock.storage.local import LocalStorage, sink_for
from penstock.storage.local_sink import LocalSink
from penstock.verbs.check import textindex
from penstock.verbs.write.incoming import Incoming
from penstock.verbs.write.names import Names

Progress = Callable[[int, "int | None"], None]
"""Called now and then with the records written so far, and the total or None if it is unknown."""


@dataclass(slots=True)
class NewShard:
    """One file that is being written."""

    sink: Sink
    writer: Writer
    text: tuple[TextIndex, Sink] | None = None
    """The text index that is published with the file, if any."""
    ahead: Ahead | None = None
    """The sidecar written to disk before the file gets its name."""
    has_index: bool = False
    """Whether writing a sidecar ahead of the file was attempted."""
    num_records: int = 0
    num_bytes: int = 0


class Shards:
    """The shards of one call. At most one is open; the others wait for the commit."""

    def __init__(
        self,
        create: Callable[[int], NewShard],
        progress: Progress | None,
        total: int | None,
    ) -> None:
        self._create = create
        self._progress = progress
        self._total_records = total
        self._finished_records = 0
        self._shards: list[NewShard] = []
        self._open: NewShard | None = None

    @property
    def num_shards(self) -> int:
        return len(self._shards)

    def current(self) -> NewShard:
        """Return the open shard. The first shard is created on demand."""
        return self._open or self.start()

    def start(self) -> NewShard:
        """Finish the open shard, start the next one, and return it."""
        self.finish()
        self._open = self._create(len(self._shards))
        self._shards.append(self._open)
        return self._open

    def write(self, batch: pa.RecordBatch) -> None:
        shard = self.current()
        with self._counted_from_the_first():
            shard.writer.write(batch)
        shard.num_records += batch.num_rows
        if self._progress is not None:
            self._progress(self._finished_records + shard.num_records, self._total_records)

    def finish(self) -> None:
        """Finish the open shard. Its bytes are then on disk, but under a temporary name."""
        shard, self._open = self._open, None
        if shard is None:
            return
        with self._counted_from_the_first():
            shard.writer.close()
        shard.sink.finish()
        if shard.text is not None and isinstance(shard.writer, FramedWriter):
            text, sink = shard.text
            textindex.fill(text, shard.writer.index(), sink)
            sink.finish()
        shard.num_bytes = shard.writer.num_bytes
        self._finished_records += shard.num_records

    @contextmanager
    def _counted_from_the_first(self) -> Generator[None, None, None]:
        """Make record numbers in errors count over all shards. A writer counts the records of one shard only."""
        try:
            yield
        except SchemaError as error:
            if error.record is not None:
                error.record += self._finished_records
            raise

    def commit(
        self,
        kind: Format,
        names: Names,
        storage: Storage,
        index: bool | str,
        *,
        overwrite: bool,
        schema: bytes = b"",
    ) -> Summary:
        """Give all shards their names, in order, and write their indexes, which store `schema`. Indexes are written
        first, so that a kill leaves no file without its index. Text indexes of replaced files are replaced, too."""
        total = len(self._shards)
        paths = [names.final(number, total) for number in range(total)]
        if len(set(paths)) < total:
            raise ValueError(f"{total} shards, but the pattern makes {len(set(paths))} names")
        pairs = list(zip(self._shards, paths, strict=True))
        for shard, path in pairs:
            if overwrite:
                shard.text = shard.text or _text_instead(kind, shard.writer, path, storage)
            else:
                _refuse_existing(shard, path, storage)
        folder = None if index is True else str(index)
        indexed = [] if index is False else pairs
        for shard, path in indexed:
            _save_ahead(shard, path, storage, folder, kind, finished(kind, schema, shard.writer))
        for shard, path in pairs:
            _commit(shard, path)
        self._shards = []
        for shard, path in indexed:
            _save_index(shard, path, storage, folder, kind, finished(kind, schema, shard.writer))
        return names.noted(_summary([shard for shard, _ in pairs], paths))

    def abort(self) -> None:
        for shard in self._shards:
            try:
                _give_up(shard.writer, shard.sink)
            finally:
                if shard.ahead is not None:
                    with suppress(OSError):
                        shard.ahead.end()
                if shard.text is not None:
                    shard.text[1].abort()


def new_shard(
    sink: Sink, new_writer: Callable[[], Writer], storage: Storage, *, overwrite: bool
) -> NewShard:
    """Return a shard with its writer. On an error, all its files are removed."""
    writer = None
    try:
        writer = new_writer()
        return NewShard(sink, writer, _text_sink(writer, sink.path, storage, overwrite=overwrite))
    except BaseException:
        _give_up(writer, sink)
        raise


def _give_up(writer: Writer | None, sink: Sink) -> None:
    try:
        if writer is not None:
            writer.abort()
    finally:
        sink.abort()


def _summary(shards: list[NewShard], paths: list[str]) -> Summary:
    num_records = sum(shard.num_records for shard in shards)
    num_bytes = sum(shard.num_bytes for shard in shards)
    notes = notes_of([shard.writer for shard in shards])
    return Summary(tuple(paths), num_records, num_bytes, notes)


def _refuse_existing(shard: NewShard, path: str, storage: Storage) -> None:
    beside = [] if shard.text is None else [shard.text[0].path_for(path)]
    for name in [path, *beside]:
        if storage.exists(name):
            raise FileExistsError(f"{name} exists; pass overwrite=True to replace it")


def _commit(shard: NewShard, path: str) -> None:
    shard.sink.commit(path if path != shard.sink.path else None)
    try:
        if shard.ahead is not None:
            shard.ahead.end()
    except OSError as error:
        _warn_of_no_index(path, error)
    if shard.text is not None:
        text, sink = shard.text
        beside = text.path_for(path)
        sink.commit(beside if beside != sink.path else None)


def _text_sink(
    writer: Writer, path: str, storage: Storage, *, overwrite: bool
) -> tuple[TextIndex, Sink] | None:
    kind = writer.text_index if isinstance(writer, FramedWriter) else None
    if kind is None:
        return None
    return kind, sink_for(storage, kind.path_for(path), path, overwrite=overwrite)


def _text_instead(
    kind: Format, writer: Writer, path: str, storage: Storage
) -> tuple[TextIndex, Sink] | None:
    """Return a finished text index to replace the text index of a file that is being replaced. If the new file cannot
    have one, remove the old one now, so that no reader uses it with the new file."""
    text = textindex.kept(kind, path, storage)
    if text is None:
        return None
    index = writer.index() if isinstance(writer, FramedWriter) else None
    if index is None or index.compression:
        textindex.drop(text, path, storage)
        return None
    sink = sink_for(storage, text.path_for(path), path)
    try:
        textindex.fill(text, index, sink)
        sink.finish()
    except BaseException:
        sink.abort()
        raise
    return text, sink


def _save_ahead(
    shard: NewShard, path: str, storage: Storage, folder: str | None, kind: Format, schema: bytes
) -> None:
    """Write the index of a complete local file before the file gets its name."""
    sink = shard.sink
    if not (isinstance(storage, LocalStorage) and isinstance(sink, LocalSink)):
        return
    try:
        index = index_of(kind, shard.writer, sink.temporary, storage, schema)
        if index is not None:
            shard.has_index = True
            shard.ahead = ahead.save(index, sink.temporary, path, storage, folder)
    except OSError as error:
        _warn_of_no_index(path, error)


def _warn_of_no_index(path: str, error: OSError) -> None:
    warnings.warn(f"{path} is written, but its index is not: {error}", stacklevel=5)


def _save_index(
    shard: NewShard, path: str, storage: Storage, folder: str | None, kind: Format, schema: bytes
) -> None:
    """Write the index of a file that already has its name, or remove the old file's index."""
    if shard.has_index:
        return
    try:
        index = index_of(kind, shard.writer, path, storage, schema)
        if index is not None:
            sidecar.save(index, path, storage, folder)
        elif isinstance(storage, LocalStorage):
            sidecar.discard(path)
    except OSError as error:
        _warn_of_no_index(path, error)


def index_of(
    kind: Format, writer: Writer, path: str, storage: Storage, schema: bytes
) -> Index | None:
    """Return the index of a written file, or None if the format needs no index and stores its types itself."""
    if isinstance(writer, FramedWriter):
        return replace(writer.index(), schema=schema) if schema else writer.index()
    found = positions.to_bytes(kind.info.name, writer.positions)
    return index_of_others(path, storage, schema, found) if schema or found else None


# Where shards end.


class Cut:
    """Decides how many records may go to the open shard. `end` creates the shards still missing after the last
    record."""

    def room(self, shards: Shards) -> int:
        """Return the number of records until the next call, at least 1. If the open shard is full, start another."""
        raise NotImplementedError

    def end(self, shards: Shards) -> None:
        raise NotImplementedError


class EvenCut(Cut):
    """Splits records into a fixed number of shards, whose sizes differ by at most one record."""

    def __init__(self, num_records: int, num_shards: int) -> None:
        self._base, self._longer = divmod(num_records, num_shards)
        self._num_records = num_records
        self._num_shards = num_shards

    def _size(self, number: int) -> int:
        return self._base + (number < self._longer)

    def room(self, shards: Shards) -> int:
        while (left := self._left(shards)) < 1:
            if shards.num_shards == self._num_shards:
                raise SchemaError(f"there are more records than the {self._num_records} announced")
            shards.start()
        return left

    def _left(self, shards: Shards) -> int:
        shard = shards.current()
        return self._size(shards.num_shards - 1) - shard.num_records

    def end(self, shards: Shards) -> None:
        if self._left(shards) > 0:
            raise SchemaError(f"there are fewer records than the {self._num_records} announced")
        while shards.num_shards < self._num_shards:
            if self._size(shards.num_shards):
                raise SchemaError(f"there are fewer records than the {self._num_records} announced")
            shards.start()


class LimitCut(Cut):
    """Splits records into shards limited by records or bytes. Without limits there is one shard.

    Asking for a writer's bytes means waiting for its threads, so it is done rarely: after about half of the records
    that should still fit, then after half of the rest, and so on. This depends only on counts of records and bytes, so
    the end of a shard does not depend on timing.
    """

    def __init__(self, shard_records: int | None, shard_bytes: int | None) -> None:
        self._shard_records = shard_records
        self._shard_bytes = shard_bytes
        self._ask_at = 1

    def room(self, shards: Shards) -> int:
        shard = shards.current()
        if shard.num_records and self._is_full(shard):
            shard = shards.start()
            self._ask_at = 1
        left = 1 << 62
        if self._shard_records is not None:
            left = self._shard_records - shard.num_records
        if self._shard_bytes is not None:
            left = min(left, self._ask_at - shard.num_records)
        return left

    def _is_full(self, shard: NewShard) -> bool:
        if self._shard_records is not None and shard.num_records >= self._shard_records:
            return True
        if self._shard_bytes is None or shard.num_records < self._ask_at:
            return False
        num_bytes = shard.writer.num_bytes
        if num_bytes >= self._shard_bytes:
            return True
        more = shard.num_records
        if num_bytes:
            fitting = (self._shard_bytes - num_bytes) * shard.num_records // (2 * num_bytes)
            more = min(fitting, 4 * shard.num_records)  # the first records may not be typical
        self._ask_at = shard.num_records + max(1, more)
        return False

    def end(self, shards: Shards) -> None:
        shards.current()  # without records, one empty file is written


def fill(shards: Shards, incoming: Incoming, cut: Cut) -> None:
    """Write all records, each to the shard that `cut` decides."""
    for batch in incoming.batches:
        start = 0
        while start < batch.num_rows:
            part = batch.slice(start, cut.room(shards))
            shards.write(part)
            start += part.num_rows
    cut.end(shards)

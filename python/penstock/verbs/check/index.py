"""`index` finds the records of framed files once, and stores their positions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from penstock import formats
from penstock.contract.format import Format, Options, Reader
from penstock.contract.opening import open_shard
from penstock.engine.pipeline import in_order
from penstock.errors import StaleIndexError, UnsupportedError, command
from penstock.framing.format import FramedFormat
from penstock.framing.framings import Framing
from penstock.framing.index import blocks, fitting, positions, sidecar
from penstock.framing.index.kept_schema import of_file
from penstock.framing.index.sidecar import Index
from penstock.framing.index.text import TextIndex
from penstock.framing.read.framed import FramedReader
from penstock.manifests.names import expand, storage_of
from penstock.storage.base import Source, Storage
from penstock.verbs.check import textindex
from penstock.verbs.machines import Counter, all_done, remove_attempts, run_on
from penstock.verbs.progress import Progress


@dataclass(frozen=True, slots=True)
class _Made:
    """The result for one shard. `path` is None if the shard has no sidecar."""

    path: str | None
    num_records: int
    num_bytes: int


def index(
    source: Any,
    *,
    checksums: bool = False,
    folder: str | os.PathLike[str] | None = None,
    text: bool | str | None = None,
    from_text: str | os.PathLike[str] | bool | None = None,
    force: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    on: Any = None,
    storage: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **format_options: Any,
) -> list[str]:
    """Build missing and invalid indexes, and store them next to their files.

    When `open` needs an index, it makes one in the user's cache. `index` makes indexes beforehand, for many shards in
    parallel and for all users. In uncompressed local files, only the headers of the records are read.

    Args:
        source: as for `open`.
        checksums: also store the CRC-32C of each MiB of the file, for formats that store no checksums. `verify`
            compares them, and so does each read with `open(checksums="index")`. An index with checksums is rebuilt
            only with `force`, so that `verify` can report later changes of the file.
        folder: the folder for the sidecars. None stores them next to the data under hidden names, or in
            the user's cache if the folder of the data is not writable.
        text: True also writes the text index of another library: `x.tfrecord.idx` of DALI's tfrecord2idx for
            `x.tfrecord`, or `x.idx` of MXNet for `x.rec`. "dali" or "mxnet" requires this library.
        from_text: a text index to compare with the headers in the file (True: the text index next to it).
        force: also rebuild valid indexes, and indexes with checksums whose file was rewritten.
        threads: the number of shards to index in parallel; None for all cores.
        progress: called with the records done, the bytes done, and the total bytes.
        on: where the work is done: None for this process, "ray", "ray://host:port" or a `penstock.ray.Cluster` for the
            machines of a cluster. Each task indexes one file. If the call is made again after it was killed, valid
            indexes are kept.
        storage_options: as for `open`.
        format_options: options of the format, as for `open`, such as `group="data/*"` for HDF5.

    Returns:
        The paths of the sidecars, one per shard, in the order of the shards. Files that store the positions of their
        records, such as Parquet and Arrow files, have a sidecar only with `checksums`.

    Raises:
        FormatError: a file is damaged. `verify` reports all damage, `repair` saves the other records.
        StaleIndexError: `from_text` does not match its file. Or a file has changed since its index stored its
            checksums, and `force` is not given.
        UnsupportedError: the file's format does not have the requested text index.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [1, 2]}, "two.tfrecord", index=False, overwrite=True)
        >>> ps.index("two.tfrecord")
        ['.two.tfrecord.penstock']
    """
    if text not in (None, False, True, "dali", "mxnet"):
        raise ValueError(f"text={text!r} is not one of True, 'dali', 'mxnet', None")
    place = storage_of(source, storage, storage_options)
    paths = expand(source, place).paths
    if isinstance(from_text, (str, os.PathLike)) and len(paths) != 1:
        raise ValueError(
            f"from_text names one text index for {len(paths)} files; pass True to use the one next to each file"
        )
    work = _Work(
        place,
        None if folder is None else os.fspath(folder),
        text,
        from_text,
        force,
        checksums,
        dict(format_options),
    )
    # Waiting for a store needs no core.
    threads = threads or place.reads_at_once
    at_once = place.reads_at_once or 1
    sizes = in_order(
        [lambda: iter(paths)], lambda one: [place.num_bytes(one)], lambda _: 0, at_once
    )
    counter = Counter(progress, sum(sizes))
    if on is not None:
        found = work.on_machines(on, paths, counter)
    else:
        found: list[_Made] = []
        for done in in_order([lambda: iter(paths)], work.build, lambda done: 0, threads):
            found.append(done)
            counter.add(done.num_records, done.num_bytes)
    return [done.path for done in found if done.path is not None]


@dataclass(frozen=True, slots=True)
class _Work:
    storage: Storage
    folder: str | None
    text: bool | str | None
    from_text: Any
    force: bool
    checksums: bool
    format_options: dict[str, Any]

    def on_machines(self, on: Any, paths: Sequence[str], counter: Counter) -> list[_Made]:
        folders = [path for path in (self.folder, self.from_text) if isinstance(path, str)]
        place = self.storage, [*paths, *folders]
        found = run_on(on, self._one, paths, place)
        try:
            return all_done(
                found, paths, lambda _, done: counter.add(done.num_records, done.num_bytes)
            )
        finally:
            remove_attempts(self.storage, (sidecar.path_for(path, self.folder) for path in paths))

    def _one(self, path: str) -> _Made:
        return next(self.build(path))

    def build(self, path: str) -> Iterator[_Made]:
        with closing(self.storage.source(path)) as source:
            kind = formats.of(source)
            with_checksums = blocks.kept(path, self.folder or "auto", self.storage)
            if with_checksums is not None and not self.force:
                _check_is_the_same(source, with_checksums[1])
            checksums = self.checksums or with_checksums is not None
            try:
                reader = open_shard(kind, source, self._options(raw=True, index="never"))
            except UnsupportedError:
                reader = None
            if isinstance(kind, FramedFormat) and isinstance(reader, FramedReader):
                yield self._of_framed(source, kind, reader, checksums)
            elif checksums or kind.info.keeps_positions:
                yield self._of_other(source, kind, reader, checksums=checksums)
            else:
                yield _Made(None, 0 if reader is None else reader.num_records, source.size)

    def _options(self, **options: Any) -> Options:
        return Options(**options, format_options=self.format_options)

    def _of_framed(
        self, source: Source, kind: FramedFormat, reader: FramedReader, checksums: bool
    ) -> _Made:
        path, folder, storage = source.path, self.folder, self.storage
        known = None if self.force else load_fitting(path, source, kind.framing, folder, storage)
        found = _made_anew(reader.index, kind, path, folder, storage) if known is None else known[1]
        kept_at = sidecar.path_for(path, folder)
        # An index that a read has stored in the user's cache is written next to the data.
        is_there = known is not None and known[0] == kept_at
        if source.storage is not None and not fitting.is_same(found, source):
            # The index was made before the upload: from now on, the state of the object tells that it fits.
            found, is_there = replace(found, state=sidecar.state_of(source)), False
        if checksums and found.blocks is None:
            found, is_there = _with_checksums(found, source), False
        if not is_there:
            kept_at = sidecar.keep(found, path, storage, folder)
        if self.text or (self.from_text is not None and self.from_text is not False):
            self._text_index(_text_index(kind, self.text, path), found, path)
        return _Made(kept_at, found.num_records, source.size)

    def _of_other(
        self, source: Source, kind: Format, reader: Reader | None, *, checksums: bool
    ) -> _Made:
        """Store the checksums and the positions of the records of a file that is not framed."""
        if reader is None:
            where = "never" if self.force else self.folder or "auto"
            reader = open_shard(kind, source, self._options(index=where, stores_index=False))
        index = self._kept_index(source)
        if index is None:
            places, numbers = np.zeros(0, "<u8"), np.zeros(0, "<u4")
            index = Index(reader.num_records, source.size, 0, "", places, numbers, layout="none")
        else:
            is_whole = index.blocks is not None or not checksums
            is_whole &= bool(index.positions) or not kind.info.keeps_positions
            if is_whole and not self.force and fitting.is_same(index, source):
                place = sidecar.path_for(source.path, self.folder)
                return _Made(place, reader.num_records, source.size)
        if checksums:
            index = _with_checksums(index, source)
        if kind.info.keeps_positions:
            found = positions.to_bytes(kind.info.name, reader.positions)
            index = replace(index, positions=found, state=sidecar.state_of(source))
        kept_at = sidecar.keep(index, source.path, self.storage, self.folder)
        return _Made(kept_at, reader.num_records, source.size)

    def _kept_index(self, source: Source) -> Index | None:
        """The index that a file has already, unless the file was written since."""
        with suppress(OSError, StaleIndexError):
            kept = sidecar.load(sidecar.path_for(source.path, self.folder), self.storage)
            if kept.data_bytes == source.size and not fitting.was_written(kept, source):
                return kept
        return None

    def _text_index(self, text: TextIndex, found: Index, path: str) -> None:
        if self.from_text:
            given = text.path_for(path) if self.from_text is True else os.fspath(self.from_text)
            textindex.check(text, given, found, path, self.storage)
        if self.text:
            textindex.write(text, found, path, self.storage)


def _check_is_the_same(source: Source, index: Index) -> None:
    """Raise StaleIndexError if an index has checksums of another state of its file."""
    if fitting.is_same(index, source):
        return
    known = index.blocks
    is_whole = known is not None and index.data_bytes == source.size
    if known is not None and is_whole and not any(blocks.differing(source, known, 0, source.size)):
        return
    raise StaleIndexError(
        "the checksums in its index do not match this file: it was rewritten, or it is damaged",
        file=source.path,
        hint=command("penstock", "verify", source.path)
        + ", then index --force if it was rewritten",
    )


def _with_checksums(index: Index, source: Source) -> Index:
    state = sidecar.state_of(source)  # before the read, during which the file may change
    return replace(index, blocks=blocks.checksums_of(source), state=state)


def _made_anew(
    found: Index, kind: Format, path: str, folder: str | None, storage: Storage
) -> Index:
    """Return the new index with the field types that the old index of the file stores."""
    options = Options(index="auto" if folder is None else folder)
    return replace(found, schema=of_file(path, storage, options, lambda source: kind))


def _text_index(kind: Format, asked: bool | str | None, path: str) -> TextIndex:
    own = kind.text_index if isinstance(kind, FramedFormat) else None
    if own is None or (isinstance(asked, str) and asked != own.name):
        has = "none" if own is None else f"the one of {own.name}"
        message = f"{kind.info.name} files have no such text index; known: {has}"
        raise UnsupportedError(message, file=path)
    return own


def load_fitting(
    path: str, source: Source, framing: Framing, folder: str | None, storage: Storage
) -> tuple[str, Index] | None:
    """Return the path of a file's valid sidecar and its index, or None."""
    for place in sidecar.folders(folder):
        kept_at = sidecar.path_for(path, place)
        try:
            index = sidecar.load(kept_at, storage)
        except (OSError, StaleIndexError):
            continue
        if fitting.covers(index, source, framing) == "all":
            return kept_at, index
    return None

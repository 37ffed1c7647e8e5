"""The files of a dataset. Each is opened on first use, and all are read with the same schema."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from penstock import formats
from penstock.columns.inferred import InferredFrom, has_no_records
from penstock.conditions import Filter
from penstock.contract.added import open_with_nulls
from penstock.contract.format import (
    Chunk,
    Format,
    FormatInfo,
    Options,
    Reader,
    Retyped,
    SkippedRegion,
)
from penstock.contract.opening import open_shard
from penstock.datasets._ahead import (
    AHEAD_FILES,
    AHEAD_SAMPLES,
    counts_of,
    shards_ahead,
)
from penstock.datasets._hive import HiveColumns
from penstock.datasets._no_records import (
    NoRecords,
    format_of_others,
    made_or_unreadable,
    nothing_in,
    raise_first_fault,
    raising,
    skipped_of,
    unless_manifest,
)
from penstock.datasets._other_fields import FieldChecks, refuse_other_fields
from penstock.datasets._shared_schema import of_all_files, of_first_files
from penstock.datasets._unlisted import Every, Unlisted
from penstock.datasets.open_file import OpenFile, checksum_of
from penstock.engine.locks import Lock
from penstock.errors import ChangedError, FormatError, SchemaError, UnsupportedError
from penstock.framing.format import FramedFormat
from penstock.framing.index import blocks, kept_schema, opening, sidecar
from penstock.framing.read.raw import RAW_SCHEMA
from penstock.manifests.manifest import Paths
from penstock.overlay.overlays import Overlays
from penstock.overlay.places import OverlayFolder, places_of
from penstock.storage.base import Source, Storage, file_beside
from penstock.storage.descriptors import Recent
from penstock.storage.local import LocalStorage
from penstock.storage.shard_lists import ShardList
from penstock.storage.skipped import SkippedFile

_HANDLES = 2
"""The most open handles for each file: one of penstock, and one of pyarrow if pyarrow reads the format."""
Types = Literal["given", "kept", "stored", "inferred"]
"""Where the types of fields come from: schema=, the sidecars, the files themselves, or a sample of the records."""


class Files(Unlisted):
    """The shards of a dataset, by number. Safe to share between threads."""

    computes: bool = False
    """Whether columns are computed from others when they are read, which may fail for some records."""

    def __init__(
        self,
        paths: Sequence[str],
        storage: Storage,
        options: Options,
        *,
        format: str | None,
        overlays: bool | OverlayFolder,
        hive: bool | str,
        listed: ShardList | None,
    ) -> None:
        self.paths: Sequence[str] = paths if isinstance(paths, Paths) else tuple(paths)
        self.storage = storage
        self.options = replace(options, origin=(paths[0], len(paths)))
        self._format = format
        self.hive = hive
        self.listed = listed
        self._firsts: np.ndarray | None = None
        self.uncounted: list[SkippedRegion] = []
        """The regions that were skipped when `firsts` counted the records, which have no numbers."""
        self._hive = (
            HiveColumns(paths, storage, hive, options.schema) if hive and not options.raw else None
        )
        if isinstance(self.paths, tuple):  # what a manifest lists is not looked for
            storage.look_beside(paths)
            opening.begin_listed(paths[:AHEAD_FILES], storage, options.index)
        self.overlay_folder = overlays if isinstance(overlays, OverlayFolder) else None
        self.overlay_places = places_of(storage, self.overlay_folder)
        """Where overlays are looked for. New ones are written to the last of these places."""
        self._overlays: Overlays | None = None
        # Looking for an overlay costs a request for each shard.
        is_bare = isinstance(paths, Paths) and not paths.manifest.footer.has_overlays
        places = self.overlay_places[1:] if is_bare else self.overlay_places
        if overlays and places and not options.raw:
            self._overlays = Overlays(paths, places, options.limits) or None
        self._forget_readers()
        self._has_warned = True  # no warning about empty files before a file with records was found
        is_given = options.schema is not None or options.raw
        has_same = options.raw or (is_given and options.retyped is None)
        # These files cannot have different fields: a single file defines them, and a given schema applies to all.
        self._checks = FieldChecks(Every() if has_same or len(paths) == 1 else set[int]())
        self.types: Types = "given" if is_given else "kept"
        self._settled: pa.Schema | None = None
        self._num_kept = 0
        """How many of the files have sidecars with this schema."""
        self._names: Sequence[str] | None = None
        self.schema = self._find_schema()  # the fields of a record, including those that were added
        if self._overlays is not None:
            self._names = self.schema.names
        self._has_warned = len(paths) == 1

    def _find_schema(self) -> pa.Schema:
        first = self._first_by_kept() or self._first_by_content()
        retyped = self.options.retyped
        if self._is_of_all and retyped is not None:
            self._settled = retyped.own
        elif self._settled is None or not self._is_of_all:  # the first file may lack some fields
            self._settled = first.own.schema
        return first.reader.schema

    def _first_by_kept(self) -> OpenFile | None:
        """The first file, opened with the schema in the sidecars. None unless all sidecars have the same schema, and
        the file can be read with it. In storage with slow access, only the sidecar of the first file is read."""
        if self.types == "given" or self.options.format_options:
            return None  # the caller's options have priority
        asked = self.paths if self.storage.reads_at_once is None else self.paths[:1]
        kept = kept_schema.of_files(asked, self.storage, self.options, self.format_of)
        if kept is None:
            return None
        self._settled, self._num_kept = kept, len(asked)
        if self._overlays is not None:
            self._names = self._overlays.names(kept.names)
        try:
            first = self._first()
        except (SchemaError, UnsupportedError):
            self._settled = self._names = None
            self._num_kept = 0
            self._forget_readers()
            return None
        self._checks.alike, self._checks.whole = set(range(len(asked))), set(range(len(asked)))
        return first

    def _first_by_content(self) -> OpenFile:
        """The first file, opened with the given schema or one inferred from the files."""
        is_open = self.types != "given" and len(self.paths) > 1
        if is_open and self._is_of_all:
            self._settled = of_all_files(len(self.paths), self._schema_alone, self.options.named)
        first = self._first()
        # With overlays, the fields of the files are already known.
        if is_open and self._settled is None and self._overlays is None:
            own = first.own.schema
            self._settled = of_first_files(
                self.paths, self.storage, own, self._schema_alone, self.options.named
            )
            if self._settled is not None:
                self._forget_readers()
                first = self._first()
        if self.types != "given":
            self.types = "stored" if InferredFrom.of(first.own.schema) is None else "inferred"
        return first

    def _schema_alone(self, shard: int) -> pa.Schema:
        self.begin(range(shard, min(shard + AHEAD_SAMPLES, len(self.paths))))
        return self._open(shard).own.schema

    def format_of(self, source: Source) -> Format:
        """The format of an open file: the requested format, or the format detected from the content."""
        return formats.of(source) if self._format is None else formats.by_name(self._format)

    def _forget_readers(self) -> None:
        self._opened: list[OpenFile | None] = [None] * len(self.paths)
        self._locks: dict[int, Lock] = {}
        self._recent = Recent(len(self.paths), _HANDLES)
        self._states: dict[int, Any] = {}

    def _first(self) -> OpenFile:
        """The first file with a record. Its schema applies to all files."""
        empty: OpenFile | None = None
        for shard in range(len(self.paths)):
            opened = self._of(shard)
            if isinstance(opened.own, NoRecords):
                continue
            if not has_no_records(opened.reader.schema):
                for earlier in range(shard):
                    self._opened[earlier] = None  # to be reopened with this schema
                return opened
            empty = empty or opened
        if empty is None:
            raise nothing_in(self.own_readers(), self.paths, self.format_name(0))
        if self.options.damage == "error":
            raise_first_fault(self.own_readers())
        return empty

    # -- one file -------------------------------------------------------------------------------

    def reader(self, shard: int) -> Reader:
        """The reader of a file, which is opened if necessary."""
        return self._of(shard).reader

    def begin(
        self, shards: Iterable[int], *, length: int | None = None, by_number: bool = False
    ) -> None:
        """Begin to open files that are needed soon, and to read so many bytes of them. `by_number`: records will be read
        by number, or counted."""
        formats = [opened.format for opened in self._opened[:1] if opened is not None]
        is_framed = any(isinstance(one, FramedFormat) for one in formats)
        paths = [self.paths[shard] for shard in shards if self._opened[shard] is None]
        if by_number and (is_framed or any(one.info.keeps_positions for one in formats)):
            opening.begin(paths, self.storage, self.options.index)
        else:
            self.storage.begin(paths, length)

    def begin_scan(self, shard: int, *, whole: bool) -> None:
        """Begin to open a file and those after it, which are read in order. `whole`: all of their columns."""
        if self.storage.reads_at_once is None:
            return
        before = self._opened[max(shard + 1 - AHEAD_FILES, 0) : shard + 1]
        opened = next((one for one in before[::-1] if one is not None), None)
        is_framed = opened is not None and isinstance(opened.format, FramedFormat)
        size = None if opened is None else opened.source.size
        count, length = shards_ahead(size, is_framed=is_framed)
        soon = range(shard, min(shard + 1 + count, len(self.paths)))
        self.begin(soon, length=length if whole or is_framed else None)

    def scanned(self, shard: int, *, whole: bool) -> Reader:
        """The reader of a file that is read in order."""
        reader = self.reader(shard)
        opened = self._opened[shard]  # None if a view leaves all of its records out
        if whole and opened is not None and not opened.own.reads_ahead():
            opened.source.read_in_order()
        return reader

    def own(self, shard: int) -> Reader:
        """The reader of a file without overlays."""
        return self._of(shard).own

    def num_bytes(self, shard: int) -> int:
        """The size of a file."""
        return self._of(shard).source.size

    def source(self, shard: int) -> Source:
        """The open source of a file."""
        return self._of(shard).source

    def checksum(self, shard: int) -> int:
        """See `checksum_of`."""
        return checksum_of(self.own(shard))

    def info(self, shard: int) -> FormatInfo:
        """The name and capabilities of a file's format."""
        return self._of(shard).format.info

    def format_name(self, shard: int) -> str:
        """The name of a file's format."""
        return self.info(shard).name

    def check_unchanged(self, shard: int) -> None:
        """Raise ChangedError if an open file was changed, replaced or removed, according to its metadata. A file whose
        records are verified may grow."""
        opened = self._still_open(shard)
        if opened is not None:
            opened.source.check_unchanged(may_grow=opened.is_verified)

    def check_read(self, shard: int, chunk: Chunk[Any] | None = None) -> None:
        """Raise ChangedError if the records just read may mix old and new content of a file. Records that were compared
        with checksums cannot, unless they are views of a memory map."""
        opened = self._still_open(shard)
        if opened is None:
            return
        is_compared = opened.compares(chunk)
        if self.options.mmap or not is_compared:
            opened.source.check_read(may_grow=is_compared)

    def forget_index(self, shard: int) -> None:
        """Delete the sidecar of a file, which does not match it, unless it is in a folder given by the caller."""
        if self.options.index in ("auto", "beside") and isinstance(self.storage, LocalStorage):
            sidecar.discard(self.paths[shard], but_checksums=True)

    def _of(self, shard: int) -> OpenFile:
        with self._locks.get(shard) or self._locks.setdefault(shard, Lock()):
            opened = self._opened[shard]
            if opened is None:
                opened = self._open(shard)
                self._check_same(shard, opened.source)
                if self.options.complete:
                    self.check_whole(shard)
                self._opened[shard] = opened
        closed = self._recent.use(shard)
        if closed is not None:
            self._opened[closed] = None  # it is closed when its last user releases it
        return opened

    def _still_open(self, shard: int) -> OpenFile | None:
        """A file that was opened before, reopened if it was closed to make room for other files."""
        return self._of(shard) if shard in self._states else self._opened[shard]

    def _check_same(self, shard: int, source: Source) -> None:
        """Raise ChangedError if a reopened file was changed since it was first opened."""
        if not self._recent.is_bounded:
            return  # each file is opened only once
        state = source.size, getattr(source, "written_ns", None)
        if self._states.setdefault(shard, state) != state:
            raise ChangedError(
                "the file was changed while the dataset was open",
                file=self.paths[shard],
                hint="open the data again",
            )

    def _open(self, shard: int) -> OpenFile:
        source = self._source_of(shard)
        try:
            is_compared = self.options.checksums == "index"
            if is_compared:
                source = blocks.checked(source, self.options.index)
            try:
                fmt = self.format_of(source)
                made = partial(self._reader_of, shard, fmt, source)
                made = partial(unless_manifest, made, self._settled, len(self.paths) == 1)
            except FormatError as error:
                if self.options.damage == "error":
                    raise
                fmt = format_of_others(error, self.paths, self.storage, self.format_of)
                made = partial(raising, error)
            is_verified = isinstance(fmt, FramedFormat) and self.options.verifies
            if self.options.damage == "error" or len(self.paths) == 1:
                reader = made()
            else:
                reader = made_or_unreadable(made, self._settled or self.options.schema, source)
            if self._hive is not None:
                reader = self._hive.reader(shard, reader)
            compares = (lambda _: True) if is_compared else reader.compares
            return OpenFile(reader, fmt, source, is_verified, compares)
        except BaseException:
            source.close()  # otherwise a stored exception would keep the file open
            raise

    def _source_of(self, shard: int) -> Source:
        return self.storage.source(self.paths[shard], mmap=self.options.mmap)

    def _reader_of(self, shard: int, fmt: Format, source: Source) -> Reader:
        if not (source.size or fmt.info.may_be_empty or fmt.info.is_folder):
            self._warn_of_no_bytes(source.path)
            return NoRecords(self._settled or self.options.schema)
        beside = partial(file_beside, self.storage, source.path)
        options = replace(self.options, beside=beside, as_table=self._format is not None)
        if self._hive is not None:
            options = replace(options, schema=self._hive.without(options.schema))
        settled = None
        if self._settled is not None and options.schema is None and not options.raw:
            settled = self._settled
            # A schema from the sidecar was made for this file, so its types must hold every value exactly.
            others = settled.names if shard >= self._num_kept else ()
            options = replace(options, settled=frozenset(others))
        elif options.retyped is not None:
            options = replace(options, settled=_settled_of(options.retyped))
        if self._overlays is not None:
            return self._overlays.open(shard, fmt, source, options, settled, self._names)
        schema = options.schema if settled is None else settled
        if self._is_of_all and schema is not None:
            return open_with_nulls(fmt, source, replace(options, schema=schema))
        if settled is None and options.retyped is None:
            return open_with_nulls(fmt, source, options)
        try:
            return open_shard(fmt, source, replace(options, schema=schema))
        except SchemaError:
            names = self.options.schema.names if settled is None else settled.names
            refuse_other_fields(self, shard, names)
            raise

    def check_fields(self, shard: int, batch: pa.RecordBatch, *, whole: bool) -> None:
        """Raise SchemaError if a file has none of the dataset's fields. This is checked only if the first records read
        from the file have none of them.

        Warn if the file stores columns that the dataset leaves out, unless the caller named the columns to read (not
        `whole`)."""
        self._checks.of_batch(self, shard, batch, whole=whole)

    def check_whole(self, shard: int) -> None:
        """Raise SchemaError if a file stores columns that the dataset does not have. Formats that do not store their
        columns check each record instead; see `complete`."""
        self._checks.of_stored(self, shard)

    @property
    def _is_of_all(self) -> bool:
        """Whether the schema has the fields of all files, so that a file may lack some."""
        return self.options.format_options.get("infer_records") == "all"

    @property
    def found_types(self) -> Types:
        """Where the types of the fields come from that `types=` does not name."""
        retyped = self.options.retyped
        return self.types if retyped is None else retyped.origin

    def retyped(self, schema: pa.Schema) -> Retyped | None:
        """What `Options.retyped` is for a schema with other types. None if the caller gave the schema of these files."""
        if self._has_whole_schema and self.options.retyped is None:
            return None
        own = self.schema if self._settled is None else self._settled
        old = dict(zip(self.schema.names, self.schema.types, strict=True))
        names = frozenset(field.name for field in schema if old.get(field.name) != field.type)
        before = self.options.retyped or Retyped(frozenset(), own, self.types)
        return before._replace(names=before.names | names)

    @property
    def _has_whole_schema(self) -> bool:
        return isinstance(self.options.schema, pa.Schema)

    @property
    def names_in_files(self) -> list[str]:
        """The names of the fields in the files, which overlays may rename."""
        return (self.schema if self._settled is None else self._settled).names

    def names_alone(self, shard: int, *, only_stored: bool = False) -> list[str]:
        """The names of the fields, or stored fields, that a file has if it is opened separately."""
        alone = copy.copy(self)
        alone._settled = alone._overlays = None
        alone._has_warned = True
        if self.options.retyped is not None:
            alone.options = replace(self.options, schema=None, retyped=None)
            alone._hive = None if self._hive is None else self._hive.of_any_schema()
        with alone.once(shard) as opened:
            schema = opened.own.schema
            # Records without fields or with unknown fields are a single column of bytes.
            has_none = has_no_records(schema) or schema.names == RAW_SCHEMA.names
            is_inferred = InferredFrom.of(schema) is not None
            return [] if has_none or (only_stored and is_inferred) else schema.names

    @contextmanager
    def once(self, shard: int) -> Generator[OpenFile]:
        """Open a file, and close it afterwards."""
        opened = self._open(shard)
        try:
            yield opened
        finally:
            opened.reader.close()
            opened.source.close()

    def _warn_of_no_bytes(self, path: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            message = f"{path} has no bytes, and is read as a file without records; Dataset.skipped_files lists all such files"
            warnings.warn(message, stacklevel=2)

    def skipped(self, *, opened_only: bool = False) -> Iterator[SkippedFile]:
        """Yield empty files, if valid files of their format are never empty, and files in folders of images that are
        not data. With `opened_only`, only files that are open are examined."""
        for shard, path in enumerate(self.paths):
            if not opened_only or self._opened[shard] is not None:
                yield from skipped_of(self.own(shard), path)

    @property
    def counts_records(self) -> bool:
        """Whether the records are counted before they are read. If damage is skipped, there may be fewer."""
        return self.options.damage == "error"

    # -- all files ------------------------------------------------------------------------------

    @property
    def firsts(self) -> np.ndarray:
        """The number of each file's first record, then the number of all records: int64[files + 1]."""
        if self._firsts is None:
            every = range(len(self.paths))
            self.begin(every[:AHEAD_FILES], by_number=True)

            def reader(shard: int) -> Reader:
                self.begin(every[shard + AHEAD_FILES : shard + AHEAD_FILES + 1], by_number=True)
                return self.reader(shard)

            counts = list(counts_of(len(every), reader, self.storage.reads_at_once))
            if self.options.damage != "error":
                self.uncounted += [one for own in self.own_readers() for one in own.uncounted]
            if self.listed is not None:
                self.listed.check(counts)
            self._firsts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return self._firsts

    def locate(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The shard of each record, and the record's number in that shard."""
        shards = np.searchsorted(self.firsts, numbers, "right") - 1
        return shards, numbers - self.firsts[shards]

    @property
    def is_view(self) -> bool:
        """Whether these are only some of the records of the files."""
        return False

    def all_read(self) -> None:
        """Called when a scan has delivered all records."""

    def in_file(self, shard: int, numbers: np.ndarray) -> np.ndarray:
        """Convert record numbers of a shard to record numbers of its file. They differ only in a view."""
        return numbers

    @property
    def choice_digest(self) -> str:
        """A digest that identifies the records of a view; empty if it has all records."""
        return ""

    @property
    def total_bytes(self) -> int:
        """The size of all files."""
        return sum(map(self.num_bytes, range(len(self.paths))))

    def readers(self) -> Iterator[Reader]:
        """The readers of all files."""
        return map(self.reader, range(len(self.paths)))

    def own_readers(self) -> Iterator[Reader]:
        """The readers of all files without overlays, one after another: there may be too many to be open together."""
        return map(self.own, range(len(self.paths)))

    def complete(self, *, is_found: bool = False) -> Files:
        """These files, for callers that must not lose fields: a record or a file with further ones is a SchemaError,
        unless the caller's schema leaves them out. `is_found`: the schema in the options is not the caller's, but was
        found before in the same files."""
        is_given = self._has_whole_schema and self.options.retyped is None
        if self.options.raw or (is_given and not is_found):
            return self
        other = copy.copy(self)
        other.options = replace(self.options, complete=True)
        other._forget_readers()
        return other

    # -- overlays -------------------------------------------------------------------------------

    @property
    def overlays(self) -> Overlays | None:
        """The overlays of the files, if there are any and they are read."""
        return self._overlays

    @property
    def read_paths(self) -> Sequence[str]:
        """The files, and the folder with their overlays that the caller named."""
        folder = self.overlay_folder
        return self.paths if folder is None else [*self.paths, folder.path]

    def is_added(self, column: str) -> bool:
        """Whether a field is not the files' own field of this name, but from an overlay or the names of folders."""
        named = self._hive is not None and column in self._hive.fields
        return named or (self._overlays is not None and self._overlays.is_overlaid(column))

    def added_digests(self, shard: int) -> list[str]:
        """The digests that identify the added fields of a file."""
        found = [] if self._overlays is None else self._overlays.digests(shard)
        return found if self._hive is None else [*found, self._hive.digest(shard)]

    def answer(self, shard: int, condition: Filter) -> bool | None:
        """Whether the names of its folders make a condition true for all records of a file, or for none; else None."""
        return None if self._hive is None else self._hive.answer(shard, condition)


def _settled_of(retyped: Retyped) -> frozenset[str]:
    """`Options.settled` for a schema to which `types=` gave some types."""
    return frozenset() if retyped.origin == "kept" else frozenset(retyped.own.names) - retyped.names

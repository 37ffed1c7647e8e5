"""A dataset: facts about some shards, and the ways to their records. Other verbs are functions."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from penstock import formats
from penstock.errors import SchemaError
from penstock.forks import Lock
from penstock.format import Format, Framed, Options, Reader, Sifting, SkippedRegion
from penstock.framing.sidecar import discard
from penstock.limits import Limits, limits_from
from penstock.notes import Notes
from penstock.overlay.reader import Overlays
from penstock.paths import expand
from penstock.scan import scan
from penstock.schema import INFERRED_KEY, NO_RECORDS, in_common
from penstock.shard_lists import ShardList, shard_list
from penstock.storage import LocalStorage, Source, Storage, Watched
from penstock.take import take

Result = TypeVar("Result")

_CHOICES = {
    "checksums": ("all", "headers", "none"),
    "damage": ("error", "stop", "skip", "salvage"),
    "dialect": ("protobuf", "tensorflow"),
}


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of a dataset."""

    path: str
    format: str
    num_records: int
    num_bytes: int


class Dataset:
    """Records of one or more files, as they lie. Made by `penstock.open`; safe to share between
    threads; pickles as the call that opened it.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [1, 2, 3]}, "numbers.tfrecord", overwrite=True)
        >>> ds = ps.open("numbers.tfrecord")
        >>> len(ds), ds[1]
        (3, {'id': 2})
        >>> ds.take([2, 0]).to_pydict()
        {'id': [3, 1]}
    """

    def __init__(
        self,
        paths: Sequence[str],
        storage: Storage,
        call: dict[str, Any],
        listed: ShardList | None = None,
        passed_over: Sequence[str] = (),
    ) -> None:
        self._call = {**call, "source": list(paths)}
        self._storage = storage
        self._columns: Sequence[str] | None = call["columns"]
        self._format: str | None = call["format"]
        self._paths = list(paths)
        self._listed = listed
        self._passed_over = passed_over
        self._notes = Notes()
        self._options = Options(
            schema=call["schema"],
            raw=call["raw"],
            checksums=call["checksums"],
            damage=call["damage"],
            index=call["index"],
            mmap=call["mmap"],
            limits=limits_from(call["limits"]),
            dialect=call["dialect"],
            skipped=self._notes.add,
            format_options=call["format_options"],
        )
        self._readers: list[Reader | None] = [None] * len(paths)
        self._formats: list[Format | None] = [None] * len(paths)
        self._sources: list[Source | None] = [None] * len(paths)
        self._checks: list[Callable[[], None] | None] = [None] * len(paths)
        self._locks = [Lock() for _ in paths]
        self._firsts: np.ndarray | None = None
        self._overlays: Overlays | None = None
        if call["overlays"] and not call["raw"]:
            self._overlays = Overlays(paths, storage, self._options.limits) or None
        self._settled: pa.Schema | None = None
        self._names: Sequence[str] | None = None
        first = self._first_reader()
        self._full_schema = first.schema
        if self._overlays is not None:
            self._names = first.schema.names
        self._settled = getattr(first, "base", first).schema
        if len(paths) > 1 and call["format_options"].get("infer_records") == "all":
            first = self._settle_by_all(first)
            self._full_schema = first.schema
        missing = [c for c in self._columns or () if c not in self._full_schema.names]
        if missing:
            known = ", ".join(self._full_schema.names)
            raise SchemaError(
                f"no such column; there are: {known}", field=missing[0], file=paths[0]
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._call,)

    # -- facts ----------------------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema:
        """The fields of a record, as pyarrow.Schema."""
        if self._columns is None:
            return self._full_schema
        fields = [self._full_schema.field(name) for name in self._columns]
        return pa.schema(fields, metadata=self._full_schema.metadata)

    @property
    def paths(self) -> tuple[str, ...]:
        """The files, in the order they are read."""
        return tuple(self._paths)

    @property
    def passed_over(self) -> tuple[str, ...]:
        """Files of a folder that were not opened: text that goes with the data, such as a README."""
        self._open_all()
        readers = [getattr(reader, "base", reader) for reader in self._readers]
        inside = [path for r in readers if isinstance(r, Sifting) for path in r.passed_over]
        return (*self._passed_over, *inside)

    @property
    def shards(self) -> list[Shard]:
        """The files with format, records and bytes. Counting may build an index."""
        self._open_all()
        return [
            Shard(path, self._format_of(n).info.name, self.reader(n).num_records, self.num_bytes(n))
            for n, path in enumerate(self._paths)
        ]

    @property
    def fingerprint(self) -> str:
        """A name for exactly these records in this order: names, sizes and counts of the shards,
        and their overlays.

        Reads no payloads; costs what counting costs.
        """
        import hashlib

        facts = hashlib.blake2b(digest_size=16)
        for number, shard in enumerate(self.shards):
            name = shard.path.replace("\\", "/").rsplit("/", 1)[-1]
            facts.update(
                f"{name}\0{shard.num_bytes}\0{shard.num_records}\0".encode("utf-8", "replace")
            )
            facts.update("\0".join(self.overlay_digests(number)).encode("utf-8", "replace"))
        return facts.hexdigest()

    @property
    def damage(self) -> list[SkippedRegion]:
        """What has been passed over so far, in the order it was met."""
        return self._notes.regions

    def __len__(self) -> int:
        return int(self.firsts[-1])

    def __repr__(self) -> str:
        first = self._paths[0]
        more = f" and {len(self._paths) - 1} more" if len(self._paths) > 1 else ""
        return f"<penstock.Dataset {first}{more}: {', '.join(self.schema.names)}>"

    # -- records --------------------------------------------------------------------------------

    def scan(
        self,
        columns: Sequence[str] | None = None,
        batch_records: int | None = None,
        threads: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """All records as Arrow batches, in file order.

        Args:
            columns: names of the columns wanted; None for all. Others are not decoded.
            batch_records: records in each batch but the last; None lets batches be as large as
                the chunks they come from (about 2 MiB of the file).
            threads: how many chunks are decoded at once; None for all cores.

        Raises:
            PenstockError: damaged data (see `damage=` of `open`), records that do not fit the
                schema. Records before the fault are yielded first.
        """
        if threads is not None and threads < 1:
            raise ValueError(f"threads must be at least 1, not {threads}")
        return scan(self, self._projection(columns), batch_records, threads)

    def take(self, records: Sequence[int] | np.ndarray) -> pa.RecordBatch:
        """Some records by number, in the order asked, repeats allowed. Negative numbers count
        from the end. Raises RecordIndexError for others."""
        return take(self, records, self._projection(None))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return self.take(np.arange(*key.indices(len(self))))
        try:
            number = operator.index(key)
        except TypeError:
            return self.take(key)
        return self._dicts(self.take([number]))[0]

    def __getitems__(self, records: Sequence[int]) -> list[dict[str, Any]]:
        """Several records at once, as torch's DataLoader asks for them."""
        return self._dicts(self.take(records))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self.scan():
            yield from self._dicts(batch)

    def _dicts(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        """The records of a batch as Python's values, which cannot say all that Arrow can."""
        file = self._paths[0] if len(self._paths) == 1 else None
        if len(set(batch.schema.names)) < batch.num_columns:
            message = "two fields have the same name, so a record is no dict; use take or scan"
            raise SchemaError(message, file=file)
        try:
            return batch.to_pylist()
        except (ValueError, OverflowError, LookupError) as error:
            # Two names in a struct, a year beyond 9999, a time zone that nobody knows.
            raise SchemaError(
                f"Python has no value for what a record holds: {error}",
                file=file,
                field=_unspeakable(batch),
                hint="take or scan, which give it as Arrow",
            ) from error

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        stream = pa.RecordBatchReader.from_batches(self.schema, self.scan())
        return stream.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    # -- for the verbs --------------------------------------------------------------------------

    @property
    def firsts(self) -> np.ndarray:
        """The number of each shard's first record, then of all records: int64[shards + 1]."""
        if self._firsts is None:
            self._open_all()
            counts = [self.reader(n).num_records for n in range(len(self._paths))]
            if self._listed is not None:
                self._listed.check(counts)
            self._firsts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return self._firsts

    def reader(self, shard: int) -> Reader:
        """The open reader of one shard."""
        with self._locks[shard]:
            opened = self._readers[shard]
            if opened is None:
                opened = self._open(shard)
                self._readers[shard] = opened
            return opened

    def num_bytes(self, shard: int) -> int:
        """Bytes of one file."""
        self.reader(shard)
        source = self._sources[shard]
        assert source is not None, "opened before"
        return source.size

    def check_unchanged(self, shard: int) -> None:
        """Raise ChangedError where an open file has been changed, replaced or taken away. A file
        whose records are proved one by one may grow. Costs a look at the folder, reads nothing."""
        check = self._checks[shard]
        if check is not None:
            check()

    def _first_reader(self) -> Reader:
        """What the first file that has a record is made of holds for all."""
        for shard in range(len(self._paths)):
            reader = self.reader(shard)
            if (reader.schema.metadata or {}).get(INFERRED_KEY) != NO_RECORDS:
                for earlier in range(shard):
                    self._readers[earlier] = None  # opened again, by what is known now
                return reader
        return self.reader(0)

    def _settle_by_all(self, first: Reader) -> Reader:
        """Let the schema be what the records of all files have in common; the first reader by it."""
        if self._options.schema is not None or self._options.raw:
            return first
        alone, self._settled = self._settled, None
        schemas = [getattr(r, "base", r).schema for r in map(self._open, range(len(self._paths)))]
        self._settled = in_common(schemas)
        if alone == self._settled:
            return first
        self._readers = [None] * len(self._paths)
        return self.reader(0)

    def _open(self, shard: int) -> Reader:
        path = self._paths[shard]
        source = self._storage.source(path, mmap=self._options.mmap)
        self._sources[shard] = source
        fmt = formats.of(source) if self._format is None else formats.by_name(self._format)
        self._formats[shard] = fmt
        if isinstance(source, Watched):
            proves = isinstance(fmt, Framed) and self._options.checksums == "all"
            self._checks[shard] = partial(source.check_unchanged, proves=proves)
        options = replace(self._options, beside=partial(_beside, self._storage, path))
        settled = self._settled
        if options.schema is not None or options.raw:
            settled = None
        elif settled is not None:
            settled = _stored(settled)
        if self._overlays is not None:
            return self._overlays.open(shard, fmt, source, options, settled, self._names)
        return fmt.open(source, options if settled is None else replace(options, schema=settled))

    def _format_of(self, shard: int) -> Format:
        fmt = self._formats[shard]
        assert fmt is not None, "opened before"
        return fmt

    def _open_all(self) -> None:
        for shard in range(len(self._paths)):
            self.reader(shard)

    def _projection(self, columns: Sequence[str] | None) -> Sequence[str] | None:
        if columns is None:
            return self._columns
        if isinstance(columns, str):
            raise TypeError(f"columns takes a list of names, such as [{columns!r}]")
        for name in columns:
            if name not in self._full_schema.names:
                known = ", ".join(self._full_schema.names)
                raise SchemaError(f"no such column; there are: {known}", field=name)
        return list(columns)

    def noting(self, call: Callable[[], Result]) -> tuple[Result, list[SkippedRegion]]:
        """See Notes.collecting."""
        return self._notes.collecting(call)

    @property
    def options(self) -> Options:
        """What `open` was asked for."""
        return self._options

    @property
    def columns(self) -> Sequence[str] | None:
        """The columns that `open` was asked for, None for all."""
        return self._columns

    def complete(self) -> Dataset:
        """This dataset for who would lose what it does not show: where its schema was inferred from some
        of the records, another that has fields besides is a SchemaError. What is passed over is noted in
        both."""
        if self._options.schema is not None or self._options.raw or self._columns is not None:
            return self
        other = object.__new__(Dataset)
        other.__dict__ |= self.__dict__
        other._options = replace(self._options, complete=True)
        other._readers = [None] * len(self._paths)
        other._sources = [None] * len(self._paths)
        other._checks = [None] * len(self._paths)
        other._locks = [Lock() for _ in self._paths]
        return other

    def reopened(self, **other: Any) -> Dataset:
        """The same files, opened the same way but for some keywords."""
        return _reopen({**self._call, **other})

    def format_name(self, shard: int) -> str:
        """What the format of a shard is called."""
        self.reader(shard)  # tells it by the bytes
        return self._format_of(shard).info.name

    @property
    def storage(self) -> Storage:
        """Where the files are."""
        return self._storage

    @property
    def has_overlays(self) -> bool:
        """Whether fields that are kept beside the files are shown."""
        return self._overlays is not None

    def overlay_digests(self, shard: int) -> list[str]:
        """What tells the overlays that are joined with one file from any others."""
        return [] if self._overlays is None else self._overlays.digests(shard)

    def forget_index(self, shard: int) -> None:
        """Drop the sidecar of a shard that turned out not to fit, so that the next `open` makes
        a new one. A sidecar that the caller keeps in a folder of their own stays."""
        if self._options.index == "auto" and isinstance(self._storage, LocalStorage):
            discard(self._paths[shard])


def _beside(storage: Storage, path: str, name: str) -> Source | None:
    """A file of the folder that a shard is in."""
    other = os.path.join(os.path.dirname(path), name)
    return storage.source(other) if storage.exists(other) else None


def _stored(schema: pa.Schema) -> pa.Schema:
    """The fields of a schema that are in the files."""
    fields = [field for field in schema if field.name != "unproved"]
    return pa.schema(fields, metadata=schema.metadata)


def _reopen(call: dict[str, Any]) -> Dataset:
    known = {
        word: value for word, value in call.items() if word not in ("source", "format_options")
    }
    return open(call["source"], **known, **call["format_options"])


def _unspeakable(batch: pa.RecordBatch) -> str | None:
    """The first field of a batch that has no values in Python."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            column.to_pylist()
        except (ValueError, OverflowError, LookupError):
            return name
    return None


def open(
    source: Any,
    *,
    format: str | None = None,
    schema: Any = None,
    columns: Sequence[str] | None = None,
    raw: bool = False,
    checksums: str = "all",
    damage: str = "error",
    index: str = "auto",
    mmap: bool = False,
    overlays: bool = True,
    limits: Limits | dict[str, int] | None = None,
    dialect: str = "protobuf",
    storage: Storage | None = None,
    cache: str | None = None,
    **format_options: Any,
) -> Dataset:
    """Open data as it lies.

    Args:
        source: a path, a list of paths, a glob, a folder, `name@N` for numbered shards, or
            WebDataset's `name-{000..099}.tar`, `a::b` and JSON index of shards.
        format: a format's name, instead of telling it by the bytes.
        schema: a pyarrow.Schema, {name: penstock.features...}, or a protobuf message class or
            descriptor; None infers one from the first records.
        columns: the columns wanted, in that order; others are not decoded.
        raw: give the payloads as they are, in one binary_view column `record`.
        checksums: "all" verifies everything that the format stores; "headers" leaves payloads
            unverified; "none" also stops comparing with the index.
        damage: "error" raises; "stop" reads up to the damage; "skip" passes over damaged records
            and lists them in `Dataset.damage`; "salvage" also gives records that nobody can prove
            to be records, marked in a boolean column `unproved`.
        index: "auto" keeps sidecars beside the data, or in the user's cache where that cannot be
            written (and none for files of another storage); a folder keeps them there; "never" keeps
            and reads none.
        mmap: borrow local files from memory maps instead of reading. Faster for large records; a
            file that is cut meanwhile ends the process.
        overlays: show the fields that are kept beside the files as if they were in them; False
            shows what is in the files. raw=True never shows them.
        limits: how much a file may ask for, a penstock.Limits or a dict of some of them.
        dialect: whose rules decide where a writer of Examples was odd, "protobuf" or "tensorflow".
        storage: where the files are; None for this machine.
        cache: a folder for copies of remote files; local files need none.
        format_options: options of the format, such as `infer_records="all"` for TFRecord.

    Returns:
        A Dataset. Opening reads a few kilobytes and a sample of the records of the first file.

    Raises:
        FileNotFoundError: no such file, or a shard of a numbered set is missing.
        FormatError: the bytes are of no known format, or break its rules.
        SchemaError: the records do not fit the schema, or have no common one.
        StaleIndexError: an overlay was made for another state of its file.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [1, 2], "name": ["a", "b"]}, "two.tfrecord", overwrite=True)
        >>> ps.open("two.tfrecord", columns=["name"])[0]
        {'name': b'a'}
    """
    given = {"checksums": checksums, "damage": damage, "dialect": dialect}
    for word, value in given.items():
        if value not in _CHOICES[word]:
            listed = ", ".join(repr(choice) for choice in _CHOICES[word])
            raise ValueError(f"{word}={value!r} is not one of {listed}")
    if isinstance(columns, str):
        raise TypeError(f"columns takes a list of names, such as [{columns!r}]")
    if raw and schema is not None:
        raise ValueError("raw=True gives records as bytes, which have no schema; leave out one")
    call = {
        "format": format,
        "schema": schema,
        "columns": None if columns is None else list(columns),
        "raw": raw,
        **given,
        "index": index,
        "mmap": mmap,
        "overlays": overlays,
        "limits": limits,
        "storage": storage,
        "format_options": format_options,
    }
    place = storage or LocalStorage()
    is_folder = format is not None and formats.by_name(format).info.is_folder
    passed_over: list[str] = []
    paths = expand(source, place, is_folder=is_folder, passed_over=passed_over)
    return Dataset(paths, place, call, shard_list(source, place), passed_over)

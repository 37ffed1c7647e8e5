"""The class `Dataset`, and the function `open`, which makes it."""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import formats
from penstock.columns.casts import in_microseconds
from penstock.columns.records import has_tensors, rows_of
from penstock.contract.format import Options
from penstock.datasets._one_set import refuse_several_formats
from penstock.datasets._opened import Opened
from penstock.datasets.files import Files
from penstock.datasets.scan import scan
from penstock.datasets.take import take
from penstock.errors import SchemaError, UnsupportedError
from penstock.limits import Limits, checked_count, limits_from
from penstock.storage.base import Storage
from penstock.storage.local import LocalStorage
from penstock.storage.paths import expand, reading_index
from penstock.storage.shard_lists import ShardList
from penstock.storage.skipped import SkippedFile, warning_about

_CHOICES = {
    "checksums": ("all", "headers", "none", "index"),
    "damage": ("error", "stop", "skip"),
    "dialect": ("protobuf", "tensorflow"),
}
_SALVAGE = "; penstock.repair(..., salvage=True), or `penstock repair --salvage`, writes a file with all that can be saved"


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of a dataset."""

    path: str
    format: str
    num_records: int
    num_bytes: int


class Dataset(Opened):
    """The records of one or more files, read in place. `penstock.open` makes it. Threads may share it, and its pickle
    has only the arguments of `open`.

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
        self, call: dict[str, Any], files: Files, skipped: Sequence[SkippedFile] = ()
    ) -> None:
        super().__init__(files, call["columns"])
        self._call = call
        self._skipped = tuple(skipped)
        self.class_names: dict[str, tuple[str, ...] | None] = {}
        """The class names that loaders have found so far, by path (None: too many); see loader/_class_names.py."""
        self._has_tensors: bool | None = None
        for name in self._columns or ():
            self._check_column(name, file=files.paths[0])

    def __reduce__(self) -> tuple[Any, ...]:
        call = dict(self._call)
        if isinstance(self._files.storage, LocalStorage):
            # The process that unpickles the dataset may have a different current folder.
            call["source"] = [os.path.abspath(path) for path in self._files.paths]
        return _dataset_of, (call, self._files.listed, self._skipped)

    # -- facts ----------------------------------------------------------------------------------

    @property
    def skipped_files(self) -> tuple[SkippedFile, ...]:
        """Files that were found but are not read, with the reason: hidden and unfinished files, markers and indexes of
        other programs, text such as a README, and empty files if the format has no empty files. This opens all files."""
        return (*self._skipped, *self._files.skipped())

    @property
    def shards(self) -> list[Shard]:
        """The files with their format, record count and size. Counting may build an index."""
        files = self._files
        return [
            Shard(path, files.format_name(n), files.reader(n).num_records, files.num_bytes(n))
            for n, path in enumerate(files.paths)
        ]

    @property
    def fingerprint(self) -> str:
        """An identifier for these records in this order. It depends on the names, sizes and record counts of the
        shards, the checksums of their records if an index has them, and their overlays.

        It reads no payloads, and takes as long as counting the records. In Parquet, Arrow and other files without an
        index, it does not detect a change that keeps size and record count.
        """
        import hashlib

        facts = hashlib.blake2b(digest_size=16)
        for number, shard in enumerate(self.shards):
            name = shard.path.replace("\\", "/").rsplit("/", 1)[-1]
            facts.update(
                f"{name}\0{shard.num_bytes}\0{shard.num_records}\0".encode("utf-8", "replace")
            )
            facts.update(self._files.checksum(number).to_bytes(4, "little"))
            facts.update("\0".join(self._files.overlay_digests(number)).encode("utf-8", "replace"))
        return facts.hexdigest()

    def __repr__(self) -> str:
        first, *others = self.paths
        more = f" and {len(others)} more" if others else ""
        return f"<penstock.Dataset {first}{more}: {', '.join(self.schema.names)}>"

    # -- records --------------------------------------------------------------------------------

    def scan(
        self,
        columns: Sequence[str] | None = None,
        batch_records: int | None = None,
        threads: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield all records as Arrow batches, in file order.

        Args:
            columns: names of columns; None for all. Other columns are not decoded.
            batch_records: the records in each batch except the last. None makes one batch of each chunk (about 2 MiB
                of the file; 8 MiB if records are large).
            threads: how many chunks are decoded in parallel; None for one on each core.

        Raises:
            PenstockError: data is damaged (see `damage=` of `open`), or records do not fit the schema. The records
                before the fault are yielded first.
        """
        if threads is not None:
            threads = checked_count("threads", threads, 1)
        if batch_records is not None:
            batch_records = checked_count("batch_records", batch_records, 1)
        return scan(self, self._projection(columns), batch_records, threads)

    def take(
        self, records: Sequence[int] | np.ndarray, columns: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """Return records by number, in the requested order. Numbers may repeat, and negative numbers count from the end.
        Only the named columns are decoded; None for all.

        Raises:
            RecordIndexError: a number is out of range.
            PenstockError: one of the records is damaged, or does not fit the schema.
        """
        return take(self, records, self._projection(columns))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return self.take(np.arange(*key.indices(len(self))))
        try:
            number = operator.index(key)
        except TypeError:
            return self.take(key)
        return self._dicts(self.take([number]))[0]

    def __getitems__(self, records: Sequence[int]) -> list[dict[str, Any]]:
        """Several records in one call, for torch's DataLoader."""
        return self._dicts(self.take(records))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self.scan():
            yield from self._dicts(batch)

    def _dicts(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        """The records of a batch as dicts of Python values, with tensors as NumPy arrays."""
        file = self.paths[0] if len(self.paths) == 1 else None
        if len(set(batch.schema.names)) < batch.num_columns:
            message = (
                "two fields have the same name, so a record cannot be a dict; use take or scan"
            )
            raise SchemaError(message, file=file)
        try:
            given = batch.columns
            columns = [in_microseconds(column) for column in given]
            if any(made is not one for made, one in zip(columns, given, strict=True)):
                batch = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
            if self._has_tensors is None:
                self._has_tensors = any(map(has_tensors, self.schema.types))
            return rows_of(batch) if self._has_tensors else batch.to_pylist()
        except (ValueError, OverflowError, LookupError) as error:
            # Examples: two equal names in a struct, a year after 9999, an unknown time zone.
            raise SchemaError(
                f"a record holds a value that Python cannot express: {error}",
                file=file,
                field=_unconvertible(batch),
                hint="take or scan, which return it as Arrow",
            ) from error

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        stream = pa.RecordBatchReader.from_batches(self.schema, self.scan())
        return stream.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def _projection(self, columns: Sequence[str] | None) -> Sequence[str] | None:
        if columns is None:
            return self._columns
        _check_are_names(columns)
        for name in columns:
            self._check_column(name)
        return list(columns)

    def _check_column(self, name: str, file: str | None = None) -> None:
        if not self._files.schema.get_all_field_indices(name):
            known = ", ".join(self._files.schema.names)
            raise SchemaError(f"no such column; there are: {known}", field=name, file=file)

    # -- for the verbs --------------------------------------------------------------------------

    def complete(self) -> Dataset:
        """This dataset, for callers that must not lose fields missing from the schema; see Files.complete. Both share
        the list of skipped regions."""
        if self._columns is not None:
            return self
        other = Dataset(self._call, self._files.complete(), self._skipped)
        other._regions, other._records = self._regions, self._records
        return other

    def reopened(self, **other: Any) -> Dataset:
        """A dataset of the same files, opened in the same way except for these keywords."""
        if "source" in other:
            return _dataset_of({**self._call, **other})
        return _dataset_of({**self._call, **other}, self._files.listed, self._skipped)


def _dataset_of(
    call: dict[str, Any], listed: ShardList | None = None, skipped: Sequence[SkippedFile] = ()
) -> Dataset:
    """Make the dataset for a call of `open`, whose source was expanded to a list of files."""
    beside = ("source", "format", "columns", "overlays", "storage")
    files = Files(
        call["source"],
        call["storage"] or LocalStorage(),
        Options(**{word: value for word, value in call.items() if word not in beside}),
        format=call["format"],
        overlays=call["overlays"],
        listed=listed,
    )
    return Dataset(call, files, skipped)


def _check_choices(choices: dict[str, str]) -> None:
    for word, value in choices.items():
        if value not in _CHOICES[word]:
            listed = ", ".join(map(repr, _CHOICES[word]))
            instead = _SALVAGE if value == "salvage" else ""
            raise ValueError(f"{word}={value!r} is not one of {listed}{instead}")


def _check_can_use_index(index: Any, mmap: bool) -> None:
    if mmap:
        raise ValueError(
            'checksums="index" verifies each read, but mmap=True reads nothing; leave out one of them'
        )
    if index == "never":
        raise ValueError('checksums="index" needs an index, but index="never" does not read one')


def _check_are_names(columns: Any) -> None:
    if isinstance(columns, str):
        raise TypeError(f"columns takes a list of names, such as [{columns!r}]")
    if isinstance(columns, (set, frozenset)):
        raise TypeError("columns takes a list of names; a set has no order")


def _unconvertible(batch: pa.RecordBatch) -> str | None:
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
    index: str | os.PathLike[str] = "auto",
    mmap: bool = False,
    overlays: bool = True,
    limits: Limits | dict[str, int] | None = None,
    dialect: str = "protobuf",
    storage: Storage | None = None,
    cache: str | None = None,
    **format_options: Any,
) -> Dataset:
    """Open data in place.

    Args:
        source: a path, a list of paths, a glob (`**` for folders at any depth), a folder (all data files below
            it), `name@N` for numbered shards, or WebDataset's `name-{000..099}.tar`, `a::b` and JSON index of
            shards. The files of a folder or a glob must have the same format. `Dataset.skipped_files` lists
            the files that are left out, and a warning names those that look like data.
        format: the name of the format; None detects it from the content.
        schema: a pyarrow.Schema, {name: penstock.features...}, or a protobuf message class or
            descriptor; None infers one from the first records.
        columns: the columns to read, in this order. Other columns are not decoded.
        raw: return the payloads undecoded, in one binary_view column `record`.
        checksums: "all" verifies all checksums that the format stores; "headers" verifies only those of headers;
            "none" verifies none, and so can read files that were written without checksums. "index" verifies all, and
            for formats without checksums also compares each MiB that is read with the checksums stored by
            `index(checksums=True)`.
        damage: "error" raises; "stop" reads each file up to its damage; "skip" skips damaged records and lists
            them in `Dataset.damage`. Only `repair(..., salvage=True)` keeps unverified frames.
        index: where sidecars (penstock's files with an index of a data file) are read and stored. "auto" reads them
            next to the data and in the user's cache, and stores new ones in the cache, or next to the data if one
            is already there. "beside" stores them next to the data, and a path stores them in that folder. "never"
            reads and stores none. The environment variable `PENSTOCK_INDEX` sets the meaning of "auto". For files
            of another storage, sidecars are stored only in a folder.
        mmap: map local files into memory instead of reading them. This is faster for large records, but the process
            is killed if a file is truncated meanwhile.
        overlays: include the fields of overlays as if they were in the files. raw=True never includes them.
        limits: limits on the memory for a file, as a penstock.Limits or a dict of some of its fields.
        dialect: the rules for Examples that were written in an unusual way, "protobuf" or "tensorflow".
        storage: the storage of the files; None for local files.
        cache: a folder for copies of remote files. It has no effect on local files, and is not supported yet for
            files of another storage.
        format_options: options of the format, such as `infer_records="all"` for TFRecord.

    Opening reads a few kilobytes and a sample of the records of the first file.

    Raises:
        FileNotFoundError: there is no such file, or a shard of a numbered set is missing.
        FormatError: the content is not in a known format, or is damaged; or the files of a folder have several formats.
        SchemaError: the records do not fit the schema, or have no common schema.
        StaleIndexError: a file has changed since its overlay was made.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [1, 2], "name": ["a", "b"]}, "two.tfrecord", overwrite=True)
        >>> ps.open("two.tfrecord", columns=["name"])[0]
        {'name': 'a'}
    """
    choices = {"checksums": checksums, "damage": damage, "dialect": dialect}
    _check_choices(choices)
    _check_are_names(columns)
    index = reading_index(index)
    if checksums == "index":
        _check_can_use_index(index, mmap)
    if raw and schema is not None:
        raise ValueError("raw=True returns bytes without a schema; leave out raw= or schema=")
    if cache is not None and storage is not None:
        raise UnsupportedError("cache= does not support files of another storage yet; leave it out")
    place = storage or LocalStorage()
    formats.load()
    is_folder = format is not None and formats.by_name(format).info.is_folder
    paths, skipped, sets, listed = expand(source, place, is_folder=is_folder)
    if format is None:
        for files in sets:
            refuse_several_formats(files, place)
    call = {
        "source": paths,
        "format": format,
        "schema": schema,
        "columns": None if columns is None else list(columns),
        "raw": raw,
        **choices,
        "index": index,
        "mmap": mmap,
        "overlays": overlays,
        "limits": limits_from(limits),
        "storage": storage,
        "format_options": format_options,
    }
    dataset = _dataset_of(call, listed, skipped)
    message = warning_about([*skipped, *dataset.files.skipped(opened_only=True)])
    if message is not None:
        warnings.warn(message, stacklevel=2)
    return dataset

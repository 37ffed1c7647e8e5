"""The class `Dataset`: facts about its shards, and access to their records."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import numpy as np
import pyarrow as pa

from penstock.columns.batches import empty_batch
from penstock.columns.records import has_tensors
from penstock.conditions import Where
from penstock.datasets._as_dicts import dicts_of
from penstock.datasets._chosen import ByCondition, ByNumber, readable
from penstock.datasets._computed import Computed, ComputedFiles, checked
from penstock.datasets._manifest_files import ManifestFiles
from penstock.datasets._opened import Opened, Skipped, check_are_names, options_of
from penstock.datasets._record_numbers import ascending_numbers
from penstock.datasets._renamed import Renamed, stored_names
from penstock.datasets._types import schema_with, with_fields
from penstock.datasets._views import View, ViewFiles
from penstock.datasets.files import Files
from penstock.datasets.scan import cautious_scan, scan
from penstock.datasets.shard import Shard
from penstock.datasets.take import take
from penstock.datasets.tasks import ReadTask, tasks_at, tasks_of, tasks_of_files
from penstock.errors import SchemaError, UnsupportedError, shown
from penstock.limits import checked_count
from penstock.manifests.manifest import Paths
from penstock.storage.local import LocalStorage
from penstock.storage.shard_lists import ShardList
from penstock.storage.skipped import SkippedFile

if TYPE_CHECKING:
    import polars as pl


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
        self,
        call: dict[str, Any],
        files: Files,
        skipped: Sequence[SkippedFile] = (),
        regions: Skipped | None = None,
    ) -> None:
        super().__init__(files, call["columns"], regions)
        self._call = call
        self._skipped = tuple(skipped)
        self.class_names: dict[str, tuple[str, ...] | None] = {}
        """The class names that loaders have found so far, by path (None: too many); see loader/_class_names.py."""
        self._has_tensors: bool | None = None
        for name in self._columns or ():
            self.check_column(name, file=files.paths[0])

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self._files, ViewFiles):
            base = Dataset({**self._call, "columns": None}, self._files.base, self._skipped)
            return _viewed, (base, self._files.view, self._columns)
        call = dict(self._call)
        if isinstance(self._files.paths, tuple):  # a manifest lists no signed addresses
            self._files.storage.check_pickled_names(self._files.paths)
        if isinstance(self._files.paths, tuple) and isinstance(self._files.storage, LocalStorage):
            # The process that unpickles the dataset may have a different current folder.
            call["source"] = [os.path.abspath(path) for path in self._files.paths]
        return dataset_of, (call, self._files.listed, self._skipped)

    # -- facts ----------------------------------------------------------------------------------

    @property
    def skipped_files(self) -> tuple[SkippedFile, ...]:
        """Files that were found but are not read, with the reason: hidden and unfinished files, markers and indexes of
        other programs, text such as a README, and empty files if the format has no empty files. This opens all
        files."""
        return (*self._skipped, *self._files.skipped())

    @property
    def shards(self) -> list[Shard]:
        """The files with their format, record count and size. Counting may build an index."""
        files = self._files
        return [
            Shard(shown(path), files.format_name(n), files.num_records_of(n), files.num_bytes(n))
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

        if self._files.known_fingerprint:
            return self._files.known_fingerprint
        facts = hashlib.blake2b(digest_size=16)
        for number, shard in enumerate(self.shards):
            name = shard.path.replace("\\", "/").rsplit("/", 1)[-1]
            facts.update(
                f"{name}\0{shard.num_bytes}\0{shard.num_records}\0".encode("utf-8", "replace")
            )
            facts.update(self._files.checksum(number).to_bytes(4, "little"))
            facts.update("\0".join(self._files.added_digests(number)).encode("utf-8", "replace"))
        facts.update(self._files.choice_digest.encode())
        return facts.hexdigest()

    def __repr__(self) -> str:
        first, others = self.paths[0], len(self.paths) - 1
        more = f" and {others} more" if others else ""
        return f"<penstock.Dataset {shown(first)}{more}: {', '.join(self.schema.names)}>"

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
        return scan(self, self.projection(columns), batch_records, threads)

    def take(
        self, records: Sequence[int] | np.ndarray, columns: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """Return records by number, in the requested order. Numbers may repeat, and negative numbers count from the
        end. Only the named columns are decoded; None for all.

        Raises:
            RecordIndexError: a number is out of range.
            PenstockError: one of the records is damaged, or does not fit the schema.
        """
        return take(self, records, self.projection(columns))

    def head(self, n: int = 5) -> pa.Table:
        """Return the first `n` records, or all if there are fewer."""
        return self.to_table(limit=n)

    def to_table(
        self,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        limit: int | None = None,
        reads: Sequence[str] | None = None,
    ) -> pa.Table:
        """Return records as one Arrow table in memory.

        Args:
            columns: the names of the wanted columns; None for all.
            where: only records for which this holds; see `filter`.
            limit: the most records; the rest is not read.
            reads: the columns that a function or an expression in `where` reads; None for all.
        """
        if limit is not None:
            limit = checked_count("limit", limit, 0)
        view = self if where is None else self.filter(where, reads)
        batches: list[pa.RecordBatch] = []
        left = limit
        found = view.scan(columns) if limit is None else view.cautious_scan(columns)
        for batch in found if left != 0 else ():
            batches.append(batch if left is None else batch.slice(0, left))
            left = None if left is None else left - batches[-1].num_rows
            if left == 0:
                break
        schema = self.schema if columns is None else pa.schema(map(self.schema.field, columns))
        return pa.Table.from_batches(batches, schema if schema.names or not batches else None)

    def count(self, where: Where | None = None, reads: Sequence[str] | None = None) -> int:
        """Return the number of records, or of those for which a condition holds; see `filter`. Without a condition this
        reads only the index or the header; with one, only the columns that the condition names."""
        if where is None:
            return len(self)
        return sum(batch.num_rows for batch in self.filter(where, reads).scan(columns=[]))

    def select(self, columns: Sequence[str]) -> Dataset:
        """Return the same records with only these columns, in this order. Nothing is read or copied."""
        call = {**self._call, "columns": self.projection(columns)}
        return Dataset(call, self._files, self._skipped, Skipped(self._regions))

    def rename(self, names: Mapping[str, str]) -> Dataset:
        """Return the same records with other names for some columns: {old name: new name}. Nothing is read or copied.

        Raises:
            SchemaError: there is no such column, or two columns would have the same name.

        Example:
            >>> import penstock as ps
            >>> _ = ps.write({"img": [1, 2], "y": [3, 4]}, "pairs.tfrecord", overwrite=True)
            >>> ps.open("pairs.tfrecord").rename({"img": "image", "y": "label"})[1]
            {'image': 2, 'label': 4}
        """
        return self.view(Renamed(stored_names(self.schema.names, names)))

    def with_columns(self, columns: Mapping[str, str]) -> Dataset:
        """Return the same records with more columns, each computed from the others when it is read: {name: expression}.
        An expression is written as in a condition (docs/guide/conditions.md): a field of JSON such as `json.caption`,
        a field of a struct, `width / height`, `len(tokens)`, `cast(label, "int32")`. A column of that name is replaced.
        The types are those of the first 1000 records or 4 MiB, unless `cast` says them.

        Raises:
            ValueError: a text is not an expression.
            SchemaError: it names an unknown column, or has no value in the first records; or, when a record is read,
                its value cannot be computed, or does not have the type.

        Example:
            >>> import penstock as ps
            >>> _ = ps.write({"width": [4, 9], "height": [2, 3]}, "sizes.tfrecord", overwrite=True)
            >>> ps.open("sizes.tfrecord").with_columns({"ratio": "width / height"})[1]
            {'width': 9, 'height': 3, 'ratio': 3.0}
        """
        texts = checked(columns)
        sample = self.to_table(limit=1000).combine_chunks().to_batches()
        empty = empty_batch(self.schema)
        return self.view(Computed(texts, sample[0] if sample else empty))

    def filter(self, where: Where, reads: Sequence[str] | None = None) -> Dataset:
        """Return a view of the records for which a condition holds. Nothing is copied, and nothing is read until the
        view is read: `scan` evaluates the condition as it reads, and skips row groups that the statistics of a Parquet
        file exclude. `len`, access by number and a loader first need one pass over the condition's columns. Columns of
        `with_columns` that the condition does not read are computed only for the records for which it holds.

        Args:
            where: a text such as `label == 3 and len(tokens) > 10` (docs/guide/conditions.md), a pyarrow.compute
                expression, or a function that takes a RecordBatch and returns bool[num_rows].
            reads: the columns that a function or an expression reads; None for all. A function may get more.

        Raises:
            ValueError: the text is not a condition.
            SchemaError: it, or `reads`, names an unknown column.

        Example:
            >>> import penstock as ps
            >>> _ = ps.write({"id": [1, 2, 3]}, "numbers.tfrecord", overwrite=True)
            >>> ps.open("numbers.tfrecord").filter("id >= 2").to_table().to_pydict()
            {'id': [2, 3]}
        """
        check_are_names(reads)
        for name in reads or ():
            self.check_column(name)
        listed = None if reads is None else list(reads)
        view = ByCondition(where, self.schema, listed)
        files = self._files
        if isinstance(files, ComputedFiles) and files.is_apart_from(view.columns):
            # Choose first: the expressions may fail for other records.
            chosen = ByCondition(where, files.base.schema, listed).files(files.base)
            return self._with_files(self._call, files.view.files(chosen))
        return self.view(view)

    def subset(self, records: Sequence[int] | np.ndarray) -> Dataset:
        """Return a view of the records with these numbers, which must be ascending, or for which a mask, bool[len(ds)],
        is true. Nothing is read or copied.

        Raises:
            TypeError: they are neither whole numbers nor truth values.
            ValueError: the numbers are not ascending, or occur twice, or the mask has another length.
            RecordIndexError: a number is out of range.

        Example:
            >>> import penstock as ps
            >>> _ = ps.write({"id": [1, 2, 3]}, "numbers.tfrecord", overwrite=True)
            >>> ps.open("numbers.tfrecord").subset([0, 2]).to_table().to_pydict()
            {'id': [1, 3]}
        """
        numbers = ascending_numbers(records, len(self))
        return self.view(ByNumber.of(numbers, self._files.firsts))

    def view(self, view: View) -> Dataset:
        """Return a view, such as one of some of the records."""
        call = self._call if view.keeps_columns else {**self._call, "columns": None}
        return self._with_files(call, view.files(self._files))

    def _with_files(self, call: dict[str, Any], files: Files) -> Dataset:
        return Dataset(call, files, self._skipped, Skipped(self._regions))

    def readable(self) -> Dataset:
        """Return a view of the records that can be read. If damage is skipped, this reads all data."""
        if self.options.damage == "error":
            return self
        return self.view(readable(self._files, self.add_skipped))

    def whole(self, verb: str) -> Dataset:
        """Return this dataset, for a verb that works on whole files.

        Raises:
            UnsupportedError: it is a view of their records, or their columns have other names there.
        """
        if isinstance(self._files, ViewFiles):
            message = f"{verb} works on whole files, and this dataset is a view of their records"
            raise UnsupportedError(
                message, hint="penstock.convert writes the view as files of its own"
            )
        # The names of folders are not in the files.
        return self.reopened(hive=False) if self._call["hive"] else self

    @overload
    def __getitem__(self, key: SupportsIndex) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, key: slice | Sequence[int] | np.ndarray) -> pa.RecordBatch: ...

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return self.take(np.arange(*key.indices(len(self))))
        if isinstance(key, str):
            raise TypeError(f"records have numbers; for a column use to_table(columns=[{key!r}])")
        if isinstance(key, bool):
            raise TypeError(f"records have numbers, and {key} is none")
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
        if self._has_tensors is None:
            self._has_tensors = any(map(has_tensors, self.schema.types))
        return dicts_of(batch, self._has_tensors, file)

    def lazy(self) -> pl.LazyFrame:
        """Return a polars LazyFrame. A query reads only the columns and records that it needs.

        Example:
            >>> import polars as pl
            >>> import penstock as ps
            >>> _ = ps.write({"id": [1, 2, 3]}, "numbers.tfrecord", overwrite=True)
            >>> ps.open("numbers.tfrecord").lazy().filter(pl.col("id") > 1).collect()[
            ...     "id"
            ... ].to_list()
            [2, 3]
        """
        return import_module("penstock.adapters.polars").lazy_frame(self)

    def to_arrow_dataset(self) -> pa.dataset.Dataset:
        """Return a pyarrow.dataset.Dataset, for duckdb and pyarrow, which then read only the columns of a query.

        Example:
            >>> import duckdb
            >>> import penstock as ps
            >>> _ = ps.write({"id": [1, 2, 3]}, "numbers.tfrecord", overwrite=True)
            >>> numbers = ps.open("numbers.tfrecord").to_arrow_dataset()
            >>> duckdb.sql("select sum(id) from numbers where id > 1").fetchall()
            [(5,)]
        """
        return import_module("penstock.adapters.arrow").ArrowDataset(self)

    def tasks(self, target_bytes: int = 128 << 20) -> list[ReadTask]:
        """Divide the records into tasks that other processes and machines can read: contiguous ranges, in order, which
        together are all records once. A task is several neighbouring files of up to `target_bytes` together, or a part of
        a larger file. It pickles with all that it needs: the names and states of its files, the schema, and how the data
        was opened. To cut files, and to count, this opens all of them, unless a manifest lists them.

        Args:
            target_bytes: the most stored bytes of a task with several files or several chunks of a file. A chunk has
                about 2 MiB; a Parquet file is cut only between row groups. A compressed TFRecord file, and any file if
                damage is skipped, is not cut.

        Raises:
            UnsupportedError: the records are rows of `penstock.packed`, which are made of several documents.

        Example:
            >>> import pickle
            >>> import penstock as ps
            >>> made = ps.write({"id": range(9)}, "few.tfrecord", num_shards=3, overwrite=True)
            >>> tasks = ps.open(made.paths).tasks()
            >>> tasks
            [<penstock.ReadTask few-00000-of-00003.tfrecord and 2 more: 9 records>]
            >>> task = pickle.loads(pickle.dumps(tasks[0]))
            >>> sum(batch.num_rows for batch in task.batches(columns=["id"]))
            9
        """
        return tasks_of(self, self._call, checked_count("target_bytes", target_bytes, 1))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        stream = pa.RecordBatchReader.from_batches(self.schema, self.scan())
        return stream.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    # -- for the verbs --------------------------------------------------------------------------

    def whole_tasks(self, target_bytes: int) -> list[ReadTask]:
        """Tasks of whole files, which are not counted: several neighbouring ones, up to `target_bytes` together."""
        return tasks_of(self, self._call, target_bytes, are_whole=True)

    def cautious_scan(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """`scan`, for a caller that may stop after a few records: at first nothing is read ahead."""
        return cautious_scan(self, self.projection(columns))

    def file_tasks(self, numbers: Sequence[int]) -> list[ReadTask]:
        """The same, for each of these files alone."""
        return tasks_of_files(self, self._call, numbers)

    def complete(self, *, is_found: bool = False) -> Dataset:
        """This dataset, for callers that must not lose fields missing from the schema; see Files.complete. Both share
        the list of skipped regions."""
        if self._columns is not None:
            return self
        files = self._files.complete(is_found=is_found)
        return Dataset(self._call, files, self._skipped, self._regions)

    def with_own_damage(self) -> Dataset:
        """The same dataset, with a list of skipped regions that is empty. What is added to it is added to the list of
        this dataset, too."""
        return Dataset(self._call, self._files, self._skipped, Skipped(self._regions))

    def tasks_at(self, numbers: range | np.ndarray) -> list[ReadTask]:
        """Return tasks that together read the records with these numbers, which must ascend."""
        return next(self.tasks_at_each([numbers]))

    def tasks_at_each(self, several: Iterable[range | np.ndarray]) -> Iterator[list[ReadTask]]:
        """The same for each of several sequences of numbers."""
        return tasks_at(self, self._call, several)

    def with_types(self, types: Mapping[str, Any]) -> Dataset:
        """Return a dataset of the same records with other types for some fields: `types=` of `open`."""
        schema = schema_with(self._files.schema, types)
        return self.reopened(schema=schema, retyped=True)

    def reopened(self, **other: Any) -> Dataset:
        """Return a dataset of the same files, opened in the same way except for some keywords."""
        if isinstance(self._files, ViewFiles):
            view = self._files.view.fixed(self._files.base)
            call = {**self._call, "columns": None}
            base = Dataset(call, self._files.base, self._skipped, self._regions)
            columns = other.pop("columns", self._columns)
            if other.get("schema") is not None:
                asked = view.schema_of_files(other["schema"])
                if other.get("retyped"):  # the view may hide columns
                    asked = with_fields(self._files.base.schema, asked)
                other["schema"] = asked
            return _viewed(base.reopened(**other), view, columns)
        if "schema" in other:
            is_retyped = other.get("retyped", False)
            other["retyped"] = self._files.retyped(other["schema"]) if is_retyped else None
        call, regions = {**self._call, **other}, Skipped(self._regions)
        if "source" in other:
            return dataset_of(call, regions=regions)
        return dataset_of(call, self._files.listed, self._skipped, regions)


def dataset_of(
    call: dict[str, Any],
    listed: ShardList | None = None,
    skipped: Sequence[SkippedFile] = (),
    regions: Skipped | None = None,
) -> Dataset:
    """Make the dataset for a call of `open`, whose source was expanded to a list of files."""
    paths = call["source"]
    files = (ManifestFiles if isinstance(paths, Paths) else Files)(
        paths,
        call["storage"] or LocalStorage(),
        options_of(call),
        format=call["format"],
        overlays=call["overlays"],
        hive=call["hive"],
        listed=listed,
    )
    return Dataset(call, files, skipped, regions)


def _viewed(base: Dataset, view: View, columns: Sequence[str] | None) -> Dataset:
    shown = base.view(view)
    return shown if columns is None else shown.select(columns)

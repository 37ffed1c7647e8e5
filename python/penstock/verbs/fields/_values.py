"""The base class of all sources of values for new fields, and helpers for tables."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.columns.batches import empty_batch
from penstock.columns.joined import join
from penstock.columns.types import is_text
from penstock.contract.format import Chunk
from penstock.datasets.dataset import Dataset
from penstock.datasets.open import open as open_dataset
from penstock.datasets.scan import shard_batches
from penstock.datasets.take import reordered
from penstock.engine.pipeline import in_order
from penstock.errors import FormatError, SchemaError
from penstock.storage.base import Source, Storage
from penstock.storage.places import storage_of
from penstock.storage.pyarrow_files import Bytes
from penstock.storage.urls import is_url
from penstock.verbs.write.incoming import batches_of
from penstock.verbs.write.incoming_values import no_text

SCALARS = (bool, int, float, str, bytes, np.generic, pa.Scalar)
"""The types of one value for all records."""
_BATCH_RECORDS = 1 << 16
_MARKS = {".csv": ",", ".tsv": "\t"}
"""The marks between the cells of CSV files, by the ending of their names."""
_LEADING_ZERO = r"^\s*[+-]?0\d"
_NO_FLOAT = _LEADING_ZERO + r"|^\s*[+-]?\d{17,}\s*$"
"""Leading zeros, or an integer of more digits than a float has."""


class NewFields:
    """New columns for the records of a dataset. `schema` has their names and types; `reads` names the old columns that
    `batch` needs."""

    is_computed = False
    """Whether a function of the user computes the values, which may take long."""

    def __init__(self, schema: pa.Schema, reads: Sequence[str] = ()) -> None:
        self.schema = schema
        self.reads = tuple(reads)

    def batch(
        self, shard: int, first: int, num_records: int, old: pa.RecordBatch | None
    ) -> pa.RecordBatch:
        """Return the columns for the records [first, first + num_records) of a shard. Several threads call
        it at the same time."""
        raise NotImplementedError

    def some(
        self, shard: int, first: int, rows: np.ndarray, old: pa.RecordBatch | None
    ) -> pa.RecordBatch:
        """Return the columns for the records `first + rows` of a shard only. `old` has these records."""
        return self.batch(shard, first, len(rows), old)

    def matched(self, old: pa.RecordBatch) -> np.ndarray:
        """Return for which records there are values, as booleans."""
        return np.ones(old.num_rows, bool)

    def of_shard(self, shard: int) -> NewFields | None:
        """Return only the values of one shard, for another machine, where it has number 0. None if all shards need the
        same: a function, a constant, or a table with keys."""
        del shard

    @property
    def checked(self) -> tuple[str, ...]:
        """The old columns that `check` needs; empty if there is nothing to check."""
        return ()

    def check(self, shard: int, first: int, old: pa.RecordBatch) -> None:
        """Raise SchemaError if there is no value for one of the records of a shard that start at `first`."""

    def emptied(self) -> list[str]:
        """Return the columns in which a row of the table has no value."""
        return []

    def notes(self, old: Dataset, threads: int | None) -> tuple[str, ...]:
        """Return what to tell about how the table fits the records `old`.

        Raises:
            SchemaError: no row fits any record.
        """
        return ()

    def facts(self) -> Any:
        """Return facts that identify these values as well as possible. A call with the same facts continues a killed
        job."""
        return [str(self.schema), self.reads]


class Reshaped(NewFields):
    """The values of other new fields in other columns. What is asked of the table or function behind them is asked of
    those."""

    def __init__(self, new: NewFields, schema: pa.Schema, reads: Sequence[str]) -> None:
        super().__init__(schema, reads)
        self._new = new
        self.is_computed = new.is_computed

    @property
    def checked(self) -> tuple[str, ...]:
        return self._new.checked

    def check(self, shard: int, first: int, old: pa.RecordBatch) -> None:
        self._new.check(shard, first, old)

    def emptied(self) -> list[str]:
        return self._new.emptied()

    def notes(self, old: Dataset, threads: int | None) -> tuple[str, ...]:
        return self._new.notes(old, threads)


def check_all(new: NewFields, old: Dataset, shards: Sequence[int], threads: int | None) -> None:
    """Raise SchemaError if a record lacks a value, before the first of several files is written. `shards` has the number
    of each file of `old` in the job."""
    if len(shards) < 2 or not new.checked:
        return  # a single file gets its name only if there was no error
    done = dict.fromkeys(shards, 0)
    for place, batch in shard_batches(old, list(new.checked), threads):
        shard = shards[place]
        new.check(shard, done[shard], batch)
        done[shard] += batch.num_rows


def columns_of(
    dataset: Dataset, shard: int, new: NewFields, threads: int | None
) -> Iterator[pa.RecordBatch]:
    """Yield the new fields for a shard's records."""
    first, end = dataset.files.firsts[shard], dataset.files.firsts[shard + 1]
    if new.reads and end > first:
        yield from _computed(dataset, shard, new, threads)
        return
    for start in range(0, int(end - first), _BATCH_RECORDS):
        yield new.batch(shard, start, min(_BATCH_RECORDS, int(end - first) - start), None)


def _computed(
    dataset: Dataset, shard: int, new: NewFields, threads: int | None
) -> Iterator[pa.RecordBatch]:
    """Yield the new fields for a shard's records. Several chunks are computed in parallel."""
    reader = dataset.files.reader(shard)

    def run(chunk: Chunk[Any]) -> list[pa.RecordBatch]:
        old = reader.decode(chunk, None, list(new.reads))
        return [new.batch(shard, chunk.first_record, old.num_rows, old)]

    yield from in_order([reader.chunks], run, lambda batch: batch.nbytes, threads)


def is_csv(fields: Any) -> bool:
    """Whether the values are the path of a CSV file, whose empty cells may be forgotten ones."""
    is_path = isinstance(fields, str) or hasattr(fields, "__fspath__")
    return is_path and os.path.splitext(os.fspath(fields))[1].lower() in _MARKS


def table_of(fields: Any, old: pa.Schema, near: Storage) -> pa.Table:
    """Return values in memory, a dataset or a path as a table. `old` has the fields of the records. A table in a store
    is read with the options of the records, if these are in a store (`near`)."""
    if isinstance(fields, str) or hasattr(fields, "__fspath__"):
        path = os.fspath(fields)
        mark = _MARKS.get(os.path.splitext(path)[1].lower())
        is_near = is_url(path) and not near.changes_in_place
        place = near if is_near else storage_of(path)
        if mark is None:
            fields = open_dataset(path, storage=place if is_near else None)
        else:
            fields = _read_csv(path, mark, old, place)
    schema, batches, *_ = batches_of(fields)
    return pa.Table.from_batches(batches, schema=schema).replace_schema_metadata(None)


def _read_csv(path: str, mark: str, old: pa.Schema, place: Storage) -> pa.Table:
    """Read a CSV file. Columns that the records have get the types that these have there. Other columns stay text if a
    number would change what is written there: leading zeros, as in 007, or an integer of very many digits."""
    types = {field.name: field.type for field in old if pa.types.is_primitive(field.type)}
    types |= {f.name: f.type for f in old if is_text(f.type) or pa.types.is_binary(f.type)}
    try:
        table = _parsed_csv(place.source(path), mark, types)
        for name in table.schema.names:
            if table.schema.names.count(name) > 1:
                raise SchemaError("the CSV has two columns of this name", field=name, file=path)
        numbers = [x.name for x in table.schema if _is_number(x.type) and x.name not in types]
        if numbers:
            texts: dict[str, pa.DataType] = dict.fromkeys(numbers, pa.string())
            table = _with_texts(table, _parsed_csv(place.source(path), mark, texts, numbers))
        return table
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError) as error:
        hint = "give the values as a table: pyarrow.csv.read_csv has options for other kinds of CSV"
        raise FormatError(f"the CSV cannot be read: {error}", file=path, hint=hint) from None


def _parsed_csv(
    source: Source, mark: str, types: dict[str, pa.DataType], columns: list[str] | None = None
) -> pa.Table:
    from pyarrow import csv

    data = Bytes(source, mmap=False)
    try:
        return csv.read_csv(
            data.file(),
            parse_options=csv.ParseOptions(delimiter=mark, newlines_in_values=True),
            convert_options=csv.ConvertOptions(
                column_types=types, strings_can_be_null=True, include_columns=columns
            ),
        )
    finally:
        data.close()


def _with_texts(table: pa.Table, texts: pa.Table) -> pa.Table:
    """Return the table with the columns of numbers as they are written, if a number would not have all their digits."""
    import pyarrow.compute

    compute: Any = pyarrow.compute
    for name in texts.schema.names:
        is_float = pa.types.is_floating(table.schema.field(name).type)
        pattern = _NO_FLOAT if is_float else _LEADING_ZERO
        if compute.any(compute.match_substring_regex(texts.column(name), pattern)).as_py():
            place = table.schema.names.index(name)
            table = table.set_column(place, name, texts.column(name))
    return table


def _is_number(type_: pa.DataType) -> bool:
    return pa.types.is_integer(type_) or pa.types.is_floating(type_)


def part(table: pa.Table, start: int, length: int) -> pa.RecordBatch:
    return one_batch(table.slice(start, length))


def one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.to_batches()
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return empty_batch(table.schema)
    return pa.concat_batches(batches)


class _Sum:
    """A file object that only computes the CRC-32C and the length of the bytes written to it."""

    closed = False

    def __init__(self) -> None:
        self.crc = 0
        self.num_bytes = 0

    def write(self, data: Any) -> int:
        part = bytes(data)
        self.crc = _core.Buffer.from_bytes(part).crc32c(self.crc)
        self.num_bytes += len(part)
        return len(part)

    def flush(self) -> None:
        """Do nothing: no bytes are buffered."""

    def close(self) -> None:
        """Do nothing: no file is open."""


def digest(table: pa.Table) -> str:
    """Return a digest of the values of a table, including dictionaries but not the buffers outside its slice."""
    sum_ = _Sum()
    with pa.ipc.new_stream(pa.PythonFile(sum_, "w"), table.schema) as stream:
        stream.write_table(table)
    return f"{sum_.num_bytes:x} {sum_.crc:08x}"


def scalar(name: str, value: Any) -> pa.Scalar:
    """A value of the field `name` as Arrow has it. SchemaError: it cannot be stored."""
    if isinstance(value, pa.Scalar):
        return value
    try:
        return pa.scalar(value.item() if isinstance(value, np.generic) else value)
    except UnicodeError:
        raise no_text(name, ()) from None
    except (pa.ArrowException, OverflowError) as error:
        raise SchemaError(f"this value cannot be stored: {error}", field=name) from None


def filled(array: pa.Array, old: pa.Array) -> pa.Array:
    """Return the new values, and the old ones where the new ones are null."""
    if not array.null_count:
        return array
    place = np.arange(len(array)) + len(array) * np.asarray(array.is_null())
    both = [pa.RecordBatch.from_arrays([one], ["value"]) for one in (array, old)]
    return reordered(join(both), place).column(0)

"""`ds.to_arrow_dataset()`: a dataset as a pyarrow.dataset.Dataset. duckdb and pyarrow read only the columns that
a query names.

Specification: https://arrow.apache.org/docs/python/integration/dataset.html
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads

from penstock.conditions import columns_of_expression
from penstock.datasets.dataset import Dataset


class Scanner(pads.Scanner):  # pyright: ignore[reportUntypedBaseClass]  # pyarrow has no types
    """Reads records as they are taken. Arrow's own scanners read ahead on Arrow's threads: much more than a query with
    a limit takes, and still when Python ends, which then ends in a crash."""

    def __init__(self, dataset: Dataset, columns: Any, batch_size: int | None) -> None:
        self._dataset = dataset
        self._batch_size = batch_size
        names = dataset.schema.names
        self._expressions: Mapping[str, Any] | None = None
        if isinstance(columns, Mapping):
            self._expressions = columns
            found = (columns_of_expression(one, names) for one in columns.values())
            columns = [name for each in found for name in each]
        self._names = names if columns is None else list(columns)
        self._reads = list(dict.fromkeys(self._names))
        self._asked = None if columns is None else self._reads

    @property
    def dataset_schema(self) -> pa.Schema:
        """The fields of a record."""
        return self._dataset.schema

    @property
    def projected_schema(self) -> pa.Schema:
        """The fields of the result."""
        schema = pa.schema([self._dataset.schema.field(name) for name in self._reads])
        return self._projected(pa.Table.from_batches([], schema)).schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the result in batches."""
        is_plain = self._expressions is None and self._reads == self._names
        for batch in self._dataset.cautious_scan(self._asked):
            if is_plain and self._batch_size is None:
                yield batch
                continue
            table = self._projected(pa.Table.from_batches([batch]))
            yield from table.to_batches(max_chunksize=self._batch_size)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the result as a stream."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_table(self) -> pa.Table:
        """Return the result in memory."""
        return pa.Table.from_batches(self.to_batches(), self.projected_schema)

    def scan_batches(self) -> Iterator[Any]:
        """Not available; see `to_batches`."""
        raise _only_scanned("scan_batches")

    def head(self, num_rows: int) -> pa.Table:
        """Return the first records."""
        found = self._dataset.to_table(columns=self._asked, limit=num_rows)
        return self._projected(found)

    def take(self, indices: Any) -> pa.Table:
        """Return records by number."""
        numbers = np.asarray(indices, np.int64)
        found = self._dataset.take(numbers, self._reads)
        return self._projected(pa.Table.from_batches([found]))

    def count_rows(self) -> int:
        """Return the number of records."""
        return self._dataset.count()

    def _projected(self, table: pa.Table) -> pa.Table:
        if self._expressions is None:
            return table.select(self._names)
        return pads.InMemoryDataset(table).to_table(columns=self._expressions, use_threads=False)


class ArrowDataset(pads.UnionDataset):  # pyright: ignore[reportUntypedBaseClass]  # pyarrow has no types
    """A dataset for engines that take a pyarrow.dataset.Dataset and call its methods, which work through `scanner`, or
    take an Arrow stream.

    The dataset of Arrow's C++ that it wraps cannot be read: what uses it without these methods, such as a union of
    pyarrow, ends with an error. (Wrapping none would end the process.)
    """

    def __init__(self, dataset: Dataset) -> None:
        parquet = pads.ParquetFileFormat()
        fragment = parquet.make_fragment(pa.PythonFile(_Unreadable(), mode="r"))
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            dataset.schema, [pads.FileSystemDataset([fragment], dataset.schema, parquet)]
        )
        self._dataset = dataset

    def __reduce__(self) -> Any:
        return ArrowDataset, (self._dataset,)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.scanner().__arrow_c_stream__(requested_schema)

    @property
    def schema(self) -> pa.Schema:
        """The fields of a record."""
        return self._dataset.schema

    @property
    def partition_expression(self) -> Any:
        """The condition that is known to hold for all records: true."""
        return pa.compute.scalar(True)

    def scanner(
        self, columns: Any = None, filter: Any = None, batch_size: int | None = None, **_: Any
    ) -> Scanner:
        """Return a pyarrow.dataset.Scanner over the records.

        Args:
            columns: names, or {name: expression}; None for all.
            filter: only records for which this expression holds.
            batch_size: the most records of a batch.
        """
        found = self._dataset if filter is None else self._dataset.filter(filter)
        return Scanner(found, columns, batch_size)

    def count_rows(self, filter: Any = None, **options: Any) -> int:
        """Return the number of records, or of those for which an expression holds."""
        del options
        return self._dataset.count(filter)

    def filter(self, expression: Any) -> ArrowDataset:
        """Return a dataset of the records for which an expression holds."""
        return ArrowDataset(self._dataset.filter(expression))

    def sort_by(self, sorting: Any, **options: Any) -> Any:
        """Return the records in another order, in memory."""
        return pads.InMemoryDataset(self.to_table(**options).sort_by(sorting))

    def get_fragments(self, filter: Any = None) -> Any:
        """Not available: the files are read by penstock's readers, not by those of pyarrow."""
        raise _only_scanned("get_fragments")

    def replace_schema(self, schema: Any) -> Any:
        """Not available; see `schema=` of penstock.open."""
        raise _only_scanned("replace_schema")

    def join(self, *_: Any, **__: Any) -> Any:
        """Not available, because pyarrow would look for files of its own formats. `to_table().join` works."""
        raise _only_scanned("join")

    def join_asof(self, *_: Any, **__: Any) -> Any:
        """Not available; see `join`."""
        raise _only_scanned("join_asof")


class _Unreadable(io.RawIOBase):
    """A file in place of the records for what reads with Arrow's C++."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, *_: Any) -> int:
        raise _only_scanned("this")

    tell = read = readinto = seek


def _only_scanned(method: str) -> NotImplementedError:
    return NotImplementedError(
        f"{method} needs records that pyarrow's own readers read, and penstock reads these; use"
        " data.scanner().to_reader(), a RecordBatchReader, or data.to_table()"
    )

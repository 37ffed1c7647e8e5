"""`ds.to_arrow_dataset()`: a dataset as a pyarrow.dataset.Dataset. duckdb and pyarrow read only the columns that
a query names.

Specification: https://arrow.apache.org/docs/python/integration/dataset.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads

from penstock.conditions import columns_of_expression
from penstock.datasets.dataset import Dataset


class ArrowDataset(pads.Dataset):  # pyright: ignore[reportUntypedBaseClass]  # pyarrow has no types
    """A dataset for engines that take a pyarrow.dataset.Dataset and call its methods, which work through `scanner`.

    It does not wrap a C++ dataset of Arrow, so it cannot be a part of pyarrow.dataset.dataset([...]).
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def __reduce__(self) -> Any:
        return ArrowDataset, (self._dataset,)

    @property
    def schema(self) -> pa.Schema:
        """The fields of a record."""
        return self._dataset.schema

    @property
    def partition_expression(self) -> Any:
        """The condition that is known to hold for all records: true."""
        return pa.compute.scalar(True)

    def scanner(self, columns: Any = None, filter: Any = None, **options: Any) -> Any:
        """Return a pyarrow.dataset.Scanner over the records, which can be read once.

        Args:
            columns: names, or {name: expression}; None for all.
            filter: only records for which this expression holds.
            options: other options of pyarrow's scanners, such as batch_size.
        """
        names = self.schema.names
        if columns is None:
            reads = list(names)
        elif isinstance(columns, Mapping):
            found = (columns_of_expression(one, names) for one in columns.values())
            reads = [name for each in found for name in each]
        else:
            reads = list(columns)
        if filter is not None:
            reads += columns_of_expression(filter, names)
        wanted = list(dict.fromkeys(reads))
        schema = pa.schema([self.schema.field(name) for name in wanted])
        batches = self._dataset.scan(wanted, options.get("batch_size"))
        reader = pa.RecordBatchReader.from_batches(schema, batches)
        return pads.Scanner.from_batches(reader, columns=columns, filter=filter, **options)

    def count_rows(self, filter: Any = None, **options: Any) -> int:
        """Return the number of records, or of those for which an expression holds."""
        return (
            self._dataset.count()
            if filter is None
            else super().count_rows(filter=filter, **options)
        )

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


def _only_scanned(method: str) -> NotImplementedError:
    return NotImplementedError(
        f"{method} needs files that pyarrow reads itself; use scanner, to_batches or to_table"
    )

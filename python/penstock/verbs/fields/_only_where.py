"""New values for some records: if a condition is true for the record, or its key is in a table. Other records keep
their values."""

from __future__ import annotations

import copy
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.casts import fitted
from penstock.columns.joined import join
from penstock.conditions import Where, filter_of
from penstock.datasets.dataset import Dataset
from penstock.datasets.take import reordered
from penstock.errors import SchemaError
from penstock.verbs.fields._functions import described
from penstock.verbs.fields._values import NewFields, filled


class _Some(NewFields):
    """The new values for some records, and the old values for the others, all in the old types."""

    def __init__(self, dataset: Dataset, new: NewFields, columns: Sequence[str]) -> None:
        self._new = new
        self._keeps = False
        self._columns = columns
        """The columns that decide which records get new values."""
        reads = list(dict.fromkeys([*new.reads, *columns, *new.schema.names]))
        super().__init__(pa.schema([dataset.schema.field(n) for n in new.schema.names]), reads)
        self.is_computed = new.is_computed

    def of_shard(self, shard: int) -> NewFields | None:
        new = self._new.of_shard(shard)
        if new is None:
            return None
        one = copy.copy(self)
        one._new = new
        return one

    def _chosen(self, old: pa.RecordBatch) -> np.ndarray:
        """Return which records get new values, as booleans."""
        raise NotImplementedError

    def batch(
        self, shard: int, first: int, num_records: int, old: pa.RecordBatch | None
    ) -> pa.RecordBatch:
        assert old is not None, "`reads` requests the old columns"
        kept = old.select(self.schema.names)
        rows = np.flatnonzero(self._chosen(old))
        if not len(rows):
            return kept
        read = reordered(old.select(list(self._new.reads)), rows) if self._new.reads else None
        with _of_rows(first, rows):
            made = self._new.some(shard, first, rows, read)
        fields = [pa.field(field.name, field.type) for field in kept.schema]
        arrays = [_fitted(made.column(field.name), field) for field in fields]
        if self._keeps:
            before = reordered(kept, rows)
            pairs = zip(arrays, before.columns, strict=True)
            arrays = [filled(array, column) for array, column in pairs]
        added = pa.RecordBatch.from_arrays(arrays, schema=kept.schema)
        place = np.arange(num_records)
        place[rows] = num_records + np.arange(len(rows))
        return reordered(join([kept, added]), place)

    @property
    def checked(self) -> tuple[str, ...]:
        needed = dict.fromkeys([*self._new.checked, *self._columns])
        return tuple(needed) if self._new.checked else ()

    def check(self, shard: int, first: int, old: pa.RecordBatch) -> None:
        rows = np.flatnonzero(self._chosen(old))
        with _of_rows(first, rows):
            self._new.check(shard, first, reordered(old.select(list(self._new.checked)), rows))


@contextmanager
def _of_rows(first: int, rows: np.ndarray) -> Generator[None]:
    """Correct the record in an error about some rows of a batch that starts at `first`."""
    try:
        yield
    except SchemaError as error:
        if error.record is not None and first <= error.record < first + len(rows):
            error.record = first + int(rows[error.record - first])
        raise


class OnlyWhere(_Some):
    """New values for the records for which a condition is true."""

    def __init__(self, dataset: Dataset, new: NewFields, where: Where) -> None:
        self._where = where
        self._filter = filter_of(where, dataset.schema.names)
        columns = self._filter.columns
        super().__init__(dataset, new, dataset.schema.names if columns is None else columns)

    def _chosen(self, old: pa.RecordBatch) -> np.ndarray:
        return np.asarray(self._filter.holds(old))

    def facts(self) -> Any:
        asked = described(self._where) if callable(self._where) else str(self._where)
        return [*super().facts(), asked, self._new.facts()]


class OnlyMatched(_Some):
    """New values for the records whose key is in the table. With `keeps`, a null in the table leaves the old value."""

    def __init__(self, dataset: Dataset, new: NewFields, *, keeps: bool = False) -> None:
        super().__init__(dataset, new, [])
        self._keeps = keeps

    def _chosen(self, old: pa.RecordBatch) -> np.ndarray:
        return self._new.matched(old.select(list(self._new.reads)))

    def facts(self) -> Any:
        return [*super().facts(), self._new.facts()]


def _fitted(array: pa.Array, field: pa.Field) -> pa.Array:
    """Return new values in the type of the old values, because a field has only one type.

    Raises:
        SchemaError: a value does not fit.
    """
    try:
        return array if array.type == field.type else fitted(array, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise SchemaError(
            f"the new values do not fit the type of the old values, some of which are kept: {error}",
            field=field.name,
            expected=str(field.type),
            found=str(array.type),
            hint='without where= and missing="keep", all values are replaced, and their type may change',
        ) from None

"""New values for the records for which a condition is true. The others keep their values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.casts import fitted
from penstock.columns.joined import join
from penstock.conditions import Where, filter_of
from penstock.datasets.dataset import Dataset
from penstock.datasets.take import reordered
from penstock.errors import SchemaError
from penstock.verbs.fields._new_fields import described
from penstock.verbs.fields._values import NewFields


class OnlyWhere(NewFields):
    """New values from another source if a condition is true, otherwise the old values, both in the old types."""

    def __init__(self, dataset: Dataset, new: NewFields, where: Where) -> None:
        self._new = new
        self._where = where
        self._filter = filter_of(where, dataset.schema.names)
        columns = self._filter.columns
        columns = dataset.schema.names if columns is None else columns
        reads = list(dict.fromkeys([*new.reads, *columns, *new.schema.names]))
        super().__init__(pa.schema([dataset.schema.field(n) for n in new.schema.names]), reads)

    def batch(
        self, shard: int, first: int, num_records: int, old: pa.RecordBatch | None
    ) -> pa.RecordBatch:
        assert old is not None, "asked for by reads"
        kept = old.select(self.schema.names)
        rows = np.flatnonzero(self._filter.holds(old))
        if not len(rows):
            return kept
        read = reordered(old.select(list(self._new.reads)), rows) if self._new.reads else None
        try:
            made = self._new.some(shard, first, rows, read)
        except SchemaError as error:
            if error.record is not None and first <= error.record < first + len(rows):
                error.record = first + int(rows[error.record - first])
            raise
        fields = [pa.field(field.name, field.type) for field in kept.schema]
        arrays = [_fitted(made.column(field.name), field) for field in fields]
        added = pa.RecordBatch.from_arrays(arrays, schema=kept.schema)
        place = np.arange(num_records)
        place[rows] = num_records + np.arange(len(rows))
        return reordered(join([kept, added]), place)

    def facts(self) -> Any:
        asked = described(self._where) if callable(self._where) else str(self._where)
        return [*super().facts(), asked, self._new.facts()]


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
            hint="without where=, all values are replaced, and their type may change",
        ) from None

"""New values of fields whose old values are JSON. Their texts stay JSON, also if a function or a table has no such type,
so that a member of a tar keeps its name, and the keys inside can be asked for."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.types import is_bytes, is_json, is_text
from penstock.datasets.dataset import Dataset
from penstock.errors import SchemaError
from penstock.verbs.fields._values import NewFields, Reshaped

_SHOWN_CHARACTERS = 60


def with_old_types(dataset: Dataset, new: NewFields) -> NewFields:
    """Return the new fields with texts as JSON where the records have JSON."""
    names = dataset.schema.names
    found = {
        field.name
        for field in new.schema
        if field.name in names
        and is_json(dataset.schema.field(field.name).type)
        and (is_text(field.type) or is_bytes(field.type))
    }
    return _AsJson(dataset, new, found) if found else new


class _AsJson(Reshaped):
    def __init__(self, dataset: Dataset, new: NewFields, names: set[str]) -> None:
        self._dataset, self._names = dataset, names
        self._paths = dataset.paths
        fields = [f.with_type(pa.json_()) if f.name in names else f for f in new.schema]
        super().__init__(new, pa.schema(fields), new.reads)

    def batch(
        self, shard: int, first: int, num_records: int, old: pa.RecordBatch | None
    ) -> pa.RecordBatch:
        return self._converted(shard, first, self._new.batch(shard, first, num_records, old))

    def some(
        self, shard: int, first: int, rows: np.ndarray, old: pa.RecordBatch | None
    ) -> pa.RecordBatch:
        return self._converted(shard, first, self._new.some(shard, first, rows, old))

    def of_shard(self, shard: int) -> NewFields | None:
        new = self._new.of_shard(shard)
        return None if new is None else _AsJson(self._dataset, new, self._names)

    def matched(self, old: pa.RecordBatch) -> np.ndarray:
        return self._new.matched(old)

    def facts(self) -> Any:
        return [*super().facts(), self._new.facts()]

    def _converted(self, shard: int, first: int, made: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [
            self._as_json(made.column(field.name), field.name, shard, first)
            if field.name in self._names
            else made.column(field.name)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _as_json(self, texts: pa.Array, name: str, shard: int, first: int) -> pa.Array:
        for row, text in enumerate(texts.to_pylist()):
            if text is None:
                continue
            try:
                json.loads(text)
            except (ValueError, RecursionError) as error:
                raise SchemaError(
                    f"the old values are JSON, and a new one is not: {error}",
                    file=self._paths[shard],
                    record=first + row,
                    field=name,
                    found=repr(text[:_SHOWN_CHARACTERS]),
                    hint="json.dumps makes JSON of a value; for other texts, drop_fields first, then add_fields",
                ) from None
        return pa.ExtensionArray.from_storage(pa.json_(), texts.cast(pa.string()))

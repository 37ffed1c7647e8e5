"""New values of keys inside JSON and of fields inside structs: `json.cls`. The rest of a text stays as it is written."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.casts import fitted
from penstock.columns.types import is_json
from penstock.datasets.dataset import Dataset
from penstock.errors import SchemaError
from penstock.verbs.fields._values import NewFields, Reshaped, filled

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


def with_inside(dataset: Dataset, new: NewFields, *, keeps: bool) -> NewFields:
    """Return the new fields with whole columns instead of keys in columns of JSON and of fields in structs. With
    `keeps`, a null leaves the old value."""
    names = dataset.schema.names
    inside = {name: _split(name, dataset) for name in new.schema.names if name not in names}
    known = {name: path for name, path in inside.items() if path is not None}
    return _Inside(dataset, new, known, keeps) if known else new


def _split(name: str, dataset: Dataset) -> tuple[str, list[str]] | None:
    """Return the column of JSON or structs that a name begins with, and the keys that follow."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        if (column := ".".join(parts[:end])) in dataset.schema.names:
            type_ = dataset.schema.field(column).type
            is_one = is_json(type_) or _has_field(type_, parts[end:])
            return (column, parts[end:]) if is_one else None
    return None


def _has_field(type_: pa.DataType, path: Sequence[str]) -> bool:
    for key in path:
        if not pa.types.is_struct(type_) or type_.get_field_index(key) < 0:
            return False
        type_ = type_.field(key).type
    return True


class _Inside(Reshaped):
    def __init__(
        self,
        dataset: Dataset,
        new: NewFields,
        inside: dict[str, tuple[str, list[str]]],
        keeps: bool,
    ) -> None:
        self._dataset, self._inside, self._keeps = dataset, inside, keeps
        columns = list(dict.fromkeys(column for column, _ in inside.values()))
        for column in columns:
            if column in new.schema.names:
                raise SchemaError("a field gets new values as a whole and inside", field=column)
        self._columns = columns
        whole = [field for field in new.schema if field.name not in inside]
        changed = [dataset.schema.field(column) for column in columns]
        schema = pa.schema([*whole, *changed])
        super().__init__(new, schema, list(dict.fromkeys([*new.reads, *columns])))

    def batch(
        self, shard: int, first: int, num_records: int, old: pa.RecordBatch | None
    ) -> pa.RecordBatch:
        made = self._new.batch(shard, first, num_records, self._read(old))
        return self._changed(shard, np.arange(first, first + num_records), made, old)

    def some(
        self, shard: int, first: int, rows: np.ndarray, old: pa.RecordBatch | None
    ) -> pa.RecordBatch:
        made = self._new.some(shard, first, rows, self._read(old))
        # The caller corrects the number of a row among the chosen ones.
        return self._changed(shard, np.arange(first, first + len(rows)), made, old)

    def of_shard(self, shard: int) -> NewFields | None:
        new = self._new.of_shard(shard)
        return None if new is None else _Inside(self._dataset, new, self._inside, self._keeps)

    def matched(self, old: pa.RecordBatch) -> np.ndarray:
        return self._new.matched(old.select(list(self._new.reads)))

    def facts(self) -> Any:
        return [*super().facts(), sorted(self._inside.items()), self._new.facts()]

    def _read(self, old: pa.RecordBatch | None) -> pa.RecordBatch | None:
        assert old is not None, "asked for by reads"
        return old.select(list(self._new.reads)) if self._new.reads else None

    def _changed(
        self, shard: int, records: np.ndarray, made: pa.RecordBatch, old: pa.RecordBatch | None
    ) -> pa.RecordBatch:
        assert old is not None, "asked for by reads"
        columns = {column: old.column(column) for column in self._columns}
        for name, (column, path) in self._inside.items():
            put = _put_json if is_json(columns[column].type) else _put
            try:
                columns[column] = put(columns[column], path, made.column(name), keeps=self._keeps)
            except SchemaError as error:
                if error.record is not None:
                    error.record = int(records[error.record])
                raise error.at(file=self._dataset.paths[shard], field=name) from None
        found = {**dict(zip(made.schema.names, made.columns, strict=True)), **columns}
        return pa.RecordBatch.from_arrays([found[n] for n in self.schema.names], schema=self.schema)


def _put(old: Any, path: Sequence[str], new: pa.Array, *, keeps: bool) -> Any:
    """Return structs with a new value for one field."""
    if not path:
        try:
            found = fitted(new, old.type)
            return filled(found, old) if keeps else found
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise SchemaError(f"the new values do not fit the field: {error}") from None
    at = old.type.get_field_index(path[0])
    parts = [old.field(place) for place in range(old.type.num_fields)]
    parts[at] = _put(parts[at], path[1:], new, keeps=keeps)
    return pa.StructArray.from_arrays(parts, fields=list(old.type), mask=old.is_null())


def _put_json(old: Any, path: Sequence[str], new: pa.Array, *, keeps: bool) -> Any:
    """Return JSON texts with a new value for one key. A text without the key gets it at the end of the object."""
    texts: list[str | None] = []
    for row, (text, value) in enumerate(zip(old.storage.to_pylist(), new.to_pylist(), strict=True)):
        if keeps and value is None:
            texts.append(text)
            continue
        try:
            json.loads(text or "null")
            texts.append(_put_text(text or "null", 0, path, json.dumps(value, ensure_ascii=False)))
        except (ValueError, TypeError, RecursionError) as error:
            raise SchemaError(f"the key cannot be set in this JSON: {error}", record=row) from None
    return pa.ExtensionArray.from_storage(old.type, pa.array(texts, old.type.storage_type))


def _put_text(text: str, at: int, path: Sequence[str], value: str) -> str:
    """Return a valid text with the value for a path of keys in the object at `at`."""
    at = _after_space(text, at)
    if text[at] != "{":
        raise ValueError("there is no object that has the key")
    start = end = at + 1
    at, found = _after_space(text, end), None
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        begin = _after_space(text, _after_space(text, at) + 1)  # after the colon
        _, end = _DECODER.raw_decode(text, begin)
        found = (begin, end) if key == path[0] else found  # readers take the last of equal keys
        at = _after_space(text, end)
        at = _after_space(text, at + 1) if text[at] == "," else at
    if found is not None and len(path) > 1:
        return _put_text(text, found[0], path[1:], value)
    if found is not None:
        return text[: found[0]] + value + text[found[1] :]
    if len(path) > 1:
        raise ValueError(f"it has no key {path[0]!r}")
    comma = ", " if end > start else ""  # the first has none
    return f"{text[:end]}{comma}{json.dumps(path[0], ensure_ascii=False)}: {value}{text[end:]}"


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()

"""Views of a dataset with more columns, each computed from the others by an expression such as `json.caption`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns import nearest
from penstock.columns.lending import owned
from penstock.columns.selection import Projection, Selection
from penstock.conditions import Bound, Expression, Filter, expression_of
from penstock.contract.format import Chunk, Delivered, Reader
from penstock.contract.wrapped import WrappedReader
from penstock.datasets._views import View, ViewFiles
from penstock.datasets.files import Files
from penstock.errors import SchemaError, shown


def checked(columns: Any) -> dict[str, str]:
    """Return `columns` if it is {name: expression}.

    Raises:
        TypeError: it is something else.
    """
    texts: Any = columns.values() if isinstance(columns, Mapping) else ()
    if not isinstance(columns, Mapping) or not all(isinstance(text, str) for text in texts):
        raise TypeError(f"with_columns takes a dict, {{name: expression}}, not {columns!r}")
    return dict(columns)


class Computed(View):
    """More columns. `texts` are their expressions; `sample` has the first records, from which their types are found."""

    keeps_columns = False

    def __init__(self, texts: Mapping[str, str], sample: pa.RecordBatch) -> None:
        self._texts = dict(texts)
        self._visible = names = sample.schema.names
        self.expressions = {name: expression_of(text, names) for name, text in texts.items()}
        self._types = {
            name: _type_of(name, expression, sample)
            for name, expression in self.expressions.items()
        }

    def files(self, base: Files) -> ComputedFiles:
        return ComputedFiles(base, self)

    def fixed(self, base: Files) -> Computed:
        return self

    def schema_of_files(self, schema: pa.Schema) -> pa.Schema:
        return pa.schema([field for field in schema if field.name not in self._texts])

    def schema(self, stored: pa.Schema) -> pa.Schema:
        """The columns of the view: those of the sample, those with a new expression in their place, and the new ones."""
        fields = {name: stored.field(name) for name in self._visible}
        fields |= {name: pa.field(name, type_) for name, type_ in self._types.items()}
        return pa.schema(list(fields.values()))

    @property
    def digest(self) -> bytes:
        named = sorted((name, text, str(self._types[name])) for name, text in self._texts.items())
        return repr(named).encode("utf-8", "replace")


def _type_of(name: str, expression: Expression, sample: pa.RecordBatch) -> pa.DataType:
    try:
        found = expression.values(sample).type
    except SchemaError as error:
        found = _type_without_values(expression, sample)
        if found is None:
            error.field = name
            raise
    if pa.types.is_null(found):
        raise SchemaError(
            f"the first {sample.num_rows} records have no value for it, so its type is unknown",
            field=name,
            hint=f'cast({expression.text}, "string"), or another type',
        )
    return found


def _type_without_values(expression: Expression, sample: pa.RecordBatch) -> pa.DataType | None:
    """The type, if it does not depend on values. A value that cannot be computed is then an error of its record, when
    that is read."""
    try:
        found = expression.values(sample.slice(0, 0)).type
    except SchemaError:
        return None
    return None if pa.types.is_null(found) else found


class ComputedFiles(ViewFiles):
    """Files with computed columns."""

    computes = True

    def __init__(self, base: Files, view: Computed) -> None:
        super().__init__(base, view)
        self._expressions = view.expressions
        self.schema = view.schema(base.schema)

    def reader(self, shard: int) -> Reader:
        path = self.paths[shard]
        return ComputedReader(self.base.reader(shard), self.schema, self._expressions, path)

    def check_fields(self, shard: int, batch: pa.RecordBatch, *, whole: bool) -> None:
        own = [name for name in batch.schema.names if name not in self._expressions]
        if own:
            self.base.check_fields(shard, batch.select(own), whole=whole)

    @property
    def is_view(self) -> bool:
        return self.base.is_view

    def in_file(self, shard: int, numbers: np.ndarray) -> np.ndarray:
        return self.base.in_file(shard, numbers)

    @property
    def choice_digest(self) -> str:
        digest = hashlib.blake2b(self.base.choice_digest.encode(), digest_size=16)
        digest.update(self.view.digest)
        return digest.hexdigest()

    def is_added(self, column: str) -> bool:
        return column in self._expressions or self.base.is_added(column)

    def is_apart_from(self, columns: Sequence[str] | None) -> bool:
        """Whether none of these columns is computed; None for all."""
        return columns is not None and self._expressions.keys().isdisjoint(columns)

    def answer(self, shard: int, condition: Filter) -> bool | None:
        return self.base.answer(shard, condition) if self.is_apart_from(condition.names) else None


class ComputedReader(WrappedReader):
    """Reads a shard, whose file is `path`, with computed columns."""

    def __init__(
        self,
        base: Reader,
        schema: pa.Schema,
        expressions: Mapping[str, Expression],
        path: str,
    ) -> None:
        self.base = base
        self.schema = schema
        self._expressions = expressions
        self._path = path

    def parts(self, chunk: Chunk[Any], columns: Projection) -> Iterator[Chunk[Any]]:
        return self.base.parts(chunk, self._wanted(columns))

    def record_numbers(self, chunk: Chunk[Any]) -> np.ndarray:
        return self.base.record_numbers(chunk)

    def pick(self, records: np.ndarray) -> Iterable[tuple[Chunk[Any], Selection]]:
        return self.base.pick(records)

    def may_hold(self, chunk: Chunk[Any], bounds: Sequence[Bound]) -> bool:
        own = [one for one in bounds if one.field not in self._expressions]
        return self.base.may_hold(chunk, own)

    def decode(self, chunk: Chunk[Any], records: Selection, columns: Projection) -> pa.RecordBatch:
        batch = self.base.decode(chunk, records, self._wanted(columns))
        return self._with(batch, columns, lambda: _numbers(self.base, chunk, records))

    def lent(self, chunk: Chunk[Any], records: Selection, columns: Projection) -> pa.RecordBatch:
        batch = self.base.lent(chunk, records, self._wanted(columns))
        return self._with(batch, columns, lambda: _numbers(self.base, chunk, records))

    def delivered(self, chunk: Chunk[Any], records: Selection, columns: Projection) -> Delivered:
        found = self.base.delivered(chunk, records, self._wanted(columns))
        of_batch = records if found.records is None else found.records
        batch = self._with(found.batch, columns, lambda: _numbers(self.base, chunk, of_batch))
        return found._replace(batch=batch)

    def at_once(self, records: np.ndarray, columns: Projection) -> pa.RecordBatch | None:
        batch = self.base.at_once(records, self._wanted(columns))
        return None if batch is None else self._with(batch, columns, lambda: records)

    def _wanted(self, columns: Projection) -> list[str]:
        """The stored columns to read: those that are wanted, and those that expressions read."""
        names = self.schema.names if columns is None else columns
        read: list[str] = []
        for name in names:
            found = self._expressions.get(name)
            read.extend([name] if found is None else found.columns)
        return list(dict.fromkeys(read))

    def _with(
        self, batch: pa.RecordBatch, columns: Projection, numbers: Callable[[], np.ndarray]
    ) -> pa.RecordBatch:
        names = self.schema.names if columns is None else list(columns)
        if not names:
            return batch
        arrays: list[pa.Array] = []
        for name in names:
            found = self._expressions.get(name)
            if found is None:
                arrays.append(batch.column(name))
            else:
                arrays.append(self._computed(name, found, self._read_by(found, batch), numbers))
        fields = [
            self.schema.field(name).with_type(array.type)  # lent columns have other types
            for name, array in zip(names, arrays, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _read_by(self, expression: Expression, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns that an expression reads, with values of their own instead of views."""
        if not expression.columns:
            return batch
        fields = [self.base.schema.field(name) for name in expression.columns]
        arrays = [owned(batch.column(field.name), field.type) for field in fields]
        return pa.RecordBatch.from_arrays(arrays, [field.name for field in fields])

    def _computed(
        self,
        name: str,
        expression: Expression,
        batch: pa.RecordBatch,
        numbers: Callable[[], np.ndarray],
    ) -> pa.Array:
        type_ = self.schema.field(name).type
        try:
            return _cast(expression, batch, type_)
        except SchemaError as error:
            errors = (_error_of(expression, batch, row, type_) for row in range(batch.num_rows))
            row, first = next(((r, e) for r, e in enumerate(errors) if e is not None), (0, error))
            at = numbers()
            first.field = name
            first.at(file=shown(self._path))
            if len(at) == batch.num_rows and at[row] >= 0:
                first.at(record=int(at[row]))
            raise first from None


def _cast(expression: Expression, batch: pa.RecordBatch, type_: pa.DataType) -> pa.Array:
    values = expression.values(batch)
    try:
        return values if values.type == type_ else nearest.cast(values, type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(
            f"a value is not {type_}, the type of the first records: {error}",
            hint=f'cast({expression.text}, "string"), or another type',
        ) from None


def _error_of(
    expression: Expression, batch: pa.RecordBatch, row: int, type_: pa.DataType
) -> SchemaError | None:
    try:
        _cast(expression, batch.slice(row, 1), type_)
    except SchemaError as error:
        return error
    return None


def _numbers(base: Reader, chunk: Chunk[Any], records: Selection) -> np.ndarray:
    numbers = base.record_numbers(chunk)
    if records is None:
        return numbers
    return np.where(records < 0, -1, numbers[records])  # below 0: unknown

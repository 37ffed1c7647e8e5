"""The table of labels next to images: CSV, JSON or Parquet, read and written with pyarrow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from penstock.columns.batches import checked
from penstock.columns.types import is_text
from penstock.contract.format import Options
from penstock.errors import FormatError, PenstockError, SchemaError
from penstock.formats.imagefolder._csv import csv_bytes, read_csv
from penstock.formats.imagefolder._json import FORMS, json_bytes, read_json
from penstock.formats.parquet.format import ParquetFormat
from penstock.limits import Limits
from penstock.storage.base import Source
from penstock.storage.local import LocalSource

NAME_COLUMNS = ("file_name", "filename", "file", "path", "image")
"""Possible names of the column of file names. The first name present is used."""

_COMPARED_RECORDS = 4096
_KINDS = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
}


def read_table(path: str, limits: Limits, source: Source | None = None) -> pa.Table:
    """Read and validate a table. The file extension determines its kind. `source`: None opens a file of this machine."""
    kind = _kind(path)
    if kind is None:
        raise FormatError(
            f"the name of a table of labels ends with one of {', '.join(_KINDS)}", file=path
        )
    source = source or LocalSource(path)
    try:
        limits.check("member_bytes", source.size)
        table = _parquet(source, limits) if kind == "parquet" else _text(source, kind, limits)
    except PenstockError as error:
        raise error.at(file=path) from error.__cause__
    finally:
        source.close()
    if len(set(table.column_names)) < table.num_columns:
        raise FormatError("the table of labels has two columns with the same name", file=path)
    return table


def _parquet(source: Source, limits: Limits) -> pa.Table:
    reader = ParquetFormat().open(source, Options(limits=limits))
    batches: list[pa.RecordBatch] = []
    size = 0
    for chunk in reader.chunks():
        batch = reader.decode(chunk, None, None)
        size += batch.nbytes
        limits.check("batch_bytes", size)  # a few bytes can encode any number of rows
        batches.append(batch)
    return pa.Table.from_batches(batches, reader.schema)


def _kind(path: str) -> str | None:
    return _KINDS.get(os.path.splitext(path.lower())[1])


def _text(source: Source, kind: str, limits: Limits) -> pa.Table:
    data = source.read(0, source.size)
    try:
        if kind == "csv":
            table = read_csv(pa.py_buffer(data), NAME_COLUMNS)
        else:
            table = read_json(data.to_bytes(), limits)
    except PenstockError:
        raise
    except (pa.ArrowException, ValueError, OSError, RecursionError) as error:
        hint = FORMS if kind == "json" else None
        raise FormatError(f"the table of labels cannot be read: {error}", hint=hint) from error
    for batch in table.to_batches():
        checked(batch, source.path)
    return table


def name_column(table: pa.Table, path: str) -> str:
    """Return the name of the column of file names."""
    for name in NAME_COLUMNS:
        if name not in table.column_names:
            continue
        if is_text(table.schema.field(name).type) or not table.num_rows:
            return name
    raise FormatError(
        f"the table of labels has no text column with one of the names {', '.join(NAME_COLUMNS)}",
        file=path,
        found=", ".join(table.column_names[:20]),
        hint=FORMS if _kind(path) == "json" else None,
    )


def table_bytes(table: pa.Table, kind: str) -> bytes:
    """Encode a table as a "parquet", "csv" or "jsonl" file."""
    if kind == "parquet":
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        return sink.getvalue().to_pybytes()
    data = csv_bytes(table) if kind == "csv" else json_bytes(table)
    if table.num_rows:
        _check_what_comes_back(table, data, kind)
    return data


def _check_what_comes_back(table: pa.Table, data: bytes, kind: str) -> None:
    """Raise SchemaError for the first value that would read back as a different one."""
    if kind == "csv":
        back = read_csv(pa.py_buffer(data), NAME_COLUMNS)
    else:
        # The default limits suffice: values nest no deeper than the schema.
        back = read_json(data, Limits())
    hint = 'write(..., table="parquet")' + (' or table="jsonl"' if kind == "csv" else "")
    hint += ", which keeps types"
    if (back.column_names, back.num_rows) != (table.column_names, table.num_rows):
        raise SchemaError(
            f"a {kind} table of labels cannot hold columns with these names",
            expected=table.column_names,
            found=back.column_names,
            hint=hint,
        )
    for name, column, other in zip(table.column_names, table.columns, back.columns, strict=True):
        pairs = zip(_reprs(column), _reprs(other), strict=True)
        for record, (given, found) in enumerate(pairs):
            if given != found:
                raise SchemaError(
                    f"a {kind} table of labels would read back a different value here",
                    record=record,
                    field=name,
                    expected=given,
                    found=found,
                    hint=hint,
                )


def _reprs(column: Any) -> Iterator[str]:
    """Yield the values as text, which also distinguishes their types and makes NaN equal to NaN."""
    for first in range(0, len(column), _COMPARED_RECORDS):
        yield from map(repr, column.slice(first, _COMPARED_RECORDS).to_pylist())


def check_kind(schema: pa.Schema, kind: str) -> None:
    """Raise SchemaError for the first column that a table of this kind cannot hold."""
    if kind == "parquet":
        return
    plain = (pa.types.is_integer, pa.types.is_floating, pa.types.is_string, pa.types.is_boolean)
    for field in schema:
        type_: Any = field.type
        inner = type_.value_type if kind == "jsonl" and pa.types.is_list(type_) else type_
        if not any(is_kind(inner) for is_kind in plain):
            raise SchemaError(
                f"a {kind} table of labels cannot hold {type_}",
                field=field.name,
                hint='write(..., table="parquet")',
            )

"""The table of labels beside images: CSV, JSON lines or Parquet, read and written by pyarrow."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import FormatError, PenstockError, SchemaError
from penstock.format import Options
from penstock.formats.batches import checked
from penstock.formats.parquet import ParquetFormat
from penstock.limits import Limits
from penstock.storage import LocalSource
from penstock.types import is_text

NAME_COLUMNS = ("file_name", "filename", "file", "path", "image")
"""What the column may be called that names the image of a row; the first that is there counts."""

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_OPENING = np.frombuffer(b"[{", np.uint8)
_BRACKETS = np.frombuffer(b"[{]}", np.uint8)


def read_table(path: str, limits: Limits) -> pa.Table:
    """All rows of a table, proved to be sound. Its ending says what it is."""
    source = LocalSource(path)
    try:
        limits.check("member_bytes", source.size)
        table = _parquet(source, limits) if path.endswith(".parquet") else _text(source, limits)
    except PenstockError as error:
        raise error.at(file=path) from error.__cause__
    finally:
        source.close()
    if len(set(table.column_names)) < table.num_columns:
        raise FormatError("the table of labels has two columns of one name", file=path)
    return table


def _parquet(source: LocalSource, limits: Limits) -> pa.Table:
    reader = ParquetFormat().open(source, Options(limits=limits))
    batches: list[pa.RecordBatch] = []
    size = 0
    for chunk in reader.chunks():
        batch = reader.decode(chunk, None, None)
        size += batch.nbytes
        limits.check("batch_bytes", size)  # few bytes can stand for any number of rows
        batches.append(batch)
    return pa.Table.from_batches(batches, reader.schema)


def _text(source: LocalSource, limits: Limits) -> pa.Table:
    data = source.read(0, source.size)
    file = pa.BufferReader(pa.array(data).buffers()[1])
    try:
        if source.path.endswith(".csv"):
            from pyarrow import csv

            table = csv.read_csv(file)
        else:
            from pyarrow import json

            _check_depth(data.to_bytes(), limits)
            table = json.read_json(file)
    except (pa.ArrowException, ValueError, OSError, RecursionError) as error:
        if isinstance(error, PenstockError):
            raise
        raise FormatError(f"the table of labels cannot be read: {error}") from error
    for batch in table.to_batches():
        checked(batch, source.path)
    return table


def _check_depth(text: bytes, limits: Limits) -> None:
    """pyarrow's parser calls itself for each level of nesting, and would end the process."""
    marks = np.frombuffer(_STRING.sub(b"", text), np.uint8)
    marks = marks[np.isin(marks, _BRACKETS)]
    depths = np.cumsum(np.where(np.isin(marks, _OPENING), 1, -1))
    limits.check("nesting", int(depths.max(initial=0)))


def name_column(table: pa.Table, path: str) -> str:
    """The column that names the images."""
    for name in NAME_COLUMNS:
        if name not in table.column_names:
            continue
        if is_text(table.schema.field(name).type) or not table.num_rows:
            return name
    raise FormatError(
        f"the table of labels has no column of text among {', '.join(NAME_COLUMNS)}",
        file=path,
        found=", ".join(table.column_names[:20]),
    )


def table_bytes(table: pa.Table, kind: str) -> bytes:
    """The table as the bytes of a file: "parquet", "csv" or "jsonl"."""
    sink = pa.BufferOutputStream()
    if kind == "parquet":
        import pyarrow.parquet as pq

        pq.write_table(table, sink)
    elif kind == "csv":
        from pyarrow import csv

        csv.write_csv(table, sink)
    else:
        import json

        for batch in table.to_batches(max_chunksize=4096):
            for row in batch.to_pylist():
                sink.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
    return sink.getvalue().to_pybytes()


def check_kind(schema: pa.Schema, kind: str) -> None:
    """Raise SchemaError for the first column that such a table cannot hold."""
    if kind == "parquet":
        return
    for field in schema:
        type_: Any = field.type
        is_flat = not pa.types.is_nested(type_) or (kind == "jsonl" and pa.types.is_list(type_))
        inner = type_.value_type if pa.types.is_list(type_) else type_
        is_flat = is_flat and not isinstance(type_, pa.BaseExtensionType)
        plain = (pa.types.is_integer, pa.types.is_floating, pa.types.is_string, pa.types.is_boolean)
        if not (is_flat and any(is_kind(inner) for is_kind in plain)):
            raise SchemaError(
                f"a {kind} table of labels cannot hold {type_}",
                field=field.name,
                hint='write(..., table="parquet")',
            )

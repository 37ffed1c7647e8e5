"""The table of labels beside images: CSV, JSON lines or Parquet, read and written by pyarrow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock import _core
from penstock.errors import FormatError, SchemaError
from penstock.formats.batches import checked
from penstock.types import is_text

NAME_COLUMNS = ("file_name", "filename", "file", "path", "image")
"""What the column may be called that names the image of a row; the first that is there counts."""


def read_table(data: _core.Buffer, path: str) -> pa.Table:
    """All rows of a table, proved to be sound. Its ending says what it is."""
    buffer = pa.array(data).buffers()[1]
    try:
        if path.endswith(".parquet"):
            import pyarrow.parquet as pq

            table = pq.read_table(pa.BufferReader(buffer))
        elif path.endswith(".csv"):
            from pyarrow import csv

            table = csv.read_csv(pa.BufferReader(buffer))
        else:
            from pyarrow import json

            table = json.read_json(pa.BufferReader(buffer))
    except (pa.ArrowException, ValueError, OSError, RecursionError) as error:
        raise FormatError(f"the table of labels cannot be read: {error}", file=path) from error
    for batch in table.to_batches():
        checked(batch, path)
    if len(set(table.column_names)) < table.num_columns:
        raise FormatError("the table of labels has two columns of one name", file=path)
    return table


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

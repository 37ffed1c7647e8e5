"""Writes Parquet: the options, and a writer that regroups batches into row groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.columns.types import storage_of
from penstock.contract.grouping import GroupWriter
from penstock.errors import SchemaError, UnsupportedError
from penstock.storage.base import Sink
from penstock.storage.pyarrow_files import writable

CODECS = ("zstd", "snappy", "gzip", "brotli", "lz4", "none")


@dataclass(frozen=True, slots=True)
class ParquetOptions:
    """Options for writing Parquet."""

    compression: str | None = "zstd"
    """One of zstd, snappy, gzip, brotli, lz4, none."""
    level: int | None = None
    """The compression level; None means the codec's default."""
    row_group_records: int = 1 << 17
    row_group_bytes: int = 16 << 20
    """Bytes of values before encoding. A row group ends at either limit. Small row groups make random access cheaper,
    and are decoded in parallel."""
    dictionary: bool = True
    """Whether to store repeated values once if that is smaller."""
    page_checksums: bool = True


def _refuse_empty(name: str, type_: Any, path: str) -> None:
    """Raise SchemaError for types whose values have no bytes: pyarrow cannot read such lists back, and cannot write the
    others."""
    type_ = storage_of(type_)
    kind = pa.types
    what = ""
    if kind.is_fixed_size_list(type_) and not type_.list_size:
        what = "lists that all have a length of 0"
    elif kind.is_fixed_size_binary(type_) and not type_.byte_width:
        what = "byte strings that all have a length of 0"
    elif kind.is_struct(type_) and not type_.num_fields:
        what = "structs without fields"
    if what:
        raise SchemaError(
            f"Parquet cannot hold {what}",
            file=path,
            field=name,
            hint="leave it out (columns=), or write Arrow or npz",
        )
    if pa.types.is_nested(type_):
        for number in range(type_.num_fields):
            _refuse_empty(name, type_.field(number).type, path)


class ParquetWriter(GroupWriter):
    """Writes one Parquet file."""

    def __init__(self, sink: Sink, schema: pa.Schema, options: ParquetOptions) -> None:
        import pyarrow.parquet as pq

        codec = options.compression or "none"
        if codec not in CODECS:
            raise ValueError(f"compression must be one of {', '.join(CODECS)}, not {codec!r}")
        if not schema.names:
            raise UnsupportedError("Parquet cannot hold records without columns", file=sink.path)
        for field in schema:
            _refuse_empty(field.name, field.type, sink.path)
        records, num_bytes = options.row_group_records, options.row_group_bytes
        super().__init__(sink, schema, group_records=records, group_bytes=num_bytes)
        self._how: dict[str, Any] = {
            "compression": codec,
            "compression_level": options.level if codec not in ("none", "snappy") else None,
            "use_dictionary": options.dictionary,
            "write_page_checksum": options.page_checksums,
        }
        with writable(sink.path):
            file = pa.PythonFile(self._file, mode="w")
            self._writer = pq.ParquetWriter(file, schema, **self._how)

    def _size_of(self, group: Any) -> int:
        import pyarrow.parquet as pq

        file = pa.MockOutputStream()
        with writable(self._path):
            table = pa.Table.from_batches([group], schema=self._schema)
            pq.write_table(table, file, row_group_size=max(group.num_rows, 1), **self._how)
        return file.size()

    def _write_group(self, group: Any) -> None:
        with writable(self._path):
            table = pa.Table.from_batches([group], schema=self._schema)
            self._writer.write_table(table, row_group_size=max(group.num_rows, 1))

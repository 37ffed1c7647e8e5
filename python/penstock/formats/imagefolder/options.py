"""Column names and write options of image folders."""

from __future__ import annotations

from dataclasses import dataclass

IMAGE = "image"
LABEL = "label"
FILE_NAME = "file_name"


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options for writing a folder of images."""

    table: str = "auto"
    """"auto" writes `metadata.parquet` if columns or the record order need it. "parquet", "csv" and "jsonl" always
    write a table of that kind."""

"""The names and options of image folders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


IMAGE = "image"


LABEL = "label"


FILE_NAME = "file_name"


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How a folder of images is written."""

    table: str = "auto"
    """"auto" writes `metadata.parquet` where columns or the order of the records need it; "parquet",
    "csv" or "jsonl" write a table of that kind always."""

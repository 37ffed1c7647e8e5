"""The reader for an empty file of a format whose files are never empty."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.inferred import InferredFrom
from penstock.columns.selection import Projection, Selection
from penstock.contract.format import Chunk, Reader
from penstock.errors import TruncatedError
from penstock.framing.read.raw import RAW_SCHEMA


class NoRecords(Reader):
    """A reader without records. Its schema is the given schema, or the schema of an empty TFRecord file."""

    def __init__(self, schema: Any) -> None:
        is_schema = isinstance(schema, pa.Schema)
        unknown = RAW_SCHEMA.with_metadata(InferredFrom(0).metadata)
        self.schema: pa.Schema = schema if is_schema else unknown

    @property
    def num_records(self) -> int:
        return 0

    def chunks(self) -> Iterator[Chunk[Any]]:
        return iter(())

    def pick(self, records: np.ndarray) -> Iterator[tuple[Chunk[Any], np.ndarray]]:
        return iter(())

    def decode(self, chunk: Chunk[Any], records: Selection, columns: Projection) -> pa.RecordBatch:
        raise IndexError("an empty file has no records")  # never called: there are no chunks

    def close(self) -> None:
        pass


def no_bytes(paths: Sequence[str], format_name: str) -> TruncatedError:
    """The error for a dataset of such files only."""
    others = len(paths) - 1
    more = f", and the {others} others have none either" if others else ""
    return TruncatedError(
        f"the file has no bytes{more}; a {format_name} file always has some",
        file=paths[0],
        hint="write or copy it again; it was truncated, or never finished",
    )

"""Findings of `verify` and `repair`, made from errors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from penstock.contract.format import Chunk, Format, Reader
from penstock.contract.report import Finding, kind_of
from penstock.errors import PenstockError, SchemaError, raise_unless_damage
from penstock.framing.read.framed import FramedReader
from penstock.storage.base import Source


def is_empty_file(source: Source, kind: Format) -> bool:
    """Whether a file is empty, although valid files of its format have bytes."""
    return not (source.size or kind.info.may_be_empty or kind.info.is_folder)


def empty_file(kind: Format, path: str) -> Finding:
    """Return the finding for a file for which `is_empty_file` is true."""
    message = f"the file is empty; a {kind.info.name} file always has a header or an end marker"
    return Finding("empty_file", path, None, 0, 0, message, None)


def place_in(reader: Reader, chunk: Chunk[Any], first: int, end: int) -> tuple[int, int]:
    """Return the bytes of rows [first, end) of a chunk: those of the chunk, unless the reader knows them exactly."""
    if (first, end) != (0, chunk.num_records):
        with suppress(PenstockError):
            known = reader.readable(chunk)
            inside = (
                []
                if known is None
                else np.flatnonzero((known.records >= first) & (known.records < end))
            )
            if known is not None and len(inside):
                return int(known.starts[inside[0]]), int(known.ends[inside[-1]])
    if end - first == 1:
        with suppress(PenstockError):
            record = int(reader.record_numbers(chunk)[first])
            if reader.readable(chunk) is None and (found := reader.place(record)) is not None:
                return found[1:]  # in a folder, those of the record's own file
    return chunk.start_byte, chunk.end_byte


def is_misfit(error: PenstockError, reader: Reader) -> bool:
    """Whether a record is undamaged, but does not fit the schema inferred from other records."""
    return isinstance(error, SchemaError) and isinstance(reader, FramedReader)


def found_in(
    error: PenstockError,
    path: str,
    start: int,
    end: int,
    chunk: Chunk[Any] | None = None,
    num_records: int | None = None,
) -> Finding:
    """Return the finding for an error about some records of a chunk, or about the whole file. An error of storage is
    raised: nothing is known about bytes that could not be read."""
    raise_unless_damage(error)
    record = error.record
    if record is None and chunk is not None:
        record = chunk.first_record
    lost = chunk.num_records if chunk is not None and num_records is None else num_records
    detail = [f"expected {error.expected}" if error.expected is not None else ""]
    detail.append(f"found {error.found}" if error.found is not None else "")
    message = "; ".join([error.message, *(part for part in detail if part)])
    if error.field is not None:
        message = f"field {error.field!r}: {message}"
    return Finding(
        kind_of(error), error.file or path, record, error.byte or start, end, message, lost
    )


def first_error(findings: Sequence[Finding]) -> Finding | None:
    """Return the first finding that is more than a note."""
    return next((finding for finding in findings if finding.severity == "error"), None)

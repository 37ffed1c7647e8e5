"""Text indexes of other libraries, stored next to a file: DALI's for TFRecord, MXNet's for RecordIO.

A text index has no checksums and does not identify its file, so penstock never uses it to read records. It writes text
indexes for other programs, and compares existing ones with the headers in the file.
"""

from __future__ import annotations

import os
from contextlib import closing, suppress

import numpy as np

from penstock.contract.format import Format
from penstock.errors import StaleIndexError, UnsupportedError, command
from penstock.framing.format import FramedFormat
from penstock.framing.index.sidecar import Index
from penstock.framing.index.text import TextIndex
from penstock.storage.base import Sink, Storage
from penstock.storage.local import LocalStorage, sink_for

_LINES = 1 << 16


def write(kind: TextIndex, index: Index, data_path: str, storage: Storage) -> None:
    """Write the text index of a file, replacing an existing one. A compressed file raises UnsupportedError, because a
    text index cannot point into it."""
    path = kind.path_for(data_path)
    if index.compression:
        raise UnsupportedError(
            f"a text index holds offsets in an uncompressed file, and this file is {index.compression}",
            file=path,
        )
    sink = sink_for(storage, path, data_path)
    try:
        fill(kind, index, sink)
        sink.commit()
    except BaseException:
        sink.abort()
        raise


def fill(kind: TextIndex, index: Index, sink: Sink, start: int = 0) -> None:
    """Write the lines of a text index from record `start` on."""
    for first in range(start, index.num_records, _LINES):
        last = min(first + _LINES, index.num_records)
        sink.write(kind.lines(index, first, last).encode())


def kept(kind: Format, data_path: str, storage: Storage) -> TextIndex | None:
    """Return the text index of a format if such an index is next to the file, else None."""
    text = kind.text_index if isinstance(kind, FramedFormat) else None
    return text if text is not None and storage.exists(text.path_for(data_path)) else None


def drop(kind: TextIndex, data_path: str, storage: Storage) -> None:
    """Remove the text index of a file that can no longer have a valid one."""
    if isinstance(storage, LocalStorage):
        with suppress(FileNotFoundError):
            os.unlink(kind.path_for(data_path))


def follow(kind: Format, index: Index, data_path: str, storage: Storage, old: int = 0) -> None:
    """Update the text index of a changed file, if there is one. Remove it if no text index can be valid. `index` is the
    index after the change. `old` is the number of records before the change, whose lines stay."""
    text = kept(kind, data_path, storage)
    if text is None:
        return
    if index.compression:
        drop(text, data_path, storage)
        return
    with closing(storage.source(text.path_for(data_path))) as source:
        before = source.read(0, source.size).to_bytes() if old else b""
    if before.count(b"\n") + (not before.endswith(b"\n") and before != b"") != old:
        before, old = b"", 0  # the old text index did not fit its file
    sink = sink_for(storage, text.path_for(data_path), data_path)
    try:
        sink.write(before if before.endswith(b"\n") or not before else before + b"\n")
        fill(text, index, sink, old)
        sink.commit()
    except BaseException:
        sink.abort()
        raise


def read(kind: TextIndex, path: str, storage: Storage) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the offsets in a text index, and the sizes if it has them, as uint64. Raise StaleIndexError for any other
    file."""
    with closing(storage.source(path)) as source:
        data = source.read(0, source.size).to_bytes()
    try:
        return kind.places(data)
    except ValueError as error:
        raise StaleIndexError(f"not a text index: {error}", file=path) from None


def check(kind: TextIndex, path: str, index: Index, data_path: str, storage: Storage) -> None:
    """Compare a text index with the positions of the records in the file. If they differ, raise StaleIndexError with
    the first such record and byte."""
    starts, sizes = read(kind, path, storage)
    true_starts, true_ends = index.starts[: index.num_records], index.ends
    common = min(len(starts), index.num_records)
    same = starts[:common] == true_starts[:common]
    if sizes is not None:
        same &= starts[:common] + sizes[:common] == true_ends[:common]
    if same.all() and len(starts) == index.num_records:
        return
    record = int(np.argmin(same)) if not same.all() else common
    raise StaleIndexError(
        f"the text index does not match {data_path}",
        file=path,
        record=record,
        byte=int(true_starts[record]) if record < index.num_records else None,
        expected=f"{index.num_records} records, as in the file",
        found=f"{len(starts)} lines; line {record + 1} is the first wrong one",
        hint=command("penstock", "index", "--text", data_path),
    )

"""Append to data in a store: the new records become a new object. They are encoded and checked on this machine first."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from penstock.contract.format import notes_of
from penstock.contract.summary import Summary
from penstock.framing.index import kept_schema, sidecar
from penstock.framing.index.sidecar import Index
from penstock.framing.write.writer import FramedWriter
from penstock.storage.base import Storage
from penstock.storage.local import LocalStorage
from penstock.verbs.append._work import MOST_NAMES, Work
from penstock.verbs.check import textindex
from penstock.verbs.write.incoming import Incoming
from penstock.verbs.write.shards import index_of

_PIECE_BYTES = 8 << 20


def to_new_object(
    work: Work,
    incoming: Incoming,
    options: Any,
    schema: pa.Schema,
    last: str,
    next_name: Callable[[], str],
    place: Storage,
) -> Summary:
    """Write the records as the next shard in `place`. `schema` and `last` are the schema and the last file of the
    existing records."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        encoded, here = os.path.join(folder, os.path.basename(last)), LocalStorage()
        sink = here.sink(encoded)
        try:
            made = work.encode(incoming, sink, options)
            if not made.num_records:
                sink.abort()
                return Summary((), 0, 0)
            sink.commit()
        except BaseException:
            sink.abort()
            raise
        work = replace(work, schema=kept_schema.finished(work.kind, work.schema, made.writer))
        work.check(encoded, incoming, schema, last)
        index = index_of(work.kind, made.writer, encoded, here, work.schema)
        new = _send(encoded, next_name, place)
    if index is not None and work.index is not False:
        _save_indexes(work, made.writer, index, new, place)
    return Summary((new,), made.num_records, made.num_bytes, notes_of([made.writer]))


def _send(encoded: str, next_name: Callable[[], str], place: Storage) -> str:
    """Write a local file to `place`, and return its name there. Another process may take a name first."""
    for tried in range(MOST_NAMES):
        new = next_name()
        try:
            _copy(encoded, new, place)
            return new
        except FileExistsError:
            if tried == MOST_NAMES - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _copy(encoded: str, new: str, place: Storage) -> None:
    sink = place.stream(new, overwrite=False)
    try:
        with open(encoded, "rb") as file:
            while data := file.read(_PIECE_BYTES):
                sink.write(data)
        sink.commit()
    except BaseException:
        sink.abort()
        raise


def _save_indexes(work: Work, writer: Any, index: Index, new: str, place: Storage) -> None:
    text = writer.text_index if isinstance(writer, FramedWriter) else None
    try:
        sidecar.save(index, new, place, None if work.index is True else str(work.index))
        if text is not None:
            textindex.write(text, index, new, place)
    except OSError as error:
        # An index can be made again at any time.
        warnings.warn(f"{new} has the records, but no index: {error}", stacklevel=5)

"""Adds records to the end of a file of a format that is not framed, if the format can: `Format.extend`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from penstock.contract.format import Format, Options, Reader, Writer, notes_of
from penstock.contract.opening import open_shard
from penstock.contract.summary import Summary
from penstock.errors import PenstockError, command
from penstock.framing.index import blocks, kept_schema, positions, sidecar
from penstock.framing.index.sidecar import Index
from penstock.storage.base import Source
from penstock.storage.local import LocalStorage
from penstock.storage.local_append import Tail
from penstock.verbs.append._labels import numbered_alike
from penstock.verbs.append._schema import in_types_of
from penstock.verbs.write.incoming import Incoming


def extend(
    incoming: Incoming,
    path: str,
    kind: Format,
    options: Callable[[Reader], Any],
    *,
    schema: Any,
    storage: LocalStorage,
    index: bool | str,
    threads: int,
    wait_seconds: float,
    progress: Callable[[int, int | None], None] | None,
) -> Summary:
    """Add records at the end of a file; the arguments are those of `append`. `options` returns the options of the
    writer for the reader of the file. Other appends to the file wait until this one ends."""
    where = "auto" if index is True else "never" if index is False else index
    with Tail(path, storage.calls, wait_seconds) as tail, closing(storage.source(path)) as source:
        reader = _whole(kind, source, Options(schema=schema, index=where))
        kept_at = "beside" if isinstance(index, bool) else index
        incoming = in_types_of(incoming, reader.schema, kind, path, stored=True)
        incoming = numbered_alike(incoming, kind, [path], storage, kept_at)
        sink = storage.no_more_open_than([path]).sink(path, overwrite=True)
        try:
            own = options(reader)
            writer = kind.extend(source, sink, incoming.schema, own, threads)
            num_records = _write(writer, incoming, progress)
            if not num_records:
                return Summary((), 0, 0)
            sink.finish()
            num_bytes = os.path.getsize(sink.temporary)
            types = kept_schema.of_written(kind, incoming.schema, own)
            facts = _facts(kind, writer, reader, types, path, storage, kept_at)
            tail.grow(sink.temporary, source.size)
        finally:
            sink.abort()
        if index is False:
            sidecar.discard(path, but_checksums=True)
        else:
            _keep(facts, path, storage, None if index is True else index)
    return Summary((path,), num_records, num_bytes, notes_of([writer]))


def _whole(kind: Format, source: Source, options: Options) -> Reader:
    """Open a file, and decode its last record, because records after damage could not be read.

    Raises:
        FormatError: the file is damaged.
    """
    path = source.path
    try:
        reader = open_shard(kind, source, options)
        last = reader.num_records - 1
        for chunk, records in reader.pick(np.arange(max(last, 0), last + 1)):
            reader.decode(chunk, records, None)
    except PenstockError as error:
        raise error.at(file=path, hint=command("penstock", "verify", path)) from None
    return reader


def _write(
    writer: Writer, incoming: Incoming, progress: Callable[[int, int | None], None] | None
) -> int:
    num_records = 0
    try:
        for batch in incoming.batches:
            writer.write(batch)
            num_records += batch.num_rows
            if progress is not None:
                progress(num_records, incoming.num_records)
        writer.close()
    except BaseException:
        writer.abort()
        raise
    return num_records


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the sidecar of the grown file stores."""

    schema: bytes
    positions: bytes
    checksums: Index | None
    """The index with checksums of the file before it grew."""


def _facts(
    kind: Format,
    writer: Writer,
    reader: Reader,
    schema: bytes,
    path: str,
    storage: LocalStorage,
    kept_at: str,
) -> _Facts:
    old = kept_schema.of_file(path, storage, Options(index=kept_at), lambda source: kind)
    new = kept_schema.finished(kind, schema, writer)
    places = None
    if kind.info.keeps_positions and reader.positions is not None and writer.positions is not None:
        places = np.concatenate([reader.positions[:-1], writer.positions])
    with_checksums = blocks.kept(path, kept_at, storage)
    return _Facts(
        kept_schema.joined(old, new) if old else b"",
        positions.to_bytes(kind.info.name, places),
        None if with_checksums is None else with_checksums[1],
    )


def _keep(facts: _Facts, path: str, storage: LocalStorage, folder: str | None) -> None:
    if not (facts.schema or facts.positions or facts.checksums):
        return
    try:
        index = kept_schema.index_of_others(path, storage, facts.schema, facts.positions)
        if facts.checksums is not None:
            with closing(storage.source(path)) as source:
                found = blocks.extended(source, facts.checksums)
                if found is None:
                    return  # the old checksums report the damage
                index = replace(index, blocks=found, state=sidecar.state_of(source))
        sidecar.save(index, path, storage, folder)
    except OSError as error:
        # An index can be made again at any time.
        warnings.warn(f"{path} has the records, but no new index: {error}", stacklevel=5)

"""`append` adds records to an existing dataset: either all of them or none.

The records are encoded into a temporary file and checked against the existing types. This file then becomes a new
shard, or `penstock.storage.local_append` adds its bytes to the end of a file. Only the index and the last bytes of
existing files are read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from penstock.contract.summary import Summary
from penstock.datasets.open import open as open_dataset
from penstock.engine.pipeline import checked_threads
from penstock.errors import UnsupportedError
from penstock.framing.format import FramedFormat
from penstock.framing.index import kept_schema
from penstock.framing.index.kept_schema import of_written
from penstock.overlay.places import Place, has_overlays
from penstock.storage.base import Storage
from penstock.storage.folder import state_of
from penstock.storage.local import LocalStorage
from penstock.storage.local_append import WAIT_SECONDS
from penstock.storage.local_sink import LocalSink
from penstock.storage.paths import index_option
from penstock.storage.places import storage_of
from penstock.storage.urls import refuse_web_target
from penstock.verbs.append._extend import extend
from penstock.verbs.append._labels import numbered_alike
from penstock.verbs.append._names import place_for
from penstock.verbs.append._new_object import to_new_object
from penstock.verbs.append._schema import in_types_of
from penstock.verbs.append._work import Work, compression_of, format_of, options_alike, options_of
from penstock.verbs.write.incoming import batches_of
from penstock.verbs.write.shards import Progress
from penstock.verbs.write.write import with_exact


# Complexity: one branch for each place where the records may go.
def append(
    data: Any,
    target: str | os.PathLike[str],
    *,
    shard: str | None = None,
    schema: Any = None,
    index: bool | str = True,
    exact: bool = False,
    threads: int | None = None,
    wait_seconds: float = WAIT_SECONDS,
    progress: Progress | None = None,
    storage: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **format_options: Any,
) -> Summary:
    """Add records to the end of a dataset: at the end of a file, or as a new shard.

    Either all records are added or none, even if the process is killed: the next `append`, `open` or `verify` rolls
    back an incomplete append. Existing records are neither read nor changed. The index is extended.

    Args:
        data: as for `write`.
        target: a TFRecord file, plain or GZIP, or another file whose format can be appended to; or several files, given by a folder, a glob or a pattern
            with `{shard}`, which get a new shard with the next number.
        shard: "last" appends to the end of the last of several files; "new" makes a new shard. If the
            names contain the number of shards (`name-00000-of-00010`), only "last" is possible.
        schema: the schema of the records, as for `open`; None infers it from the existing records.
        index: also index the added records, if the format has an index; a path is the folder for it.
        exact: refuse values that the format cannot hold exactly, as for `write`.
        threads: the number of threads; None for all cores. It does not change the written bytes.
        wait_seconds: how long to wait for another append to the same file.
        progress: called with the number of records so far and the total (or None).
        storage, storage_options: where the files are, as for `open`. In a store, several files get a new shard, but
            nothing can be added to the end of an object.
        **format_options: options of the format, as for `write`. The compression of the files is kept.

    Returns:
        The changed or new file, and the number of added records and bytes. Without records nothing is written, and
        the summary has no path.

    Raises:
        FileNotFoundError: the target does not exist; `write` makes new files.
        SchemaError: the records do not fit the existing records; the error names the field.
        FormatError: the file's end is damaged; `repair` it first.
        UnsupportedError: records cannot be appended to a file of this kind.
        BlockingIOError: another append was still running after `wait_seconds`.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [1, 2]}, "ids.tfrecord", overwrite=True)
        >>> ps.append({"id": [3]}, "ids.tfrecord").num_records
        1
        >>> [record["id"] for record in ps.open("ids.tfrecord")]
        [1, 2, 3]
    """
    place, index = storage_of(target, storage, storage_options), index_option(index)
    refuse_web_target(os.fspath(target))
    where = place_for(target, shard, place)
    last, kind = where.paths[-1], format_of(where.paths[-1], place)
    threads = checked_threads(threads)
    here = place if isinstance(place, LocalStorage) else LocalStorage()
    work = Work(here, kind, index, threads, progress)
    extends = where.new is None and kind.info.can_append and not isinstance(kind, FramedFormat)
    if where.new is None:
        _refuse_overlays(last, place)
    if extends:
        return extend(
            batches_of(data),
            last,
            kind,
            partial(options_alike, kind, with_exact(kind, format_options, exact=exact)),
            schema=schema,
            storage=here,
            index=index,
            threads=threads,
            wait_seconds=wait_seconds,
            progress=progress,
        )
    if where.new is None:
        # Read the index before any work. If the file changes, it is read again under the lock.
        known = state_of(last), work.end_of(last)
        compression: str | None = known[1].compression
    else:
        known = None
        compression = compression_of(last, kind, place)
    options = options_of(kind, compression, with_exact(kind, format_options, exact=exact))
    there = open_dataset(where.paths, schema=schema, index="never", storage=place)
    incoming = in_types_of(batches_of(data), there.schema, kind, last)
    incoming = numbered_alike(incoming, kind, where.paths, place, work.kept_at)
    work = replace(work, schema=of_written(kind, incoming.schema, options))
    next_name = partial(_next_name, target, shard, place)
    if not place.changes_in_place:
        return to_new_object(work, incoming, options, there.schema, last, next_name, place)
    here = here.no_more_open_than([last])
    sink = here.sink(last, overwrite=True) if where.new is None else _new_sink(here, next_name)
    try:
        made = work.encode(incoming, sink, options)
        if not made.num_records:
            sink.abort()
            return Summary((), 0, 0)
        work = replace(work, schema=kept_schema.finished(kind, work.schema, made.writer))
        work.check(sink.temporary, incoming, there.schema, last)
        if known is not None:
            done = work.to_end(last, known, sink, made, wait_seconds)
        else:
            done = work.to_new_shard(next_name, sink, made)
    except BaseException:
        sink.abort()
        raise
    with suppress(OSError):  # the records are in place; only a temporary file is left
        sink.abort()
    return done


def _refuse_overlays(path: str, storage: Storage) -> None:
    if has_overlays([path], Place(storage)):
        raise UnsupportedError(
            "this file has overlays, which have no values for new records",
            file=path,
            hint="run penstock fields bake first, or pass shard='new'",
        )


def _next_name(target: Any, shard: str | None, storage: Storage) -> str:
    new = place_for(target, shard, storage).new
    assert new is not None, "it was one of several files"
    return new


def _new_sink(storage: LocalStorage, next_name: Callable[[], str]) -> LocalSink:
    """Return a sink for the next shard. If another process takes the name first, try the next name."""
    while True:
        with suppress(FileExistsError):
            return storage.sink(next_name())

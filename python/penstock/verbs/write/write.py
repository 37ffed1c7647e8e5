"""`write` writes records to one file or many shards, completely or not at all.

Shards are written one after another, each with all threads. `shards` names the shards and decides where they end.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from typing import Any, Unpack

import pyarrow as pa

from penstock import formats
from penstock.columns.decimals import Decimals
from penstock.columns.refusals import refuse_bits
from penstock.columns.types import own_batch
from penstock.contract.format import Format
from penstock.contract.keywords import WriteOptions
from penstock.contract.options import options_from
from penstock.contract.summary import Summary
from penstock.engine.pipeline import checked_threads
from penstock.framing.index import sidecar
from penstock.framing.index.kept_schema import of_written
from penstock.limits import checked_count
from penstock.storage.base import Sink, Storage
from penstock.storage.local import LocalStorage
from penstock.storage.local_sink import private_beside
from penstock.storage.paths import index_option
from penstock.storage.places import storage_of
from penstock.storage.urls import refuse_web_target
from penstock.verbs.manifest.last import Last
from penstock.verbs.write.incoming import Incoming, batches_of
from penstock.verbs.write.names import Names
from penstock.verbs.write.shards import (
    Cut,
    EvenCut,
    LimitCut,
    NewShard,
    Progress,
    Shards,
    fill,
    new_shard,
)


def write(
    data: Any,
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    compression: str | None = None,
    num_shards: int | None = None,
    shard_records: int | None = None,
    shard_bytes: int | None = None,
    index: bool | str = True,
    overwrite: bool = False,
    exact: bool = False,
    manifest: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    storage: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **format_options: Unpack[WriteOptions],
) -> Summary:
    """Write records to one file or several files.

    Files get their names when all of them are complete. The same records make the same bytes, whatever the number of
    threads and the sizes of the batches.

    Args:
        data: a pyarrow Table, RecordBatch or reader; anything with the Arrow C stream or array interface (polars,
            duckdb, pandas, a Dataset); a dict of equally long arrays; an iterable of record batches, of dicts (one
            per record) or of bytes (raw records). Batches must not change until all records are written, because
            long values are not copied.
        path: the target file. With several shards, `x.tfrecord` becomes `x-00000-of-00010.tfrecord` and
            so on. A path with `{shard:05d}` is a pattern of names. (So is `{shard}`, but more than 10 such names do
            not sort in the order of the records.)
        format: the name of the format; None infers it from the path's extension.
        compression: a compression of the format. None: "gzip" if the path ends in `.gz`, else the
            format's default, usually no compression.
        num_shards: the number of shards. Shards are contiguous; their sizes differ by at most 1 record. A
            stream of unknown length is first spooled to a temporary file next to the target.
        shard_records: the number of records after which a shard ends.
        shard_bytes: a shard ends with the record that brings it to this many bytes on disk, or soon after if its last
            records are much larger than its first. The bytes are estimated with compression; for Parquet, Arrow and
            HDF5, whose records are buffered by group or chunk; for npz, which is packed at the end; and for `.beton`,
            whose pages are padded.
        index: write a sidecar with each file. It has the index, if the format has one, and the types of the fields,
            if the format cannot hold them. A path is the folder for the sidecars.
        exact: refuse values that the format cannot hold exactly. Otherwise the nearest value is written, such as a
            float32 for a float64 in a TFRecord, and `Summary.notes` reports it.
        manifest: the path of a manifest to write, last of all: who opens it sees all of the files or nothing.
        threads: the number of threads; None for all cores.
        progress: called with the number of records so far and the total (or None).
        storage: the storage of the files. None for this machine, and for names such as s3://bucket/key.
        storage_options: as for `open`.
        **format_options: options of the format, see its page; an unknown option is an error.

    Returns:
        The paths in order, the number of records, their bytes on disk, and notes on changed values.

    Raises:
        FileExistsError: a target exists and `overwrite` is False.
        SchemaError: a value does not fit the format; the error names record and field.
        TypeError: the data cannot be written, or an option is unknown.

    Example:
        >>> import penstock as ps
        >>> ps.write({"label": [3, 1, 2]}, "labels.tfrecord", overwrite=True).num_records
        3
    """
    target = _checked_target(data, path)
    num_shards, shard_records, shard_bytes = check_cuts(num_shards, shard_records, shard_bytes)
    index = index_option(index)
    given = dict(format_options)
    kind, options = format_and_options(target, format, compression, given, exact=exact)
    last = Last(manifest, target, storage, storage_options, overwrite=overwrite)
    storage = storage_of(target, storage, storage_options)
    target = target.rstrip("/") if kind.info.is_folder else target
    threads = checked_threads(threads)
    is_sharded = (num_shards, shard_records, shard_bytes) != (None, None, None)
    names = Names(target, kind.info.extensions, is_sharded, num_shards)
    names.refuse_existing(storage, num_shards, overwrite=overwrite)
    if overwrite:
        storage = storage.no_more_open_than(names.taken())
    new_sink = _sink_maker(storage, kind, names)
    with _counted(batches_of(data), target, storage, needed=num_shards is not None) as incoming:
        if kind.info.loses_dtypes:
            refuse_bits(incoming.schema, kind.info.name)
        decimals = None if kind.info.holds_decimals else Decimals(incoming.schema, exact=exact)
        if decimals:
            batches = decimals.convert(incoming.batches)
            incoming = incoming._replace(schema=decimals.schema, batches=batches)
        cut: Cut = LimitCut(shard_records, shard_bytes)
        if num_shards is not None:
            cut = EvenCut(incoming.num_records or 0, num_shards)

        def create(number: int) -> NewShard:
            sink = new_sink(names.provisional(number), overwrite=overwrite)
            new_writer = partial(kind.create, sink, incoming.schema, options, threads)
            return new_shard(sink, new_writer, storage, overwrite=overwrite)

        shards = Shards(create, progress, incoming.num_records)
        try:
            fill(shards, incoming, cut)
            shards.finish()
            finals = [names.final(n, shards.num_shards) for n in range(shards.num_shards)]
            drop_old_indexes(finals, storage, index, overwrite=overwrite)
            kept = b""
            if index is not False:
                kept = incoming.kept or of_written(kind, incoming.schema, options)
            made = shards.commit(kind, names, storage, index, overwrite=overwrite, schema=kept)
        except BaseException:
            shards.abort()
            raise
    return last.of(replace(made, notes=(*decimals.notes, *made.notes)) if decimals else made)


def _checked_target(data: Any, path: Any) -> str:
    if isinstance(data, (str, os.PathLike)) and not isinstance(path, (str, os.PathLike)):
        raise TypeError("the data comes first, then the path: ps.write(data, path)")
    target = os.fspath(path)
    refuse_web_target(target)
    return target


def drop_old_indexes(
    paths: list[str], storage: Storage, index: bool | str, *, overwrite: bool
) -> None:
    """Remove the indexes of files that are about to be replaced, unless new indexes replace them. This happens before
    the replacement: a file without an index can be indexed again, but a kill must not leave a new file with an old
    index."""
    if index is True or not isinstance(storage, LocalStorage):
        return
    for path in paths:
        if overwrite or not storage.exists(path):
            sidecar.discard(path)


def _sink_maker(storage: Storage, kind: Format, names: Names) -> Callable[..., Sink]:
    if kind.info.is_folder:
        return storage.folder_sink
    return storage.stream if kind.info.only_appends and names.are_final else storage.sink


def check_cuts(
    num_shards: Any, shard_records: Any, shard_bytes: Any
) -> tuple[int | None, int | None, int | None]:
    """Return the values as Python ints, or raise an error if they are invalid or contradict each other."""
    cuts = {"num_shards": num_shards, "shard_records": shard_records, "shard_bytes": shard_bytes}
    found: list[int | None] = []
    for name, value in cuts.items():
        try:
            found.append(None if value is None else checked_count(name, value, 1))
        except (TypeError, ValueError):
            message = f"{name} must be a positive whole number, not {value!r}"
            raise ValueError(message) from None
    if num_shards is not None and not (shard_records is None and shard_bytes is None):
        raise ValueError(
            "num_shards cannot be combined with shard_records or shard_bytes; leave out one"
        )
    return found[0], found[1], found[2]


def format_of(target: str, format: str | None) -> Format:
    """Return the format of this name, or infer it from the target's name."""
    if format is None:
        return formats.by_path(target.removesuffix(".gz"))
    return formats.by_name(format)


def format_and_options(
    target: str,
    format: str | None,
    compression: str | None,
    given: dict[str, Any],
    *,
    exact: bool = False,
) -> tuple[Format, Any]:
    """Return the format of a target, and its options."""
    is_gzip_name = target.endswith(".gz")
    kind = format_of(target, format)
    name = kind.info.name
    if is_gzip_name:
        if compression not in (None, "gzip", "GZIP"):
            raise ValueError(f"{target} ends in .gz, but compression={compression!r}")
        compression = "gzip"
    if compression is not None:
        # TensorFlow spells compressions in capitals.
        compression = compression.lower() if str(compression).isupper() else compression
        if "compression" not in {field.name for field in fields(kind.write_options)}:
            raise TypeError(f"{name} files are not compressed; compression={compression!r}")
        given = {**given, "compression": compression}
    return kind, options_from(kind.write_options, with_exact(kind, given, exact=exact), name)


def with_exact(kind: Format, given: dict[str, Any], *, exact: bool) -> dict[str, Any]:
    """Return the options, with `exact` added for formats that have this option."""
    has_it = exact and "exact" in {field.name for field in fields(kind.write_options)}
    return {**given, "exact": True} if has_it else given


@contextmanager
def _counted(
    incoming: Incoming, target: str, storage: Storage, *, needed: bool
) -> Generator[Incoming, None, None]:
    """Yield the records with their number. To count the records, a stream is spooled to a temporary file."""
    if incoming.num_records is not None or not needed:
        yield incoming
        return
    spool = _spool_path(target, storage)
    try:
        num_records = 0
        with (
            pa.OSFile(os.fsencode(spool), "wb") as file,
            pa.ipc.new_stream(file, incoming.schema) as stream,
        ):
            for batch in incoming.batches:
                stream.write_batch(batch)
                num_records += batch.num_rows
        with pa.OSFile(os.fsencode(spool), "rb") as file, pa.ipc.open_stream(file) as stream:
            batches = (own_batch(batch, incoming.schema) for batch in stream)
            yield Incoming(incoming.schema, batches, num_records, incoming.kept)
    finally:
        if os.path.lexists(spool):
            os.unlink(spool)


def _spool_path(target: str, storage: Storage) -> str:
    if not isinstance(storage, LocalStorage):
        target = os.path.join(tempfile.gettempdir(), os.path.basename(target))
    return private_beside(target)

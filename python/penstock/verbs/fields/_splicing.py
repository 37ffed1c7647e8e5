"""Splicing of TFRecord shards: read frames, remove and add fields, and write the frames in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import pyarrow as pa

from penstock import _core
from penstock.columns.losses import Losses
from penstock.columns.numbers import as_numpy
from penstock.columns.refusals import refuse_bits
from penstock.contract.faults import error_from
from penstock.contract.format import Chunk, Format, Options
from penstock.datasets.dataset import Dataset
from penstock.engine.pipeline import checked_threads
from penstock.errors import PenstockError, SchemaError
from penstock.framing.format import FramedFormat
from penstock.framing.index import sidecar
from penstock.framing.index.kept_schema import flattened
from penstock.framing.read.framed import FramedReader
from penstock.framing.write.output import parts_of
from penstock.payloads.example.encode_plans import PayloadPlan, plan_payload
from penstock.payloads.example.plans import IN_LISTS_KEY, LISTS_PREFIX
from penstock.storage.base import Storage
from penstock.storage.local_sink import LocalSink
from penstock.verbs.fields._edit import REPLACE_HINT, Edit, EditPart

Task = tuple[EditPart, FramedReader, Chunk[Any] | None]
Spliced = tuple[EditPart, _core.Framed | None]
"""A shard and the new frames of some of its records, or None after the last record."""


def held_bytes(result: Spliced) -> int:
    return 0 if result[1] is None else result[1].num_bytes


class Splicing:
    def __init__(self, old: Dataset, edit: Edit) -> None:
        self._old = old
        self._edit = edit
        lists = {field.name for field in old.schema if IN_LISTS_KEY in (field.metadata or {})}
        self._kind: Literal["example", "sequence"] = "sequence" if lists else "example"
        self.losses = Losses(exact=False)
        self._drop, self._rename = _cuts(old.schema, edit)
        self._payload: PayloadPlan | None = None
        self._names: list[str] = []
        if edit.new is not None:
            refuse_bits(edit.new.schema, old.files.format_name(0))
            self._names = [_key(name, lists) for name in edit.new.schema.names]
            fields = zip(edit.new.schema, self._names, strict=True)
            schema = pa.schema([f.with_name(n) for f, n in fields])
            self._payload = plan_payload(schema, self._kind, self.losses)

    def tasks(self, part: EditPart) -> Iterator[Task]:
        """Yield a task for each chunk of a shard, then a task with None."""
        reader = self._old.files.reader(part.place)
        assert isinstance(reader, FramedReader)
        for chunk in reader.chunks():
            yield part, reader, chunk
        yield part, reader, None

    def run(self, task: Task) -> Iterator[Spliced]:
        part, reader, chunk = task
        if chunk is None:
            yield part, None
            return
        try:
            yield part, self._spliced(part.shard, reader, chunk)
        except SchemaError as error:
            raise error.at(file=reader.source.path) from None

    def _spliced(self, shard: int, reader: FramedReader, chunk: Chunk[Any]) -> _core.Framed:
        chunk = reader.held(chunk)  # the frames are needed twice if old fields are read
        frames = reader.frames(chunk)
        added = self._added(shard, reader, chunk, len(frames))
        try:
            framed, _ = _core.splice_fields(
                frames,
                added,
                self._kind,
                drop=self._drop,
                rename=self._rename,
                replace=self._edit.replace,
                verify=self._old.options.verifies,
            )
        except _core.KernelError as error:
            raise self._located(error.args[0], chunk, reader.source.path) from None
        return framed

    def _added(
        self, shard: int, reader: FramedReader, chunk: Chunk[Any], num_records: int
    ) -> pa.RecordBatch | None:
        new, payload = self._edit.new, self._payload
        if new is None or payload is None:
            return None
        old = reader.decode(chunk, None, list(new.reads)) if new.reads else None
        batch = new.batch(shard, chunk.first_record, num_records, old)
        batch = batch.rename_columns(self._names)
        try:
            return payload.convert(batch)
        except SchemaError as error:
            if error.record is not None:
                error.record += chunk.first_record
            raise

    @staticmethod
    def _located(fault: Any, chunk: Chunk[Any], path: str) -> PenstockError:
        record = None if fault.record is None else chunk.first_record + fault.record
        error = error_from(fault, file=path, record=record)
        if isinstance(error, SchemaError) and "exists already" in error.message:
            error.hint = REPLACE_HINT
        return error


def _key(name: str, lists: set[str]) -> str:
    """Return the name under which a new field is written. If it replaces a feature list, the new field is one, too."""
    return LISTS_PREFIX + name if name in lists and not name.startswith(LISTS_PREFIX) else name


def _cuts(schema: pa.Schema, edit: Edit) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the keys to drop and to rename. If a new struct lacks a key of the old struct, the key is dropped."""
    leaves = {field.name: [leaf.name for leaf in flattened([field])] for field in schema}
    drop = [leaf for name in edit.drop for leaf in leaves[name]]
    rename = [
        (leaf, after + leaf.removeprefix(name))
        for name, after in edit.rename
        for leaf in leaves[name]
    ]
    if edit.new is not None:
        kept = {*edit.new.schema.names, *(leaf.name for leaf in flattened(edit.new.schema))}
        for name in edit.new.schema.names:
            drop += [leaf for leaf in leaves.get(name, ()) if leaf not in kept]
    return drop, rename


class Output:
    def __init__(
        self,
        kind: Format,
        path: str,
        target: str,
        source_storage: Storage,
        storage: Storage,
        *,
        overwrite: bool,
        threads: int | None,
    ) -> None:
        assert isinstance(kind, FramedFormat), "only frames are spliced"
        source = source_storage.source(path)
        compression = kind.shard(source, Options(index="never")).stream.container
        source.close()
        threads = checked_threads(threads)
        self._sink = storage.stream(target, overwrite=overwrite)
        self.num_records = 0
        try:
            self._writer = kind.create_copy(self._sink, compression, threads)
        except BaseException:
            self._sink.abort()
            raise

    @property
    def temporary(self) -> str:
        """The name of the unfinished file on this machine."""
        assert isinstance(self._sink, LocalSink), "objects have no name before they are complete"
        return self._sink.temporary

    def add(self, framed: _core.Framed) -> None:
        lengths = as_numpy(framed.lengths)
        checksums = as_numpy(framed.checksums)
        self._writer.write_frames(parts_of(framed), lengths, checksums)
        self.num_records += len(lengths)

    def finish(self) -> sidecar.Index:
        self._writer.close()
        self._sink.finish()
        return self._writer.index()

    def commit(self) -> None:
        self._sink.commit()

    def abort(self) -> None:
        try:
            self._writer.abort()
        finally:
            self._sink.abort()

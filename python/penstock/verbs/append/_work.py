"""The steps of an append: the new records are encoded and checked, and become a new shard or the end of a file."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import pyarrow as pa

from penstock import formats
from penstock.columns.inferred import has_no_records
from penstock.columns.refusals import refuse_bits
from penstock.contract.format import Format, Options, Reader, notes_of
from penstock.contract.options import options_from
from penstock.contract.summary import Summary
from penstock.datasets.open import open as open_dataset
from penstock.errors import PenstockError, SchemaError, StaleIndexError, UnsupportedError, command
from penstock.framing.format import FramedFormat
from penstock.framing.index import ahead, blocks, kept_schema, sidecar
from penstock.framing.index.sidecar import Index
from penstock.framing.write.writer import FramedWriter
from penstock.payloads.example.plans import is_raw
from penstock.storage.base import State, Storage
from penstock.storage.folder import state_of
from penstock.storage.local import LocalStorage
from penstock.storage.local_append import Tail
from penstock.storage.local_sink import LocalSink
from penstock.verbs.append._schema import check_features
from penstock.verbs.check import textindex
from penstock.verbs.write.incoming import Incoming
from penstock.verbs.write.shards import Progress, index_of

MOST_NAMES = 1000
"""The most names to try for a new shard while other processes take the same names."""


def _name_target(error: SchemaError, encoded: str, path: str) -> None:
    """Change an error about the temporary file so that it names the target."""
    error.file, error.byte = path, None
    advice = error.hint or ""
    if not advice or advice.startswith("open(") or encoded in advice or command(encoded) in advice:
        error.hint = command("penstock", "schema", path)


def format_of(path: str, storage: Storage) -> Format:
    with closing(storage.source(path)) as source:
        return formats.of(source)


def compression_of(path: str, kind: Format, storage: Storage) -> str | None:
    """Return the compression of a framed file, or None for the format's default."""
    if not isinstance(kind, FramedFormat):
        return None
    with closing(storage.source(path)) as source:
        return kind.shard(source, Options(index="never")).stream.container


def options_of(kind: Format, compression: str | None, given: dict[str, Any]) -> Any:
    known = {field.name for field in fields(kind.write_options)}
    if compression is not None and "compression" in known:
        asked = given.get("compression")
        if asked is not None and str(asked).lower() != compression:
            there = compression or "not compressed"
            raise ValueError(f"compression={asked!r}, but the file is {there}")
        given = {**given, "compression": compression or None}
    return options_from(kind.write_options, given, kind.info.name)


def options_alike(kind: Format, given: dict[str, Any], reader: Reader) -> Any:
    """Return the options of the file; those that are given replace its compression and layout."""
    alike = None if given else reader.options_alike()
    return options_from(kind.write_options, given, kind.info.name) if alike is None else alike


@dataclass(frozen=True, slots=True)
class Made:
    writer: Any
    num_records: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Work:
    storage: LocalStorage
    kind: Format
    index: bool | str
    threads: int
    progress: Progress | None
    schema: bytes = b""
    """The schema of the new records as bytes, for sidecars."""

    @property
    def index_option(self) -> str:
        return "auto" if self.index is True else "never" if self.index is False else self.index

    def end_of(self, path: str) -> Index:
        """Return the index of a file. Raise an error if records cannot be added to its end."""
        kind = self.kind
        if not kind.info.can_write:
            raise UnsupportedError(
                f"{kind.info.name} files are read, not written",
                file=path,
                hint="penstock convert to TFRecord, which can be appended to",
            )
        if not (isinstance(kind, FramedFormat) and kind.info.can_append):
            raise UnsupportedError(
                f"records cannot be added to the end of a {kind.info.name} file",
                file=path,
                hint="append to its folder for a new shard, if its name has a running number; "
                "or write another file, and open both",
            )
        source = self.storage.source(path)
        try:
            return kind.end_of(source, Options(raw=True, index=self.index_option))
        except PenstockError as error:
            raise error.at(hint=command("penstock", "verify", path)) from None
        finally:
            source.close()

    def encode(self, incoming: Incoming, sink: LocalSink, options: Any) -> Made:
        if self.kind.info.loses_dtypes:
            refuse_bits(incoming.schema, self.kind.info.name)
        writer: Any = self.kind.create(sink, incoming.schema, options, self.threads)
        num_records = 0
        try:
            for batch in incoming.batches:
                writer.write(batch)
                num_records += batch.num_rows
                if self.progress is not None:
                    self.progress(num_records, incoming.num_records)
            writer.close()
        except BaseException:
            writer.abort()
            raise
        return Made(writer, num_records, writer.num_bytes)

    def check(self, encoded: str, incoming: Incoming, schema: pa.Schema, path: str) -> None:
        """Read all encoded records with the schema, and raise SchemaError if they do not fit."""
        are_raw = is_raw(schema) and is_raw(incoming.schema)
        if self.kind.info.lossless or has_no_records(schema) or are_raw:
            return
        infers = any(field.name == "infer_records" for field in fields(self.kind.read_options))
        every: dict[str, Any] = {"infer_records": "all"} if infers else {}
        reopen = partial(
            open_dataset,
            encoded,
            format=self.kind.info.name,
            index="never",
            storage=self.storage,
        )
        try:
            check_features(reopen(**every).schema, incoming.schema.names, schema, path)
            for _ in reopen(schema=schema).scan(threads=self.threads):
                pass
        except SchemaError as error:
            _name_target(error, encoded, path)
            raise

    def to_end(
        self,
        path: str,
        known: tuple[State | None, Index],
        sink: LocalSink,
        made: Made,
        wait_seconds: float,
    ) -> Summary:
        """Add the records at the end of a file; `known` is its earlier state and index."""
        with Tail(path, self.storage.calls, wait_seconds) as tail:
            state, old = known
            # Another append may have changed the end of the file.
            if state is None or state_of(path) != state or old.data_bytes != state[1]:
                old = self.end_of(path)
            if old.num_records:
                old = self._with_schema(old, path)
                tail.grow(sink.temporary, old.data_bytes)
            else:
                # A compressed file without records is one empty member. No member may follow it.
                with self.index_ahead(sink, made, path):
                    sink.commit()
            more = replace(made.writer.index(), schema=self.schema)
            if old.num_records or blocks.kept(path, self.kept_at, self.storage) is not None:
                self._save_index(old, more, path)
            self.save_text(sidecar.joined(old, more), path, old.num_records, made)
        return Summary((path,), made.num_records, made.num_bytes, notes_of([made.writer]))

    def to_new_shard(self, next_name: Callable[[], str], sink: LocalSink, made: Made) -> Summary:
        new = sink.path
        for tried in range(MOST_NAMES):
            try:
                with self.index_ahead(sink, made, new):
                    sink.commit(new)
                break
            except FileExistsError:
                # Another process has made this shard.
                if tried == MOST_NAMES - 1:
                    raise
                new = next_name()
        if hasattr(made.writer, "index"):
            self.save_text(made.writer.index(), new, 0, made)
        return Summary((new,), made.num_records, made.num_bytes, notes_of([made.writer]))

    def _with_schema(self, old: Index, path: str) -> Index:
        """Return the old index with a schema that also fits the new records. The index is saved before the records
        are added, so that they are never read with the wrong types."""
        folder = None if isinstance(self.index, bool) else self.index
        kept = old.schema
        with suppress(OSError, StaleIndexError):
            kept_at = sidecar.path_for(path, folder)
            kept = sidecar.load_sections(kept_at, self.storage, "schema")[1]["schema"]
        both = kept_schema.joined(kept, self.schema) if kept else b""
        if both == kept:
            return replace(old, schema=kept)
        if self.index is False:
            sidecar.discard(path)
        else:
            sidecar.save(replace(old, schema=both), path, self.storage, folder)
        return replace(old, schema=both)

    def save_text(self, index: Index, path: str, old: int, made: Made) -> None:
        """Write another library's text index, if the writer makes one or the file already has one."""
        text = made.writer.text_index if isinstance(made.writer, FramedWriter) else None
        try:
            if text is not None and not old:
                textindex.write(text, index, path, self.storage)
            else:
                textindex.follow(self.kind, index, path, self.storage, old)
        except OSError as error:
            warnings.warn(f"{path} has the records, but no new text index: {error}", stacklevel=4)

    @property
    def kept_at(self) -> str:
        """The place of the indexes, in the form of `Options.index`."""
        return "beside" if isinstance(self.index, bool) else self.index

    def index_ahead(self, sink: LocalSink, made: Made, path: str) -> AbstractContextManager[Any]:
        if self.index is False:
            return nullcontext()
        folder = None if self.index is True else self.index
        try:
            sink.finish()
            index = index_of(self.kind, made.writer, sink.temporary, self.storage, self.schema)
            if index is not None:
                return ahead.save(index, sink.temporary, path, self.storage, folder)
        except OSError as error:
            # An index can be made again at any time.
            warnings.warn(f"{path} has the records, but no index: {error}", stacklevel=4)
        return nullcontext()

    def _save_index(self, old: Index, more: Index, path: str) -> None:
        if self.index is False:
            return
        folder = None if self.index is True else self.index
        with_checksums = blocks.kept(path, self.kept_at, self.storage)
        try:
            if old.num_records:
                kept = sidecar.kept_records(path, folder)
                total = old.num_records + more.num_records
                is_enough = kept is not None and not sidecar.worth_saving(kept, total)
                if is_enough and with_checksums is None:
                    return
                more = sidecar.joined(old, more)
            if folder is not None:
                os.makedirs(folder, exist_ok=True)
            if with_checksums is not None:
                with closing(self.storage.source(path)) as source:
                    found = blocks.extended(source, with_checksums[1])
                    if found is None:
                        return  # the old checksums report the damage
                    more = replace(more, blocks=found, state=sidecar.state_of(source))
            sidecar.save(more, path, self.storage, folder)
        except OSError as error:
            # An index can be made again at any time.
            warnings.warn(f"{path} has the records, but no new index: {error}", stacklevel=4)

"""Joining overlays to the shards that they belong to, by record number.

A record number is known only where a shard's chunks were cut by an index, or by what the format
itself says. So a framed shard with an overlay is read through its index, and whoever passes over
damaged records says which ones were delivered. Where that cannot be known, nothing is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.columns.batches import empty_columns
from penstock.columns.casts import fitted
from penstock.columns.joined import join
from penstock.columns.selection import Projection, Selection
from penstock.contract.format import (
    Chunk,
    Delivered,
    Format,
    Options,
    Readable,
    Reader,
    SkippedRegion,
    Stretch,
)
from penstock.contract.opening import open_shard
from penstock.errors import ChangedError, SchemaError, StaleIndexError, command
from penstock.limits import Limits
from penstock.overlay.file import Kept, Overlay, fields_of, find
from penstock.overlay.identity import identity_of
from penstock.storage.base import Source, Storage
from penstock.storage.pyarrow_files import translated
from penstock.storage.skipped import SkippedFile


class Overlays:
    """The overlays of a dataset's shards, and the fields that they add to its records."""

    def __init__(self, paths: Sequence[str], storage: Storage, limits: Limits) -> None:
        kept = Kept()
        self._shards = [find(path, storage, limits, kept) for path in paths]
        self._owners = [fields_of(overlays) for overlays in self._shards]
        self.fields: dict[str, pa.Field] = {}
        for path, owners in zip(paths, self._owners, strict=True):
            for name, overlay in owners.items():
                self._add(overlay.schema.field(name), overlay, path)
        for name, field in self.fields.items():
            if any(name not in owners for owners in self._owners):
                self.fields[name] = field.with_nullable(True)

    def _add(self, field: pa.Field, overlay: Overlay, path: str) -> None:
        known = self.fields.setdefault(field.name, field)
        if known.type != field.type:
            raise SchemaError(
                f"the overlay {overlay.name!r} has another type here than in an earlier shard",
                file=overlay.path,
                field=field.name,
                expected=known.type,
                found=field.type,
                hint=_without(path, overlay.name),
            )
        if field.nullable:
            self.fields[field.name] = known.with_nullable(True)

    def digests(self, shard: int) -> list[str]:
        """What tells the overlays of one shard from any others."""
        return [f"{overlay.name}\0{overlay.digest}" for overlay in self._shards[shard]]

    def of(self, shard: int) -> list[Overlay]:
        """The overlays of one shard, in the order in which they were made."""
        return self._shards[shard]

    def open(
        self,
        shard: int,
        fmt: Format,
        source: Source,
        options: Options,
        settled: Any,
        names: Sequence[str] | None,
    ) -> Reader:
        """Open a shard as the format does, joined with its overlays.

        `settled` is the schema of the dataset's files where the caller gave none and it is known,
        `names` are the fields of the dataset in their order, once they are known.

        Raises:
            StaleIndexError: an overlay was made for another state of the shard.
        """
        given = options.schema
        base = self._opened(shard, fmt, source, options, settled)
        stale = self.stale(shard, base, source, counted=options.damage != "error")
        if stale is not None:
            raise stale
        fields = self.fields
        if isinstance(given, (pa.Schema, dict)):
            asked = list(given.names if isinstance(given, pa.Schema) else given)
            fields = {
                name: given.field(name) if isinstance(given, pa.Schema) else self.fields[name]
                for name in asked
                if name in self.fields
            }
            names = asked if names is None else names
        owners = {name: self._owners[shard].get(name) for name in fields}
        with translated(source.path):  # a file may have names that are no text
            order = [*(names or ()), *base.schema.names, *fields]
            return OverlaidReader(base, source.path, fields, owners, order, options.damage)

    def _opened(
        self, shard: int, fmt: Format, source: Source, options: Options, settled: Any
    ) -> Reader:
        """The shard without its overlays."""
        schema = settled if options.schema is None else options.schema
        owned = self._owners[shard]
        if isinstance(schema, dict):
            mine = {name: field for name, field in schema.items() if name not in owned}
            return open_shard(fmt, source, replace(options, schema=mine))
        if not isinstance(schema, pa.Schema):
            return open_shard(fmt, source, options)
        kept = [field for field in schema if field.name not in owned]
        if options.schema is None:
            # What an earlier shard has in an overlay this one may have in its records.
            names = [*schema.names, *owned]
            kept += [field for name, field in self.fields.items() if name not in names]
        while True:
            try:
                fields = pa.schema(kept, schema.metadata)
                return open_shard(fmt, source, replace(options, schema=fields))
            except SchemaError as error:
                # A field that only overlays of other shards have: here it is null.
                rest = [field for field in kept if field.name != error.field]
                if error.field not in self.fields or len(rest) == len(kept):
                    raise
                kept = rest

    def stale(
        self, shard: int, base: Reader, source: Source, *, counted: bool
    ) -> StaleIndexError | None:
        """The error of the first overlay that was made for another state of the shard. `counted`:
        ask the reader how many records it finds, not only who the file is."""
        if not self._shards[shard]:
            return None
        identity = identity_of(base, source, count=counted)
        for overlay in self._shards[shard]:
            made_for = overlay.identity
            if not identity.fits(made_for):
                return StaleIndexError(
                    f"the overlay {overlay.name!r} was made for another state of this file",
                    file=source.path,
                    expected=f"{made_for.num_records} records in {made_for.num_bytes} bytes, "
                    f"{made_for.digest}",
                    found=f"{identity.num_records} records in {identity.num_bytes} bytes, "
                    f"{identity.digest}",
                    hint=_without(source.path, overlay.name),
                )
        return None

    def __bool__(self) -> bool:
        return bool(self.fields)


def _without(path: str, name: str) -> str:
    """How to read a file without fields that are kept beside it."""
    return f"{command('penstock', 'fields', 'remove', path, name)}, or open(..., overlays=False)"


class _Picked(NamedTuple):
    """`Chunk.data` of a chunk that stands for some records of the shard."""

    records: np.ndarray


class OverlaidReader(Reader):
    """A Reader of a shard and its overlays: of the shard `base`, with more columns."""

    def __init__(
        self,
        base: Reader,
        path: str,
        fields: dict[str, pa.Field],
        owners: dict[str, Overlay | None],
        order: Sequence[str],
        damage: str,
    ) -> None:
        self.base = base
        self._path = path
        self._owners = owners
        self._unread = damage == "error"
        own = {name: field for name, field in fields.items() if owners[name] is not None}
        stored: dict[str, list[pa.Field]] = {}
        for field in base.schema:
            stored.setdefault(field.name, []).append(field)
        lacking = [name for name in fields if name not in own and name not in stored]
        self._nulls = {name: fields[name] for name in lacking}
        self._fields = own
        placed: list[pa.Field] = []
        for name in dict.fromkeys(order):
            if name in self._nulls and not fields[name].nullable:
                message = "is not in this file, and the schema allows no nulls"
                raise SchemaError(message, file=path, field=name)
            if name in own or name in self._nulls:
                placed.append(fields[name])
                continue
            found = stored.get(name, [])
            for field in found:
                if name in fields and field.type != fields[name].type:
                    raise SchemaError(
                        "an overlay of another shard has this field with another type",
                        file=path,
                        field=name,
                        expected=fields[name].type,
                        found=field.type,
                    )
            placed += found
        self.schema = pa.schema(placed, metadata=base.schema.metadata)
        self._replaces = any(name in own for name in stored)

    @property
    def num_records(self) -> int:
        return self.base.num_records

    @property
    def compression(self) -> str | None:
        return self.base.compression

    @property
    def skipped_files(self) -> Sequence[SkippedFile]:
        return self.base.skipped_files

    def chunks(self) -> Iterator[Chunk[Any]]:
        return self.base.chunks()

    def found_by(self, threads: int) -> Iterator[Stretch | Callable[[], Sequence[Stretch]]]:
        return self.base.found_by(threads)

    def parts(self, chunk: Chunk[Any], columns: Projection) -> Iterator[Chunk[Any]]:
        return self.base.parts(chunk, self._wanted(columns))

    def readable(self, chunk: Chunk[Any]) -> Readable | None:
        return self.base.readable(chunk)

    def compares(self, chunk: Chunk[Any] | None) -> bool:
        return self.base.compares(chunk)

    def checks(self) -> Iterable[Callable[[], None]]:
        return self.base.checks()

    def options_alike(self) -> Any:
        return self.base.options_alike()

    def pick(self, records: np.ndarray) -> Iterable[tuple[Chunk[Any], Selection]]:
        """All records in one pair; what is read for them is known when the columns are."""
        records = np.asarray(records, dtype=np.int64)
        if len(records):
            chunk = Chunk(-1, len(records), 0, 0, _Picked(records))
            yield chunk, None

    def decode(self, chunk: Chunk[Any], records: Selection, columns: Projection) -> pa.RecordBatch:
        return self.delivered(chunk, records, columns).batch

    def delivered(self, chunk: Chunk[Any], records: Selection, columns: Projection) -> Delivered:
        names = self.schema.names if columns is None else list(columns)
        theirs = [name for name in names if not (name in self._fields or name in self._nulls)]
        wanted = self._wanted(columns)
        skipped: Sequence[SkippedRegion] = ()
        picked = chunk.data if isinstance(chunk.data, _Picked) else None
        if picked is not None:
            numbers = picked.records if records is None else picked.records[records]
            base = self._taken(numbers, wanted) if theirs or not self._unread else None
        elif theirs or not self._unread:
            base, kept, skipped = self._delivered(chunk, records, wanted)
            numbers = _numbers(chunk, kept)
            if isinstance(numbers, np.ndarray) and (numbers < 0).any():
                # Records that nobody can tell apart from others have no values of their own.
                base = base.filter(pa.array(numbers >= 0))
                numbers = numbers[numbers >= 0]
        else:
            base, numbers = None, _numbers(chunk, records)
        return Delivered(self._joined(base, numbers, names), records, skipped)

    def _wanted(self, columns: Projection) -> Projection:
        """The columns to read from the shard."""
        if columns is None and not self._replaces:
            return None
        names = self.schema.names if columns is None else columns
        return [name for name in names if not (name in self._fields or name in self._nulls)]

    def _delivered(self, chunk: Chunk[Any], records: Selection, columns: Projection) -> Delivered:
        """The shard's own columns, and which records of the chunk they are of."""
        found = self.base.delivered(chunk, records, columns)
        asked = chunk.num_records if found.records is None else len(found.records)
        if found.batch.num_rows != asked:
            message = (
                "records were skipped, and which records an overlay's values belong to is unknown"
            )
            raise ChangedError(message, file=self._path, hint="open(..., overlays=False)")
        return found

    def _taken(self, numbers: np.ndarray, columns: Projection) -> pa.RecordBatch:
        parts: list[pa.RecordBatch] = []
        for chunk, chosen in self.base.pick(numbers):
            parts.append(self.base.decode(chunk, chosen, columns))
            if parts[-1].num_rows != (chunk.num_records if chosen is None else len(chosen)):
                message = "some of the records asked for are not there"
                raise ChangedError(message, file=self._path)
        if len(parts) == 1:
            return parts[0]
        if not parts:
            fields = [f for f in self.base.schema if columns is None or f.name in columns]
            return pa.RecordBatch.from_pylist([], schema=pa.schema(fields))
        if not parts[0].num_columns:
            return empty_columns(len(numbers))
        return join(parts)

    def _joined(
        self, base: pa.RecordBatch | None, numbers: np.ndarray | range, names: Sequence[str]
    ) -> pa.RecordBatch:
        """The shard's columns and the overlays', in the order of the names."""
        theirs: dict[str, list[tuple[pa.Field, pa.Array]]] = {}
        if base is not None:
            for field, array in zip(base.schema, base.columns, strict=True):
                theirs.setdefault(field.name, []).append((field, array))
        read: dict[str, pa.RecordBatch] = {}
        fields: list[pa.Field] = []
        arrays: list[pa.Array] = []
        for name in names:
            field = self._fields.get(name)
            if field is not None:
                overlay = self._owners[name]
                assert overlay is not None, "own fields have one"
                if overlay.path not in read:
                    mine = [n for n in self._fields if self._owners[n] is overlay and n in names]
                    read[overlay.path] = _values(overlay, numbers, mine)
                array = read[overlay.path].column(name)
                array = self._cast(array, field, overlay)
            elif name in self._nulls:
                field = self._nulls[name]
                array = pa.nulls(len(numbers), field.type)
            else:
                field, array = theirs[name].pop(0)
            fields.append(field)
            arrays.append(array)
        if not arrays:
            return empty_columns(len(numbers)) if base is None else base
        metadata = self.schema.metadata if base is None else base.schema.metadata
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, metadata))

    def _cast(self, array: pa.Array, field: pa.Field, overlay: Overlay) -> pa.Array:
        if array.type == field.type and (field.nullable or not array.null_count):
            return array
        try:
            found = fitted(array, field.type)
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise self._unfit(
                f"a value does not fit the schema: {error}", field, overlay
            ) from error
        if not field.nullable and found.null_count:
            message = f"{found.null_count} values are missing, and the schema allows none"
            raise self._unfit(message, field, overlay)
        return found

    def _unfit(self, message: str, field: pa.Field, overlay: Overlay) -> SchemaError:
        return SchemaError(message, file=overlay.path, field=field.name)

    def close(self) -> None:
        """Let go of files."""
        for overlay in self._owners.values():
            if overlay is not None:
                overlay.close()
        self.base.close()


def _numbers(chunk: Chunk[Any], records: Selection) -> np.ndarray | range:
    """The shard's record numbers of some records of a chunk."""
    if records is None:
        return range(chunk.first_record, chunk.first_record + chunk.num_records)
    return np.asarray(records, dtype=np.int64) + chunk.first_record


def _values(
    overlay: Overlay, numbers: np.ndarray | range, columns: Sequence[str]
) -> pa.RecordBatch:
    if isinstance(numbers, range):
        return overlay.between(numbers.start, numbers.stop, columns)
    return overlay.take(numbers, columns)

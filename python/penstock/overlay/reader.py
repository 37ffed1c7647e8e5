"""The reader that joins overlays to their shards by record number.

Record numbers are known if the chunks come from an index, or from positions that the format stores. A framed shard with
an overlay is therefore read through its index. Readers that skip damaged records return the numbers of the delivered
records. If they are unknown, an error is raised.
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
from penstock.conditions import Bound
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
from penstock.overlay.file import BlockCache, Overlay, fields_of, find
from penstock.overlay.identity import identity_of
from penstock.storage.base import Source, Storage
from penstock.storage.pyarrow_files import translated
from penstock.storage.skipped import SkippedFile


class Overlays:
    """The overlays of a dataset's shards, and the fields that they add to its records."""

    def __init__(self, paths: Sequence[str], storage: Storage, limits: Limits) -> None:
        cache = BlockCache()
        self._shards = [find(path, storage, limits, cache) for path in paths]
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
                f"the overlay {overlay.name!r} has a different type in an earlier shard",
                file=overlay.path,
                field=field.name,
                expected=known.type,
                found=field.type,
                hint=_without(path, overlay.name),
            )
        if field.nullable:
            self.fields[field.name] = known.with_nullable(True)

    def digests(self, shard: int) -> list[str]:
        """The digests that identify the overlays of one shard."""
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
        """Open a shard, joined with its overlays.

        Args:
            settled: the schema of the dataset's files, if known and not given by the caller.
            names: the fields of the dataset in order; None if not known yet.

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
        with translated(source.path):  # a file may have field names that are not valid text
            order = [*(names or ()), *base.schema.names, *fields]
            return OverlaidReader(base, source.path, fields, owners, order, options.damage)

    def _opened(
        self, shard: int, fmt: Format, source: Source, options: Options, settled: Any
    ) -> Reader:
        schema = settled if options.schema is None else options.schema
        owned = self._owners[shard]
        if isinstance(schema, dict):
            schema = {name: field for name, field in schema.items() if name not in owned}
            return open_shard(fmt, source, replace(options, schema=schema))
        if not isinstance(schema, pa.Schema):
            return open_shard(fmt, source, options)
        fields = [field for field in schema if field.name not in owned]
        if options.schema is None:
            # A field of another shard's overlay may be in the records of this shard.
            names = {*schema.names, *owned}
            fields += [field for name, field in self.fields.items() if name not in names]
        return self._without_missing(fmt, source, options, pa.schema(fields, schema.metadata))

    def _without_missing(
        self, fmt: Format, source: Source, options: Options, schema: pa.Schema
    ) -> Reader:
        """Open a shard with a schema, without the fields that only overlays of other shards have."""
        while True:
            try:
                return open_shard(fmt, source, replace(options, schema=schema))
            except SchemaError as error:
                rest = [field for field in schema if field.name != error.field]
                if error.field not in self.fields or len(rest) == len(schema):
                    raise
                schema = pa.schema(rest, schema.metadata)

    def stale(
        self, shard: int, base: Reader, source: Source, *, counted: bool
    ) -> StaleIndexError | None:
        """The error for the first overlay that was made for another state of the shard. With `counted`, also compare
        the number of records."""
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
    return f"{command('penstock', 'fields', 'remove', path, name)}, or open(..., overlays=False)"


class _Picked(NamedTuple):
    """`Chunk.data` of a chunk that stands for some records of the shard."""

    records: np.ndarray


class _Added(NamedTuple):
    """A field that the reader adds to those of the shard: from an overlay, or null."""

    field: pa.Field
    overlay: Overlay | None


class OverlaidReader(Reader):
    """Reads a shard with its overlays: the columns of the shard's reader `base`, and those of the overlays."""

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
        # With damage="error", the shard is not read if only columns of overlays are requested.
        self._may_skip_base = damage == "error"
        stored: dict[str, list[pa.Field]] = {}
        for field in base.schema:
            stored.setdefault(field.name, []).append(field)
        self._added = {
            name: _Added(field, owners[name])
            for name, field in fields.items()
            if owners[name] is not None or name not in stored
        }
        self._replaces = any(name in self._added for name in stored)
        placed: list[pa.Field] = []
        for name in dict.fromkeys(order):
            placed += self._placed(name, stored.get(name, []), fields.get(name))
        self.schema = pa.schema(placed, metadata=base.schema.metadata)

    def _placed(self, name: str, stored: list[pa.Field], wanted: pa.Field | None) -> list[pa.Field]:
        """The fields of this name in the schema: the added field, or else those of the shard."""
        added = self._added.get(name)
        if added is not None:
            if added.overlay is None and not added.field.nullable:
                message = "is not in this file, and the schema allows no nulls"
                raise SchemaError(message, file=self._path, field=name)
            return [added.field]
        for field in stored:
            if wanted is not None and field.type != wanted.type:
                raise SchemaError(
                    "an overlay of another shard has this field with another type",
                    file=self._path,
                    field=name,
                    expected=wanted.type,
                    found=field.type,
                )
        return stored

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

    def may_hold(self, chunk: Chunk[Any], bounds: Sequence[Bound]) -> bool:
        return self.base.may_hold(chunk, [one for one in bounds if one.field not in self._added])

    def compares(self, chunk: Chunk[Any] | None) -> bool:
        return self.base.compares(chunk)

    def checks(self) -> Iterable[Callable[[], None]]:
        return self.base.checks()

    def options_alike(self) -> Any:
        return self.base.options_alike()

    def pick(self, records: np.ndarray) -> Iterable[tuple[Chunk[Any], Selection]]:
        """All records as one chunk. `decode` knows the columns, and therefore which files to read."""
        records = np.asarray(records, dtype=np.int64)
        if len(records):
            chunk = Chunk(-1, len(records), 0, 0, _Picked(records))
            yield chunk, None

    def decode(self, chunk: Chunk[Any], records: Selection, columns: Projection) -> pa.RecordBatch:
        return self.delivered(chunk, records, columns).batch

    def delivered(self, chunk: Chunk[Any], records: Selection, columns: Projection) -> Delivered:
        names = self.schema.names if columns is None else list(columns)
        needs_base = not self._may_skip_base or any(name not in self._added for name in names)
        base: pa.RecordBatch | None = None
        skipped: Sequence[SkippedRegion] = ()
        if isinstance(chunk.data, _Picked):
            numbers = chunk.data.records if records is None else chunk.data.records[records]
            if needs_base:
                base = self._taken(numbers, self._wanted(columns))
        elif needs_base:
            found = self._delivered(chunk, records, self._wanted(columns))
            base, skipped = found.batch, found.skipped
            numbers = _numbers(chunk, found.records)
            if isinstance(numbers, np.ndarray) and (numbers < 0).any():
                # For records with unknown numbers, overlays have no values.
                base = found.batch.filter(pa.array(numbers >= 0))
                numbers = numbers[numbers >= 0]
        else:
            numbers = _numbers(chunk, records)
        return Delivered(self._joined(base, numbers, names), records, skipped)

    def _wanted(self, columns: Projection) -> Projection:
        """The columns to read from the shard."""
        if columns is None and not self._replaces:
            return None
        names = self.schema.names if columns is None else columns
        return [name for name in names if name not in self._added]

    def _delivered(self, chunk: Chunk[Any], records: Selection, columns: Projection) -> Delivered:
        """The columns from the shard itself, and the chunk's records to which they belong."""
        found = self.base.delivered(chunk, records, columns)
        asked = chunk.num_records if found.records is None else len(found.records)
        if found.batch.num_rows != asked:
            message = (
                "records were skipped, so it is unknown to which records an overlay's values belong"
            )
            raise ChangedError(message, file=self._path, hint="open(..., overlays=False)")
        return found

    def _taken(self, numbers: np.ndarray, columns: Projection) -> pa.RecordBatch:
        parts: list[pa.RecordBatch] = []
        for chunk, chosen in self.base.pick(numbers):
            parts.append(self.base.decode(chunk, chosen, columns))
            if parts[-1].num_rows != (chunk.num_records if chosen is None else len(chosen)):
                message = "some of the requested records are missing"
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
        """The columns of the shard and of the overlays, in the order of `names`."""
        stored: dict[str, list[tuple[pa.Field, pa.Array]]] = {}
        if base is not None:
            for field, array in zip(base.schema, base.columns, strict=True):
                stored.setdefault(field.name, []).append((field, array))
        added = {name: self._added[name] for name in names if name in self._added}
        values = _values(added, numbers)
        columns = [
            (added[name].field, values[name]) if name in added else stored[name].pop(0)
            for name in names
        ]
        if not columns:
            return empty_columns(len(numbers)) if base is None else base
        metadata = self.schema.metadata if base is None else base.schema.metadata
        schema = pa.schema([field for field, _ in columns], metadata)
        return pa.RecordBatch.from_arrays([array for _, array in columns], schema=schema)

    def close(self) -> None:
        for added in self._added.values():
            if added.overlay is not None:
                added.overlay.close()
        self.base.close()


def _numbers(chunk: Chunk[Any], records: Selection) -> np.ndarray | range:
    """The numbers in the shard of some records of a chunk."""
    if records is None:
        return range(chunk.first_record, chunk.first_record + chunk.num_records)
    return np.asarray(records, dtype=np.int64) + chunk.first_record


def _values(added: dict[str, _Added], numbers: np.ndarray | range) -> dict[str, pa.Array]:
    """The values of added fields. Each overlay is read only once."""
    found: dict[str, pa.Array] = {}
    fields: dict[str, tuple[Overlay, list[pa.Field]]] = {}
    for name, (field, overlay) in added.items():
        if overlay is None:
            found[name] = pa.nulls(len(numbers), field.type)
        else:
            fields.setdefault(overlay.path, (overlay, []))[1].append(field)
    for overlay, mine in fields.values():
        names = [field.name for field in mine]
        if isinstance(numbers, range):
            batch = overlay.between(numbers.start, numbers.stop, names)
        else:
            batch = overlay.take(numbers, names)
        for field, array in zip(mine, batch.columns, strict=True):
            found[field.name] = _cast(array, field, overlay.path)
    return found


def _cast(array: pa.Array, field: pa.Field, path: str) -> pa.Array:
    if array.type == field.type and (field.nullable or not array.null_count):
        return array
    try:
        found = fitted(array, field.type)
    except (pa.ArrowException, ValueError, TypeError) as error:
        message = f"a value does not fit the schema: {error}"
        raise SchemaError(message, file=path, field=field.name) from error
    if not field.nullable and found.null_count:
        message = f"{found.null_count} values are missing, and the schema allows none"
        raise SchemaError(message, file=path, field=field.name)
    return found

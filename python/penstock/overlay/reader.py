"""The reader that joins overlays to a shard by record number.

Record numbers are known if the chunks come from an index, or from positions that the format stores. A framed shard with
an overlay is therefore read through its index. Readers that skip damaged records return the numbers of the delivered
records. If they are unknown, an error is raised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.columns.batches import empty_batch, empty_columns
from penstock.columns.casts import fitted
from penstock.columns.joined import join
from penstock.columns.selection import Projection, Selection
from penstock.conditions import Bound
from penstock.contract.format import Chunk, Delivered, Reader, SkippedRegion
from penstock.contract.wrapped import WrappedReader
from penstock.errors import ChangedError, SchemaError
from penstock.overlay.file import Overlay
from penstock.overlay.view import View


class _Picked(NamedTuple):
    """`Chunk.data` of a chunk that stands for some records of the shard."""

    records: np.ndarray


class _Added(NamedTuple):
    """A field that the reader adds to those of the shard: from an overlay, or null."""

    field: pa.Field
    overlay: Overlay | None
    stored: str
    """The field's name in the overlay."""


class OverlaidReader(WrappedReader):
    """Reads a shard with its overlays: the columns of the shard's reader `base`, and those of the overlays."""

    def __init__(
        self,
        base: Reader,
        path: str,
        view: View,
        fields: dict[str, pa.Field],
        owners: dict[str, tuple[Overlay, str] | None],
        order: Sequence[str],
        damage: str,
    ) -> None:
        self.base = base
        self._path = path
        # With damage="error", the shard is not read if only columns of overlays are requested.
        self._may_skip_base = damage == "error"
        self._shown = {name: view.after(name) for name in base.schema.names}
        """The visible names of the shard's own fields; None if they were dropped."""
        self._own = {after: name for name, after in self._shown.items() if after is not None}
        stored: dict[str, list[pa.Field]] = {}
        for field in base.schema:
            name = self._shown[field.name]
            if name is not None:
                stored.setdefault(name, []).append(field.with_name(name))
        self._added: dict[str, _Added] = {}
        for name, field in fields.items():
            owner = owners[name]
            if owner is not None:
                self._added[name] = _Added(field, *owner)
            elif name not in stored:
                self._added[name] = _Added(field, None, name)
        self._hides = any(n is None or n in self._added for n in self._shown.values())
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

    def parts(self, chunk: Chunk[Any], columns: Projection) -> Iterator[Chunk[Any]]:
        return self.base.parts(chunk, self._wanted(columns))

    def may_hold(self, chunk: Chunk[Any], bounds: Sequence[Bound]) -> bool:
        own = [one for one in bounds if one.field not in self._added and one.field in self._own]
        own = [replace(one, field=self._own[one.field]) for one in own]
        return self.base.may_hold(chunk, own)

    def pick(self, records: np.ndarray) -> Iterable[tuple[Chunk[Any], Selection]]:
        """All records as one chunk. `decode` knows the columns, and therefore which files to read."""
        records = np.asarray(records, dtype=np.int64)
        if len(records):
            chunk = Chunk(-1, len(records), 0, 0, _Picked(records))
            yield chunk, None

    def record_numbers(self, chunk: Chunk[Any]) -> np.ndarray:
        if isinstance(chunk.data, _Picked):
            return chunk.data.records
        return super().record_numbers(chunk)

    def decode(self, chunk: Chunk[Any], records: Selection, columns: Projection) -> pa.RecordBatch:
        return self.delivered(chunk, records, columns).batch

    # Complexity: damage may be in the file, in an overlay, or in both.
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
        kept = records
        if records is None and isinstance(numbers, np.ndarray):
            kept = numbers if isinstance(chunk.data, _Picked) else numbers - chunk.first_record
        return Delivered(self._joined(base, numbers, names), kept, skipped)

    def _wanted(self, columns: Projection) -> Projection:
        """The columns to read from the shard."""
        if columns is None and not self._hides:
            return None
        names = self.schema.names if columns is None else columns
        return [self._own[name] for name in names if name not in self._added]

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
            return empty_batch(pa.schema(fields))
        if not parts[0].num_columns:
            return empty_columns(len(numbers))
        return join(parts)

    def _joined(
        self, base: pa.RecordBatch | None, numbers: np.ndarray | range, names: Sequence[str]
    ) -> pa.RecordBatch:
        """The columns of the shard and of the overlays, in the order of `names`."""
        stored = self._visible(base)
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

    def _visible(self, base: pa.RecordBatch | None) -> dict[str, list[tuple[pa.Field, pa.Array]]]:
        """The columns of the shard, by their visible names. A shard may have several columns of one name."""
        found: dict[str, list[tuple[pa.Field, pa.Array]]] = {}
        if base is not None:
            for field, array in zip(base.schema, base.columns, strict=True):
                name = self._shown[field.name]
                if name is not None:
                    found.setdefault(name, []).append((field.with_name(name), array))
        return found

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
    fields: dict[str, tuple[Overlay, list[_Added]]] = {}
    for name, one in added.items():
        if one.overlay is None:
            found[name] = pa.nulls(len(numbers), one.field.type)
        else:
            fields.setdefault(one.overlay.path, (one.overlay, []))[1].append(one)
    for overlay, mine in fields.values():
        names = [one.stored for one in mine]
        if isinstance(numbers, range):
            batch = overlay.between(numbers.start, numbers.stop, names)
        else:
            batch = overlay.take(numbers, names)
        for one, array in zip(mine, batch.columns, strict=True):
            found[one.field.name] = _cast(array, one.field, overlay.path)
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

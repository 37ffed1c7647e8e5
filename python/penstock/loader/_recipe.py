"""Turns records into a batch: decodes images, converts columns to NumPy arrays, and calls the user's functions.

A recipe does not know ranks or positions. It works in the calling thread, and the same records always make the same
batch.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.columns.numbers import as_arrow, as_numpy, view_lengths
from penstock.columns.types import IN_PARTS
from penstock.contract.format import SkippedRegion
from penstock.datasets.take import reordered
from penstock.engine.threads import users_code
from penstock.errors import PenstockError, SchemaError
from penstock.limits import limits_from
from penstock.loader._added import AddedColumns
from penstock.loader._class_names import ClassNames
from penstock.loader._columns import as_arrays
from penstock.loader._fill import check_values
from penstock.loader._image_batches import ImageFault
from penstock.loader._missing_images import check_fills, filled
from penstock.loader._padding import ArrayOptions
from penstock.loader._processes import Workers
from penstock.loader._same import COORDINATES, EXIF_HINT, Pair
from penstock.loader._sources import Records, Taken
from penstock.loader._user_code import Batch, UserCode, in_the_batch
from penstock.loader.images import Image, decode_into
from penstock.loader.stats import Clock

Decode = Mapping[str, Any]
"""How columns are decoded, by name: a penstock.Image, or a function of the Arrow column."""


@dataclass
class Made:
    batch: Batch
    pad_to: Mapping[str, tuple[int, ...]]
    """The list lengths of the batch's bucket, by column; empty without buckets."""
    num_records: int
    num_bytes: int
    making_bytes: int
    """The memory used to make the batch: the bytes read, the columns made from them, and the arrays."""
    spent: dict[str, float]
    numbers: np.ndarray
    """The numbers of the batch's records, without replacements for unreadable records."""
    stops: bool
    """Whether the epoch ends with this batch because of damage."""


_OTHERS = 64
"""How many records are tried, evenly spaced, to fill a batch of which no record can be read."""


class Shared:
    """State that the batches of one epoch share while they are made."""

    def __init__(self, pool: _core.BufferPool) -> None:
        self.pool = pool
        self._lock = threading.RLock()
        self._turn = threading.Condition(self._lock)
        self._is_taken = False
        self.ended = threading.Event()

    def end(self) -> None:
        """Signal that the loop was left, so that batches in progress are abandoned."""
        self.ended.set()
        with self._lock:
            self._turn.notify_all()

    def go_on(self) -> None:
        """Raise if the loop was left. Called between the stages of a batch."""
        if self.ended.is_set():
            raise InterruptedError("the loop has ended")

    @contextmanager
    def decoding(self) -> Generator[None]:
        """Let only one batch decode at a time, on all threads: the next batch is ready sooner, and fewer are in
        memory."""
        with self._lock:
            self._turn.wait_for(lambda: self.ended.is_set() or not self._is_taken)
            self.go_on()
            self._is_taken = True
        try:
            yield
        finally:
            with self._lock:
                self._is_taken = False
                self._turn.notify()


@dataclass
class _Rows:
    """The records of a batch in progress, with some of their columns already decoded."""

    batch: pa.RecordBatch
    places: np.ndarray
    """The indices of these records among the records requested."""
    keys: np.ndarray | None
    decoded: Batch

    def take(self, rows: np.ndarray) -> _Rows:
        return _Rows(
            reordered(self.batch, rows),
            self.places[rows],
            None if self.keys is None else self.keys[rows],
            {
                name: v[rows] if isinstance(v, np.ndarray) else [v[row] for row in rows]
                for name, v in self.decoded.items()
            },
        )


@dataclass(frozen=True)
class Recipe:
    """Everything that determines how records become a batch."""

    source: Records
    decode: Decode
    user: UserCode
    arrays: ArrayOptions
    classes: ClassNames
    seed: int
    threads: int
    added: AddedColumns
    workers: Workers | None = None
    """The processes that call the user's functions; None calls them in the thread that makes the batch."""

    def __post_init__(self) -> None:
        check_fills(self.arrays.fill, self.decode)
        labels = self.classes.known
        check_values(self.arrays.fill, self.source.schema, self.decode, labels)

    @property
    def class_names(self) -> dict[str, list[str]]:
        """The names that the numbers of a column stand for, by column."""
        found = {path: list(names) for path, names in self.classes.known.items()}
        if self.added.source_numbers is not None and self.source.names is not None:
            found[self.added.source_numbers] = list(self.source.names)
        return found

    @property
    def takes_views(self) -> bool:
        """Whether columns of bytes may have view types. Functions in `decode` need the types of the schema."""
        return all(isinstance(spec, Image) for spec in self.decode.values())

    def make(
        self,
        numbers: np.ndarray,
        taken: Taken,
        mask: np.ndarray | None,
        epoch: int,
        shared: Shared,
        clock: Clock,
        pad_to: Mapping[str, tuple[int, ...]],
    ) -> Made:
        """Make the batch of the records `numbers`, int64[n], of which `taken` could be read.

        `mask`, bool[n], marks the real records and becomes a column. With a mask, the batch is full: another record
        of the batch, or of the data if it has none, replaces each record that could not be read, and is masked.
        """
        taken_bytes = _taken_bytes(taken[0])
        rows = self._rows(numbers, taken, epoch, shared, clock)
        read, shown = numbers[rows.places], numbers
        if mask is not None:
            if len(numbers) and not len(read) and self.source.damage_mode == "skip":
                rows, shown = self._other(rows, numbers, epoch, shared, clock)
            rows, mask = _filled_up(rows, mask & (len(read) > 0))
        shared.go_on()
        with clock.on("decode"), self._located(shown[rows.places]):
            made = self._arrays(rows, pad_to, mask)
        if mask is not None:
            own = made.get("mask")
            if own is None:
                made["mask"] = mask
            else:
                own[~mask] = False  # a column of `packed`; see `check_mask`
        made.update(self.added.of(self.source, shown[rows.places]))
        if self.user.is_any:
            shared.go_on()
            mine = shown[rows.places]
            with clock.on("map"), users_code(), in_the_batch("map= or map_records=", mine):
                if self.workers is None:
                    made = self.user(made, rows.keys, mine, mask)
                else:
                    made = self.workers.call(shared.ended, made, rows.keys, mine, mask)
        num_bytes = size_of(made)
        return Made(
            made,
            pad_to=pad_to,
            num_records=len(read),
            num_bytes=num_bytes,
            making_bytes=taken_bytes + num_bytes,
            spent=clock.spent,
            numbers=read,
            stops=len(read) < len(numbers) and self.source.damage_mode == "stop",
        )

    def _rows(
        self, numbers: np.ndarray, taken: Taken, epoch: int, shared: Shared, clock: Clock
    ) -> _Rows:
        """The records that could be read, without those whose images cannot be decoded."""
        batch, places = taken
        with self._located(numbers[places]):
            batch = self.classes.apply(batch)
        rows = _Rows(batch, places, None, {})
        if self.decode or self.user.wants_keys:
            rows.keys = as_numpy(_core.record_keys(self.seed, epoch, as_arrow(numbers[places])))
        if self.decode:
            with shared.decoding(), clock.on("decode"):
                rows = self._decoded(rows, numbers, shared)
        return rows

    def _other(
        self, rows: _Rows, numbers: np.ndarray, epoch: int, shared: Shared, clock: Clock
    ) -> tuple[_Rows, np.ndarray]:
        """A readable record from elsewhere in the data, for a batch without one, and the numbers of the batch that is
        filled with it. The same batch without records if none is found."""
        count = len(self.source)
        for number in numbers[:1] + count * np.arange(1, _OTHERS) // _OTHERS:
            one = np.array([number % count])
            found = self._rows(one, self.source.take(one, clock), epoch, shared, clock)
            if len(found.places):
                return found, np.repeat(one, len(numbers))
        return rows, numbers

    def _arrays(
        self, rows: _Rows, pad_to: Mapping[str, tuple[int, ...]], real: np.ndarray | None
    ) -> Batch:
        names = rows.batch.schema.names
        rest = rows.batch.select([name for name in names if name not in rows.decoded])
        options = self.arrays._replace(real=real)
        if real is not None and not real.any():
            options = options._replace(truncate=True)  # the record that fills it is of any length
        if pad_to:
            options = options._replace(pad_to={**options.pad_to, **pad_to})
        arrays = {**rows.decoded, **as_arrays(rest, options)}
        return {
            **{name: arrays[name] for name in names},
            **arrays,
        }  # with the columns that Pad adds

    def _decoded(self, rows: _Rows, numbers: np.ndarray, shared: Shared) -> _Rows:
        """Decode the columns of `decode`, and drop rows whose image cannot be decoded."""
        failed: dict[int, PenstockError] = {}
        for name, spec in self.decode.items():
            if isinstance(spec, Image):
                with self._located(numbers[rows.places]):
                    faults = self._images(rows, name, spec, shared)
                for field, of_field in faults.items():
                    for fault in of_field:
                        failed.setdefault(fault.place, fault.error.at(field=field))
            else:
                with in_the_batch(f"decode= of {name!r}", numbers[rows.places]):
                    rows.decoded[name] = _by_function(spec, rows.batch.column(name), name)
        if not failed:
            return rows
        for row, error in sorted(failed.items()):
            self._skip(
                error, int(numbers[rows.places[row]]), _is_null(rows.batch, error.field, row)
            )
        good = np.ones(len(rows.places), bool)
        good[list(failed)] = False
        if self.source.damage_mode == "stop":
            good[min(failed) :] = False
        return rows.take(np.flatnonzero(good))

    def _images(
        self, rows: _Rows, name: str, spec: Image, shared: Shared
    ) -> dict[str, list[ImageFault]]:
        """Decode a column of images, and the columns that are cropped with it (`same`). Returns the faults by
        column."""
        assert rows.keys is not None, "records have keys if there is a decode="
        limits = limits_from(self.source.limits)
        how: dict[str, Any] = {
            "threads": self.threads,
            "limits": limits,
            "damage": "salvage" if spec.allow_damaged else "skip",
            "pool": shared.pool,
        }
        column, keys = rows.batch.column(name), spec.drawn_from(rows.keys)
        faults: dict[str, list[ImageFault]] = {}
        rows.decoded[name], faults[name] = decode_into(column, spec, keys, **how)
        if spec.same:
            pair = Pair(spec, column, keys, how)
            for path, kind in spec.same.items():
                if kind in COORDINATES:
                    rows.batch = pair.moved(rows.batch, path, kind)
                else:
                    try:
                        found = pair.decoded(rows.batch.column(path), kind)
                    except SchemaError as error:
                        raise error.at(field=path) from None
                    rows.decoded[path], faults[path] = found
        return {
            path: self._without_nulls(rows, path, [fault for fault in found if not fault.salvaged])
            for path, found in faults.items()
        }

    def _without_nulls(self, rows: _Rows, path: str, faults: list[ImageFault]) -> list[ImageFault]:
        """Give missing images the value of `fill`, if there is one, and return the other faults."""
        column, value = rows.batch.column(path), self.arrays.fill.get(path)
        if value is None or not column.null_count:
            return faults
        nulls = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist()
        return filled(rows.decoded[path], faults, nulls, value, path)

    def _skip(self, error: PenstockError, number: int, is_null: bool) -> None:
        """Report an image that cannot be decoded, in the same way as other damage."""
        error.file, error.record = self.source.locate(number)
        if self.source.damage_mode == "error":
            if error.hint != EXIF_HINT:
                also = _SALVAGING if "allow_damaged=True" in (error.hint or "") else ""
                error.hint = f'{also}open(..., damage="skip"), to skip damaged records'
            if is_null:
                error.hint = f'ds.filter("`{error.field}` is not null"), to leave out records without an image'
            raise error
        message = f"record {error.record}, field {error.field}: {error.message}"
        if error.hint == EXIF_HINT:
            message = f"{message}; {EXIF_HINT}"
        self.source.add_skipped(number, SkippedRegion(*self.source.place(number), 1, message))

    @contextmanager
    def _located(self, numbers: np.ndarray) -> Generator[None]:
        """Change the `record` of an error from a row of the batch to the record in its file."""
        try:
            yield
        except SchemaError as error:
            if error.record is not None:
                error.file, error.record = self.source.locate(int(numbers[error.record]))
            raise


_SALVAGING = "ps.Image(allow_damaged=True), to use the intact part of a damaged JPEG; or "


def _is_null(batch: pa.RecordBatch, name: str | None, row: int) -> bool:
    return name in batch.schema.names and not batch.column(name)[row].is_valid


def _by_function(function: Any, column: pa.Array, name: str) -> Any:
    with users_code():
        values = function(column)
    count = len(values) if hasattr(values, "__len__") else "no"
    if count != len(column):
        raise SchemaError(f"decode= returned {count} values for {len(column)} records", field=name)
    return values


def _filled_up(rows: _Rows, mask: np.ndarray) -> tuple[_Rows, np.ndarray]:
    """Replace each unreadable record with another record, which is masked. If there is none, the batch stays empty."""
    places = np.arange(len(mask))
    if len(rows.places) in (0, len(mask)):
        return rows, mask[rows.places]
    source = np.zeros(len(mask), np.int64)
    source[rows.places] = np.arange(len(rows.places))
    return rows.take(source), mask & np.isin(places, rows.places)


def _taken_bytes(batch: pa.RecordBatch) -> int:
    """The memory that these records needed: the bytes read, and the columns made from them. A column of views counts
    only the bytes that it points to."""
    total = 0
    for column in batch.columns:
        stored: Any = column.storage if isinstance(column, pa.ExtensionArray) else column
        if stored.type == IN_PARTS:
            stored = stored.field("body")
        if stored.type == pa.binary_view():
            total += int(view_lengths(stored).sum(dtype=np.int64))
        else:
            total += 2 * column.nbytes
    return total


def size_of(value: Any) -> int:
    """The approximate size of a batch in bytes."""
    if isinstance(value, np.ndarray):
        if value.dtype != object:
            return value.nbytes
        if set(map(type, value.flat)) <= {bytes, str}:
            return sum(map(len, value.flat))
        return sum(size_of(v) for v in value.flat)
    if isinstance(value, (bytes, str)):
        return len(value)
    if isinstance(value, Mapping):
        return sum(size_of(v) for v in value.values())
    if isinstance(value, (list, tuple)):
        return sum(size_of(v) for v in value)
    return int(getattr(value, "nbytes", 64))

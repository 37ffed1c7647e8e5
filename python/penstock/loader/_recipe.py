"""How records become a batch: images are decoded, columns become NumPy arrays, the user's function is called.

A recipe knows nothing of ranks or positions. It turns given records into a batch in
the calling thread; the same records always make the same batch.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Generator, Mapping
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
from penstock.loader._class_names import ClassNames
from penstock.loader._columns import Way, as_arrays
from penstock.loader._processes import Workers
from penstock.loader._sources import EndToEnd, Records
from penstock.loader.images import Image, decode_into
from penstock.loader.stats import Clock

Batch = dict[str, Any]
Decode = Mapping[str, Any]
"""How columns are decoded, by name: a penstock.Image, or a function of the Arrow column."""


@dataclass(frozen=True)
class UserCode:
    """The user's functions, combined into one function of a batch and its keys."""

    map: Callable[..., Any] | None
    map_records: Callable[..., dict[str, Any]] | None

    @property
    def is_any(self) -> bool:
        """Whether there is a function at all."""
        return self.map is not None or self.map_records is not None

    @property
    def wants_keys(self) -> bool:
        """Whether one of them takes the records' random keys."""
        return any(takes_keys(f) for f in (self.map, self.map_records) if f is not None)

    def __call__(self, batch: Batch, keys: np.ndarray | None) -> Batch:
        """Apply the functions to a batch."""
        if self.map_records is not None:
            batch = _by_record(batch, self.map_records, keys)
        if self.map is not None:
            batch = self.map(batch, keys=keys) if takes_keys(self.map) else self.map(batch)
        return batch


@dataclass
class Made:
    """A batch, and whether the epoch ends with it because of damage."""

    batch: Batch
    num_records: int
    num_bytes: int
    making_bytes: int
    """The memory used to make it: the bytes read, the columns made of them, and the arrays."""
    spent: dict[str, float]
    numbers: np.ndarray
    stops: bool = False


class Shared:
    """State that the batches of one epoch share while they are made."""

    def __init__(self, pool: _core.BufferPool) -> None:
        self.pool = pool
        self._lock = threading.RLock()
        self._turn = threading.Condition(self._lock)
        self._is_taken = False
        self.ended = threading.Event()

    def end(self) -> None:
        """Signal that the loop was left: batches in progress are no longer needed."""
        self.ended.set()
        with self._lock:
            self._turn.notify_all()

    def go_on(self) -> None:
        """Raise if the loop was left; called between the stages of a batch."""
        if self.ended.is_set():
            raise InterruptedError("the loop has ended")

    @contextmanager
    def decoding(self) -> Generator[None]:
        """Let one batch decode at a time, on all threads, so that the batch wanted next is
        ready first and few batches are in progress at once."""
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


@dataclass(frozen=True)
class Recipe:
    """Everything that determines the batch made of given records."""

    source: Records | EndToEnd
    decode: Decode
    user: UserCode
    way: Way
    classes: ClassNames
    seed: int
    threads: int
    record_numbers: str | None = None
    """The column for the numbers of the records, if any."""
    workers: Workers | None = None
    """The workers that call the user's functions; None: the thread that makes the batch."""

    def __post_init__(self) -> None:
        if self.record_numbers in self.source.schema.names:
            raise SchemaError(
                "the records have such a column; record_numbers= names one that they have not",
                field=self.record_numbers,
            )

    @property
    def takes_views(self) -> bool:
        """Whether columns of bytes may be views. The user's functions get the types of the schema."""
        return all(isinstance(spec, Image) for spec in self.decode.values())

    def make(
        self,
        numbers: np.ndarray,
        taken: tuple[pa.RecordBatch, np.ndarray],
        mask: np.ndarray | None,
        epoch: int,
        shared: Shared,
        clock: Clock,
    ) -> Made:
        """The batch of some records.

        Args:
            numbers: the requested records, int64[n].
            taken: the records that could be read, and their indices in `numbers`.
            mask: which records count, bool[n], added as a column. The batch is then full: a record that
                could not be read is replaced by another of the batch, which is masked.
        """
        asked = numbers
        batch, kept = taken
        taken_bytes = _taken_bytes(batch)
        try:
            batch = self.classes.apply(batch)
        except SchemaError as error:
            raise self._located(error, numbers[kept]) from None
        keys: np.ndarray | None = None
        made: Batch = {}
        if self.decode or self.user.wants_keys:
            keys = as_numpy(_core.record_keys(self.seed, epoch, as_arrow(numbers[kept])))
        if keys is not None and self.decode:
            with shared.decoding(), clock.on("decode"):
                batch, kept, keys, made = self._decoded(batch, numbers, kept, keys, shared)
        read = kept
        if mask is not None and 0 < len(read) < len(numbers):
            # Padded batches must be full: another record stands in for a missing one.
            rows = np.zeros(len(numbers), np.int64)
            rows[read] = np.arange(len(read))
            batch = reordered(batch, rows)
            made = {name: _chosen(values, rows) for name, values in made.items()}
            keys = None if keys is None else keys[rows]
            mask = mask & np.isin(np.arange(len(numbers)), read)
            kept = np.arange(len(numbers))
            numbers = numbers[read[rows]]
        shared.go_on()
        with clock.on("decode"):
            rest = [name for name in batch.schema.names if name not in self.decode]
            try:
                arrays = as_arrays(batch.select(rest), self.way)
            except SchemaError as error:
                raise self._located(error, numbers[kept]) from None
            found = {n: made[n] if n in made else arrays[n] for n in batch.schema.names}
        if mask is not None:
            found["mask"] = mask[kept]
        if self.record_numbers is not None:
            found[self.record_numbers] = numbers[kept]
        if self.user.is_any:
            shared.go_on()
            with clock.on("map"), users_code():
                if self.workers is None:
                    found = self.user(found, keys)
                else:
                    found = self.workers.call(shared.ended, found, keys)
        stops = len(read) < len(numbers) and self.source.damage_mode == "stop"
        num_bytes = size_of(found)
        making_bytes = taken_bytes + num_bytes
        return Made(found, len(read), num_bytes, making_bytes, clock.spent, asked[read], stops)

    def _decoded(
        self,
        batch: pa.RecordBatch,
        numbers: np.ndarray,
        kept: np.ndarray,
        keys: np.ndarray,
        shared: Shared,
    ) -> tuple[pa.RecordBatch, np.ndarray, np.ndarray, Batch]:
        made: Batch = {}
        failed: dict[int, PenstockError] = {}
        for name, spec in self.decode.items():
            column = batch.column(name)
            if not isinstance(spec, Image):
                with users_code():
                    made[name] = spec(column)
                count = len(made[name]) if hasattr(made[name], "__len__") else "no"
                if count != len(column):
                    message = f"decode= gave {count} values for {len(column)} records"
                    raise SchemaError(message, field=name)
                continue
            made[name], faults = decode_into(
                column,
                spec,
                keys,
                threads=self.threads,
                limits=self.source.limits,
                damage="skip",
                pool=shared.pool,
            )
            for fault in faults:
                failed.setdefault(fault.place, fault.error.at(field=name))
        if not failed:
            return batch, kept, keys, made
        self._tell(failed, numbers[kept])
        good = np.ones(len(kept), bool)
        good[list(failed)] = False
        if self.source.damage_mode == "stop":
            good[min(failed) :] = False
        rows = np.flatnonzero(good)
        batch = reordered(batch, rows)
        made = {name: _chosen(values, rows) for name, values in made.items()}
        return batch, kept[good], keys[good], made

    def _tell(self, failed: Mapping[int, PenstockError], numbers: np.ndarray) -> None:
        """Report images that cannot be decoded like any other damage."""
        for place, error in sorted(failed.items()):
            self._place(error, int(numbers[place]))
            if self.source.damage_mode == "error":
                error.hint = 'open(..., damage="skip"), to pass over damaged records'
                raise error
            message = f"record {error.record}, field {error.field}: {error.message}"
            region = SkippedRegion(error.file or "", 0, 0, 1, message)
            self.source.skipped(int(numbers[place]), region)

    def _located(self, error: SchemaError, numbers: np.ndarray) -> SchemaError:
        """Turn an error about a row of a batch into one about the record in that row."""
        if error.record is not None:
            self._place(error, int(numbers[error.record]))
        return error

    def _place(self, error: PenstockError, number: int) -> None:
        """Set the file of an error, and the record's number in that file, from the loader's record number."""
        error.file, error.record = self.source.place_of(number)


def takes_keys(function: Callable[..., Any]) -> bool:
    """Whether a user function takes the records' random keys."""
    try:
        return "keys" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a builtin without a signature
        return False


def _taken_bytes(batch: pa.RecordBatch) -> int:
    """The memory used to take some records: the bytes read, and the columns made of them. For columns of views
    only the bytes that the views point to count."""
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
    """Approximate bytes that a batch holds."""
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            if set(map(type, value.flat)) <= {bytes, str}:
                return sum(map(len, value.flat))
            return sum(size_of(v) for v in value.flat)
        return value.nbytes
    if isinstance(value, (bytes, str)):
        return len(value)
    if isinstance(value, Mapping):
        return sum(size_of(v) for v in value.values())
    if isinstance(value, (list, tuple)):
        return sum(size_of(v) for v in value)
    return int(getattr(value, "nbytes", 64))


def _chosen(values: Any, rows: np.ndarray) -> Any:
    return values[rows] if isinstance(values, np.ndarray) else [values[row] for row in rows]


def _by_record(
    batch: Batch, function: Callable[..., dict[str, Any]], keys: np.ndarray | None
) -> Batch:
    """Call a function for each record of a batch, and turn its results into columns again."""
    count = _length(batch)
    wants = keys is not None and takes_keys(function)
    done = []
    for place in range(count):
        record = {name: _value(column, place) for name, column in batch.items()}
        done.append(
            function(record, keys=keys[place]) if wants and keys is not None else function(record)
        )
    if not done:
        return batch
    for one in done:
        if not isinstance(one, Mapping) or set(one) != set(done[0]):
            gave = list(one) if isinstance(one, Mapping) else type(one).__name__
            wanted = list(done[0]) if isinstance(done[0], Mapping) else "a dict"
            raise SchemaError(f"map_records gave {gave} for a record, and {wanted} for the first")
    return {name: _stacked([one[name] for one in done]) for name in done[0]}


def _length(batch: Batch) -> int:
    for column in batch.values():
        if isinstance(column, tuple):
            return len(column[-1]) - 1
        if isinstance(column, Mapping):
            return _length(dict(column))
        return len(column)
    return 0


def _value(column: Any, place: int) -> Any:
    if isinstance(column, tuple):
        parts: list[np.ndarray] = list(column)
        if len(parts) > 2:
            raise SchemaError('lists of lists reach map_records with ragged="list" only')
        return parts[0][parts[1][place] : parts[1][place + 1]]
    if isinstance(column, Mapping):
        return {name: _value(part, place) for name, part in column.items()}
    return column[place]


def _stacked(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, (str, bytes)) or first is None:
        column = np.empty(len(values), object)
        column[:] = values
        return column
    if isinstance(first, Mapping):
        return {key: _stacked([value[key] for value in values]) for key in first}
    arrays = [np.asarray(value) for value in values]
    if any(array.shape != arrays[0].shape for array in arrays):
        return arrays
    return np.stack(arrays)

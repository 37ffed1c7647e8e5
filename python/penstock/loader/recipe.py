"""How a batch is made: records taken, images decoded, columns made NumPy's, the user's function.

A recipe knows nothing of threads, ranks or positions. It is given record numbers and makes a batch
of them, in whatever thread it is called; the same numbers make the same batch.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.errors import FormatError, SchemaError
from penstock.format import SkippedRegion
from penstock.loader.columns import as_arrays
from penstock.loader.images import Image
from penstock.loader.sources import EndToEnd, Records
from penstock.loader.stats import Clock
from penstock.numbers import as_arrow, as_numpy
from penstock.take import reordered

Batch = dict[str, Any]
Decode = Mapping[str, Any]
"""How columns are decoded, by name: a penstock.Image, or a function of the Arrow column."""


@dataclass
class Made:
    """A batch, and whether the epoch ends with it because of damage."""

    batch: Batch
    num_records: int
    num_bytes: int
    spent: dict[str, float]
    stops: bool = False


@dataclass(frozen=True)
class Recipe:
    """Everything that decides what a batch of given records looks like."""

    source: Records | EndToEnd
    decode: Decode
    map: Callable[..., Any] | None
    map_records: Callable[[dict[str, Any]], dict[str, Any]] | None
    ragged: str | Mapping[str, str]
    fill: Mapping[str, Any] | None
    seed: int
    threads: int

    def make(
        self, numbers: np.ndarray, mask: np.ndarray | None, epoch: int, decoding: threading.Lock
    ) -> Made:
        """The batch of some records, `numbers` int64[n]; `mask` bool[n] becomes a column.

        `decoding` is held while images are decoded: all threads decode one batch together, so that
        the batch that is wanted next is ready first, and few are in the making at once.
        """
        clock = Clock()
        batch, kept = self.source.take(numbers, clock)
        keys: np.ndarray | None = None
        made: Batch = {}
        if self.decode or self._wants_keys:
            keys = as_numpy(_core.record_keys(self.seed, epoch, as_arrow(numbers[kept])))
        if keys is not None and self.decode:
            with decoding, clock.on("decode"):
                batch, kept, keys, made = self._decoded(batch, numbers, kept, keys)
        with clock.on("decode"):
            rest = [name for name in batch.schema.names if name not in self.decode]
            arrays = as_arrays(batch.select(rest), self.ragged, self.fill)
            found = {n: made[n] if n in made else arrays[n] for n in batch.schema.names}
        if mask is not None:
            found["mask"] = mask[kept]
        if self.map is not None or self.map_records is not None:
            with clock.on("map"):
                found = self._mapped(found, keys)
        stops = len(kept) < len(numbers) and self.source.damage_mode == "stop"
        return Made(found, len(kept), size_of(found), clock.spent, stops)

    @property
    def _wants_keys(self) -> bool:
        return any(takes_keys(f) for f in (self.map, self.map_records) if f is not None)

    def _decoded(
        self, batch: pa.RecordBatch, numbers: np.ndarray, kept: np.ndarray, keys: np.ndarray
    ) -> tuple[pa.RecordBatch, np.ndarray, np.ndarray, Batch]:
        made: Batch = {}
        failed: dict[int, str] = {}
        for name, spec in self.decode.items():
            column = batch.column(name)
            if not isinstance(spec, Image):
                made[name] = spec(column)
                continue
            made[name], faults = spec.decode(
                column,
                keys,
                threads=self.threads,
                limits=self.source.limits,
                allow_damaged=self.source.damage_mode == "salvage",
            )
            for place, message in faults:
                failed.setdefault(place, f"{name}: {message}")
        if not failed:
            return batch, kept, keys, made
        self._tell(failed, numbers[kept])
        good = np.ones(len(kept), bool)
        good[list(failed)] = False
        if self.source.damage_mode == "stop":
            good[min(failed) :] = False
        batch = reordered(batch, np.flatnonzero(good))
        made = {name: _chosen(values, good) for name, values in made.items()}
        return batch, kept[good], keys[good], made

    def _tell(self, failed: Mapping[int, str], numbers: np.ndarray) -> None:
        """An image that cannot be decoded is damage like any other."""
        for place, message in sorted(failed.items()):
            number = int(numbers[place])
            file, record = self.source.place_of(number)
            if self.source.damage_mode == "error":
                column, what = message.split(": ", 1)
                raise FormatError(
                    what,
                    file=file,
                    record=record,
                    field=column,
                    hint='open(..., damage="skip"), to pass over damaged records',
                )
            region = SkippedRegion(file, 0, 0, 1, f"record {record}: {message}")
            self.source.skipped(region)

    def _mapped(self, batch: Batch, keys: np.ndarray | None) -> Batch:
        if self.map_records is not None:
            batch = _by_record(batch, self.map_records, keys)
        if self.map is not None:
            more = {"keys": keys} if takes_keys(self.map) else {}
            batch = self.map(batch, **more)
        return batch


def takes_keys(function: Callable[..., Any]) -> bool:
    """Whether a function of the user's asks for the records' random keys."""
    try:
        return "keys" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a builtin, which says nothing of its arguments
        return False


def size_of(value: Any) -> int:
    """Bytes that a batch holds, about."""
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return sum(len(v) if isinstance(v, (bytes, str)) else 64 for v in value.flat)
        return value.nbytes
    if isinstance(value, Mapping):
        return sum(size_of(v) for v in value.values())
    if isinstance(value, (list, tuple)):
        return sum(size_of(v) for v in value)
    return int(getattr(value, "nbytes", 64))


def _chosen(values: Any, good: np.ndarray) -> Any:
    if isinstance(values, np.ndarray):
        return values[good]
    return [value for value, is_good in zip(values, good, strict=True) if is_good]


def _by_record(
    batch: Batch, function: Callable[..., dict[str, Any]], keys: np.ndarray | None
) -> Batch:
    """A function of one record, called for each, and its results as columns again."""
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

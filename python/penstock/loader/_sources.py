"""The records of a loader: one dataset, or several concatenated."""

from __future__ import annotations

import hashlib
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.joined import join
from penstock.columns.types import ImageType, is_text, storage_of
from penstock.contract.format import SkippedRegion
from penstock.datasets.dataset import Dataset
from penstock.datasets.take import empty, reordered, take
from penstock.errors import FormatError, RecordIndexError, SchemaError, StaleIndexError
from penstock.limits import Limits
from penstock.loader.stats import Clock


class Records:
    """One dataset: its records by number. Damaged records are skipped if it was opened so."""

    def __init__(self, dataset: Dataset, columns: Sequence[str] | None = None) -> None:
        self.dataset = dataset
        self._columns = None if columns is None else list(columns)
        self.schema = dataset.schema
        if columns is not None:
            has = set(dataset.schema.names)
            missing = [name for name in columns if name not in has]
            if missing:
                known = ", ".join(dataset.schema.names)
                raise SchemaError(f"no such column; there are: {known}", field=missing[0])
            self.schema = pa.schema([dataset.schema.field(name) for name in columns])
        twice = [name for name, times in Counter(self.schema.names).items() if times > 1]
        if twice:
            message = "several columns are called so, and a batch is a dict"
            raise SchemaError(message, field=twice[0], hint="columns= without it, or other names")
        self.damage_mode = dataset.options.damage

    def __len__(self) -> int:
        return len(self.dataset)

    @property
    def fingerprint(self) -> str:
        """See Dataset.fingerprint."""
        return self.dataset.fingerprint

    @property
    def damage(self) -> list[SkippedRegion]:
        """The regions skipped so far."""
        return self.dataset.damage

    @property
    def shard_lengths(self) -> list[int]:
        """Records of each file."""
        return np.diff(self.dataset.files.firsts).tolist()

    @property
    def chunk_lengths(self) -> list[int] | None:
        """Records of each chunk, in file order; None if a file does not give this."""
        readers = self.dataset.files.readers()
        lengths = [chunk.num_records for reader in readers for chunk in reader.chunks()]
        return lengths if sum(lengths) == len(self) else None

    @property
    def limits(self) -> Limits:
        """The limits of what a record may request."""
        return self.dataset.options.limits

    @property
    def datasets(self) -> list[Dataset]:
        """The datasets, in the order in which they are concatenated."""
        return [self.dataset]

    def place_of(self, number: int) -> tuple[str, int]:
        """The file of a record, and its number in that file."""
        number = checked_number(number, len(self))
        shards, local = self.dataset.files.locate(np.array([number]))
        return self.dataset.paths[int(shards[0])], int(local[0])

    def skipped(self, number: int, region: SkippedRegion) -> None:
        """Note a record that was skipped, once for the dataset."""
        self.dataset.add_skipped_record(number, region)

    def take(
        self, numbers: np.ndarray, clock: Clock, *, lend: bool = False
    ) -> tuple[pa.RecordBatch, np.ndarray]:
        """Records in the order requested, and their indices in `numbers`. Some are missing if damage is
        skipped; if reading stops at damage, only the records before the first damaged one are returned.

        `lend`: columns of bytes and images may be views into the buffers read (`lending.lent_schema`).
        """
        places = np.arange(len(numbers))
        try:
            return self._take(numbers, clock, lend), places
        except StaleIndexError:
            raise
        except FormatError as error:
            if self.damage_mode == "error":
                raise
            if len(numbers) == 1:
                self._skip(int(numbers[0]), error)
                return self._take(numbers[:0], clock, False), places[:0]
        # Bisect: each damaged record costs a few reads, and none is guessed at.
        middle = len(numbers) // 2
        batch, kept = self.take(numbers[:middle], clock)
        if self.damage_mode == "stop" and len(kept) < middle:
            return batch, kept
        other, others = self.take(numbers[middle:], clock)
        filled = [one for one in (batch, other) if one.num_rows]
        return (join(filled) if filled else batch), np.concatenate([kept, middle + others])

    def _take(self, numbers: np.ndarray, clock: Clock, lend: bool) -> pa.RecordBatch:
        columns = self.dataset.columns if self._columns is None else self._columns
        with clock.on("records"):
            try:
                return take(self.dataset, numbers, columns, clock.reading, lend=lend)
            finally:
                # Checked afterwards: data read before a change is valid, and a change explains errors.
                self._check_unchanged(numbers)

    def _check_unchanged(self, numbers: np.ndarray) -> None:
        shards, _ = self.dataset.files.locate(numbers)
        for shard in np.unique(shards).tolist():
            self.dataset.files.check_unchanged(shard)

    def _skip(self, number: int, error: FormatError) -> None:
        """Record a damaged record as skipped, as a scan would."""
        start = end = error.byte or 0
        shards, local = self.dataset.files.locate(np.array([number]))
        reader = self.dataset.files.own(int(shards[0]))
        with suppress(FormatError):  # its position is damaged, too
            for chunk, _ in reader.pick(local):
                if (found := reader.readable(chunk)) is not None:
                    start, end = int(found.starts[0]), int(found.ends[0])
        self.skipped(number, SkippedRegion(error.file or "", start, end, 1, error.message))


class EndToEnd:
    """Several datasets as one: the records of the first, then those of the second, and so on."""

    def __init__(self, sets: Sequence[Records]) -> None:
        self._sets = list(sets)
        common = _common(self._sets)
        self._sets = [Records(one.dataset, common.names) for one in self._sets]
        self.schema = common
        modes = {one.damage_mode for one in self._sets}
        if len(modes) > 1:
            told = " and ".join(f'damage="{mode}"' for mode in sorted(modes))
            raise ValueError(f"one loader does one thing about damage; its sets have {told}")
        self.damage_mode = modes.pop()

    @cached_property
    def sizes(self) -> list[int]:
        """Records of each dataset. Counting them may read the files."""
        return [len(one) for one in self._sets]

    @cached_property
    def _firsts(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    def __len__(self) -> int:
        return int(self._firsts[-1])

    @property
    def fingerprint(self) -> str:
        """A fingerprint of all datasets in this order."""
        digests = " ".join(one.fingerprint for one in self._sets)
        return hashlib.blake2b(digests.encode(), digest_size=16).hexdigest()

    @property
    def damage(self) -> list[SkippedRegion]:
        """The regions skipped so far."""
        return [region for one in self._sets for region in one.damage]

    @property
    def shard_lengths(self) -> list[int]:
        """See Records.shard_lengths."""
        return [length for one in self._sets for length in one.shard_lengths]

    @property
    def chunk_lengths(self) -> list[int] | None:
        """See Records.chunk_lengths."""
        lengths: list[int] = []
        for one in self._sets:
            found = one.chunk_lengths
            if found is None:
                return None
            lengths += found
        return lengths

    @property
    def limits(self) -> Limits:
        """The limits of what a record may request."""
        return self._sets[0].limits

    @property
    def datasets(self) -> list[Dataset]:
        """See Records.datasets."""
        return [one.dataset for one in self._sets]

    def place_of(self, number: int) -> tuple[str, int]:
        """See Records.place_of."""
        number = checked_number(number, len(self))
        owner = int(np.searchsorted(self._firsts, number, "right")) - 1
        return self._sets[owner].place_of(number - int(self._firsts[owner]))

    def skipped(self, number: int, region: SkippedRegion) -> None:
        """See Records.skipped."""
        owner = int(np.searchsorted(self._firsts, number, "right")) - 1
        self._sets[owner].skipped(number - int(self._firsts[owner]), region)

    def take(
        self, numbers: np.ndarray, clock: Clock, *, lend: bool = False
    ) -> tuple[pa.RecordBatch, np.ndarray]:
        """See Records.take. Returns no views, because the datasets may store bytes as different types."""
        owners = np.searchsorted(self._firsts, numbers, "right") - 1
        batches, places = [], []
        types = self.schema.types
        for owner in np.unique(owners):
            chosen = np.flatnonzero(owners == owner)
            batch, kept = self._sets[owner].take(numbers[chosen] - self._firsts[owner], clock)
            columns = [_as(array, type_) for array, type_ in zip(batch.columns, types, strict=True)]
            batches.append(pa.RecordBatch.from_arrays(columns, schema=self.schema))
            places.append(chosen[kept])
        if not batches:
            return empty(self.schema), np.arange(0)
        found = np.concatenate(places)
        order = np.argsort(found, kind="stable")
        return reordered(join(batches), order), found[order]


def _common(sets: Sequence[Records]) -> pa.Schema:
    """The columns that all datasets have, with the types of the first."""
    if not sets:
        raise ValueError("a loader needs at least one dataset")
    names = [set(one.schema.names) for one in sets]
    shared = [n for n in sets[0].schema.names if all(n in known for known in names)]
    if not shared:
        raise SchemaError("the datasets have no column in common")
    for name in shared:
        # A TFRecord stores images as bytes; a tar knows that they are images.
        kinds = {str(_bare(one.schema.field(name).type)) for one in sets}
        if len(kinds) > 1:
            raise SchemaError(
                f"is of several types: {', '.join(sorted(kinds))}",
                field=name,
                hint="schema= of open, or columns= without it",
            )
    fields = [sets[0].schema.field(name) for name in shared]
    return pa.schema([f.with_type(_LABELS) if _bare(f.type) == _LABELS else f for f in fields])


_LABELS = pa.dictionary(pa.int32(), pa.string())
"""The type of class labels of several datasets, whatever numbers each of them uses."""


def _bare(type_: Any) -> pa.DataType:
    if pa.types.is_dictionary(type_) and is_text(type_.value_type):
        return _LABELS
    return storage_of(type_) if isinstance(type_, ImageType) else type_


def _as(array: Any, type_: pa.DataType) -> pa.Array:
    """The same values as another type: bytes to images, images to bytes, class labels to the common type."""
    if array.type == type_:
        return array
    if type_ == _LABELS:
        names = array.dictionary.cast(pa.string())
        return pa.DictionaryArray.from_arrays(array.indices.cast(pa.int32()), names)
    bare = array.storage if isinstance(array.type, ImageType) else array
    return pa.ExtensionArray.from_storage(type_, bare) if isinstance(type_, ImageType) else bare


def checked_number(number: Any, total: int) -> int:
    """A record's number as a Python int; numbers out of range are rejected."""
    found = operator.index(number)
    if not 0 <= found < total:
        raise RecordIndexError(f"no record {found} among {total}")
    return found


def records_of(
    data: Any, columns: Sequence[str] | None, names: Sequence[str] | None = None
) -> Records | EndToEnd:
    """The `data` of `ps.Loader` as records. `names`: the datasets that its order mixes, in order."""
    if names is not None:
        given = ", ".join(repr(name) for name in data) if isinstance(data, Mapping) else "no names"
        if not isinstance(data, Mapping) or set(data) != set(names):
            wanted = ", ".join(repr(name) for name in names)
            raise ValueError(f"the order mixes the sets {wanted}, and the data has {given}")
        data = {name: data[name] for name in names}
    if isinstance(data, Dataset):
        return Records(data, columns)
    if isinstance(data, Mapping):
        return records_of(list(data.values()), columns)
    if isinstance(data, Sequence) and data and all(isinstance(one, Dataset) for one in data):
        return EndToEnd([Records(one, columns) for one in data])
    others = data if isinstance(data, Sequence) and not isinstance(data, str) else [data]
    kinds = {type(one).__name__ for one in others if not isinstance(one, Dataset)}
    told = " and ".join(sorted(kinds)) or "an empty list"
    raise TypeError(
        f"a loader takes a Dataset, or a list or dict of them, not {told}; try penstock.open"
    )

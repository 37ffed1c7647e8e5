"""The records of a loader: one dataset, or several concatenated."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, reduce
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.batches import empty_batch
from penstock.columns.casts import common_type
from penstock.columns.joined import join
from penstock.columns.numbers import distinct
from penstock.columns.types import (
    DTYPE_KEY,
    ImageType,
    cast_values,
    is_bytes,
    is_embedded_image,
    is_text,
    storage_of,
)
from penstock.contract.format import SkippedRegion
from penstock.datasets.dataset import Dataset
from penstock.datasets.scan import lost_with
from penstock.datasets.take import reordered, take, want
from penstock.errors import FormatError, LimitError, RecordIndexError, SchemaError, StaleIndexError
from penstock.framing.read.framed import FramedReader
from penstock.limits import Limits, checked_whole
from penstock.loader.stats import Clock
from penstock.payloads.image_bytes import bytes_of
from penstock.storage.base import Traffic

Taken = tuple[pa.RecordBatch, np.ndarray]
"""Records, and their indices among those requested."""


class Records:
    """The records of one or several datasets, numbered consecutively in the order of the datasets."""

    def __init__(
        self,
        datasets: Sequence[Dataset],
        columns: Sequence[str] | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        """`names` has a name for each dataset; None if they have none."""
        self.datasets = list(datasets)
        self.names = None if names is None else list(names)
        schemas = [_chosen(dataset, columns) for dataset in self.datasets]
        if len(schemas) == 1:
            self.schema = schemas[0]
            self._columns = self.datasets[0].columns if columns is None else list(columns)
        else:
            if columns is None:
                _refuse_lost(schemas, names or [dataset.paths[0] for dataset in self.datasets])
            self.schema = _common(schemas)
            self._columns = self.schema.names
        modes = {dataset.options.damage for dataset in self.datasets}
        if len(modes) > 1:
            found = " and ".join(f'damage="{mode}"' for mode in sorted(modes))
            raise ValueError(
                f"all datasets of a loader need the same damage mode, but these have {found};"
                " open all of them with the same damage="
            )
        self.damage_mode = modes.pop()
        self._lost: dict[int, np.ndarray] = {}
        """By the number of a dataset: which of its records are known to be lost, bool[records]."""

    @cached_property
    def sizes(self) -> list[int]:
        """The number of records of each dataset. Counting them may read the files."""
        with self._advising():
            return [len(dataset) for dataset in self.datasets]

    @cached_property
    def _firsts(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    def __len__(self) -> int:
        return sum(self.sizes)

    @property
    def fingerprint(self) -> str:
        digests = [dataset.fingerprint for dataset in self.datasets]
        if len(digests) == 1:
            return digests[0]
        return hashlib.blake2b(" ".join(digests).encode(), digest_size=16).hexdigest()

    @property
    def every_name(self) -> set[str]:
        """The names of all columns of the datasets, also of those that are not read."""
        return {name for dataset in self.datasets for name in dataset.files.schema.names}

    @property
    def damage(self) -> list[SkippedRegion]:
        return [region for dataset in self.datasets for region in dataset.damage]

    def traffic(self) -> Traffic:
        """What was asked of the storages of the datasets so far, in this process."""
        storages = {id(one.files.storage): one.files.storage for one in self.datasets}
        counts = zip(*(storage.traffic() for storage in storages.values()), strict=True)
        return Traffic(*map(sum, counts))

    @property
    def shard_lengths(self) -> list[int]:
        return [int(n) for dataset in self.datasets for n in np.diff(dataset.files.firsts)]

    @property
    def chunk_lengths(self) -> list[int] | None:
        """The number of records of each chunk, in file order; None if a file does not give this."""
        lengths = [n for dataset in self.datasets for n in dataset.files.chunk_lengths]
        return lengths if sum(lengths) == len(self) else None

    @property
    def num_bytes(self) -> int:
        """The size of all files."""
        return sum(dataset.files.total_bytes for dataset in self.datasets)

    @property
    def limits(self) -> Limits:
        return self.datasets[0].options.limits

    def locate(self, number: int) -> tuple[str, int]:
        """The file of a record, and its number in that file."""
        number = checked_whole("a record number", number)
        if not 0 <= number < len(self):
            raise RecordIndexError(f"no record {number} among {len(self)}")
        dataset, local = self._owner(number)
        shards, places = dataset.files.locate(np.array([local]))
        return dataset.paths[int(shards[0])], int(dataset.files.in_file(int(shards[0]), places)[0])

    def place(self, number: int) -> tuple[str, int, int]:
        """The file of a record, and its bytes there; bytes 0 to 0 if they are unknown."""
        dataset, local = self._owner(number)
        return place_of(dataset, local) or (self.locate(number)[0], 0, 0)

    def add_skipped(self, number: int, region: SkippedRegion) -> None:
        """Add a skipped record to the damage of its dataset, if it is not there yet."""
        dataset, local = self._owner(number)
        dataset.add_skipped_record(local, region)

    def owners(self, numbers: np.ndarray) -> np.ndarray:
        """The number of the dataset that has each record, int64[n]."""
        return np.searchsorted(self._firsts, numbers, "right") - 1

    def _owner(self, number: int) -> tuple[Dataset, int]:
        owner = int(self.owners(np.array(number)))
        return self.datasets[owner], number - int(self._firsts[owner])

    def _number_of(self, dataset: Dataset) -> int:
        return next(number for number, one in enumerate(self.datasets) if one is dataset)

    def take(self, numbers: np.ndarray, clock: Clock, *, views: bool = False) -> Taken:
        """Read records; return them in the order requested, with their indices in `numbers`.

        With damage="skip" damaged records are left out. With "stop" only the records before the first damaged one are
        returned. `views`: columns of bytes and images may be views into the buffers read (`lending.lent_schema`).
        With several datasets it has no effect, because they may store bytes as different types.
        """
        if len(self.datasets) == 1:
            return self._take_from(self.datasets[0], numbers, clock, views)
        owners = self.owners(numbers)
        batches, places = [], []
        types = self.schema.types
        for owner in distinct(owners):
            chosen = np.flatnonzero(owners == owner)
            local = numbers[chosen] - self._firsts[owner]
            batch, kept = self._take_from(self.datasets[owner], local, clock, False)
            columns = [_as(array, type_) for array, type_ in zip(batch.columns, types, strict=True)]
            batches.append(pa.RecordBatch.from_arrays(columns, schema=self.schema))
            places.append(chosen[kept])
        if not batches:
            return empty_batch(self.schema), np.arange(0)
        found = np.concatenate(places)
        order = np.argsort(found, kind="stable")
        return reordered(join(batches), order), found[order]

    def want(self, numbers: np.ndarray) -> Sequence[object] | None:
        """Begin to request records that are taken soon; see `datasets.take.want`."""
        owners = self.owners(numbers)
        held: list[object] = []
        for owner in distinct(owners):
            local = numbers[owners == owner] - self._firsts[owner]
            one = want(self.datasets[owner], local, self._columns)
            if one is None:
                return held or None  # the rest is requested when it is read
            held.extend(one)
        return held

    def _take_from(self, dataset: Dataset, numbers: np.ndarray, clock: Clock, views: bool) -> Taken:
        places = np.arange(len(numbers))
        lost = self._lost.get(self._number_of(dataset))
        if lost is not None and lost[numbers].any():
            places = np.flatnonzero(~lost[numbers])
            batch, kept = self._take_from(dataset, numbers[places], clock, views)
            return batch, places[kept]
        try:
            return self._read(dataset, numbers, clock, views), places
        except StaleIndexError:
            raise
        except FormatError as error:
            if self.damage_mode == "error":
                with self._advising():
                    raise
            if len(numbers) == 1:
                self._skip(dataset, numbers, error)
                return self._read(dataset, numbers[:0], clock, False), places[:0]
        # Bisect: this finds every damaged record, and each one costs only a few reads.
        middle = len(numbers) // 2
        batch, kept = self._take_from(dataset, numbers[:middle], clock, False)
        if self.damage_mode == "stop" and len(kept) < middle:
            return batch, kept
        other, others = self._take_from(dataset, numbers[middle:], clock, False)
        filled = [one for one in (batch, other) if one.num_rows]
        return (join(filled) if filled else batch), np.concatenate([kept, middle + others])

    def _skip(self, dataset: Dataset, numbers: np.ndarray, error: FormatError) -> None:
        """Report a record that cannot be read, and with it those that are lost together with it."""
        shards, local = dataset.files.locate(numbers)
        shard = int(shards[0])
        if self.damage_mode == "skip" and not _loses_one(dataset, shard):
            found, regions = lost_with(dataset, shard, int(local[0]), self._columns)
            if len(found):
                of = self._number_of(dataset)
                lost = self._lost.setdefault(of, np.zeros(len(dataset), bool))
                lost[int(numbers[0]) - int(local[0]) + found[found >= 0]] = True
                for region in regions:
                    dataset.add_skipped(region)
                return
        dataset.add_skipped_record(int(numbers[0]), _region(dataset, numbers, error))

    @contextmanager
    def _advising(self) -> Generator[None]:
        """Say in the error of a damaged record that training can go on without it."""
        try:
            yield
        except FormatError as error:
            is_damaged = error.record is not None and not isinstance(error, LimitError)
            if is_damaged and self.damage_mode == "error" and "damage=" not in (error.hint or ""):
                checked = "" if error.hint is None else f"{error.hint}; or "
                error.hint = f'{checked}open(..., damage="skip"), to skip damaged records'
            raise

    def _read(
        self, dataset: Dataset, numbers: np.ndarray, clock: Clock, views: bool
    ) -> pa.RecordBatch:
        with clock.taking():
            try:
                self._verify_once(dataset, numbers)
                is_timed = clock.is_sample
                return take(
                    dataset, numbers, self._columns, clock.reading, lend=views, is_timed=is_timed
                )
            finally:
                # Checked after the read: data read before a change is valid, and a change explains an error.
                for shard in distinct(dataset.files.locate(numbers)[0]).tolist():
                    dataset.files.check_unchanged(shard)

    def _verify_once(self, dataset: Dataset, numbers: np.ndarray) -> None:
        """Compare the checksums of the arrays, or other parts of the files, that have some of these records."""
        view = getattr(dataset.files, "view", None)
        columns = self._columns if view is None else None  # a view may have other names
        for shard in distinct(dataset.files.locate(numbers)[0]).tolist():
            dataset.files.own(shard).verify_once(columns)


def records_of(
    data: Any, columns: Sequence[str] | None, mixed: Sequence[str] | None = None
) -> Records:
    """The `data` of `ps.Loader` as records. `mixed`: the names of the datasets in a Mixture, in its order."""
    if mixed is not None:
        data = _mixed(data, mixed)
    given = list(data.values()) if isinstance(data, Mapping) else data
    is_several = isinstance(given, Sequence) and not isinstance(given, str)
    datasets: list[Any] = list(given) if is_several else [given]
    wrong = {type(one).__name__ for one in datasets if not isinstance(one, Dataset)}
    if wrong or not datasets:
        found = " and ".join(sorted(wrong)) or "an empty list"
        raise TypeError(
            f"a loader takes a Dataset, or a list or dict of them, not {found}; try penstock.open"
        )
    return Records(datasets, columns, list(map(str, data)) if isinstance(data, Mapping) else None)


def _mixed(data: Any, names: Sequence[str]) -> dict[str, Any]:
    if not isinstance(data, Mapping) or set(data) != set(names):
        has = ", ".join(map(repr, data)) if isinstance(data, Mapping) else "no names"
        wanted = ", ".join(map(repr, names))
        raise ValueError(f"the order mixes the datasets {wanted}, but the data has {has}")
    return {name: data[name] for name in names}


def _chosen(dataset: Dataset, columns: Sequence[str] | None) -> pa.Schema:
    """The schema of some columns. Each must exist exactly once."""
    schema = dataset.schema
    if columns is not None:
        missing = [name for name in columns if name not in schema.names]
        if missing:
            known = ", ".join(schema.names)
            message = f"no such column; there are: {known}"
            raise SchemaError(message, field=missing[0], file=dataset.paths[0])
        schema = pa.schema([schema.field(name) for name in columns])
    twice = [name for name, times in Counter(schema.names).items() if times > 1]
    if twice:
        message = "several columns have this name, but a batch is a dict, which needs unique names"
        raise SchemaError(message, field=twice[0], hint="columns= without it, or other names")
    return schema


def _loses_one(dataset: Dataset, shard: int) -> bool:
    """Whether damage inside a record of a file leaves all others readable."""
    is_framed = isinstance(dataset.files.own(shard), FramedReader)
    return is_framed or dataset.files.info(shard).loses_one


def _region(dataset: Dataset, numbers: np.ndarray, error: FormatError) -> SkippedRegion:
    """A damaged record as a skipped region, as a scan would report it."""
    start = end = error.byte or 0
    file = error.file or ""
    with suppress(FormatError):  # because of the damage, its position may be unknown
        file, start, end = _place_of_error(dataset, numbers, error) or (file, start, end)
    return SkippedRegion(file, start, end, 1, error.message)


def _place_of_error(
    dataset: Dataset, numbers: np.ndarray, error: FormatError
) -> tuple[str, int, int] | None:
    if error.record is None or error.file not in dataset.paths:
        return place_of(dataset, int(numbers[0]))
    # Not always the record with this number: a packed row has several.
    return _place_in_file(dataset, dataset.paths.index(error.file), error.record)


def place_of(dataset: Dataset, number: int) -> tuple[str, int, int] | None:
    """The file and the bytes of a record, if they are known."""
    shards, local = dataset.files.locate(np.array([number]))
    shard = int(shards[0])
    return _place_in_file(dataset, shard, int(dataset.files.in_file(shard, local)[0]))


def _place_in_file(dataset: Dataset, shard: int, record: int) -> tuple[str, int, int] | None:
    reader = dataset.files.own(shard)
    if (known := reader.place(record)) is not None:
        return known
    for chunk, picked in reader.pick(np.array([record])):
        if (found := reader.readable(chunk)) is not None:
            place = int(np.searchsorted(found.records, 0 if picked is None else picked[0]))
            return dataset.paths[shard], int(found.starts[place]), int(found.ends[place])
    return None


def _refuse_lost(schemas: Sequence[pa.Schema], names: Sequence[str]) -> None:
    """Raise SchemaError if a dataset has a column that another one lacks, so that it would be lost."""
    every = dict.fromkeys(column for schema in schemas for column in schema.names)
    lacking = {
        column: [
            name for schema, name in zip(schemas, names, strict=True) if column not in schema.names
        ]
        for column in every
    }
    lost = [f"{column} (not in {', '.join(of[:3])})" for column, of in lacking.items() if of]
    if lost:
        shared = [column for column, of in lacking.items() if not of]
        raise SchemaError(
            f"the datasets have different columns: {', '.join(lost[:8])}",
            hint=f"columns={shared}, which all of them have, or ds.rename for one with two names"
            if shared
            else 'ds.rename({"old": "new"}), so that they have the same columns',
        )


def _common(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The columns of the first dataset, which all datasets have, with types that hold the values of all."""
    shared = schemas[0].names
    return pa.schema([_common_field([schema.field(name) for schema in schemas]) for name in shared])


def _common_field(fields: Sequence[pa.Field]) -> pa.Field:
    """The field of the first dataset, with a type that holds the values of all."""
    first = fields[0]
    # A TFRecord stores images as bytes, and a tar has an image type; both match.
    types = [_bare(field.type) for field in fields]
    # Bits such as those of bfloat16 cannot be widened.
    dtypes = {(field.metadata or {}).get(DTYPE_KEY) for field in fields}
    found = _type_of_all(types) if len(dtypes) == 1 else None
    if found is None:
        names = {
            _described(field.metadata, type_) for field, type_ in zip(fields, types, strict=True)
        }
        raise SchemaError(
            f"the datasets store this column as different types: {', '.join(sorted(names))}",
            field=first.name,
            hint=_one_kind_of_label(first.name, types) or "schema= of open, or columns= without it",
        )
    if found == types[0] and found != _LABELS:
        found = first.type
    return first.with_type(found).with_nullable(any(field.nullable for field in fields))


def _type_of_all(types: Sequence[pa.DataType]) -> pa.DataType | None:
    """A type that holds the values of all; class labels for names that some datasets store as text, and bytes for images
    that some store as structs."""
    if _LABELS in types and all(type_ == _LABELS or is_text(type_) for type_ in types):
        return _LABELS
    found = reduce(_common_type, types)
    if found is None and any(map(is_embedded_image, types)):
        found = reduce(_common_type, [pa.binary() if is_embedded_image(t) else t for t in types])
    return found


def _one_kind_of_label(name: str, types: Sequence[pa.DataType]) -> str | None:
    """What makes names of the labels of all datasets, if some have class names and others have numbers or bytes."""
    others = [type_ for type_ in types if type_ != _LABELS and not is_text(type_)]
    if _LABELS not in types:
        return None
    if all(map(pa.types.is_integer, others)):
        return f"{names_of_numbers(name)} where it has numbers"
    is_names = all(map(is_bytes, others))
    return f"open(..., types={{{name!r}: 'string'}}) where it has bytes" if is_names else None


def names_of_numbers(column: str) -> str:
    """A hint: how labels that are stored as numbers become names."""
    name = column if column.isidentifier() else f"`{column}`"
    return f"""ds.with_columns({{{column!r}: 'lookup({name}, ["name of 0", "name of 1"])'}})"""


def _common_type(one: pa.DataType | None, other: pa.DataType) -> pa.DataType | None:
    return None if one is None else common_type(one, other)


def _described(metadata: Mapping[bytes, bytes] | None, type_: pa.DataType) -> str:
    dtype = (metadata or {}).get(DTYPE_KEY)
    return str(type_) if dtype is None else f"{dtype.decode('utf-8', 'replace')} (as {type_})"


_LABELS = pa.dictionary(pa.int32(), pa.string())
"""The common type for class labels of several datasets, which may use index types of different width."""


def _bare(type_: Any) -> pa.DataType:
    if pa.types.is_dictionary(type_) and is_text(type_.value_type):
        return _LABELS
    return storage_of(type_) if isinstance(type_, ImageType) else type_


def _as(array: Any, type_: pa.DataType) -> pa.Array:
    """Convert bytes to images, images to bytes, and class labels and other values to the common type."""
    if array.type == type_:
        return array
    if type_ == _LABELS and not pa.types.is_dictionary(array.type):
        array = array.cast(pa.string()).dictionary_encode()
    if type_ == _LABELS:
        names = array.dictionary.cast(pa.string())
        return pa.DictionaryArray.from_arrays(array.indices.cast(pa.int32()), names)
    bare = array.storage if isinstance(array.type, ImageType) else array
    if is_embedded_image(bare.type) and not pa.types.is_struct(type_):
        bare = bytes_of(bare)
    stored = storage_of(type_) if isinstance(type_, ImageType) else type_
    if bare.type != stored:
        bare = cast_values(bare, stored)
    return pa.ExtensionArray.from_storage(type_, bare) if isinstance(type_, ImageType) else bare

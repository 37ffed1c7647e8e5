"""The input of a conversion: the chosen records of a dataset, with the columns to be written."""

from __future__ import annotations

import copy
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.joined import join
from penstock.columns.lending import lent_schema, whole
from penstock.columns.refusals import refuse_twins
from penstock.columns.types import IN_PARTS, ImageType, cast_values, is_text, storage_of
from penstock.contract.format import Format
from penstock.datasets.dataset import Dataset
from penstock.datasets.open import open as open_dataset
from penstock.datasets.take import reordered
from penstock.datasets.tasks import ReadTask
from penstock.engine.cluster import Machines
from penstock.errors import FormatError, PenstockError, SchemaError, UnsupportedError
from penstock.framing.index import kept_schema
from penstock.overlay.places import has_overlays
from penstock.storage.base import Storage
from penstock.tuned import LARGE_RECORD_BYTES
from penstock.verbs.convert._pictures import Pictures, pictures_of
from penstock.verbs.convert._text_columns import TextColumns
from penstock.verbs.convert.choice import Choice, chosen
from penstock.verbs.convert.ranges import (
    Consecutive,
    Delivered,
    batches_between,
    blocks_of,
    region_of,
    shuffled_between,
)


def opened(
    source: Any, kind: Format, options: Any, where: dict[str, Any], *, whole_records: bool
) -> Dataset:
    """Return the opened source. `where` has the keywords of its storage. It is opened as raw records if the target has the same format and the request needs
    no parsed fields (`whole_records`)."""
    if isinstance(source, Dataset):
        return source
    payload = getattr(options, "payload", "")
    if payload != "raw" and not (whole_records and payload is None):
        return open_dataset(source, **where)
    try:
        raw = open_dataset(source, raw=True, **where)
    except UnsupportedError:
        return open_dataset(source, **where)  # this format has columns, but no raw records
    # Raw records do not include the fields of overlays.
    same = all(raw.files.format_name(shard) == kind.info.name for shard in range(len(raw.paths)))
    beside = raw.files.overlay_places[0]
    if payload == "raw" or (same and not has_overlays(raw.paths, beside)):
        return raw
    return open_dataset(source, **where)


def _kept_by(dataset: Dataset, kind: Format) -> bytes:
    """Return the sidecars' schema as bytes if raw records are copied to the same format, else b""."""
    files = dataset.files
    if not files.options.raw or files.format_name(0) != kind.info.name:
        return b""
    options = replace(files.options, raw=False)
    found = kept_schema.of_files(files.paths, files.storage, options, lambda source: kind)
    return kept_schema.to_bytes(found)


class Records:
    """Records to write, with the columns to be written. Subclasses read them."""

    def __init__(
        self,
        schema: pa.Schema,
        columns: list[str],
        pictures: Pictures | None,
        kept: bytes,
        text: TextColumns | None,
        threads: int | None,
        *,
        can_lend: bool,
    ) -> None:
        self.schema = schema
        self.columns = columns
        """The columns to read."""
        self.kept = kept
        self.text = text
        self._pictures = pictures
        self._threads = threads
        self._can_lend = can_lend

    @property
    def notes(self) -> tuple[str, ...]:
        """What the changes of pictures did to them, as far as they were read."""
        return () if self._pictures is None else self._pictures.notes

    @property
    def _changes_pictures(self) -> bool:
        """Whether `_read` gives pictures that are yet to be changed."""
        return _are_changed(self._pictures)

    def _rewritten(self, batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
        """Return a batch, which begins with record `first` in the order of writing, with changed pictures."""
        assert self._pictures is not None, "they are changed"
        try:
            return self._pictures.batch(batch, self._threads)
        except PenstockError as error:
            if error.record is not None:
                file, error.record = self._origin(first + error.record)
                error.at(file=file)
            raise

    def _origin(self, number: int) -> tuple[str | None, int]:
        """The file and the number of a record, from its number in the order of writing; without a file if unknown."""
        return None, number

    def _look_for_text(self, batch: pa.RecordBatch) -> None:
        if self.text is not None:
            self.text.add(batch)

    def batches(self, first: int, last: int, *, lend: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield records [first, last) in the order of writing. With `lend`, byte strings may be views
        (`lending.lent_schema`), and the writer has to accept views."""
        lend = lend and self._can_lend
        schema = lent_schema(self.schema) if lend else self.schema
        done = first
        seen: pa.Schema | None = None
        casts: list[Cast] = []
        for batch in self._read(first, last, lend=lend):
            if self._changes_pictures:
                batch = self._rewritten(batch, done)
            done += batch.num_rows
            self._look_for_text(batch)
            if seen is None or (lend and batch.schema != seen):
                # The view types depend on the format of the shard. Without views, the schema is
                # compared only once, because the comparison costs more than many batches.
                seen = batch.schema
                pairs = zip(batch.schema, schema, strict=True)
                casts = [cast_of(before.type, after.type) for before, after in pairs]
            pairs = zip(casts, batch.columns, strict=True)
            arrays = [array if cast is None else cast(array) for cast, array in pairs]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _read(self, first: int, last: int, *, lend: bool) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError


class Reading(Records):
    """The chosen records of a dataset."""

    def __init__(
        self,
        dataset: Dataset,
        columns: Sequence[str] | None,
        rename: Mapping[str, str] | None,
        choice: Choice,
        images: tuple[str | Sequence[str] | None, dict[str, Any]],
        kind: Format,
        threads: int | None,
        storage: Storage,
        *,
        options: Any = None,
        masks: Sequence[str] = (),
        finds_text: bool = False,
        on: Machines | None = None,
    ) -> None:
        dataset, choice = chosen_first(dataset, choice)
        self.dataset = dataset
        self.storage = storage.no_more_open_than(dataset.paths)
        """Storage for the written files. Their permissions are no wider than those of the source."""
        rename = rename or {}
        wanted = _checked_columns(dataset.schema, columns, rename)
        pictures = pictures_of(dataset, wanted, *images, masks, target=kind.info)
        pictures = _naming_files(pictures, dataset.schema, wanted, rename, kind)
        skips, pictures = _skipping(dataset, kind, options, pictures)
        self._gives_changed = skips and choice.is_all
        schema = _written_schema(dataset.schema, wanted, rename, pictures, kind.info.holds_examples)
        looks = finds_text and kind.info.holds_text
        self._delivered = _delivered(dataset, wanted, choice, threads, pictures if skips else None)
        super().__init__(
            schema,
            wanted,
            pictures,
            _kept_by(dataset, kind),
            TextColumns(schema, wanted) if looks else None,
            threads,
            can_lend=kind.info.takes_views and self._has_views(pictures),
        )
        self.firsts = (self._delivered or dataset.files).firsts
        """The number of each shard's first record, followed by the total number of written records."""
        self.num_records = int(self.firsts[-1])
        self._order = self._ordered(choice, on, skips=skips)
        self._ranges: Consecutive | None = None
        if self._order is not None:
            # Each source file gets as many records as were chosen from it, whatever their order.
            edges = np.searchsorted(np.sort(self._order), self.firsts)
            self.firsts, self.num_records = edges, len(self._order)
            self._ranges = Consecutive(dataset, self._order, wanted, threads)

    def _ordered(self, choice: Choice, on: Machines | None, *, skips: bool) -> np.ndarray | None:
        """Return the numbers of the records in the order of writing; None for all as they come. With `skips`, records
        with damaged pictures are left out, unless the caller chose the records by number."""
        order = chosen(self.dataset, choice, self._threads, on)
        if order is None or not skips or choice.numbers is not None:
            return order
        return order[self._are_intact(order)]

    @property
    def _changes_pictures(self) -> bool:
        return super()._changes_pictures and not self._gives_changed

    def _origin(self, number: int) -> tuple[str | None, int]:
        files = self.dataset.files
        if self._order is not None:
            number = int(self._order[number])
        shards, records = files.locate(np.array([number]))
        shard = int(shards[0])
        return files.paths[shard], int(files.in_file(shard, records)[0])

    def _are_intact(self, order: np.ndarray) -> np.ndarray:
        """Return which of the records have no damaged picture, as bool. The others are listed as skipped."""
        assert self._pictures is not None, "they are changed"
        dataset, found, done = self.dataset, np.ones(len(order), bool), 0

        def tell(row: int, error: FormatError | SchemaError) -> None:
            found[done + row] = False
            number = int(order[done + row])
            shards, records = dataset.files.locate(np.array([number]))
            region = region_of(dataset, int(shards[0]), int(records[0]), error)
            dataset.add_skipped_record(number, region)

        columns, size = list(self._pictures.columns), dataset.files.total_bytes
        for batch in shuffled_between(dataset, order, columns, self._threads, size):
            self._pictures.intact(batch, self._threads, tell)
            done += batch.num_rows
        return found

    def _has_views(self, pictures: Pictures | None) -> bool:
        """Whether the writer gets byte strings as views instead of copies. For short strings a copy is cheaper."""
        if self._delivered is not None or _are_changed(pictures):
            return False
        return self.dataset.files.total_bytes >= LARGE_RECORD_BYTES * len(self.dataset)

    @property
    def identity(self) -> list[Any]:
        """Facts that determine which values are read. They differ for jobs that read different values."""
        order = b"" if self._order is None else self._order.tobytes()
        digest = hashlib.blake2b(order, digest_size=16).hexdigest()
        damage = repr(self.dataset.options.damage)
        return [str(self.schema), digest, damage, repr(self._pictures)]

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns of bytes whose values, as far as they were read, are all text."""
        return () if self.text is None else self.text.names()

    def part(self, first: int, last: int) -> Part:
        """Return records [first, last) alone, for another process or machine."""
        if self._order is None:
            blocks: list[Block] = [(self.dataset.tasks_at(range(first, last)), None)]
        else:
            order, size = self._order[first:last], self.dataset.files.total_bytes
            blocks = [self._block(numbers) for numbers in blocks_of(self.dataset, order, size)]
        return Part(self, first, blocks)

    def _block(self, numbers: np.ndarray) -> Block:
        chosen, places = np.unique(numbers, return_inverse=True)
        in_order = len(chosen) == len(numbers) and (np.diff(numbers) > 0).all()
        return self.dataset.tasks_at(chosen), None if in_order else places

    def _read(self, first: int, last: int, *, lend: bool) -> Iterator[pa.RecordBatch]:
        dataset, columns, threads = self.dataset, self.columns, self._threads
        if self._ranges is not None:
            return self._ranges.between(first, last, lend=lend)
        if self._delivered is not None:
            return self._delivered.between(first, last)
        return batches_between(dataset, first, last, columns, threads, lend=lend)


Block = tuple[list[ReadTask], np.ndarray | None]
"""Tasks, and the places of their records in the order of writing; None if they are in that order."""


class Part(Records):
    """Consecutive records of a reading, from number `first` on. It pickles with what is needed to read them."""

    def __init__(self, of: Reading, first: int, blocks: Sequence[Block]) -> None:
        super().__init__(
            of.schema,
            of.columns,
            of._pictures,
            of.kept,
            copy.deepcopy(of.text),
            of._threads,
            can_lend=False,
        )
        self._first = first
        self._blocks = blocks

    def _read(self, first: int, last: int, *, lend: bool) -> Iterator[pa.RecordBatch]:
        del last, lend  # all records are read, as copies
        assert first == self._first, "the part has no others"
        for tasks, places in self._blocks:
            found = (
                batch
                for task in map(copy.copy, tasks)  # a task that was read keeps its files open
                for batch in task.batches(self.columns, self._threads)
            )
            if places is None:
                yield from found
            else:
                yield reordered(join(list(found)), places)


def _delivered(
    dataset: Dataset,
    columns: list[str],
    choice: Choice,
    threads: int | None,
    pictures: Pictures | None,
) -> Delivered | None:
    """Return the records that a scan of all of a damaged dataset delivers, without those whose `pictures` are damaged."""
    if dataset.options.damage == "error" or not choice.is_all:
        return None
    change = None if pictures is None else partial(pictures.intact, threads=threads)
    return Delivered(dataset, columns, threads, change)


def _skipping(
    dataset: Dataset, kind: Format, options: Any, pictures: Pictures | None
) -> tuple[bool, Pictures | None]:
    """Whether records with damaged pictures are left out; and the pictures, with the check of a target format that reads
    them."""
    if pictures is None or dataset.options.damage != "skip":
        return False, pictures
    if kind.info.reads_images:
        pictures = replace(pictures, check=partial(kind.check_images, options=options))
    return pictures.needs_intact, pictures


def _naming_files(
    pictures: Pictures | None,
    schema: pa.Schema,
    columns: Sequence[str],
    rename: Mapping[str, str],
    kind: Format,
) -> Pictures | None:
    """Let the names of files follow the codecs of their changed pictures, if the target format has such names."""
    if pictures is None or not kind.info.picture_files:
        return pictures
    read = {rename.get(name, name): name for name in columns}
    picture, file = (read.get(name) for name in kind.info.picture_files)
    if picture not in pictures.columns or file is None:
        return pictures
    return (
        replace(pictures, files=(picture, file)) if is_text(schema.field(file).type) else pictures
    )


def _are_changed(pictures: Pictures | None) -> bool:
    return pictures is not None and pictures.is_changed


def chosen_first(dataset: Dataset, choice: Choice) -> tuple[Dataset, Choice]:
    """Return the dataset to choose from, and what is left to choose. Computed columns are computed only for records for
    which the condition is true."""
    if choice.where is not None and dataset.files.computes:
        dataset = dataset.filter(choice.where, choice.reads)
        choice = replace(choice, where=None)
    if not choice.is_all and choice.numbers is None:
        dataset = dataset.readable()
    return dataset, choice


def _checked_columns(
    schema: pa.Schema, columns: Sequence[str] | None, rename: Mapping[str, str]
) -> list[str]:
    """Return the columns to read. Raise SchemaError for unknown or ambiguous names."""
    wanted = list(schema.names if columns is None else columns)
    has = set(schema.names)
    missing = [name for name in wanted if name not in has]
    missing += [name for name in rename if name not in wanted]
    if missing:
        known = ", ".join(schema.names)
        raise SchemaError(f"no such column; there are: {known}", field=missing[0])
    refuse_twins(schema, wanted)
    return wanted


def _written_schema(
    schema: pa.Schema,
    columns: list[str],
    rename: Mapping[str, str],
    pictures: Pictures | None,
    holds_examples: bool,
) -> pa.Schema:
    names = [rename.get(name, name) for name in columns]
    twice = next((name for name, times in Counter(names).items() if times > 1), None)
    if twice is not None:
        raise SchemaError("two columns would have this name", field=twice)
    copies = (
        {} if holds_examples else {pa.binary_view(): pa.binary(), pa.string_view(): pa.string()}
    )
    fields: list[pa.Field] = []
    for column, name in zip(columns, names, strict=True):
        field = schema.field(column) if pictures is None else pictures.field(schema.field(column))
        fields.append(field.with_name(name).with_type(copies.get(field.type, field.type)))
    return pa.schema(fields, metadata=None if holds_examples else _kept_metadata(schema))


def _kept_metadata(schema: pa.Schema) -> dict[bytes, bytes] | None:
    metadata: Mapping[bytes, bytes] = schema.metadata or {}
    return {k: v for k, v in metadata.items() if not k.startswith(b"penstock.")} or None


Cast = Callable[[pa.Array], pa.Array] | None


def cast_of(before: Any, after: Any) -> Cast:
    """Return a function that casts arrays from one type to the other, or None if the types are the same."""
    if before == after:
        return None
    if storage_of(before) == IN_PARTS:
        rest = cast_of(ImageType(before.codec), after)
        return lambda array: whole(array) if rest is None else rest(whole(array))
    if not isinstance(after, pa.BaseExtensionType):
        return lambda array: cast_values(array, after)
    stored: Any = after.storage_type

    def wrapped(array: pa.Array) -> pa.Array:
        bare: Any = array.storage if isinstance(array, pa.ExtensionArray) else array
        return pa.ExtensionArray.from_storage(
            after, bare if bare.type == stored else bare.cast(stored)
        )

    return wrapped

"""What a conversion reads: the chosen records of a dataset, as the columns that are to be written."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.lending import lent_schema, whole
from penstock.columns.refusals import refuse_twins
from penstock.columns.types import IN_PARTS, ImageType, cast_values, storage_of
from penstock.contract.format import Format
from penstock.datasets.dataset import Dataset
from penstock.datasets.dataset import open as open_dataset
from penstock.errors import SchemaError, UnsupportedError
from penstock.framing.index import kept_schema
from penstock.overlay.file import has_overlays
from penstock.storage.local import LocalStorage
from penstock.tuned import LARGE_RECORD_BYTES
from penstock.verbs.convert._choice import Choice, chosen
from penstock.verbs.convert._pictures import pictures_of
from penstock.verbs.convert.ranges import Delivered, batches_between, shuffled_between


def opened(source: Any, kind: Format, options: Any, *, whole_records: bool) -> Dataset:
    """The source; as raw records where they go to another file of their format, and need not be
    parsed for what is asked (`whole_records`)."""
    if isinstance(source, Dataset):
        return source
    payload = getattr(options, "payload", "")
    if payload != "raw" and not (whole_records and payload is None):
        return open_dataset(source)
    try:
        raw = open_dataset(source, raw=True)
    except UnsupportedError:
        return open_dataset(source)  # it has columns, and no raw records
    # Raw records do not show the fields that are kept beside them.
    same = all(raw.files.format_name(shard) == kind.info.name for shard in range(len(raw.paths)))
    if payload == "raw" or (same and not has_overlays(raw.paths, raw.files.storage)):
        return raw
    return open_dataset(source)


def _kept_by(dataset: Dataset, kind: Format) -> bytes:
    """What sidecars keep of the types of raw records, which are copied to files of the same format."""
    files = dataset.files
    if not files.options.raw or files.format_name(0) != kind.info.name:
        return b""
    options = replace(files.options, raw=False)
    found = kept_schema.of_files(files.paths, files.storage, options, lambda source: kind)
    return kept_schema.to_bytes(found)


class Reading:
    """The records of the source as they are to be written."""

    def __init__(
        self,
        dataset: Dataset,
        columns: Sequence[str] | None,
        rename: Mapping[str, str] | None,
        choice: Choice,
        images: tuple[str | Sequence[str] | None, dict[str, Any]],
        kind: Format,
        threads: int | None,
    ) -> None:
        self.dataset = dataset
        is_here = isinstance(dataset.files.storage, LocalStorage)
        self.storage = LocalStorage().no_more_open_than(dataset.paths if is_here else ())
        """For what is written: files that are open to no more people than the source."""
        self._columns = list(dataset.schema.names if columns is None else columns)
        self._threads = threads
        has = set(dataset.schema.names)
        missing = [name for name in self._columns if name not in has]
        missing += [name for name in rename or {} if name not in self._columns]
        if missing:
            known = ", ".join(self._columns if columns is None else dataset.schema.names)
            raise SchemaError(f"no such column; there are: {known}", field=missing[0])
        refuse_twins(dataset.schema, self._columns)
        self._pictures = pictures_of(
            dataset, self._columns, *images, target_holds_images=kind.info.holds_images
        )
        fields = [dataset.schema.field(name) for name in self._columns]
        if self._pictures is not None:
            fields = [self._pictures.field(field) for field in fields]
        names = [(rename or {}).get(name, name) for name in self._columns]
        twice = next((name for name, times in Counter(names).items() if times > 1), None)
        if twice is not None:
            raise SchemaError("two columns would have this name", field=twice)
        self.schema = pa.schema(
            [
                _storable(field, kind).with_name(name)
                for field, name in zip(fields, names, strict=True)
            ],
            metadata=None if kind.info.holds_examples else _kept_metadata(dataset.schema.metadata),
        )
        self.kept = _kept_by(dataset, kind)
        self._delivered: Delivered | None = None
        if dataset.options.damage != "error":
            self._delivered = Delivered(dataset, self._columns, threads)
        self.firsts = dataset.files.firsts if self._delivered is None else self._delivered.firsts
        """The number of each shard's first record, then of all that are written."""
        self.num_records = int(self.firsts[-1])
        if not choice.is_all and self._delivered is not None and dataset.damage:
            raise UnsupportedError(
                "records of a damaged dataset cannot be chosen or shuffled while damage is passed "
                "over",
                file=dataset.damage[0].file,
                hint="convert all of it first, or use penstock repair",
            )
        self._order = chosen(dataset, choice, threads)
        if self._order is not None:
            # A file of the source keeps its part of the records, whatever their order.
            edges = np.searchsorted(np.sort(self._order), self.firsts)
            self.firsts, self.num_records = edges, len(self._order)
        self._can_lend = kind.info.takes_views and self._is_lent()

    def _is_lent(self) -> bool:
        """Whether byte strings need not be copied before they are written. Of short ones a copy costs
        less than a view."""
        if self._delivered is not None or (self._pictures and self._pictures.is_rewritten):
            return False
        return self.dataset.files.total_bytes >= LARGE_RECORD_BYTES * len(self.dataset)

    @property
    def told(self) -> list[Any]:
        """What decides what is read, for telling one job from another."""
        order = b"" if self._order is None else self._order.tobytes()
        digest = hashlib.blake2b(order, digest_size=16).hexdigest()
        damage = repr(self.dataset.options.damage)
        return [str(self.schema), digest, damage, repr(self._pictures)]

    def batches(self, first: int, last: int, *, lend: bool = False) -> Iterator[pa.RecordBatch]:
        """Records [first, last) in the order in which they are written. With `lend` their byte strings
        may be views (`lending.lent_schema`), for a writer that takes them."""
        dataset, columns, threads = self.dataset, self._columns, self._threads
        lend = lend and self._can_lend
        schema = lent_schema(self.schema) if lend else self.schema
        if self._delivered is not None and self._order is None:
            read = self._delivered.between(first, last)
        elif self._order is None:
            read = batches_between(dataset, first, last, columns, threads, lend=lend)
        else:
            order, size = self._order[first:last], dataset.files.total_bytes
            read = shuffled_between(dataset, order, columns, threads, size, lend=lend)
        done = first
        seen: pa.Schema | None = None
        casts: list[Cast] = []
        for batch in read:
            if self._pictures is not None and self._pictures.is_rewritten:
                batch = self._pictures.batch(batch, done, threads)
            done += batch.num_rows
            if seen is None or (lend and batch.schema != seen):
                # Formats lend in different types. Of what is not lent, once for all: comparing types
                # costs more than many a batch does.
                seen = batch.schema
                pairs = zip(batch.schema, schema, strict=True)
                casts = [cast_of(before.type, after.type) for before, after in pairs]
            pairs = zip(casts, batch.columns, strict=True)
            arrays = [array if cast is None else cast(array) for cast, array in pairs]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


Cast = Callable[[pa.Array], pa.Array] | None


def cast_of(before: Any, after: Any) -> Cast:
    """What makes an array of one type one of another; None where they are the same."""
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


def _storable(field: pa.Field, kind: Format) -> pa.Field:
    """Views into the bytes read are written as what they show."""
    types = {pa.binary_view(): pa.binary(), pa.string_view(): pa.string()}
    if not kind.info.holds_examples and field.type in types:
        field = field.with_type(types[field.type])
    return field


def _kept_metadata(metadata: Mapping[bytes, bytes] | None) -> dict[bytes, bytes] | None:
    """What a schema says of itself, but for penstock's notes on how it was inferred."""
    kept = {k: v for k, v in (metadata or {}).items() if not k.startswith(b"penstock.")}
    return kept or None

"""The records of a dataset for a comparison.

When a dataset is opened, the schema of Examples is inferred from a sample. A comparison by that schema would miss
fields that only later records have. So Examples are read as payloads. Equal payloads need no parsing, and other
payloads are decoded with the keys that they contain.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from penstock import _core
from penstock.columns.inferred import InferredFrom
from penstock.columns.refusals import refuse_twins
from penstock.contract.faults import error_from
from penstock.datasets.dataset import Dataset
from penstock.errors import PenstockError, SchemaError
from penstock.framing.framings import TFRECORD
from penstock.framing.read.raw import RAW_SCHEMA
from penstock.payloads.example.inference import inferred_type
from penstock.payloads.example.plans import (
    CONTEXT_PREFIX,
    IN_LISTS_KEY,
    LISTS_PREFIX,
    RECORD,
    WIRE_KEY,
    DecodePlan,
    plan_fields,
)
from penstock.payloads.example.sequence_parts import part_and_key
from penstock.verbs.convert.ranges import shuffled_between
from penstock.verbs.diff import alike

_compute: Any = pyarrow.compute  # Any: its functions are created at import, so they have no types
_KINDS = ((pa.binary(), "bytes"), (pa.float32(), "float"), (pa.int64(), "int64"))
_NO_LIMIT = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class NewColumn:
    """The values of one field in some records. `layout` is "feature" or "feature list" for Examples, in which a scalar
    is a list of one value and shapes are not stored. It is "typed" for all other formats."""

    values: pa.Array
    type: pa.DataType
    layout: str = "typed"

    def differs_from(self, other: NewColumn) -> np.ndarray:
        return alike.differing(*self._like(other))

    def is_like(self, other: NewColumn) -> bool:
        return alike.alike(*(array.type for array in self._like(other)))

    def _like(self, other: NewColumn) -> tuple[pa.Array, pa.Array]:
        layouts = {self.layout, other.layout}
        if len(layouts) == 1:
            return self.values, other.values
        shaped = alike.as_feature_list if "feature list" in layouts else alike.as_feature
        a, b = (x.values if x.layout != "typed" else shaped(x.values) for x in (self, other))
        return a, b


_FACTS = ("kind", "message", "field", "byte", "expected", "found")


class Misfit(Exception):
    """A record whose payload cannot be decoded: the place of its side, its number in the dataset, and what is wrong, which
    does not name its file."""

    def __init__(self, place: int, number: int, fault: SchemaError | SimpleNamespace) -> None:
        super().__init__(place, number, fault)
        self.place, self.number, self.fault = place, number, fault


class Values:
    """What the columns of one side's batches are. It pickles, since it has no dataset."""

    def __init__(
        self,
        dataset: Dataset,
        columns: Sequence[str] | None,
        without: Collection[str],
        place: int,
        *,
        has_payloads: bool,
    ) -> None:
        chosen = dataset.schema.names if columns is None else list(columns)
        known = set(dataset.schema.names)
        self.chosen = [name for name in chosen if name in known and name not in without]
        self.dialect = dataset.options.dialect
        self.has_payloads = has_payloads
        """Whether batches contain payloads of Examples."""
        self.has_features = has_payloads or _is_of_examples(dataset)
        """Whether structs are features `parent/child`, with or without a schema in a sidecar."""
        self._place = place
        self._without = without
        self._only: Collection[str] | None = columns
        if columns is None and dataset.columns is not None:
            self._only = self.chosen
        self._schema: pa.Schema | None = None
        self._typed: DecodePlan | None = None
        self._plans: dict[tuple[Any, ...], DecodePlan] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_typed": None, "_plans": {}}

    @property
    def is_inferred(self) -> bool:
        """Whether the fields are inferred from the payloads during the read."""
        return self.has_payloads and self._schema is None

    @property
    def names(self) -> list[str]:
        return [] if self.is_inferred else self.chosen

    @property
    def read_columns(self) -> list[str] | None:
        """The columns of the batches."""
        return None if self.has_payloads else self.chosen

    def decode_by(self, schema: pa.Schema) -> None:
        """Decode payloads with a schema."""
        self.has_payloads, self._schema = True, pa.schema([schema.field(n) for n in self.chosen])

    def frames(self, batch: pa.RecordBatch, rows: np.ndarray | None = None) -> _core.Frames:
        framed = _core.frame_records(batch.column(0))
        frames = _core.walk(TFRECORD.name, framed.data, 0, _NO_LIMIT)[0]
        return frames if rows is None else frames.select(pa.array(rows, pa.uint64()))

    def types_in(
        self, batch: pa.RecordBatch, names: Collection[str], known: Collection[str]
    ) -> dict[str, pa.DataType]:
        """Return the types of those of the given fields that occur in a batch of payloads."""
        entries = self.frames(batch).infer()["keys"]
        named = ((_name(entry, (), known), entry) for entry in entries)
        return {name: _shown_type(entry) for name, entry in named if name in names}

    def columns(
        self,
        batch: pa.RecordBatch,
        rows: np.ndarray | None,
        numbers: np.ndarray,
        known: Collection[str],
    ) -> dict[str, NewColumn]:
        """Return the values of some rows of a batch, as {field name: column}.

        `batch` is from `Side.batches` or `Side.picked`. `rows` are the wanted rows, or None for all. `numbers` has the
        record number of each row of the batch, for errors. `known` has the field names of the other side, to which keys
        are mapped.

        Raises:
            Misfit: a payload cannot be decoded.
        """
        if self.has_payloads:
            frames = self.frames(batch, rows)
            return self._decoded(frames, numbers if rows is None else numbers[rows], known)
        if rows is not None:
            mask = np.zeros(batch.num_rows, bool)
            mask[rows] = True
            arrays = [alike.chosen(alike.stripped(array), mask) for array in batch.columns]
        else:
            arrays = batch.columns
        return _typed_columns(batch.schema, arrays)

    def _decoded(
        self, frames: _core.Frames, numbers: np.ndarray, known: Collection[str]
    ) -> dict[str, NewColumn]:
        if self._schema is not None:
            if self._typed is None:
                fields = plan_fields(self._schema, convert=self.dialect == "protobuf")
                self._typed = DecodePlan(fields, self.dialect)
            batch = self._decode(self._typed, frames, numbers)
            return _typed_columns(batch.schema, batch.columns)
        try:
            entries = frames.infer()["keys"]
        except _core.KernelError as error:
            raise self._misfit(error.args[0], numbers) from None
        found = self._named(entries, known)
        fields = [_field(name, entry) for name, entry in found.items()]
        batch = self._decode(self._plan(fields), frames, numbers)
        layouts = {False: "feature", True: "feature list"}
        return {
            name: NewColumn(values, _shown_type(entry), layouts[entry["in_lists"]])
            for (name, entry), values in zip(found.items(), batch.columns, strict=True)
        }

    def _named(
        self, entries: Sequence[dict[str, Any]], known: Collection[str]
    ) -> dict[str, dict[str, Any]]:
        keys: dict[bool, set[str]] = {False: set(), True: set()}
        for entry in entries:
            keys[entry["in_lists"]].add(entry["key"])
        named = {_name(entry, keys[False] & keys[True], known): entry for entry in entries}
        only = named if self._only is None else self._only
        return {n: entry for n, entry in named.items() if n in only and n not in self._without}

    def _decode(
        self, plan: DecodePlan, frames: _core.Frames, numbers: np.ndarray
    ) -> pa.RecordBatch:
        try:
            return plan.decode(frames)
        except _core.KernelError as error:
            raise self._misfit(error.args[0], numbers) from None
        except SchemaError as error:
            if self._schema is None:
                raise
            raise Misfit(self._place, int(numbers[error.record or 0]), error) from None

    def _misfit(self, fault: _core.Fault, numbers: np.ndarray) -> Misfit:
        facts = {
            name: getattr(fault, name) for name in _FACTS
        }  # a fault of the core does not pickle
        return Misfit(self._place, int(numbers[fault.record or 0]), SimpleNamespace(**facts))

    def _plan(self, fields: Sequence[pa.Field]) -> DecodePlan:
        key = tuple(
            (field.name, field.type, (field.metadata or {}).get(WIRE_KEY)) for field in fields
        )
        plan = self._plans.get(key)
        if plan is None:
            plan = DecodePlan(plan_fields(pa.schema(fields)), self.dialect)
            if len(self._plans) < 64:  # records may have any keys
                self._plans[key] = plan
        return plan


class Side:
    """One of the two datasets to compare."""

    def __init__(
        self,
        dataset: Dataset,
        columns: Sequence[str] | None,
        without: Collection[str],
        place: int,
    ) -> None:
        self.dataset = dataset
        refuse_twins(dataset.schema, dataset.schema.names if columns is None else list(columns))
        payloads = _payloads_of(dataset)
        is_read_raw = payloads is not None
        self.values = Values(dataset, columns, without, place, has_payloads=is_read_raw)
        self.read = payloads or dataset
        """The dataset of the batches."""

    def read_by_schema(self) -> None:
        """Read payloads, and decode them with the schema of the dataset."""
        payloads = self.dataset.reopened(raw=True, columns=None)
        if payloads.schema.names == RAW_SCHEMA.names:
            self.read = payloads
            self.values.decode_by(self.dataset.schema)

    def types(self, as_features: bool) -> dict[str, pa.DataType]:
        """Return the types of the fields in `names`, with structs as features if requested."""
        fields = [self.dataset.schema.field(name) for name in self.values.names]
        return {name: type_ for f in fields for name, type_ in _leaves(f, as_features)}

    @property
    def sampled_names(self) -> list[str]:
        """The fields of the dataset's schema, even if it is inferred from a sample."""
        is_empty = self.dataset.schema.equals(RAW_SCHEMA) and self.values.has_payloads
        return [] if is_empty else self.values.chosen

    def batches(self, threads: int | None) -> Generator[pa.RecordBatch]:
        yield from self.read.scan(self.values.read_columns, None, threads)

    def picked(self, order: np.ndarray, threads: int | None) -> Generator[pa.RecordBatch]:
        """Yield the records with the numbers in `order`, in that order."""
        size = self.read.files.total_bytes
        yield from shuffled_between(self.read, order, self.values.read_columns, threads, size)

    def located(self, misfit: Misfit) -> PenstockError:
        """Return the error that a normal read of this record raises, since that error names the file."""
        shards, local = self.dataset.files.locate(np.array([misfit.number]))
        try:
            self.dataset.take([misfit.number])
        except PenstockError as error:
            return error
        if isinstance(misfit.fault, SchemaError):
            return misfit.fault
        file = self.dataset.paths[int(shards[0])]
        return error_from(misfit.fault, file=file, record=int(local[0]))


def _typed_columns(schema: pa.Schema, arrays: Iterable[pa.Array]) -> dict[str, NewColumn]:
    pairs = zip(schema, arrays, strict=True)
    return {field.name: NewColumn(array, field.type) for field, array in pairs}


def _is_of_examples(dataset: Dataset) -> bool:
    shards = range(len(dataset.paths))
    return bool(shards) and all(dataset.files.info(n).holds_examples for n in shards)


def _payloads_of(dataset: Dataset) -> Dataset | None:
    """Return the same records as payloads, if the dataset's schema was inferred from a sample of Examples.

    Return None if damage is skipped, because payloads that are not Examples are then skipped, too. Return None if
    there are overlays, because payloads do not include their fields.
    """
    is_inferred = dataset.options.schema is None and InferredFrom.of(dataset.schema) is not None
    is_inferred = is_inferred and not dataset.schema.equals(RAW_SCHEMA)
    if not is_inferred or dataset.options.damage != "error" or dataset.files.overlays is not None:
        return None
    if not _is_of_examples(dataset):
        return None
    payloads = dataset.reopened(raw=True, columns=None)
    return payloads if payloads.schema.names == RAW_SCHEMA.names else None


def read_alike(sides: tuple[Side, Side]) -> None:
    """Read two datasets of Examples as payloads if their sidecars have the same schema. Equal payloads are not
    parsed."""
    a, b = (side.dataset for side in sides)
    is_one = a.schema.equals(b.schema, check_metadata=True)
    if is_one and a.options.dialect == b.options.dialect and all(map(_keeps_schema, (a, b))):
        for side in sides:
            side.read_by_schema()


def _keeps_schema(dataset: Dataset) -> bool:
    files = dataset.files
    is_whole = dataset.options.damage == "error" and files.overlays is None
    # The meaning of such names depends on the records.
    names = dataset.schema.names
    is_plain = not any(part_and_key(n) or n == RECORD or files.is_added(n) for n in names)
    return files.types == "kept" and is_whole and is_plain and _is_of_examples(dataset)


def _leaves(field: pa.Field, as_features: bool) -> Iterator[tuple[str, pa.DataType]]:
    if not (as_features and pa.types.is_struct(field.type)):
        yield field.name, field.type
        return
    for child in field.type:
        yield from _leaves(child.with_name(f"{field.name}/{child.name}"), as_features)


def same_payloads(a: pa.Array, b: pa.Array) -> np.ndarray | None:
    """Return a mask of the payloads that differ, or None if all are equal."""
    found = _compute.equal(a, b)
    if _compute.all(found).as_py() in (True, None):
        return None
    return ~found.to_numpy(zero_copy_only=False)


def _name(entry: dict[str, Any], twice: Collection[str], known: Collection[str]) -> str:
    key, prefix = entry["key"], LISTS_PREFIX if entry["in_lists"] else CONTEXT_PREFIX
    if key in twice or (prefix + key in known and key not in known):
        return prefix + key
    return key


def _field(name: str, entry: dict[str, Any]) -> pa.Field:
    """Return a field with a type that fits every record with this key."""
    kinds = [kind for kind, count in zip(_KINDS, entry["kinds"], strict=True) if count]
    if len(kinds) > 1:
        listed = " and ".join(word for _, word in kinds)
        raise SchemaError(
            f"holds {listed} values in different records",
            field=name,
            hint="open(..., raw=True) to compare payloads, or a schema without this field",
        )
    type_ = kinds[0][0] if kinds else pa.null()
    metadata = {WIRE_KEY: entry["key"].encode()}
    if entry["in_lists"]:
        type_ = pa.list_(pa.list_(type_))
        metadata[IN_LISTS_KEY] = b"1"
    elif kinds:
        type_ = pa.list_(type_)
    return pa.field(name, type_, metadata=metadata)


def _shown_type(entry: dict[str, Any]) -> pa.DataType:
    kinds = [kind for (kind, _), count in zip(_KINDS, entry["kinds"], strict=True) if count]
    return inferred_type(entry, kinds[0] if kinds else pa.null())

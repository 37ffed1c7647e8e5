"""Finds the common schema of all files of a dataset, if the first file does not determine it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import pyarrow as pa

from penstock.columns.inferred import InferredFrom, files
from penstock.datasets._one_set import refuse_disjoint
from penstock.errors import PenstockError, raise_unless_damage
from penstock.framing.read.raw import RAW_SCHEMA
from penstock.payloads.example.inference import fields_of_all, in_common
from penstock.storage.base import Storage

_SAMPLED_FILES = 32
_SAMPLED_RECORDS = 1000
"""If the first files have few records, at most this many files and records are examined."""

SchemaOf = Callable[[int], pa.Schema]
"""Returns the schema of a file, given by number, that is opened separately."""


def of_all_files(num_files: int, schema_of: SchemaOf, named: Collection[str]) -> pa.Schema:
    """The schema inferred from all records of all files. If the files store their schemas, it has all their fields."""
    alone = [schema_of(number) for number in range(num_files)]
    samples = [sample for sample in map(InferredFrom.of, alone) if sample is not None]
    if not samples:
        return pa.schema(fields_of_all(alone, named, are_stored=True), alone[0].metadata)
    num_records = sum(sample.num_records for sample in samples)
    return in_common(alone, InferredFrom(num_records, True, files(num_files)), named)


def of_first_files(
    paths: Sequence[str],
    storage: Storage,
    first: pa.Schema,
    schema_of: SchemaOf,
    named: Collection[str],
) -> pa.Schema | None:
    """The schema of several files, or None if the first file determines it. SchemaError is raised if the examined files
    have no fields in common."""
    sample = InferredFrom.of(first)
    if sample is None:
        return _with_known_types(len(paths), first, schema_of)
    if not (sample.is_all and sample.num_records) or first.names == RAW_SCHEMA.names:
        return None  # the first file has enough records, or no fields were inferred
    return _of_samples(paths, storage, schema_of, named)


def _of_samples(
    paths: Sequence[str], storage: Storage, schema_of: SchemaOf, named: Collection[str]
) -> pa.Schema | None:
    """The common schema of the first files, until they have enough records."""
    found: list[pa.Schema] = []
    fields: dict[str, list[str]] = {}
    common, num_records = None, 0
    for number, path in enumerate(paths[:_SAMPLED_FILES]):
        try:
            alone = schema_of(number)
            sample = InferredFrom.of(alone)
            if sample is None or not sample.is_all:
                break
            num_records += sample.num_records
            if alone.names != RAW_SCHEMA.names:  # otherwise its records have no fields
                found.append(alone)
                if sample.num_records:
                    fields[path] = alone.names
            if not found:
                continue
            is_all = number + 1 == len(paths)
            seen = InferredFrom(num_records, is_all, files(number + 1))
            common = in_common(found, seen, named)
        except (PenstockError, OSError) as error:
            raise_unless_damage(error)
            break  # reported when the file is read
        if num_records >= _SAMPLED_RECORDS:
            break
    refuse_disjoint(fields, storage)
    return common


def _with_known_types(num_files: int, first: pa.Schema, schema_of: SchemaOf) -> pa.Schema | None:
    """The stored schema of the first file, with types from the next files for columns without any value. None if there
    are no such columns."""
    places = {field.name: n for n, field in enumerate(first) if pa.types.is_null(field.type)}
    found = first
    for number in range(1, min(num_files, _SAMPLED_FILES)):
        if not places:
            break
        try:
            alone = schema_of(number)
        except (PenstockError, OSError) as error:
            raise_unless_damage(error)
            break  # reported when the file is read
        for field in alone:
            if field.name in places and not pa.types.is_null(field.type):
                found = found.set(places.pop(field.name), field.with_nullable(True))
    return None if found is first else found

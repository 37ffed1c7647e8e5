"""`schemas`: the fields of each file of a dataset, and which files lack which field.

The result covers only the files that were read: it has their number, and for each whether its fields are
stored in it or inferred from some or all of its records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.columns.inferred import EVERYWHERE_KEY, InferredFrom
from penstock.columns.types import is_list
from penstock.datasets import dataset as datasets
from penstock.engine.pipeline import in_order
from penstock.payloads.example.inference import everywhere_metadata, in_every_record_of

MOST_FILES = 101
"""The most files that are read by default."""


@dataclass(frozen=True, slots=True)
class FileSchema:
    """The fields of one file. `inferred_from` names the records that they were inferred from, None where
    the file stores them; `is_whole`: it stores them, or they were inferred from all its records;
    `has_records` is False for a file of Examples without records."""

    path: str
    schema: pa.Schema
    inferred_from: str | None
    is_whole: bool
    has_records: bool


@dataclass(frozen=True, slots=True)
class FieldPresence:
    """Where a field is, among the files read. `num_files` have it; `lacking` lack it; `empty` have it in a
    record, but without a value; `otherwise` have it as another type. All are paths. Files without records
    are not counted."""

    field: pa.Field
    num_files: int
    lacking: tuple[str, ...]
    empty: tuple[str, ...]
    otherwise: tuple[tuple[str, pa.DataType], ...]


@dataclass(frozen=True, slots=True)
class Schemas:
    """The schemas of the files read, of `num_files` in all; `schema` has every field of any of them.
    `is_whole`: every file was read, and every record where fields are not stored."""

    schema: pa.Schema
    fields: tuple[FieldPresence, ...]
    files: tuple[FileSchema, ...]
    num_files: int
    is_whole: bool

    @property
    def same_everywhere(self) -> bool:
        """Whether all files read have the same fields, of the same types, with values."""
        return not any(f.lacking or f.empty or f.otherwise for f in self.fields)


def schemas(
    source: Any,
    *,
    columns: Sequence[str] | None = None,
    everything: bool = False,
    threads: int | None = None,
) -> Schemas:
    """List which fields each file of a dataset has, and which files lack which field. Types are those of the files,
    not those that penstock keeps in sidecars of what it wrote.

    Parquet and Arrow files store their fields. Those of Examples are inferred from the first records
    of each file (1000, or the `infer_records` of the Dataset), so a field that only later records
    have is missed, unless `everything` is True.

    Args:
        source: a Dataset, or anything that `penstock.open` takes.
        columns: the fields of interest; None for all.
        everything: read every record of every file, instead of the first records of the first 101
            files.
        threads: how many files are read at once; None: one a core.

    Returns:
        Schemas: `fields` with the files that lack them, `files`, and what was read.

    Raises:
        PenstockError: a file is of no known format, or a field holds values of several kinds.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [1, 2]}, "part-0.tfrecord", overwrite=True)
        >>> _ = ps.write({"id": [3], "label": [7]}, "part-1.tfrecord", overwrite=True)
        >>> found = ps.schemas("part-*.tfrecord", everything=True)
        >>> [(f.field.name, f.num_files, f.lacking) for f in found.fields]
        [('id', 2, ()), ('label', 1, ('part-0.tfrecord',))]
    """
    ds = source if isinstance(source, datasets.Dataset) else datasets.open(source)
    if ds.files.types == "kept":
        ds = ds.reopened(index="never")  # what the files hold, not what they were written from
    files = _read(ds, everything, threads)
    union = _union([file.schema for file in files if file.has_records] or [ds.schema])
    schema = _selected(union, columns if columns is not None else ds.columns)
    types = [_types(file.schema) for file in files]
    return Schemas(
        schema,
        tuple(_presence(field, files, types) for field in schema),
        files,
        len(ds.paths),
        len(files) == len(ds.paths) and all(file.is_whole for file in files),
    )


def _read(ds: datasets.Dataset, everything: bool, threads: int | None) -> tuple[FileSchema, ...]:
    other: dict[str, Any] = {"columns": None}
    if everything and InferredFrom.of(ds.schema) is not None:
        other["format_options"] = {**ds.options.format_options, "infer_records": "all"}
    paths = ds.paths if everything else ds.paths[:MOST_FILES]

    def read(path: str) -> Iterator[FileSchema]:
        schema = ds.reopened(source=[path], **other).schema
        seen = InferredFrom.of(schema)
        if seen is None:
            yield FileSchema(path, schema, None, True, True)
        else:
            yield FileSchema(path, schema, str(seen), seen.is_all, seen.num_records > 0)

    return tuple(in_order([lambda: iter(paths)], read, lambda file: 0, threads))


def _selected(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    if columns is None:
        return schema
    has = set(schema.names)
    fields = [schema.field(name) for name in columns if name in has]
    return pa.schema(fields, metadata=schema.metadata)


def _union(schemas: list[pa.Schema]) -> pa.Schema:
    """Every field of any file: those of the first in its order, then those of the others."""
    fields: dict[str, pa.Field] = {}
    for schema in schemas:
        for field in schema:
            known = fields.get(field.name)
            fields[field.name] = field if known is None else _wider(known, field)
    metadata = dict(schemas[0].metadata or {})
    if metadata.pop(EVERYWHERE_KEY, None) is not None:
        metadata |= everywhere_metadata(in_every_record_of(schemas, fields))
    return pa.schema(list(fields.values()), metadata=metadata or None)


def _wider(known: pa.Field, other: pa.Field) -> pa.Field:
    """The field that both files fit, where one is a list of the other or has no values."""
    if pa.types.is_null(known.type):
        return other
    is_several = is_list(other.type) and other.type.value_type == known.type
    return other if is_several else known


def _types(schema: pa.Schema) -> dict[str, list[pa.DataType]]:
    """The types of the fields of each name: two columns of an Arrow file may have one name."""
    found: dict[str, list[pa.DataType]] = {}
    for field in schema:
        found.setdefault(field.name, []).append(field.type)
    return found


def _presence(
    field: pa.Field, files: Sequence[FileSchema], file_types: Sequence[dict[str, list[pa.DataType]]]
) -> FieldPresence:
    """Where a field is; `file_types` has the types of each file's fields by name."""
    lacking: list[str] = []
    empty: list[str] = []
    otherwise: list[tuple[str, pa.DataType]] = []
    num_files = 0
    for file, named in zip(files, file_types, strict=True):
        if not file.has_records:
            continue
        types = named.get(field.name, [])
        if not types:
            lacking.append(file.path)
            continue
        num_files += 1
        if field.type not in types:
            type_ = types[0]
            if pa.types.is_null(type_):
                empty.append(file.path)
            else:
                otherwise.append((file.path, type_))
    return FieldPresence(field, num_files, tuple(lacking), tuple(empty), tuple(otherwise))

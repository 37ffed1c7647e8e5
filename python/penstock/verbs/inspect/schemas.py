"""`schemas` lists the fields of each file of a dataset, and which files lack which field.

The result covers only the files that were read, and gives the number of all files. For each file it reports whether
the fields are stored in the file or inferred from some or all of its records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from rich.text import Text

from penstock import describe
from penstock.columns.inferred import EVERYWHERE_KEY, InferredFrom
from penstock.columns.types import is_list
from penstock.datasets.dataset import Dataset
from penstock.datasets.open import opened
from penstock.engine.pipeline import in_order
from penstock.payloads.example.inference import everywhere_metadata, in_every_record_of
from penstock.printing import tables
from penstock.printing.printed import Printed
from penstock.verbs.machines import all_done, run_on

MOST_FILES = 101
"""The most files to read by default."""
_MOST_NAMES = 3
"""The most names of files without a field to print."""


@dataclass(frozen=True, slots=True)
class FileSchema:
    """The fields of one file. `inferred_from` names the records from which the fields were inferred, or is None if the
    file stores its fields. `is_whole` is true if the file stores them, or if they were inferred from all records.
    `has_records` is False for a file of Examples without records."""

    path: str
    schema: pa.Schema
    inferred_from: str | None
    is_whole: bool
    has_records: bool


@dataclass(frozen=True, slots=True)
class FieldPresence:
    """The presence of a field in the files that were read. `num_files` is the number of files that have it. The others
    are paths: files in `lacking` lack the field, in `empty` no record has a value for it, and in `otherwise` it has
    another type. Files without records are not counted."""

    field: pa.Field
    num_files: int
    lacking: tuple[str, ...]
    empty: tuple[str, ...]
    otherwise: tuple[tuple[str, pa.DataType], ...]


@dataclass(frozen=True, slots=True, repr=False)
class Schemas(Printed):
    """The schemas of the files that were read, out of `num_files` files. Printed, it is a table. `schema` has all fields of these files.
    `is_whole` is true if every file was read, and every record of files that do not store their fields."""

    schema: pa.Schema
    fields: tuple[FieldPresence, ...]
    files: tuple[FileSchema, ...]
    num_files: int
    is_whole: bool
    is_raw: bool = False
    """Whether the dataset was opened with `raw=True`, so that nothing was inferred."""

    @property
    def same_everywhere(self) -> bool:
        """Whether all files that were read have the same fields, of the same types, and with values."""
        return not any(f.lacking or f.empty or f.otherwise for f in self.fields)

    @property
    def inferred_from(self) -> str | None:
        """The records from which the fields were inferred, in words; None if the files store their fields."""
        files = [file for file in self.files if file.inferred_from is not None]
        if len(files) < 2:
            return files[0].inferred_from if files else None
        whole = sum(file.is_whole for file in files)
        part = len(files) - whole
        said = [f"all records of {describe.count(whole)}"] if whole else []
        said += [f"the first records of {describe.count(part)}"] if part else []
        return f"{' and '.join(said)} files"

    def gaps(self, presence: FieldPresence) -> list[str]:
        """In which files a field is missing, has no value, or has another type: one line each."""
        name, total = presence.field.name, describe.count(len(self.files))
        kinds = [
            (f"{name}: missing in", list(presence.lacking)),
            (f"{name}: without a value in", list(presence.empty)),
        ]
        usual = describe.kind(presence.field.type)
        for type_ in dict.fromkeys(type_ for _, type_ in presence.otherwise):
            paths = [path for path, other in presence.otherwise if other == type_]
            kind = describe.kind(type_)
            kinds.append((f"{name}: {kind if kind != usual else type_} in", paths))
        return [
            f"{said} {describe.count(len(paths))} of {total} files: {_listed(paths)}"
            for said, paths in kinds
            if paths
        ]

    def _page(self) -> list[Any]:
        shown = tables.table("field", "type", "")
        for presence in self.fields:
            field = presence.field
            type_ = tables.kind(field)
            note = "" if field.nullable else "never null"
            shown.add_row(describe.escape(field.name), type_, tables.dim(note))
        parts: list[Any] = [shown, ""]
        records = self.inferred_from
        said = "stored in the file" if records is None else f"inferred from {records}"
        if self.is_raw:
            said = "undecoded records, whose fields are not inferred"
        if self.num_files > 1:
            said += f"; {_compared(self)}"
        parts.append(tables.dim(describe.escape(said)))
        for presence in self.fields:
            parts += [Text(describe.escape(line), style="yellow") for line in self.gaps(presence)]
        return parts

    def _summary(self) -> str:
        names = ", ".join(describe.escape(field.field.name) for field in self.fields)
        return (
            f"{describe.count(len(self.files))} of {describe.count(self.num_files)} files, {names}"
        )


def schemas(
    source: Any,
    *,
    columns: Sequence[str] | None = None,
    everything: bool = False,
    threads: int | None = None,
    on: Any = None,
    storage: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Schemas:
    """List the fields of each file of a dataset, and the files that lack a field. The types come from the files, not
    from the sidecars that penstock writes with files.

    Parquet and Arrow files store their fields. The fields of Examples are inferred from the first records of each file
    (1000, or the `infer_records` of the Dataset). So a field that only later records have is missed, unless
    `everything` is True.

    Args:
        source: a Dataset, or anything that `penstock.open` takes.
        columns: the fields of interest; None for all.
        everything: read every record of every file, instead of the first records of the first 101 files.
        threads: the number of files to read in parallel; None for all cores.
        on: where the files are read: None for this process, "ray", "ray://host:port" or a `penstock.ray.Cluster` for
            the machines of a cluster. A task reads one file.
        storage, storage_options: as for `open`.

    Returns:
        `fields` with the files that lack them, `files`, and how much was read.

    Raises:
        PenstockError: the format of a file is unknown, or a field holds values of several kinds.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [1, 2]}, "part-0.tfrecord", overwrite=True)
        >>> _ = ps.write({"id": [3], "label": [7]}, "part-1.tfrecord", overwrite=True)
        >>> found = ps.schemas("part-*.tfrecord", everything=True)
        >>> [(f.field.name, f.num_files, f.lacking) for f in found.fields]
        [('id', 2, ()), ('label', 1, ('part-0.tfrecord',))]
    """
    ds = opened(source, storage, storage_options)
    if ds.files.types == "kept":
        ds = ds.reopened(index="never")  # use the types in the files, not those in sidecars
    files = _read(ds, everything, threads, on)
    union = _union([file.schema for file in files if file.has_records] or [ds.schema])
    schema = _selected(union, columns if columns is not None else ds.columns)
    types = [_types(file.schema) for file in files]
    return Schemas(
        schema,
        tuple(_presence(field, files, types) for field in schema),
        files,
        len(ds.paths),
        len(files) == len(ds.paths) and all(file.is_whole for file in files),
        ds.options.raw,
    )


def _read(ds: Dataset, everything: bool, threads: int | None, on: Any) -> tuple[FileSchema, ...]:
    other: dict[str, Any] = {"columns": None}
    if everything and InferredFrom.of(ds.schema) is not None:
        other["format_options"] = {**ds.options.format_options, "infer_records": "all"}
    paths = ds.paths if everything else ds.paths[:MOST_FILES]

    if on is None:

        def read(path: str) -> Iterator[FileSchema]:
            yield _file(ds, other, path)

        return tuple(in_order([lambda: iter(paths)], read, lambda file: 0, threads))
    first = ds.reopened(source=[ds.paths[0]], hive=False)  # its pickle does not name all files
    tasks, places = list(paths), (ds.files.storage, paths)
    found = run_on(on, partial(_file, first, other), tasks, places)
    return tuple(all_done(found, tasks, lambda _, file: None))


def _file(ds: Dataset, other: dict[str, Any], path: str) -> FileSchema:
    """The fields of one file."""
    schema = ds.reopened(source=[path], hive=False, **other).schema
    seen = InferredFrom.of(schema)
    if seen is None:
        return FileSchema(path, schema, None, True, True)
    return FileSchema(path, schema, str(seen), seen.is_all, seen.num_records > 0)


def _selected(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    if columns is None:
        return schema
    has = set(schema.names)
    fields = [schema.field(name) for name in columns if name in has]
    return pa.schema(fields, metadata=schema.metadata)


def _union(schemas: list[pa.Schema]) -> pa.Schema:
    """Return the fields of the first file in order, then further fields of the other files."""
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
    """Return the more general field, if one type is a list of the other or is null."""
    if pa.types.is_null(known.type):
        return other
    is_several = is_list(other.type) and other.type.value_type == known.type
    return other if is_several else known


def _types(schema: pa.Schema) -> dict[str, list[pa.DataType]]:
    """Return {field name: types}. A name can have several types, because columns of an Arrow file can share a name."""
    found: dict[str, list[pa.DataType]] = {}
    for field in schema:
        found.setdefault(field.name, []).append(field.type)
    return found


def _presence(
    field: pa.Field, files: Sequence[FileSchema], file_types: Sequence[dict[str, list[pa.DataType]]]
) -> FieldPresence:
    """Return the presence of a field. `file_types` has the types of each file's fields, by name."""
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


# -- as a table -----------------------------------------------------------------------------------


def _compared(found: Schemas) -> str:
    looked, total = describe.count(len(found.files)), describe.count(found.num_files)
    whose = f"all {total} files" if looked == total else f"{looked} of {total} files"
    verdict = "the same fields" if found.same_everywhere else "not the same fields"
    return f"compared {whose}: {verdict}"


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (
        f" and {describe.count(more)} more" if more > 0 else ""
    )

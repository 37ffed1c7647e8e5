"""`penstock schema`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from penstock import describe
from penstock.cli import output
from penstock.cli.options import json_option, opened, reading, source_argument

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_COMPARED = 100
"""Up to so many files are compared with the first without --all."""
_INFERRED_KEY = b"penstock.inferred_from"


@click.command(
    "schema",
    epilog="""\b
Examples:
  penstock schema train.tfrecord
  penstock schema --all 'train-*.tfrecord'
  penstock schema --tensorflow train.tfrecord > features.py
  penstock schema --json train.parquet
""",
)
@source_argument
@click.option(
    "--all",
    "look_at_all",
    is_flag=True,
    help="Look at every record of every file, not only at the first ones.",
)
@click.option(
    "--tensorflow", is_flag=True, help="Print a feature description for tf.io.parse_example."
)
@reading("format", "columns", "raw", "dialect", "infer")
@json_option
def command(
    source: tuple[str, ...],
    look_at_all: bool,
    tensorflow: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """The fields of a record, and what they were told from.

    Parquet and Arrow files say what their fields are. The fields of Examples are told from the
    first records of the first file, and the first records of the other files (up to 100 of them)
    are compared with those; --all looks at everything.
    """
    import penstock as ps

    if tensorflow and as_json:
        raise click.UsageError("--tensorflow and --json exclude each other")
    found = _find(source, options, look_at_all)
    if tensorflow:
        click.echo(ps.features.describe(found.schema))
    elif as_json:
        output.emit(_document(found))
    else:
        _show(found)


@dataclass
class _Found:
    schema: pa.Schema
    inferred_from: str | None
    num_files: int
    num_compared: int
    differing: list[tuple[str, list[str], list[str], list[tuple[str, str]]]]


def _find(source: tuple[str, ...], options: dict[str, Any], look_at_all: bool) -> _Found:
    ds = opened(source, **options)
    inferred_from = (ds.schema.metadata or {}).get(_INFERRED_KEY)
    is_inferred = inferred_from is not None
    if is_inferred and look_at_all:
        options = {**options, "infer": "all"}
    paths = ds.paths if look_at_all else ds.paths[: _MOST_COMPARED + 1]
    schemas = [ds.schema]
    if is_inferred or len(paths) > 1:
        schemas = [opened((path,), **{**options, "columns": None}).schema for path in paths]
    union = _union(schemas, options["columns"])
    said = None if inferred_from is None else inferred_from.decode("utf-8", "replace")
    if is_inferred and look_at_all:
        said = _all_of(schemas[0], len(paths))
    differing = [
        (path, *difference)
        for path, schema in zip(paths, schemas, strict=True)
        if any(difference := _difference(schema, union))
    ]
    return _Found(union, said, len(ds.paths), len(paths), differing)


def _all_of(schema: pa.Schema, num_files: int) -> str:
    if num_files > 1:
        return f"all records of {num_files} files"
    return (schema.metadata or {}).get(_INFERRED_KEY, b"all records").decode("utf-8", "replace")


def _union(schemas: list[pa.Schema], columns: list[str] | None) -> pa.Schema:
    """Every field of any file: those of the first in its order, then those of the others."""
    import pyarrow as pa

    fields: dict[str, pa.Field] = {}
    for schema in schemas:
        for field in schema:
            known = fields.get(field.name)
            fields[field.name] = field if known is None else _wider(known, field)
    names = list(fields) if columns is None else columns
    return pa.schema([fields[name] for name in names], metadata=schemas[0].metadata)


def _wider(known: pa.Field, other: pa.Field) -> pa.Field:
    """The field that both files fit, where one is a list of the other or has no values."""
    import pyarrow as pa

    if pa.types.is_null(known.type):
        return other
    is_list = describe.is_list(other.type) and other.type.value_type == known.type
    return other if is_list else known


def _difference(
    schema: pa.Schema, union: pa.Schema
) -> tuple[list[str], list[str], list[tuple[str, str]]]:
    """What a file has otherwise: fields that it lacks, has no values of, or has of another type."""
    import pyarrow as pa

    lacking = [name for name in union.names if name not in schema.names]
    shared = [schema.field(name) for name in union.names if name in schema.names]
    other = [f for f in shared if f.type != union.field(f.name).type]
    empty = [field.name for field in other if pa.types.is_null(field.type)]
    return lacking, empty, [(f.name, str(f.type)) for f in other if not pa.types.is_null(f.type)]


def _document(found: _Found) -> dict[str, Any]:
    return {
        "inferred_from": found.inferred_from,
        "num_files": found.num_files,
        "num_files_compared": found.num_compared,
        "fields": [
            {
                "name": field.name,
                "type": str(field.type),
                "nullable": field.nullable,
                "shape": _shape(field.type),
            }
            for field in found.schema
        ],
        "files_that_differ": [
            {
                "path": path,
                "lacks": lacking,
                "has_no_values_of": empty,
                "has_otherwise": [{"name": name, "type": type_} for name, type_ in other],
            }
            for path, lacking, empty, other in found.differing
        ],
    }


def _shape(type_: pa.DataType) -> list[int] | None:
    shape = getattr(type_, "shape", None)
    return None if shape is None else [int(size) for size in shape]


def _show(found: _Found) -> None:
    shown = output.table("field", "type", "")
    for field in found.schema:
        type_ = str(field.type)
        shape = _shape(field.type)
        if shape is not None:
            type_ = f"{field.type.value_type}{shape}"
        note = "" if field.nullable else "never null"
        shown.add_row(describe.escape(field.name), describe.escape(type_), output.dim(note))
    parts: list[Any] = [shown, ""]
    said = (
        "stored in the file" if found.inferred_from is None else "told from " + found.inferred_from
    )
    if found.num_files > 1:
        said += f"; {_compared(found)}"
    parts.append(output.dim(describe.escape(said)))
    for path, lacking, empty, other in found.differing:
        words = [f"lacks {_listed(lacking)}"] if lacking else []
        words += [f"has no values of {_listed(empty)}"] if empty else []
        words += [f"has {name} as {type_}" for name, type_ in other]
        parts.append(Text(describe.escape(f"{path} " + "; ".join(words)), style="yellow"))
    output.show(*parts)


def _compared(found: _Found) -> str:
    differing = len(found.differing)
    if found.num_compared == found.num_files:
        whose = f"all {found.num_files} files have the same fields"
    else:
        whose = f"{found.num_compared} of {found.num_files} files compared: the same fields"
    return (
        whose if not differing else whose.split(" have")[0].split(":")[0] + f", {differing} differ"
    )


def _listed(names: list[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more

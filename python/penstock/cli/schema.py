"""`penstock schema`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from penstock import describe
from penstock.cli import output
from penstock.cli.on import on_option
from penstock.cli.options import json_option, misuse, opened, reading, source_argument

if TYPE_CHECKING:
    import pyarrow as pa

    import penstock as ps


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
    help="Read every record of every file, not only the first records.",
)
@click.option(
    "--tensorflow",
    is_flag=True,
    help="Print a Python module with a feature description for tf.io.parse_example.",
)
@reading(
    "format",
    "read",
    "computed",
    "columns",
    "types",
    "raw",
    "damage",
    "overlays",
    "dialect",
    "infer",
    "limits",
    "missing_shards",
)
@on_option
@json_option
def command(
    source: tuple[str, ...],
    look_at_all: bool,
    tensorflow: bool,
    on: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Show the fields of a record, and what they were inferred from.

    Parquet and Arrow files store their fields. The fields of Examples are inferred from the first
    records of each file, of up to 101 files; --all reads every record of every file. Files that
    lack a field are listed.
    """
    import penstock as ps

    if tensorflow and as_json:
        raise click.UsageError("--tensorflow and --json exclude each other")
    ds = opened(source, **options)
    with misuse():
        found = ps.schemas(ds, everything=look_at_all, on=on)
    if tensorflow:
        click.echo(_comment(found) + _module(ps.features.describe(found.schema)))
    elif as_json:
        output.emit(_document(found))
    else:
        output.show(found)


def _comment(found: ps.Schemas) -> str:
    """Return the comment above a description: fields whose type differs between files, and whether records that were
    not read may have more fields."""
    records = found.inferred_from
    lines = [line for field in found.fields if field.otherwise for line in found.gaps(field)]
    if records is not None and not found.is_whole:
        if len(found.files) < found.num_files:
            records += f" (there are {describe.count(found.num_files)})"
        lines.append(f"inferred from {records}; --all reads every record of every file")
    return "".join(f"# {describe.escape(line)}\n" for line in lines)


def _module(description: str) -> str:
    """Return a description as a Python module. A description of SequenceExamples already names its parts."""
    named = f"features = {description}" if description.startswith("{") else description
    return f"import tensorflow as tf\n\n{named}"


def _document(found: ps.Schemas) -> dict[str, Any]:
    return {
        "inferred_from": found.inferred_from,
        "num_files": found.num_files,
        "num_files_compared": len(found.files),
        "is_whole": found.is_whole,
        "fields": [
            {
                "name": presence.field.name,
                "type": str(presence.field.type),
                "nullable": presence.field.nullable,
                "shape": _shape(presence.field.type),
                "num_files": presence.num_files,
                "num_lacking": len(presence.lacking),
                "lacking": presence.lacking,
            }
            for presence in found.fields
        ],
        "files_that_differ": _differing(found),
        "files_without_records": [f.path for f in found.files if not f.has_records],
    }


def _differing(found: ps.Schemas) -> list[dict[str, Any]]:
    files: dict[str, dict[str, Any]] = {
        file.path: {
            "path": file.path, "lacks": [], "has_no_values_of": [], "has_otherwise": []
        }
        for file in found.files
    }  # fmt: skip
    for presence in found.fields:
        name = presence.field.name
        for path in presence.lacking:
            files[path]["lacks"].append(name)
        for path in presence.empty:
            files[path]["has_no_values_of"].append(name)
        for path, type_ in presence.otherwise:
            files[path]["has_otherwise"].append({"name": name, "type": str(type_)})
    kinds = ("lacks", "has_no_values_of", "has_otherwise")
    return [file for file in files.values() if any(file[kind] for kind in kinds)]


def _shape(type_: pa.DataType) -> list[int] | None:
    shape = getattr(type_, "shape", None)
    return None if shape is None else [int(size) for size in shape]

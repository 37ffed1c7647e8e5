"""`penstock fields`: a group of commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from penstock import describe, tables
from penstock.cli import output
from penstock.cli.fields_change import COMMANDS, overlay_option
from penstock.cli.options import json_option, misuse, one_or_many, reading, source_argument

if TYPE_CHECKING:
    import penstock as ps


@click.group(
    "fields",
    epilog="""\b
Examples:
  penstock fields add 'train-*.tfrecord' --from scores.parquet
  penstock fields drop train.tfrecord label
  penstock fields list 'train-*.tfrecord'
""",
)
def command() -> None:
    """Add, drop, rename and replace fields of existing records, or store new fields next to the files."""


for _command in COMMANDS:
    command.add_command(_command)


@command.command(
    "list",
    epilog="""\b
Examples:
  penstock fields list train.tfrecord
  penstock fields list 'train-*.tfrecord' --json
  penstock fields list '/shared/train-*.tfrecord' --overlays my-overlays/
""",
)
@source_argument
@reading("overlays")
@json_option
def list_overlays(
    source: tuple[str, ...],
    overlays: str | None,
    storage_options: dict[str, str] | None,
    as_json: bool,
) -> None:
    """List the changes of fields stored next to the files, oldest first, and then those in a folder.

    They are applied in this order. So if several fields have the same name, the last one is read.
    """
    import penstock as ps

    found = ps.overlays(one_or_many(source), overlays=overlays, storage_options=storage_options)
    if as_json:
        output.emit({"overlays": [_document(overlay) for overlay in found]})
    elif not found:
        click.echo("no fields are stored next to these files", err=True)
    else:
        output.show(_page(found))


@command.command(
    "remove",
    epilog="""\b
Examples:
  penstock fields remove train.tfrecord score
""",
)
@source_argument
@click.argument("name")
@overlay_option
@json_option
def remove(
    source: tuple[str, ...],
    name: str,
    overlays: str | None,
    storage_options: dict[str, str] | None,
    as_json: bool,
) -> None:
    """Remove the fields, or the change of fields, stored under NAME next to the files, or in the folder that --overlays
    names. The files do not change."""
    import penstock as ps

    with misuse():
        paths = ps.remove_overlay(
            one_or_many(source), name, overlays=overlays, storage_options=storage_options
        )
    if as_json:
        output.emit({"removed": paths})
        return
    for path in paths:
        click.echo(describe.escape(path))


def _document(overlay: ps.OverlayInfo) -> dict[str, Any]:
    return {
        "name": overlay.name,
        "sequence": overlay.sequence,
        "fields": [{"name": field.name, "type": str(field.type)} for field in overlay.fields],
        "dropped": list(overlay.dropped),
        "renamed": dict(overlay.renamed),
        "files": list(overlay.shards),
        "num_files": overlay.num_shards,
        "num_bytes": overlay.num_bytes,
        "folder": overlay.folder,
    }


def _page(found: list[ps.OverlayInfo]) -> Any:
    shown = tables.table("name", "field", "type", "files", "bytes", right=("files", "bytes"))
    for overlay in found:
        files = f"{len(overlay.shards)} of {overlay.num_shards}"
        facts = describe.escape(overlay.name), files, describe.size(overlay.num_bytes)
        rows = [(describe.escape(field.name), tables.kind(field)) for field in overlay.fields]
        rows += [(describe.escape(name), "dropped") for name in overlay.dropped]
        rows += [(describe.escape(f"{old} → {new}"), "renamed") for old, new in overlay.renamed]
        for number, row in enumerate(rows):
            name, *rest = ("", "", "") if number else facts
            shown.add_row(name, *row, *rest)
    return shown

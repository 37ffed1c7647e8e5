"""`penstock clean`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from penstock import describe, tables
from penstock.cli import output
from penstock.cli.options import json_option
from penstock.cli.stores import storage_option
from penstock.cli.words import PATH

if TYPE_CHECKING:
    import penstock as ps


@click.command(
    "clean",
    epilog="""\b
Examples:
  penstock clean data/
  penstock clean s3://bucket/train/
  penstock clean s3://bucket/train/ --older-than 0 --remove
  penstock clean --json data/
""",
)
@click.argument("folder", type=PATH)
@click.option("--remove", is_flag=True, help="Remove what is found. Without it, it is only listed.")
@click.option(
    "--older-than",
    type=click.FloatRange(min=0),
    default=24.0,
    show_default=True,
    metavar="HOURS",
    help="Only what was last written so many hours ago.",
)
@storage_option
@json_option
def command(
    folder: str,
    remove: bool,
    older_than: float,
    storage_options: dict[str, str] | None,
    as_json: bool,
) -> None:
    """List what killed processes left in FOLDER: temporary files, journals of unfinished jobs, and
    uploads to an object store that nobody ends.

    Data, indexes and stored fields are never touched, nor is a job that seems to run. Without its
    journal a killed job starts again.
    """
    import penstock as ps

    found = ps.clean(
        folder, remove=remove, older_than=older_than * 3600, storage_options=storage_options
    )
    if as_json:
        output.emit({"leftovers": [_document(left) for left in found]})
    elif not found:
        click.echo("nothing was left here", err=True)
    else:
        output.show(_page(found))
        if not remove:
            click.echo("--remove removes them", err=True)


def _document(left: ps.Left) -> dict[str, Any]:
    return {
        "path": left.path,
        "kind": left.kind,
        "num_bytes": left.num_bytes,
        "age_s": left.age_s,
        "removed": left.is_removed,
    }


def _page(found: list[ps.Left]) -> Any:
    shown = tables.table("file", "kind", "bytes", "hours", "", right=("bytes", "hours"))
    for left in found:
        size = describe.size(left.num_bytes) if left.num_bytes else ""
        state = "removed" if left.is_removed else ""
        shown.add_row(
            describe.escape(left.path), left.kind, size, f"{left.age_s / 3600:.1f}", state
        )
    return shown

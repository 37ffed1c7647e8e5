"""`penstock layout`."""

from __future__ import annotations

from typing import Any

import click

from penstock import tables
from penstock.cli import output
from penstock.cli.options import json_option, misuse, of_format, reading
from penstock.cli.words import PATH

_COLOURS = {"ok": "green", "differs": "red", "damage": "red", "unsupported": "yellow"}


@click.command(
    "layout",
    epilog="""\b
Examples:
  penstock layout train.tfrecord
  penstock layout train.tar --record 12
  penstock layout damaged.tfrecord --record 3 --json
""",
)
@click.argument("file", type=PATH)
@click.option(
    "--record", type=click.IntRange(min=0), default=0, show_default=True,
    help="The record whose parts are shown.",
)  # fmt: skip
@reading("format", "read", "limits", "storage_options")
@json_option
def command(file: str, record: int, read: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Show which bytes of a file are what.

    Lists headers, tables, footers and the parts of one record, each with its offset, its length, and its checksums as
    stored and as computed. In a damaged file it shows the bytes before and after the damage. A plus marks an offset
    that is not a position in the file, but in other bytes, such as inflated bytes. The exit status is 1 if a checksum
    differs or something is damaged.
    """
    import penstock as ps

    with misuse(has_read=bool(read)):
        try:
            given = of_format(read, "--read", ps.layout)
            found = ps.layout(file, record=record, **options, **given)
        except ps.RecordIndexError as error:
            raise click.UsageError(error.message) from None
    if as_json:
        output.emit(found.to_dict())
    else:
        for line, state in found.lines():
            click.secho(tables.printable(line), fg=_COLOURS.get(state))
    if not found.ok:
        raise click.exceptions.Exit(1)

"""`penstock layout`."""

from __future__ import annotations

from typing import Any

import click

from penstock import tables
from penstock.cli import output
from penstock.cli.options import json_option, misuse, of_format, reading

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
@click.argument("file", type=click.Path())
@click.option(
    "--record", type=click.IntRange(min=0), default=0, show_default=True,
    help="The record whose parts are shown.",
)  # fmt: skip
@reading("format", "read", "limits")
@json_option
def command(file: str, record: int, read: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Show which bytes of a file are what.

    Headers, tables, footers and the parts of one record, each with its offset and length, and its
    checksums, stored and computed. On a damaged file it shows what leads up to the damage, and
    what follows it. A plus marks an offset that counts in other bytes than the file's, such as
    those that it inflates to. The exit status is 1 if a checksum differs or something is damaged.
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

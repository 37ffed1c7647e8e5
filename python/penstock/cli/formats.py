"""`penstock formats`."""

from __future__ import annotations

import click

from penstock.cli import output
from penstock.cli.options import json_option


@click.command(
    "formats",
    epilog="""\b
Examples:
  penstock formats
  penstock formats --json
""",
)
@json_option
def command(as_json: bool) -> None:
    """List the formats, those of installed packages too, and what each can do.

    All can be read. "append": records can be added to the end of a file. "take": random access.
    "repair": what is lost around a damaged byte, a record or a chunk of records.
    """
    import penstock as ps

    found = ps.abilities()
    if as_json:
        output.emit(found.to_dict())
    else:
        output.show(found)

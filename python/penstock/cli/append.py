"""`penstock append`."""

from __future__ import annotations

from typing import Any

import click

from penstock import describe
from penstock.cli import output
from penstock.cli.options import (
    OF_RECORDS,
    json_option,
    misuse,
    of_format,
    opened,
    reading,
    source_argument,
)
from penstock.cli.stores import target_storage_option
from penstock.cli.words import PATH


@click.command(
    "append",
    epilog="""\b
Examples:
  penstock append new.parquet train.tfrecord
  penstock append 'today-*.tfrecord' 'train-*.tfrecord'
  penstock append new.tfrecord 'train@16.tfrecord' --shard last
  penstock append --json new.arrow parquet/ --option level=9
""",
)
@source_argument
@click.argument("target", type=PATH)
@click.option(
    "--shard",
    type=click.Choice(["last", "new"]),
    help="With several files: append to the end of the last file, or make a new file. "
    "[default: new; last if the names contain the number of files]",
)
@click.option(
    "--option", "more", multiple=True, metavar="NAME=VALUE", help="An option of the written format."
)
@click.option("--exact", is_flag=True, help="Refuse values that the format cannot hold exactly.")
@reading(*OF_RECORDS)
@target_storage_option
@json_option
def command(
    source: tuple[str, ...],
    target: str,
    shard: str | None,
    more: tuple[str, ...],
    exact: bool,
    threads: int | None,
    target_storage_options: dict[str, str] | None,
    as_json: bool,
    **reads: Any,
) -> None:
    """Add the records of SOURCE after the records of TARGET.

    TARGET is a TFRecord file, or a folder or pattern of several files, which get a new file. All
    records are added or none, even if the command is killed. Records whose fields or types differ
    from those of TARGET are refused.
    """
    import penstock as ps

    ds = opened(source, **reads)
    written = of_format(more, "--option", ps.append)
    with misuse():
        made = ps.append(
            ds,
            target,
            shard=shard,
            exact=exact,
            threads=threads,
            storage_options=target_storage_options,
            **written,
        )
    if as_json:
        facts = {
            "num_records": made.num_records,
            "num_bytes": made.num_bytes,
            "notes": made.notes,
        }
        output.emit({"paths": made.paths, **facts, "damage": output.damage_of(ds)})
        return
    records, size = describe.records(made.num_records), describe.size(made.num_bytes)
    where = describe.escape(made.paths[0]) if made.paths else target
    click.echo(f"{records}, {size} appended: {where}")
    output.print_notes(made)
    output.print_damage(ds)

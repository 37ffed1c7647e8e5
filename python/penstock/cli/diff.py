"""`penstock diff`."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Any

import click

from penstock.cli import output
from penstock.cli.on import on_option
from penstock.cli.options import json_option, opened, reading
from penstock.cli.words import PATH

if TYPE_CHECKING:
    pass

_MISUSE = re.compile(r"^no such (column|field)|cannot be a key; ")


@click.command(
    "diff",
    epilog="""\b
Examples:
  penstock diff old.tfrecord new.tfrecord
  penstock diff 'train-*.tfrecord' train.parquet
  penstock diff --by id --columns id,label old.parquet shuffled.parquet
  penstock diff --json old/ new/ > differences.json
  penstock diff --on ray 's3://old/*.tfrecord' 's3://new/*.parquet'
""",
)
@click.argument("a", type=PATH, metavar="A")
@click.argument("b", type=PATH, metavar="B")
@click.option("--by", metavar="NAME", help="Match records by this field, whatever their order.")
@click.option(
    "--all-keys",
    is_flag=True,
    help="With --by: list all keys that only one side has, not only the first three.",
)
@reading(
    "columns", "raw", "checksums", "damage", "index", "overlays", "limits", "threads", "dialect"
)
@reading("missing_shards", "storage_options")
@on_option
@json_option
def command(
    a: str,
    b: str,
    by: str | None,
    all_keys: bool,
    columns: list[str] | None,
    threads: int | None,
    on: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Show which fields and records of two datasets differ, by content.

    A and B are each a file, a pattern in quotes, a folder or name@N, of any formats. Records are
    compared in order, by value: an int32 equals an int64, a string equals its bytes, and null
    equals an absent field. The exit status is 0 if they are equal, 1 if they differ.
    """
    import penstock as ps

    if all_keys and by is None:
        raise click.UsageError("--all-keys needs --by NAME")
    with warnings.catch_warnings():
        # The folder may have overlays of one side only.
        warnings.filterwarnings("ignore", ".* has no overlays of these files")
        sides = [opened((source,), **options) for source in (a, b)]
    try:
        with output.progress("diff") as progress:
            found = ps.diff(
                *sides,
                columns=columns,
                by=by,
                all_keys=all_keys,
                threads=threads,
                progress=progress,
                on=on,
            )
    except ps.SchemaError as error:
        if _MISUSE.search(error.message):
            message = f"{error.field!r}: {error.message}"
            raise click.UsageError(message, click.get_current_context(silent=True)) from None
        raise
    if as_json:
        damage = [region for ds in sides for region in output.damage_of(ds)]
        output.emit({**found.to_dict(), "damage": damage})
    else:
        output.show(found)
        for ds in sides:
            output.print_damage(ds)
    if not found.equal:
        raise click.exceptions.Exit(1)

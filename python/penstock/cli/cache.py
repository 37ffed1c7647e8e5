"""`penstock cache`."""

from __future__ import annotations

import time

import click

from penstock.cli import output
from penstock.cli.options import json_option
from penstock.cli.words import PATH


@click.command(
    "cache",
    epilog="""\b
Examples:
  penstock cache
  penstock cache /local/disk/blocks
  penstock cache /local/disk/blocks --clear
""",
)
@click.argument("folder", required=False, type=PATH)
@click.option("--clear", is_flag=True, help="Remove all blocks.")
@json_option
def command(folder: str | None, clear: bool, as_json: bool) -> None:
    """Show what FOLDER keeps of objects in stores, or clear it.

    FOLDER is what `cache=` of `penstock.open` names. Without it, the folder of `penstock.Cache()` is
    shown, which is in your cache. Processes that read may go on while it is cleared.
    """
    import penstock as ps

    cache = ps.Cache(folder)
    freed = cache.clear() if clear else None
    usage = cache.usage()
    if as_json:
        output.emit({**usage.to_dict(), "freed_bytes": freed})
        return
    if freed is not None:
        click.echo(f"removed {ps.describe.size(freed)} from {ps.describe.escape(cache.folder)}")
        return
    facts = [
        ("folder", ps.describe.escape(cache.folder)),
        ("blocks", ps.describe.count(usage.num_blocks)),
        ("size", ps.describe.size(usage.num_bytes)),
    ]
    output.show(ps.tables.facts(facts))
    if not usage.folders:
        return
    right = ("objects", "blocks", "size")
    table = ps.tables.table("from", *right, "last used", right=right)
    for one in usage.folders:
        used = time.localtime(one.used_ns / 1e9)
        table.add_row(
            ps.describe.escape(one.address),
            ps.describe.count(one.num_objects),
            ps.describe.count(one.num_blocks),
            ps.describe.size(one.num_bytes),
            time.strftime("%Y-%m-%d %H:%M", used),
        )
    output.show("", table)

"""`penstock dedupe`."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli import output
from penstock.cli.options import NAMES, json_option, misuse, source_argument, where_option
from penstock.cli.writing import datasets_of, into_option, source_of, writing, written_as


@click.command(
    "dedupe",
    epilog="""\b
Examples:
  penstock dedupe 'train-*.tfrecord' --into unique.tfrecord
  penstock dedupe crawl.parquet --by url --where 'text is not null' --into unique.parquet
  penstock dedupe 'train-*.tfrecord' --by image --into unique.tfrecord --num-shards 8
""",
)
@source_argument
@where_option
@into_option
@click.option(
    "--by",
    type=NAMES,
    metavar="NAME,…",
    help="Fields to compare, or paths such as json.url. [default: all]",
)
@writing()
@json_option
def command(
    source: tuple[str, ...], into: str, by: list[str] | None, as_json: bool, **options: Any
) -> None:
    """Write the records of SOURCE without duplicates. The first of equal records is kept."""
    import penstock as ps

    columns = options.pop("columns")  # the others may decide, too
    data = source_of(source, options, options.pop("where"))
    pairs = written_as(options)
    with output.progress("dedupe") as progress, misuse(named=(*(by or ()), *(columns or ()))):
        made = ps.dedupe(data, by, into=into, columns=columns, progress=progress, **pairs)
    output.show_summary(made, as_json, datasets_of(data))

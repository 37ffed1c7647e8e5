"""`penstock sort`."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli import output
from penstock.cli.options import NAMES, json_option, misuse, source_argument, where_option
from penstock.cli.writing import datasets_of, into_option, source_of, writing, written_as


@click.command(
    "sort",
    epilog="""\b
Examples:
  penstock sort 'train-*.tfrecord' --by id --into sorted.tfrecord
  penstock sort steps.parquet --by episode,step --into sorted.parquet --num-shards 4
  penstock sort train.arrow --by score --descending --where 'score is not null' --into best-first.arrow
""",
)
@source_argument
@where_option
@into_option
@click.option(
    "--by",
    type=NAMES,
    required=True,
    metavar="NAME,…",
    help="The field to sort by, or a path such as json.url; a second field orders records with equal values in the first, and so on.",
)
@click.option("--descending", is_flag=True, help="The largest values first.")
@writing()
@json_option
def command(
    source: tuple[str, ...], into: str, by: list[str], as_json: bool, **options: Any
) -> None:
    """Write the records of SOURCE sorted by a field. Records with equal values keep their order.

    NaN comes after all numbers, and null last, in either direction.
    """
    import penstock as ps

    columns = options.pop("columns")  # the others may decide, too
    data = source_of(source, options, options.pop("where"))
    pairs = written_as(options)
    with output.progress("sort") as progress, misuse(named=(*by, *(columns or ()))):
        made = ps.sort(data, by, into=into, columns=columns, progress=progress, **pairs)
    output.show_summary(made, as_json, datasets_of(data))

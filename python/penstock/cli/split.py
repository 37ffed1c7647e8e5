"""`penstock split`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from penstock import describe
from penstock.cli import output
from penstock.cli.options import NAMES, json_option, misuse, pairs_of, source_argument, where_option
from penstock.cli.words import PATH
from penstock.cli.writing import datasets_of, source_of, writing, written_as

if TYPE_CHECKING:
    import penstock as ps


@click.command(
    "split",
    epilog="""\b
Examples:
  penstock split data.tfrecord --into 'out/{split}.tfrecord' --shares train=0.9,val=0.1
  penstock split 'in-*.tfrecord' --into 'out/{split}-{shard}.tfrecord' --num-shards 8
  penstock split users.parquet --into '{split}.parquet' --by user --where 'user is not null'
  penstock split images.tar --into '{split}.tar' --stratify cls --shares train=0.7,test=0.3
""",
)
@source_argument
@where_option
@click.option(
    "--into",
    required=True,
    type=PATH,
    help="The name of the files, with {split} in it; {shard:05d} is the file's number.",
)
@click.option(
    "--shares",
    type=NAMES,
    default="train=0.8,val=0.1,test=0.1",
    show_default=True,
    metavar="NAME=PART,…",
    help="The share of the records that each split gets.",
)
@click.option(
    "--by",
    type=NAMES,
    metavar="NAME,…",
    help="Choose splits by the values of these fields: records with equal values stay together, "
    "even if more records are added later.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Another seed makes other splits.",
)
@click.option(
    "--stratify",
    metavar="NAME",
    help="Divide the records of each value of this field by the shares.",
)
@writing(shard_bytes=False)
@json_option
def command(
    source: tuple[str, ...],
    into: str,
    shares: list[str],
    by: list[str] | None,
    stratify: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Divide the records of SOURCE into files for training, validation and test.

    The same command makes the same files. Sizes are exact, except with --by. `penstock.open(folder,
    split="train")` opens the files of one split.
    """
    import penstock as ps

    parts = _parts_of(shares)
    columns = options.pop("columns")  # the others may decide, too
    data = source_of(source, options, options.pop("where"))
    pairs = written_as(options)
    with (
        output.progress("split") as progress,
        misuse(named={*(by or ()), stratify or "", *(columns or ())}),
    ):
        made = ps.write_splits(
            data, into, parts, by=by, stratify=stratify, columns=columns, progress=progress, **pairs
        )
    if as_json:
        damage = [region for ds in datasets_of(data) for region in output.damage_of(ds)]
        splits = {name: _document(part) for name, part in made.items()}
        output.emit({"splits": splits, "damage": damage})
        return
    for name, part in made.items():
        click.echo(f"{describe.escape(name)}: {part.line()}")
    notes = dict.fromkeys(note for part in made.values() for note in part.notes)
    output.print_notes(replace(next(iter(made.values())), notes=tuple(notes)))
    for ds in datasets_of(data):
        output.print_damage(ds)


def _parts_of(shares: list[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, text in pairs_of(shares, "--shares").items():
        try:
            found[name] = float(text)
        except ValueError:
            raise click.UsageError(f"--shares: {text!r} is not a fraction such as 0.1") from None
    return found


def _document(part: ps.Summary) -> dict[str, Any]:
    return {
        "paths": part.paths,
        "num_records": part.num_records,
        "num_bytes": part.num_bytes,
        "notes": part.notes,
    }

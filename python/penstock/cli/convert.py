"""`penstock convert`."""

from __future__ import annotations

import re
from itertools import chain
from typing import Any

import click

from penstock import describe
from penstock.cli import output
from penstock.cli.options import (
    NAMES,
    json_option,
    misuse,
    one_or_many,
    opened,
    pairs_of,
    reading,
    source_argument,
    values_of,
)

_READING_DEFAULTS = {
    "format": None,
    "read": (),
    "raw": False,
    "checksums": "all",
    "damage": "error",
    "index": "auto",
    "limits": None,
    "dialect": "protobuf",
    "infer": None,
}


@click.command(
    "convert",
    epilog="""\b
Examples:
  penstock convert train.tfrecord train.parquet
  penstock convert 'train-*.tfrecord' train.tfrecord.gz --num-shards 16
  penstock convert train.parquet train.tfrecord --columns image,label --prove
  penstock convert 'train-*.tfrecord' parquet/ --to parquet --option level=9
  penstock convert train.parquet some.arrow --where 'label >= 3' --sample 0.1
  penstock convert --json train.arrow train.tfrecord --shuffle 7 --overwrite
""",
)
@source_argument
@click.argument("target", type=click.Path())
@click.option("--to", help="Format to write. [default: told by the name of TARGET]")
@click.option("--rename", type=NAMES, metavar="OLD=NEW,…", help="New names of fields.")
@click.option(
    "--where",
    metavar="CONDITION",
    help="Only records for which it is true: 'label >= 3 and len(name) < 9'.",
)
@click.option("--sample", metavar="PART|N", help="Only a part of them (0.1), or so many (1000).")
@click.option("--seed", type=int, default=0, show_default=True, help="Of --sample.")
@click.option(
    "--shuffle", type=int, metavar="SEED", help="Write the records in an order of its own."
)
@click.option(
    "--images", type=NAMES, metavar="NAME,…", help="Fields that hold images. [default: found]"
)
@click.option(
    "--image-mode",
    metavar="MODE",
    help="Encode images as jpg, png, webp or raw; beton: also smart.",
)
@click.option("--max-side", type=click.IntRange(min=1), help="Make images at most so many pixels.")
@click.option("--jpeg-quality", type=click.IntRange(1, 100), help="Of images that are encoded.")
@click.option("--prove", is_flag=True, help="Read the result again and compare every value.")
@click.option("--compression", help="As the format knows it, such as gzip or zstd.")
@click.option(
    "--num-shards", type=click.IntRange(min=1), help="Write so many files of equal length."
)
@click.option(
    "--shard-records", type=click.IntRange(min=1), help="End each file after so many records."
)
@click.option(
    "--shard-bytes", type=click.IntRange(min=1), help="End each file at about so many bytes."
)
@click.option(
    "--option", "more", multiple=True, metavar="NAME=VALUE", help="An option of the written format."
)
@click.option("--overwrite", is_flag=True, help="Replace files that exist.")
@click.option("--exact", is_flag=True, help="Refuse values that the format cannot hold exactly.")
@reading("format", "read", "columns", "raw", "checksums", "damage", "index")
@reading("limits", "threads", "dialect", "infer")
@json_option
def command(
    source: tuple[str, ...],
    target: str,
    to: str | None,
    rename: list[str] | None,
    more: tuple[str, ...],
    sample: str | None,
    columns: list[str] | None,
    threads: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Write the records of SOURCE to TARGET in another format, compression or number of files.

    Files appear under their names when all are whole; a conversion that was killed goes on when it
    is called again. With several files x.tfrecord becomes x-00000-of-00010.tfrecord and so on; a
    name with {shard} is taken as it is written, and a folder gets one file for each of SOURCE.
    """
    import penstock as ps

    words = ("images", "image_mode", "max_side", "jpeg_quality")
    image_options = {word: options.pop(word) for word in words}
    reads = {word: options.pop(word) for word in _READING_DEFAULTS}
    renamed = pairs_of(rename or [], "--rename")
    pairs: dict[str, Any] = {**options, "columns": columns, "rename": renamed}
    pairs["sample"] = _sample(sample)
    # What is not asked for is left to the format written.
    pairs |= {word: value for word, value in image_options.items() if value is not None}
    written = values_of(more, "--option")
    if "compression" in written:
        pairs["compression"] = written.pop("compression")  # names of files go by it
    # Where nothing asks for more, payloads may pass from TFRecord to TFRecord without being parsed.
    ds = None if reads == _READING_DEFAULTS else opened(source, **reads)
    words_of_where = re.findall(r"`([^`]+)`|([^\W\d]\w*)", options["where"] or "")
    named = {*(columns or ()), *renamed, *renamed.values(), *chain(*words_of_where)}
    with output.progress("convert") as progress, misuse(named=named):
        made = ps.convert(
            one_or_many(source) if ds is None else ds,
            target,
            format=to,
            threads=threads,
            progress=progress,
            write_options=written,
            **pairs,
        )
    if as_json:
        damage = [] if ds is None else output.damage_of(ds)
        facts = {"num_records": made.num_records, "num_bytes": made.num_bytes}
        facts |= {"notes": made.notes, "damage": damage}
        output.emit({"paths": made.paths, **facts})
        return
    records, size = describe.records(made.num_records), describe.size(made.num_bytes)
    where = made.paths[0] if len(made.paths) == 1 else f"{len(made.paths)} files, {made.paths[0]} …"
    click.echo(f"{records}, {size}: {describe.escape(where)}")
    output.tell_notes(made)
    if ds is not None:
        output.note_damage(ds)


def _sample(text: str | None) -> float | None:
    """A part is written with a point."""
    if text is None:
        return None
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither a part of 1 nor a number") from None

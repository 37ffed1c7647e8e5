"""`penstock convert`."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli import output
from penstock.cli.on import on_option
from penstock.cli.options import (
    NAMES,
    OF_RECORDS,
    json_option,
    misuse,
    names_in,
    pairs_of,
    reading,
    source_argument,
    values_of,
    where_option,
)
from penstock.cli.stores import target_storage_option
from penstock.cli.words import PATH, SIZE
from penstock.cli.writing import all_but, datasets_of, source_of


@click.command(
    "convert",
    epilog="""\b
Examples:
  penstock convert train.tfrecord train.parquet
  penstock convert 'train-*.tfrecord' train.tfrecord.gz --num-shards 16
  penstock convert train.parquet train.tfrecord --columns image,label --prove
  penstock convert 'train-*.tfrecord' parquet/ --to parquet --option level=9
  penstock convert train.parquet smaller.parquet --drop debug,thumbnail
  penstock convert train.parquet some.arrow --where 'label >= 3' --sample 0.1
  penstock convert train.arrow val.arrow --sample 0.1
  penstock convert train.arrow rest.arrow --sample-rest 0.1
  penstock convert 'part-*.tfrecord' all.tfrecord --num-shards 8
  penstock convert all.parquet 'out/lang={lang}/{shard}.parquet'
  penstock convert 'train-*.tar' s3://bucket/train.parquet --num-shards 8
  penstock convert --json train.arrow train.tfrecord --shuffle 7 --overwrite
""",
)
@source_argument
@click.argument("target", type=PATH)
@click.option("--to", help="Format to write. [default: from the name of TARGET]")
@click.option("--rename", type=NAMES, metavar="OLD=NEW,…", help="Rename fields.")
@click.option("--drop", type=NAMES, metavar="NAME,…", help="Write all fields but these.")
@click.option(
    "--key", metavar="NAME", help="In tars: the field whose values are the records' keys."
)
@where_option
@click.option(
    "--sample",
    metavar="PART|N",
    help="Only a fraction of the records (0.1), or a number of them (1000).",
)
@click.option(
    "--sample-rest",
    metavar="PART|N",
    help="Only the records that --sample with the same value would leave out.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of both samples.")
@click.option("--shuffle", type=int, metavar="SEED", help="Write the records in random order.")
@click.option(
    "--images", type=NAMES, metavar="NAME,…", help="Fields that hold images. [default: detected]"
)
@click.option(
    "--masks",
    type=NAMES,
    metavar="NAME,…",
    help="Fields of images whose pixels are class numbers: shrunk without mixing pixels, kept PNG.",
)
@click.option(
    "--image-mode",
    metavar="MODE",
    help="Encode images as jpg, png, webp or raw; beton: also smart.",
)
@click.option(
    "--max-side",
    type=click.IntRange(min=1),
    help="Shrink images to at most this many pixels per side.",
)
@click.option("--jpeg-quality", type=click.IntRange(1, 100), help="Quality of encoded JPEGs.")
@click.option("--prove", is_flag=True, help="Read the result again and compare every value.")
@click.option("--compression", help="A compression of the format, such as gzip or zstd.")
@click.option("--num-shards", type=click.IntRange(min=1), help="Number of files, of equal length.")
@click.option("--shard-records", type=click.IntRange(min=1), help="Records per file.")
@click.option(
    "--shard-bytes", type=SIZE, help="Bytes per file, approximately, such as 3000000 or 64MiB."
)
@click.option(
    "--option", "more", multiple=True, metavar="NAME=VALUE", help="An option of the written format."
)
@click.option("--overwrite", is_flag=True, help="Replace files that exist.")
@click.option(
    "--manifest", type=PATH, metavar="MANIFEST", help="Write a manifest of the files, last of all."
)
@click.option("--exact", is_flag=True, help="Refuse values that the format cannot hold exactly.")
@reading(*OF_RECORDS)
@target_storage_option
@on_option
@json_option
def command(
    source: tuple[str, ...],
    target: str,
    to: str | None,
    rename: list[str] | None,
    drop: list[str] | None,
    more: tuple[str, ...],
    sample: str | None,
    sample_rest: str | None,
    text: list[str] | None,
    key: str | None,
    columns: list[str] | None,
    threads: int | None,
    target_storage_options: dict[str, str] | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Write the records of SOURCE to TARGET in another format, compression or number of files.

    It joins files (SOURCE may be several), divides them (--num-shards), samples, filters and shuffles.

    Files get their names when all of them are complete, in an object store each when it is complete.
    If a conversion was killed, repeat the
    command to resume it. Several files are named x-00000-of-00010.tfrecord and so on. {shard:05d} in
    a name is replaced by the file's number, and {NAME} by the values of a field: each value gets
    its own files. A folder gets one file for each file of SOURCE.
    """
    import penstock as ps

    words = ("images", "masks", "image_mode", "max_side", "jpeg_quality")
    image_options = {word: options.pop(word) for word in words}
    data = source_of(source, options)
    if drop is not None:
        columns = all_but(drop, columns, data, options.get("storage_options"))
    renamed = pairs_of(rename or [], "--rename")
    pairs: dict[str, Any] = {**options, "columns": columns, "rename": renamed}
    pairs |= {"sample": _sample(sample), "sample_rest": _sample(sample_rest)}
    pairs["text"] = "auto" if text == ["auto"] else text
    # Options that are not given keep the defaults of the written format.
    pairs |= {word: value for word, value in image_options.items() if value is not None}
    written = values_of(more, "--option")
    if "compression" in written:
        pairs["compression"] = written.pop("compression")  # it decides the names of files
    if key is not None:
        written["key"] = key
    named = {
        *(columns or ()),
        *(text or ()),
        *([] if key is None else [key]),
        *renamed,
        *renamed.values(),
        *names_in(options["where"]),
    }
    with output.progress("convert") as progress, misuse(named=named):
        made = ps.convert(
            data,
            target,
            format=to,
            threads=threads,
            progress=progress,
            write_options=written,
            target_storage_options=target_storage_options,
            **pairs,
        )
    output.show_summary(made, as_json, datasets_of(data))


def _sample(text: str | None) -> float | None:
    """Return a number with a point as a fraction, and any other number as a count."""
    if text is None:
        return None
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither a fraction nor a number") from None

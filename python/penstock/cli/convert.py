"""`penstock convert`."""

from __future__ import annotations

from typing import Any

import click

from penstock import describe
from penstock.cli import output
from penstock.cli.options import json_option, misuse, opened, reading, source_argument


@click.command(
    "convert",
    epilog="""\b
Examples:
  penstock convert train.tfrecord train.parquet
  penstock convert 'train-*.tfrecord' train.tfrecord.gz --num-shards 16
  penstock convert train.parquet train.tfrecord --columns image,label
  penstock convert --json train.arrow train.tfrecord --overwrite
""",
)
@source_argument
@click.argument("target", type=click.Path())
@click.option("--to", help="Format to write. [default: told by the name of TARGET]")
@click.option("--compression", help="As the format knows it, such as gzip or zstd.")
@click.option("--num-shards", type=click.IntRange(min=1), help="Write so many files of equal length.")
@click.option("--shard-records", type=click.IntRange(min=1), help="End each file after so many records.")
@click.option("--shard-bytes", type=click.IntRange(min=1), help="End each file at about so many bytes.")
@click.option("--overwrite", is_flag=True, help="Replace files that exist.")
@reading("format", "columns", "raw", "checksums", "damage", "index", "threads", "dialect", "infer")
@json_option
def command(
    source: tuple[str, ...], target: str, to: str | None, as_json: bool, **options: Any
) -> None:
    """Write the records of SOURCE to TARGET in another format, compression or number of files.

    A file appears under its name when it is whole. With several files x.tfrecord becomes
    x-00000-of-00010.tfrecord and so on; a name with {shard} is taken as it is written.
    """
    import penstock as ps

    writing = ("compression", "num_shards", "shard_records", "shard_bytes", "overwrite")
    given = {word: options.pop(word) for word in writing}
    threads = options["threads"]
    ds = opened(source, **options)
    with output.progress("convert") as progress, misuse():
        made = ps.convert(ds, target, format=to, threads=threads, progress=progress, **given)
    if as_json:
        document = {
            "paths": made.paths,
            "num_records": made.num_records,
            "num_bytes": made.num_bytes,
            "damage": output.damage_of(ds),
        }
        output.emit(document)
        return
    records, size = describe.count(made.num_records), describe.size(made.num_bytes)
    where = made.paths[0] if len(made.paths) == 1 else f"{len(made.paths)} files, {made.paths[0]} …"
    click.echo(f"{records} records, {size}: {describe.escape(where)}")
    output.note_damage(ds)

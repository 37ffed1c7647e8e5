"""`penstock index`."""

from __future__ import annotations

import click

from penstock import describe
from penstock.cli import output
from penstock.cli.on import on_option
from penstock.cli.options import (
    json_option,
    misuse,
    of_format,
    one_or_many,
    reading,
    source_argument,
)
from penstock.cli.words import PATH


@click.command(
    "index",
    epilog="""\b
Examples:
  penstock index 'train-*.tfrecord'
  penstock index --folder ~/indexes 'train-*.tfrecord'
  penstock index --text train.tfrecord
  penstock index --checksums train.npy
""",
)
@source_argument
@click.option(
    "--checksums",
    is_flag=True,
    help="Also store a checksum of each MiB, for formats that store none; verify compares them.",
)
@click.option(
    "--folder",
    type=PATH,
    help="Store the indexes in this folder. [default: next to the data]",
)
@click.option(
    "--text",
    is_flag=True,
    help="Also write the text index of DALI (FILE.idx) or MXNet (x.idx for x.rec).",
)
@click.option(
    "--from-text",
    is_flag=True,
    help="Compare that text index with the file, and fail if they do not match.",
)
@click.option("--force", is_flag=True, help="Also rebuild valid indexes.")
@reading("read", "threads")
@on_option
@json_option
def command(
    source: tuple[str, ...],
    checksums: bool,
    folder: str | None,
    text: bool,
    from_text: bool,
    force: bool,
    read: tuple[str, ...],
    threads: int | None,
    on: str | None,
    storage_options: dict[str, str] | None,
    as_json: bool,
) -> None:
    """Build missing and invalid indexes, for random access.

    `penstock.open` does the same when it needs an index; this command does it beforehand. Parquet
    and Arrow files contain the positions of their records, and need no index.
    """
    import penstock as ps

    with output.progress("index") as progress, misuse(has_read=bool(read)):
        paths = ps.index(
            one_or_many(source),
            checksums=checksums,
            folder=folder,
            text=text,
            from_text=from_text,
            force=force,
            threads=threads,
            progress=progress,
            on=on,
            storage_options=storage_options,
            **of_format(read, "--read", ps.index),
        )
    if as_json:
        output.emit({"paths": paths})
        return
    for path in paths:
        click.echo(describe.escape(path))
    if not paths:
        click.echo(
            "these files need no index: they contain the positions of their records", err=True
        )

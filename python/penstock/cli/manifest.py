"""`penstock manifest`."""

from __future__ import annotations

import click

from penstock.cli import output
from penstock.cli.on import on_option
from penstock.cli.options import (
    json_option,
    misuse,
    one_or_many,
    reading,
    source_argument,
)
from penstock.cli.stores import target_storage_option
from penstock.cli.words import PATH


@click.command(
    "manifest",
    epilog="""\b
Examples:
  penstock manifest 's3://bucket/train-*.tar' -o s3://bucket/train.manifest
  penstock manifest 'train-*.tfrecord' -o train.manifest     again: adds new shards
  penstock manifest train.manifest --verify
  penstock manifest train.manifest --refresh
""",
)
@source_argument
@click.option(
    "-o",
    "--output",
    "target",
    type=PATH,
    metavar="MANIFEST",
    help="The manifest to write. If it is there, new shards are added, changed ones are read again, "
    "and those that are gone are left out.",
)
@click.option("--verify", is_flag=True, help="Compare the states of all shards with the manifest.")
@click.option("--refresh", is_flag=True, help="Bring the manifest SOURCE up to date.")
@click.option("--overwrite", is_flag=True, help="Make it anew, and replace any other file.")
@reading("threads")
@on_option
@target_storage_option
@json_option
def command(
    source: tuple[str, ...],
    target: str | None,
    verify: bool,
    refresh: bool,
    overwrite: bool,
    threads: int | None,
    on: str | None,
    as_json: bool,
    storage_options: dict[str, str] | None,
    target_storage_options: dict[str, str] | None,
) -> None:
    """List the shards of a dataset in one file, with sizes, states and record counts.

    Opening it (`penstock info train.manifest`, `penstock.open("train.manifest")`) lists nothing, and
    asks for no shard before it is read. A shard that changed since is an error.
    """
    import penstock as ps

    first, *others = source
    if bool(target) + verify + refresh != 1:
        raise click.UsageError("give one of -o MANIFEST, --verify and --refresh")
    if others and not target:
        raise click.UsageError("--verify and --refresh take one manifest")
    with output.progress("manifest") as progress, misuse():
        if verify:
            if on is not None:
                raise click.UsageError("--verify reads no data, and takes no --on")
            report = ps.verify_manifest(first, threads=threads, storage_options=storage_options)
            output.emit(report.to_dict()) if as_json else output.show(report)
            if not report.ok:
                raise click.exceptions.Exit(1)
            return
        done = ps.manifest(
            one_or_many(source),
            target or first,
            overwrite=overwrite,
            threads=threads,
            progress=progress,
            on=on,
            storage_options=storage_options,
            target_storage_options=storage_options if refresh else target_storage_options,
        )
    output.show_summary(done, as_json)

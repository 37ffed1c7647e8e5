"""`penstock repair`."""

from __future__ import annotations

from typing import Any

import click

from penstock import describe
from penstock.cli import output
from penstock.cli.options import json_option, misuse, one_or_many, reading, source_argument
from penstock.cli.verify import show_report


@click.command(
    "repair",
    epilog="""\b
Examples:
  penstock repair damaged.tfrecord --into repaired.tfrecord
  penstock repair 'train-*.tfrecord' --into repaired/
  penstock repair --in-place train/
  penstock repair --json damaged.tfrecord --into repaired.tfrecord
""",
)
@source_argument
@click.option("--into", type=click.Path(), help="A file for one file, a folder for several.")
@click.option(
    "--in-place", is_flag=True, help="Replace damaged files, each when its repair is whole."
)
@click.option("--overwrite", is_flag=True, help="Replace files that exist under --into.")
@click.option(
    "--salvage", is_flag=True, help="Also keep what may be the contents of larger, broken records."
)
@click.option(
    "--no-payloads",
    is_flag=True,
    help="Keep records that cannot be decoded, if their frames are right.",
)
@reading("format", "limits", "threads")
@json_option
def command(
    source: tuple[str, ...],
    into: str | None,
    in_place: bool,
    overwrite: bool,
    salvage: bool,
    no_payloads: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Copy everything that is whole out of damaged files.

    Payloads are copied as they are. A record whose head alone is damaged is restored where its
    payload is proved right; one whose contents cannot be decoded is left out. Exit status 0 when there was something to keep,
    whatever had to be left out: the report names it.
    """
    import penstock as ps

    if (into is None) == (not in_place):
        raise click.UsageError("one of --into and --in-place is needed, and not both")
    target: dict[str, Any] = {"in_place": True} if in_place else {"into": into}
    with output.progress("repair") as progress, misuse():
        report = ps.repair(
            one_or_many(source),
            **target,
            overwrite=overwrite,
            salvage=salvage,
            payloads=not no_payloads,
            progress=progress,
            **options,
        )
    if as_json:
        output.emit(report.to_dict())
    else:
        show_report(report, "kept")
        click.echo("")
        for path in report.paths:
            click.echo("wrote " + describe.escape(path))
    if not report.ok and not report.num_records:
        raise click.exceptions.Exit(1)

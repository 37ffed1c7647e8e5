"""`penstock repair`."""

from __future__ import annotations

from typing import Any

import click

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
from penstock.cli.stores import target_storage_option
from penstock.cli.words import PATH


@click.command(
    "repair",
    epilog="""\b
Examples:
  penstock repair damaged.tfrecord --into repaired.tfrecord
  penstock repair 'train-*.tfrecord' --into repaired/
  penstock repair --in-place train/
  penstock repair --decode photos.tar --into whole.tar
  penstock repair --json damaged.tfrecord --into repaired.tfrecord
""",
)
@source_argument
@click.option("--into", type=PATH, help="A file for one file, a folder for several.")
@click.option(
    "--in-place", is_flag=True, help="Replace damaged files, each when its repair is complete."
)
@click.option("--overwrite", is_flag=True, help="Replace files that exist under --into.")
@click.option(
    "--salvage", is_flag=True, help="Also keep records that may be part of larger, broken records."
)
@click.option(
    "--no-payloads",
    is_flag=True,
    help="Keep records that cannot be decoded if their frames are intact.",
)
@click.option(
    "--decode",
    is_flag=True,
    help="Also decode every picture, and leave out records whose pictures are damaged.",
)
@click.option(
    "--overlays/--no-overlays",
    default=True,
    help="Refuse files next to which fields are stored, or repair them without these fields. [default: refuse]",
)
@reading("format", "read", "limits", "threads")
@on_option
@target_storage_option
@json_option
def command(
    source: tuple[str, ...],
    into: str | None,
    in_place: bool,
    overwrite: bool,
    salvage: bool,
    no_payloads: bool,
    decode: bool,
    read: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Copy all intact records out of damaged files.

    Payloads are copied unchanged. If only the header of a record is damaged and the checksum of its payload is right,
    the record is restored. Records that cannot be decoded are left out. The exit status is 1 if nothing could be saved of
    a file, which then has no new file, or of all files. The report lists what was left out.
    """
    import penstock as ps

    if (into is None) == (not in_place):
        raise click.UsageError("give either --into or --in-place")
    target: dict[str, Any] = {"in_place": True} if in_place else {"into": into}
    with output.progress("repair") as progress, misuse(has_read=bool(read)):
        report = ps.repair(
            one_or_many(source),
            **target,
            overwrite=overwrite,
            salvage=salvage,
            payloads=not no_payloads,
            decode=decode,
            progress=progress,
            **options,
            **of_format(read, "--read", ps.repair),
        )
    if as_json:
        output.emit(report.to_dict())
    else:
        output.show(report)
    if report.unwritten or not (report.ok or report.num_records):
        raise click.exceptions.Exit(1)

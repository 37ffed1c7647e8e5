"""`penstock verify`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from penstock import describe, errors
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

if TYPE_CHECKING:
    import penstock as ps


@click.command(
    "verify",
    epilog="""\b
Examples:
  penstock verify train.tfrecord
  penstock verify --no-payloads 'train-*.tfrecord'
  penstock verify --decode photos/
  penstock verify --json train.tfrecord.gz > report.json
""",
)
@source_argument
@click.option(
    "--no-payloads",
    is_flag=True,
    help="Do not decode the records to check their contents.",
)
@click.option("--decode", is_flag=True, help="Also decode every picture completely.")
@reading("format", "read", "index", "limits", "threads")
@on_option
@json_option
def command(
    source: tuple[str, ...],
    no_payloads: bool,
    decode: bool,
    format: str | None,
    read: tuple[str, ...],
    index: str,
    limits: dict[str, int] | None,
    threads: int | None,
    on: str | None,
    storage_options: dict[str, str] | None,
    as_json: bool,
) -> None:
    """Check every byte that has a checksum, and report every problem.

    Reading continues after damage, so the list is complete. It includes problems that TensorFlow
    silently ignores. The exit status is 1 if there is any problem.
    """
    import penstock as ps

    with output.progress("verify") as progress, misuse(has_read=bool(read)):
        report = ps.verify(
            one_or_many(source),
            format=format,
            payloads=not no_payloads,
            decode=decode,
            index=index,
            limits=limits,
            threads=threads,
            progress=progress,
            on=on,
            storage_options=storage_options,
            **of_format(read, "--read", ps.verify),
        )
    if as_json:
        output.emit(report.to_dict())
    else:
        output.show(report)
        files = sorted({_shard_of(f, report.paths) for f in report.findings if _is_repairable(f)})
        # Without a readable record, repair would write empty files.
        if files and report.num_records:
            path = files[0]
            ending = path.rsplit("/", 1)[-1].partition(".")[2]
            into = f"repaired.{ending}" if ending and len(files) == 1 else "repaired/"
            name = path if len(files) == 1 else "FILE..."
            has_pictures = any(finding.kind == "picture" for finding in report.findings)
            how = ["--decode"] if has_pictures else []
            advice = errors.command("penstock", "repair", *how, name, "--into", into)
            click.echo(f"\ntry: {describe.escape(advice)}")
    if not report.ok:
        raise click.exceptions.Exit(1)


def _is_repairable(finding: ps.Finding) -> bool:
    others = ("unchecked", "unsupported", "schema", "overlay", "stale_overlay")
    return finding.severity == "error" and finding.kind not in others


def _shard_of(finding: ps.Finding, paths: Sequence[str]) -> str:
    """Return the path that was read: the finding's file, or the folder that contains the file."""
    inside = (path for path in paths if finding.file.startswith(path.rstrip("/") + "/"))
    return finding.file if finding.file in paths else next(inside, finding.file)

"""`penstock verify`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from penstock import describe, errors
from penstock.cli import output
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

_MOST_FINDINGS = 50


@click.command(
    "verify",
    epilog="""\b
Examples:
  penstock verify train.tfrecord
  penstock verify --no-payloads 'train-*.tfrecord'
  penstock verify --json train.tfrecord.gz > report.json
""",
)
@source_argument
@click.option(
    "--no-payloads",
    is_flag=True,
    help="Do not decode the records to check their contents.",
)
@reading("format", "read", "index", "limits", "threads")
@json_option
def command(
    source: tuple[str, ...],
    no_payloads: bool,
    format: str | None,
    read: tuple[str, ...],
    index: str,
    limits: dict[str, int] | None,
    threads: int | None,
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
            index=index,
            limits=limits,
            threads=threads,
            progress=progress,
            **of_format(read, "--read", ps.verify),
        )
    if as_json:
        output.emit(report.to_dict())
    else:
        show_report(report, "intact")
        files = sorted({_shard_of(f, report.paths) for f in report.findings if _is_repairable(f)})
        # Without a readable record, repair would write empty files.
        if files and report.num_records:
            path = files[0]
            ending = path.rsplit("/", 1)[-1].partition(".")[2]
            into = f"repaired.{ending}" if ending and len(files) == 1 else "repaired/"
            name = path if len(files) == 1 else "FILE..."
            advice = errors.command("penstock", "repair", name, "--into", into)
            click.echo(f"\ntry: {describe.escape(advice)}")
    if not report.ok:
        raise click.exceptions.Exit(1)


def _is_repairable(finding: ps.Finding) -> bool:
    others = ("unsupported", "schema", "overlay", "stale_overlay")
    return finding.severity == "error" and finding.kind not in others


def _shard_of(finding: ps.Finding, paths: Sequence[str]) -> str:
    """Return the path that was read: the finding's file, or the folder that contains the file."""
    inside = (path for path in paths if finding.file.startswith(path.rstrip("/") + "/"))
    return finding.file if finding.file in paths else next(inside, finding.file)


def show_report(report: ps.Report, done: str) -> None:
    """Print the verdict of a report, then its findings."""
    errors = [finding for finding in report.findings if finding.severity == "error"]
    notes = len(report.findings) - len(errors)
    line = Text()
    verdict = "ok" if not errors else "1 fault" if len(errors) == 1 else f"{len(errors)} faults"
    line.append(verdict, style="bold green" if not errors else "bold red")
    records = describe.records(report.num_records)
    line.append(f": {records} {done}, {describe.size(report.num_bytes)} read")
    lost = report.num_lost
    if errors:
        number = "an unknown number of records" if lost is None else describe.records(lost)
        line.append(f", {number} lost")
    if notes:
        line.append(f", {notes} notes" if notes > 1 else ", 1 note")
    parts: list[Any] = [line]
    for finding in report.findings[:_MOST_FINDINGS]:
        parts += ["", *_finding(finding)]
    if len(report.findings) > _MOST_FINDINGS:
        left = len(report.findings) - _MOST_FINDINGS
        parts += ["", output.dim(f"and {describe.count(left)} more: --json lists all")]
    output.show(*parts)


def _finding(finding: ps.Finding) -> list[Any]:
    head = Text()
    head.append(describe.escape(finding.file), style="bold")
    record = "" if finding.record is None else f" record {describe.count(finding.record)},"
    head.append(f":{record} bytes {finding.start_byte} to {finding.end_byte}")
    style = "red" if finding.severity == "error" else "yellow"
    body = Text("  ").append(finding.kind, style=style)
    body.append(f": {describe.escape(finding.message)}")
    if finding.restored:
        body.append(" (the checksum of its payload is right)")
    return [head, body]

"""`penstock verify`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
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
@reading("format", "read", "index", "overlays", "limits", "threads")
@on_option
@json_option
def command(
    source: tuple[str, ...],
    no_payloads: bool,
    decode: bool,
    format: str | None,
    read: tuple[str, ...],
    index: str,
    overlays: str | None,
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
            overlays=overlays,
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
        # Without a readable record, repair would write empty files.
        damaged = [finding for finding in report.findings if _is_repairable(finding)]
        if damaged and report.num_records:
            reads = _given(format, read, limits)
            advice = _advice(report, damaged, reads, decode, storage_options)
            click.echo(f"\ntry: {describe.escape(advice)}")
    if not report.ok:
        raise click.exceptions.Exit(1)


def _is_repairable(finding: ps.Finding) -> bool:
    others = ("unchecked", "missing", "unsupported", "schema", "overlay", "stale_overlay")
    return finding.severity == "error" and finding.kind not in others


def _shard_of(finding: ps.Finding, paths: Sequence[str]) -> str:
    """Return the path that was read: the finding's file, or the folder that contains the file."""
    inside = (path for path in paths if finding.file.startswith(path.rstrip("/") + "/"))
    return finding.file if finding.file in paths else next(inside, finding.file)


def _given(format: str | None, read: Sequence[str], limits: dict[str, int] | None) -> list[str]:
    """The reading options, for the next command."""
    words = [] if format is None else ["--format", format]
    for word in read:
        words += ["--read", word]
    for name, size in (limits or {}).items():
        words += ["--limit", f"{name}={size}"]
    return words


def _advice(
    report: ps.Report,
    damaged: Sequence[ps.Finding],
    reads: Sequence[str],
    decode: bool,
    storage_options: dict[str, str] | None,
) -> str:
    """The command that saves the intact records."""
    files = sorted({_shard_of(finding, report.paths) for finding in damaged})
    has_pictures = any(finding.kind == "picture" for finding in damaged)
    how = [*reads, "--decode"] if decode or has_pictures else list(reads)
    with_fields = _with_fields(files, storage_options)
    if with_fields is None:
        return _repair(files, how)
    if all(finding.kind == "picture" for finding in damaged):
        # A conversion would keep the damaged pictures.
        bake = errors.command("penstock", "fields", "bake", with_fields, "--in-place")
        return f"{bake}, then {_repair([with_fields], how)}"
    # A repair would lose the fields.
    words = (*reads, with_fields, f"repaired.{_ending(with_fields)}", "--damage", "skip")
    again = errors.command("penstock", "convert", *words)
    return f"{again} keeps the fields that are stored next to this file"


def _repair(files: Sequence[str], how: Sequence[str]) -> str:
    if len(files) > 1:
        return errors.command("penstock", "repair", *how, "FILE...", "--into", "repaired/")
    into = "repaired." + _ending(files[0]) if _ending(files[0]) else "repaired/"
    return errors.command("penstock", "repair", *how, files[0], "--into", into)


def _ending(path: str) -> str:
    return path.rsplit("/", 1)[-1].partition(".")[2]


def _with_fields(files: Sequence[str], storage_options: dict[str, str] | None) -> str | None:
    """The first of the files next to which fields are stored."""
    import penstock as ps

    for file in files:
        with suppress(ps.PenstockError, OSError):
            if ps.overlays(file, storage_options=storage_options):
                return file
    return None

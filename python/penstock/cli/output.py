"""The output of commands: JSON, tables, and progress on terminals."""

from __future__ import annotations

import base64
import json
import math
import os
import shlex
import stat
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from penstock import describe, tables

if TYPE_CHECKING:
    import rich.progress

    import penstock as ps

Progress = Callable[[int, int, int], None]


def show(*parts: Any) -> None:
    """Print texts and tables, one below the other."""
    tables.console().print(*parts, sep="\n", crop=False)


def emit(document: Any) -> None:
    """Print one JSON document on stdout."""
    click.echo(json.dumps(plain(document), indent=2))


def plain(value: Any) -> Any:
    """Return a value for JSON. Bytes are a string if they are UTF-8, else {"base64": …}. Numbers that JSON cannot
    represent are "NaN", "Infinity" or "-Infinity". Times are ISO 8601."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return _plain_float(value)
    if isinstance(value, (bytes, memoryview)):
        return _plain_bytes(bytes(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, Iterable):
        return [plain(item) for item in value]
    return str(value)


def _plain_float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _plain_bytes(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode("ascii")}


def print_damage(ds: ps.Dataset) -> None:
    """List the skipped regions on stderr."""
    for region in ds.damage:
        records = "" if region.num_records is None else f"{describe.records(region.num_records)}, "
        line = (
            f"skipped in {region.file}: {records}bytes {region.start_byte} to "
            f"{region.end_byte}: {region.reason}"
        )
        click.echo(describe.escape(line), err=True)


def show_summary(
    made: ps.Summary, as_json: bool, sources: Sequence[ps.Dataset] | None = None
) -> None:
    """Print what was written, and what was skipped in the datasets that were read for it."""
    if as_json:
        facts: dict[str, Any] = {
            "num_records": made.num_records,
            "num_bytes": made.num_bytes,
            "notes": made.notes,
        }
        if sources is not None:
            facts["damage"] = [region for ds in sources for region in damage_of(ds)]
            facts["text_columns"] = made.text_columns
        emit({"paths": made.paths, **facts})
        return
    click.echo(made.line())
    print_notes(made, lists_damage=sources is not None)
    for ds in sources or ():
        print_damage(ds)


def print_notes(made: ps.Summary, *, lists_damage: bool = False) -> None:
    """Print notes on changed values to stderr. `lists_damage`: the skipped regions are listed after them."""
    from penstock.cli.hints import in_options_of  # it imports this module's users

    command = click.get_current_context().command
    for note in made.notes:
        told = in_options_of(note, command)
        if lists_damage:
            told = told.replace("; Dataset.damage lists them", ":")
        click.echo(describe.escape(f"note: {told}"), err=True)
    if made.text_columns:
        names = ",".join(made.text_columns)
        advice = f"--text {shlex.quote(names)} writes strings"
        note = f"note: all values of {names.replace(',', ', ')} are text, but stay bytes; {advice}"
        click.echo(describe.escape(note), err=True)


def damage_of(ds: ps.Dataset) -> list[dict[str, Any]]:
    """Return the skipped regions for JSON."""
    names = ("file", "start_byte", "end_byte", "num_records", "reason")
    return [{name: getattr(region, name) for name in names} for region in ds.damage]


# -- progress -------------------------------------------------------------------------------------


@contextmanager
def progress(title: str) -> Generator[Progress | None]:
    """Show progress with records and bytes. Yield None if nobody sees it (`_is_watched`)."""
    if not _is_watched():
        yield None
        return
    from rich.progress import TextColumn, TimeRemainingColumn

    shown = _bar(
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[figures]}", markup=False),
        TimeRemainingColumn(compact=True),
    )
    task = shown.add_task(title, total=None, figures="")

    def report(done_records: int, done_bytes: int, total_bytes: int) -> None:
        seconds = shown.tasks[0].elapsed or 0
        rate = f", {describe.size(done_bytes / seconds)}/s" if seconds > 0.5 else ""
        figures = f"{describe.records(done_records)}, {describe.size(done_bytes)}{rate}"
        shown.update(task, completed=done_bytes, total=total_bytes or None, figures=figures)

    with shown:
        yield report


@contextmanager
def shares(title: str = "bench") -> Generator[Callable[[str, float], None] | None]:
    """Show progress with the current step and the finished part, from 0 to 1. Yield None if nobody sees it."""
    if not _is_watched():
        yield None
        return
    from rich.progress import TimeElapsedColumn

    shown = _bar(TimeElapsedColumn())
    task = shown.add_task(title, total=1.0)

    def report(what: str, part: float) -> None:
        shown.update(task, completed=part, description=f"{title}: {what}")

    with shown:
        yield report


def _bar(*columns: rich.progress.ProgressColumn) -> rich.progress.Progress:
    from rich.progress import BarColumn, Progress, TextColumn

    title = TextColumn("{task.description}", markup=False)
    console = tables.SafeConsole(stderr=True, highlight=False, markup=False)
    return Progress(title, BarColumn(bar_width=24), *columns, console=console, transient=True)


def _is_watched() -> bool:
    """Whether stderr is a terminal, and stdout is not piped to a program on the same terminal."""
    if not sys.stderr.isatty():
        return False
    try:
        return not stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError, AttributeError):
        return False

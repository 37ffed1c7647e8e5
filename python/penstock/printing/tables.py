"""Texts and tables for people, on a terminal and as plain text."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import IO, Any, Literal, cast

import pyarrow as pa
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from penstock import describe
from penstock.columns.types import DTYPE_KEY

PIPED_WIDTH = 100
"""The width of a line if the output is not a terminal."""


class SafeConsole(Console):
    """A console on which text from a file cannot control the terminal. Styles are kept."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text = segment.text
            if segment.control or text.isprintable() or text == "\n":
                yield segment
            else:
                yield Segment(printable(text), segment.style)


def printable(text: str) -> str:
    """Escape unprintable characters in a text, except line breaks."""
    return "\n".join(describe.escape(line) for line in text.split("\n"))


def console() -> Console:
    """Return a console for stdout: colours on a terminal, plain text elsewhere."""
    if sys.stdout.isatty():
        return SafeConsole(highlight=False, markup=False)
    return _plain_console(sys.stdout, "auto")


def plain(page: Any) -> str:
    """Return texts and tables as plain text. They are as wide as the environment variable `COLUMNS` says, else as the
    terminal, else 100 characters."""
    written = io.StringIO()
    _plain_console(written, None).print(page, end="", crop=False)
    return written.getvalue().rstrip("\n")


def _plain_console(stream: IO[str], colours: Literal["auto"] | None) -> Console:
    width = PIPED_WIDTH
    if re.fullmatch("[1-9][0-9]{0,3}", asked := os.environ.get("COLUMNS", "")):
        width = int(asked)
    elif sys.stdout is not None and sys.stdout.isatty():
        width = shutil.get_terminal_size((PIPED_WIDTH, 24)).columns
    trimmed = cast("IO[str]", _Trimmed(stream))
    return SafeConsole(
        highlight=False, markup=False, width=width, file=trimmed, color_system=colours
    )


class _Trimmed:
    """Removes the trailing blanks that tables write to a stream."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(re.sub(r" +$", "", text, flags=re.MULTILINE))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def table(*headings: str, right: Sequence[str] = ()) -> Table:
    """Return an empty table. The columns named in `right` are right-aligned."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        made.add_column(heading, justify="right" if heading in right else "left")
    return made


def facts(pairs: Iterable[tuple[str, str | Text]]) -> Table:
    """Return a table of names and values, one pair per line."""
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(style="cyan", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in pairs:
        made.add_row(name, value)
    return made


def name(text: str) -> Text:
    """Return a name from a file, escaped."""
    return Text(describe.escape(text), style="bold")


def kind(field: pa.Field) -> str:
    """Return the type of a field as a short text."""
    dtype = (field.metadata or {}).get(DTYPE_KEY)
    return describe.escape(describe.kind(field.type, dtype))


def dim(text: str) -> Text:
    """Return secondary text."""
    return Text(text, style="dim")

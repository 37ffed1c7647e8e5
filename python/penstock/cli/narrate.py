"""Shows the tour of the demo: paragraphs, the code that runs, its output and its time."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from rich.console import Console
from rich.padding import Padding
from rich.syntax import Syntax
from rich.text import Text

from penstock import describe

Result = TypeVar("Result")

_PROSE_WIDTH = 84
_MOST_LINES = 40


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement: seconds, and the records and bytes handled in this time."""

    what: str
    seconds: float
    num_records: int | None = None
    num_bytes: int | None = None

    def to_dict(self) -> dict[str, Any]:
        counts = {"records_per_s": self.num_records, "bytes_per_s": self.num_bytes}
        rates = {name: None if n is None else n / self.seconds for name, n in counts.items()}
        return {**asdict(self), **rates}

    def cells(self) -> tuple[str, str, str]:
        """Return the time, records per second and bytes per second as text; "" if unknown."""
        found = self.to_dict()
        records, size = found["records_per_s"], found["bytes_per_s"]
        return (
            f"{self.seconds:.2f} s" if self.seconds >= 1 else f"{self.seconds * 1e3:.3g} ms",
            "" if records is None else f"{describe.count(round(records))} records/s",
            "" if size is None else f"{describe.size(size)}/s",
        )


def fastest(function: Callable[..., Result], *arguments: Any, times: int) -> tuple[Result, float]:
    """Return the result of the last of several calls, and the seconds of the fastest."""
    taken: list[float] = []
    while True:
        start = time.perf_counter()
        result = function(*arguments)
        taken.append(time.perf_counter() - start)
        if len(taken) >= times:
            return result, min(taken)


class Narrator:
    """Prints a tour to a console, and keeps its figures and checks."""

    def __init__(self, console: Console) -> None:
        self.figures: list[Figure] = []
        self.checks: dict[str, bool] = {}
        self._console = console

    def chapter(self, title: str) -> None:
        self._console.print()
        self._console.rule(Text(title, style="bold"), align="left", style="dim", characters="─")

    def say(self, text: str) -> None:
        width = min(self._console.width, _PROSE_WIDTH)
        self._console.print(Text("\n" + textwrap.fill(" ".join(text.split()), width)))

    def run(
        self, function: Callable[..., Result], *arguments: Any, times: int = 1
    ) -> tuple[Result, float]:
        """Show the body of a function and call it. Return its result, and the seconds of the fastest call."""
        source = textwrap.dedent(inspect.getsource(function))
        body = textwrap.dedent(re.split(r":(?:  #.*)?\n", source, maxsplit=1)[1]).strip()
        body = re.sub(r"  # (noqa|pyright).*", "", body)
        # Shown as one would type it: the last line is an expression without return.
        body = re.sub(r"^return ", "", body, flags=re.MULTILINE)
        is_terminal = self._console.is_terminal
        syntax = Syntax(body, "python", theme="ansi_dark", background_color="default")
        self.printed(syntax if is_terminal else body, indent=2)
        return fastest(function, *arguments, times=times)

    def command(self, line: str) -> int:
        """Show a penstock command, run it in a subprocess, show its output, and return its exit status."""
        self._console.print(Text("\n  $ ", style="dim").append(line, style="bold cyan not dim"))
        environment = {**os.environ, "COLUMNS": str(self._console.width - 4)}
        if self._console.is_terminal and not self._console.no_color:
            environment["FORCE_COLOR"] = "1"
        done = subprocess.run(  # noqa: S603  the commands of the tour, which are constants
            [sys.executable, "-m", *shlex.split(line)],
            env=environment,
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
        lines = (done.stdout + done.stderr).rstrip("\n").split("\n")
        if len(lines) > _MOST_LINES:
            lines = [*lines[: _MOST_LINES - 1], describe.ELLIPSIS]
        self.printed(Text.from_ansi("\n".join(lines)))
        return done.returncode

    def printed(self, what: Any, indent: int = 4) -> None:
        self._console.print()
        self._console.print(Padding(what, (0, 0, 0, indent)))

    def figure(
        self, what: str, taken: float, num_records: int | None = None, num_bytes: int | None = None
    ) -> None:
        figure = Figure(what, taken, num_records, num_bytes)
        self.figures.append(figure)
        self.result(f"{what}: {', '.join(filter(None, figure.cells()))}")

    def check(self, what: str, holds: bool) -> None:
        self.checks[what] = holds
        self.result(f"{what}: {'yes' if holds else 'NO - this is a bug, please report it'}")

    def result(self, text: str) -> None:
        self._console.print(Text("\n  → ", style="green").append(text, style="bold"))

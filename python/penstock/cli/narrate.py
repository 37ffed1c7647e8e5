"""How the demo tells its tour: paragraphs, the code that runs, what it printed, what it took."""

from __future__ import annotations

import inspect
import os
import re
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

PROSE_WIDTH = 84


@dataclass(frozen=True, slots=True)
class Figure:
    """Something that was measured: seconds for so many records and bytes."""

    what: str
    seconds: float
    num_records: int | None = None
    num_bytes: int | None = None

    @property
    def records_per_s(self) -> float | None:
        return None if self.num_records is None else self.num_records / self.seconds

    @property
    def bytes_per_s(self) -> float | None:
        return None if self.num_bytes is None else self.num_bytes / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """The figure with its rates, for JSON."""
        rates = {"records_per_s": self.records_per_s, "bytes_per_s": self.bytes_per_s}
        return {**asdict(self), **rates}

    def __str__(self) -> str:
        parts = [seconds(self.seconds)]
        if self.records_per_s is not None:
            parts.append(f"{rate(self.records_per_s)} records/s")
        if self.bytes_per_s is not None:
            parts.append(f"{describe.size(self.bytes_per_s)}/s")
        return ", ".join(parts)


def seconds(value: float) -> str:
    """A duration for people."""
    if value >= 1:
        return f"{value:.2f} s"
    return f"{value * 1e3:.3g} ms" if value >= 1e-3 else f"{value * 1e6:.3g} µs"


def rate(value: float) -> str:
    """How many a second, for people."""
    for unit, size in (("million", 1e6), ("thousand", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"


def fastest(run: Callable[[], Result], times: int) -> tuple[Result, float]:
    """The result of the last of several runs, and the seconds of the fastest."""
    start = time.perf_counter()
    result = run()
    best = time.perf_counter() - start
    for _ in range(times - 1):
        start = time.perf_counter()
        result = run()
        best = min(best, time.perf_counter() - start)
    return result, best


class Narrator:
    """Prints a tour to a console."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def chapter(self, title: str) -> None:
        """Begin a part."""
        self.console.print()
        self.console.rule(Text(title, style="bold"), align="left", style="dim", characters="─")

    def say(self, text: str) -> None:
        """A paragraph."""
        self.console.print()
        width = min(self.console.width, PROSE_WIDTH)
        self.console.print(Text(textwrap.fill(" ".join(text.split()), width)))

    def code(self, function: Callable[..., Any]) -> None:
        """Show the body of a function of the tour, the very one that runs."""
        source = textwrap.dedent(inspect.getsource(function))
        body = textwrap.dedent(re.split(r":(?:  #.*)?\n", source, maxsplit=1)[1]).strip()
        body = re.sub(r"  # (noqa|pyright).*", "", body)
        # As one would type it, the last line is an expression and needs no return.
        self._listing(re.sub(r"^return ", "", body, flags=re.MULTILINE), "python")

    def command(self, line: str, *, most_lines: int = 40) -> int:
        """Run a penstock command in a process of its own, show it and what it printed, and return
        its exit status."""
        import shlex

        self._listing(line, "bash", prompt="$ ")
        environment = {**os.environ, "COLUMNS": str(self.console.width - 4)}
        if self.console.is_terminal and not self.console.no_color:
            environment["FORCE_COLOR"] = "1"
        arguments = shlex.split(line)
        assert arguments[0] == "penstock", "the tour runs nothing else"
        done = subprocess.run(  # noqa: S603  the commands of the tour, which are constants
            [sys.executable, "-m", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
        lines = (done.stdout + done.stderr).rstrip("\n").split("\n")
        shown = lines if len(lines) <= most_lines else [*lines[: most_lines - 1], describe.ELLIPSIS]
        self.printed(Text.from_ansi("\n".join(shown)))
        return done.returncode

    def printed(self, what: Any) -> None:
        """What the code or command above gave."""
        self.console.print()
        self.console.print(Padding(what, (0, 0, 0, 4)))

    def figure(self, text: str) -> None:
        """A line with something measured."""
        self.console.print()
        self.console.print(Text("  → ", style="green").append(text, style="bold"))

    def _listing(self, source: str, language: str, prompt: str = "") -> None:
        self.console.print()
        if prompt:
            self.console.print(
                Text(f"  {prompt}", style="dim").append(source, style="bold cyan not dim")
            )
            return
        if self.console.is_terminal:
            shown: Any = Syntax(source, language, theme="ansi_dark", background_color="default")
        else:
            shown = Text(source)
        self.console.print(Padding(shown, (0, 0, 0, 2)))

"""The line on the terminal that shows the progress, speed and bottleneck of an epoch."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from penstock import describe

if TYPE_CHECKING:
    from penstock.loader.stats import LoaderStats

SECONDS = 0.1
"""Minimum time between two updates of the figures."""


class Line:
    def __init__(self, epoch: int, num_steps: int, step: int, stats: LoaderStats) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(stderr=True, highlight=False, markup=False)
        self._shown = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[figures]}", markup=False),
            TimeRemainingColumn(compact=True),
            console=self._console,
            transient=True,
        )
        self._task = self._shown.add_task(
            f"epoch {epoch}", total=num_steps, completed=step, figures=""
        )
        self._step = step
        self._updated = 0.0
        self._before = stats
        self._shown.start()

    def update(self, stats: LoaderStats) -> None:
        self._step += 1
        now = time.monotonic()
        if now - self._updated < SECONDS:
            return
        self._updated = now
        since = stats.since(self._before)
        figures = (
            f"{describe.count(round(since.records_per_second))} records/s,"
            f" {describe.size(since.bytes_per_second)}/s, waited {since.wait_share:.0%}"
        )
        self._shown.update(self._task, completed=self._step, figures=figures)

    def end(self, stats: LoaderStats) -> None:
        self._shown.stop()
        since = stats.since(self._before)
        if since.num_batches:
            rate = describe.count(round(since.records_per_second))
            text = f"{self._shown.tasks[0].description}: {rate} records/s. {since.bottleneck}"
            self._console.print(text, soft_wrap=True)


def line(epoch: int, num_steps: int, step: int, stats: LoaderStats) -> Line | None:
    """Start the line of an epoch; None if stderr is not a terminal."""
    return Line(epoch, num_steps, step, stats) if sys.stderr.isatty() else None

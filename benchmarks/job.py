"""What an engine hands to the worker: something to time, and what goes before and after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def nothing() -> None:
    """The default of what goes before and after."""


@dataclass(frozen=True)
class Outcome:
    """What a piece of work came to.

    `checksum` and `kind` are given in the round that is checked, and name the sum in
    `benchmarks.checks.expected`; limits that read no records leave `kind` empty.
    `measured` replaces the time on the clock (in seconds) for work that times itself.
    """

    num_records: int
    kind: str = ""
    checksum: int = 0
    measured: float | None = None


@dataclass(frozen=True)
class Job:
    """One row of the table. `work(check)` is what is timed; the others are not."""

    work: Callable[[bool], Outcome]
    before: Callable[[], None] = nothing
    after: Callable[[], None] = nothing

"""What an engine returns to the worker: the work to time, and what to do before and after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def nothing() -> None:
    """The default for what to do before and after."""


@dataclass(frozen=True)
class Outcome:
    """The result of a piece of work.

    `checksum` and `kind` are set in the round that is checked; `kind` names the sum in `benchmarks.checks.expected`.
    Limits that read no records leave `kind` empty. Work that times itself sets `measured` (in seconds), which
    replaces the time on the clock.
    """

    num_records: int
    kind: str = ""
    checksum: int = 0
    measured: float | None = None


@dataclass(frozen=True)
class Job:
    """One row of the table. `work(check)` is timed; the other functions are not."""

    work: Callable[[bool], Outcome]
    before: Callable[[], None] = nothing
    after: Callable[[], None] = nothing

"""The classes that describe a case."""

from __future__ import annotations

from dataclasses import dataclass, field

BEST_RIVAL = "best rival"


@dataclass(frozen=True)
class Goal:
    """What one row must reach: a ratio of speeds, or an absolute figure.

    Attributes:
        row: The row of the table, such as "penstock: 2 threads".
        at_least: The speed of `row` divided by that of `of`, at least.
        of: BEST_RIVAL, a row, or an engine followed by ":" for the best of its rows.
        at_most: If not None, the most that the figure itself may be, in the measure of the case.
        above: If given, the figure of this row is subtracted before the figure is compared with `at_most`.
    """

    row: str
    at_least: float = 0.0
    of: str = BEST_RIVAL
    at_most: float | None = None
    above: str = ""


@dataclass(frozen=True)
class Case:
    """One kind of work, done by every engine that has a job under the case's name.

    Attributes:
        name: What `--case` matches.
        says: One line of explanation in the table.
        size: The data that it reads or writes: "small", "large" or "" for none.
        measure: "rate" (records a second, more is better), "seconds" or "megabytes".
        limits: The row of `limit` that a row is compared with; "" names the default.
        goals: What must be reached.
        fresh: A new process for every round.
    """

    name: str
    says: str
    size: str
    measure: str = "rate"
    limits: dict[str, str] = field(default_factory=dict)
    goals: tuple[Goal, ...] = ()
    fresh: bool = False

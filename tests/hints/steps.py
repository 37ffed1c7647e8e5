"""What the cases of hints are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import penstock as ps

Step = Callable[[], Any]


class Case(NamedTuple):
    """What raises a hint, what the hint advises, and the hint where its source does not tell it.

    A step may be used once, in an empty folder. `advised` asserts that the data come out right.
    """

    fails: Step
    advised: Step
    hint: str | None = None


Make = Callable[[], Case]
Cases = Mapping[str, "Make | tuple[Make, ...]"]
"""By the source text of the hint; several where it has branches, or is raised for several causes."""


def twice(call: Callable[..., Any], *given: Any, gives: Any, **advice: Any) -> Case:
    """A call, and the same with the keywords that the hint names and what it then gives."""

    def advised() -> None:
        assert call(*given, **advice) == gives

    return Case(lambda: call(*given), advised)


def rows(*given: Any, **options: Any) -> list[Any]:
    """All records of what is opened."""
    return list(ps.open(*given, **options))

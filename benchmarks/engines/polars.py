"""polars, choosing records of the same Arrow file. It maps the file into memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.engines.choosing_penstock import EXPECTED, job
from benchmarks.tables import table_file, target

ROLE = "rival"
VENV = "others"


def _frame() -> Any:
    import polars as pl

    return pl.read_ipc(table_file())


def _filter() -> int:
    from polars import col

    return _frame().filter((col("label") < 500) & (col("score") > 0.2)).height


def _split() -> int:
    frame = _frame().sample(fraction=1, shuffle=True, seed=0)
    eight, nine = frame.height * 8 // 10, frame.height * 9 // 10
    return sum(part.height for part in (frame[:eight], frame[eight:nine], frame[nine:]))


def _split_by() -> int:
    from polars import col

    frame = _frame().with_columns(draw=col("id").hash(0) % 1000)
    drawn = col("draw")
    parts = (drawn < 800, drawn.is_between(800, 899), drawn >= 900)
    return sum(frame.filter(part).height for part in parts)


def _dedupe(by: str | None) -> Callable[[], int]:
    def written() -> int:
        frame = _frame().unique(by, keep="first", maintain_order=True)
        frame.write_ipc(target("polars"))
        return frame.height

    return written


def _sort(by: str) -> Callable[[], int]:
    def written() -> int:
        frame = _frame().sort(by, maintain_order=True, nulls_last=True)
        frame.write_ipc(target("polars"))
        return frame.height

    return written


_CHOICES = {
    "choose-filter": _filter,
    "choose-split": _split,
    "choose-split-by": _split_by,
    "choose-dedupe": _dedupe("name"),
    "choose-dedupe-whole": _dedupe(None),
    "choose-sort-number": _sort("id"),
    "choose-sort-text": _sort("name"),
}
JOBS = {case: {"polars": job(choose, EXPECTED[case])} for case, choose in _CHOICES.items()}

"""The table: ratios to the best rival and to the limit, and whether the goals are reached."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.cases import Case, Goal
from benchmarks.cases.case import BEST_RIVAL
from benchmarks.data import Data
from benchmarks.rounds import Row

HEADINGS = (
    "work",
    "engine",
    "median",
    "range",
    "GB/s",
    "cores used",
    "ratio to best rival",
    "ratio to limit",
    "goal",
    "reached",
)
RIGHT = {2, 3, 4, 5, 6, 7}


@dataclass(frozen=True)
class Verdict:
    """The result for one goal of one row. `reached` is None if the row to compare with is missing, or if CPU time was
    measured, because goals are about elapsed time."""

    wanted: str
    found: float | None
    reached: bool | None


def machine() -> dict[str, Any]:
    """The facts about the machine that readers need to judge the figures."""
    model = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "system": platform.platform(terse=True),
        "load_average": [round(x, 2) for x in os.getloadavg()],
    }


def speed(row: Row) -> float:
    """A figure for which more is better, whatever the measure."""
    middle = median(row.figures())
    return middle if row.case.measure == "rate" else 1 / middle


def best_rival(rows: list[Row]) -> Row | None:
    """The fastest rival of a case (or the one with the least memory)."""
    return max((r for r in rows if r.role == "rival" and r.rounds), key=speed, default=None)


def named(rows: list[Row], name: str) -> Row | None:
    """The row with that label, the best row of an engine ("engine:"), or the best rival."""
    if name == BEST_RIVAL:
        return best_rival(rows)
    if name.endswith(":"):
        found = [r for r in rows if r.label.startswith(name) and r.rounds]
        return max(found, key=speed, default=None)
    return next((r for r in rows if r.label == name and r.rounds), None)


def judge(goal: Goal, row: Row, rows: list[Row]) -> Verdict:
    """Compares a row with one goal."""
    if goal.at_most is None:
        other = named(rows, goal.of)
        wanted = f">= {goal.at_least:.3g} x {goal.of.rstrip(':')}"
        if other is None:
            return Verdict(wanted, None, None)
        ratio = speed(row) / speed(other)
        return Verdict(wanted, ratio, ratio >= goal.at_least if row.judged else None)
    unit = "s" if row.case.measure == "seconds" else "MB"
    wanted = f"<= {goal.at_most:g} {unit}" + (f" above {goal.above}" if goal.above else "")
    figure = median(row.figures())
    if goal.above:
        other = named(rows, goal.above)
        if other is None:
            return Verdict(wanted, None, None)
        figure -= median(other.figures())
    return Verdict(wanted, figure, figure <= goal.at_most if row.judged else None)


def figure(case: Case, value: float) -> str:
    """A figure in the measure of its case, short enough for a table."""
    if case.measure == "megabytes":
        return f"{value:.0f} MB"
    if case.measure == "seconds":
        return f"{value:.3f} s"
    for scale, suffix in ((1e6, "M"), (1e3, "k")):
        if value >= scale:
            return f"{value / scale:.3g} {suffix}/s"
    return f"{value:.3g} /s"


def facts(row: Row, rows: list[Row], data: Data | None) -> dict[str, Any]:
    """Everything about one row, for `--json` and for the table."""
    values = row.figures()
    bytes_per_second = None
    if data and row.num_records and row.case.measure == "rate":
        bytes_per_second = median(values) * data.plain_bytes / data.num_records
    rival = best_rival(rows)
    limits = row.case.limits
    limit = named(rows, limits.get(row.label, limits.get("", "")))
    goals = [judge(g, row, rows) for g in row.case.goals if g.row == row.label]
    return {
        "work": row.case.name,
        "engine": row.engine,
        "row": row.name,
        "role": row.role,
        "measure": row.case.measure,
        "median": median(values),
        "rounds": values,
        "bytes_per_second": bytes_per_second,
        "cores": median(r["cores"] for r in row.rounds),
        "others_cores": median(r["others_cores"] for r in row.rounds),
        "ratio_to_best_rival": speed(row) / speed(rival) if rival else None,
        "best_rival": rival.label if rival else None,
        "ratio_to_limit": speed(row) / speed(limit) if limit and row.role != "limit" else None,
        "limit": limit.label if limit else None,
        "goals": [vars(v) for v in goals],
    }


def cells(fact: dict[str, Any], case: Case) -> list[str]:
    """The cells of one line of the table."""
    ratio = "{:.2f}".format
    rival, limit = fact["ratio_to_best_rival"], fact["ratio_to_limit"]
    rate = fact["bytes_per_second"]
    show_rival = rival is not None and fact["role"] != "limit"
    words = {True: "yes", False: "NO", None: "not judged"}
    return [
        case.name,
        f"{fact['engine']}: {fact['row']}",
        figure(case, fact["median"]),
        f"{figure(case, min(fact['rounds']))} - {figure(case, max(fact['rounds']))}",
        f"{rate / 1e9:.2f}" if rate else "",
        f"{fact['cores']:.2f}",
        ratio(rival) if show_rival else "",
        ratio(limit) if limit is not None else "",
        "; ".join(g["wanted"] for g in fact["goals"]),
        "; ".join(
            words[g["reached"]] + (f" ({g['found']:.3g})" if g["found"] is not None else "")
            for g in fact["goals"]
        ),
    ]


def table(lines: list[list[str]]) -> str:
    """A Markdown table whose columns are also aligned as plain text."""
    widths = [max(len(row[i]) for row in [list(HEADINGS), *lines]) for i in range(len(HEADINGS))]

    def line(row: list[str]) -> str:
        padded = [
            c.rjust(w) if i in RIGHT else c.ljust(w)
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        return "| " + " | ".join(padded) + " |"

    rule = ["-" * (w - 1) + ":" if i in RIGHT else "-" * w for i, w in enumerate(widths)]
    return "\n".join([line(list(HEADINGS)), line(rule), *map(line, lines)])

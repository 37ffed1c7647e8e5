"""Plots as SVG, written by hand: bars in panels, points in a plane, and where an order goes.

Colours and fonts come from the page (`page.STYLE`), so that a plot follows its light or dark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

WIDTH = 960
_ROW = 26
_BAR = 12
_GAP = 26
_NAMES = 132
_CHARACTER = 7.0
"""How wide a character is drawn, about."""


@dataclass(frozen=True, slots=True)
class Bars:
    """One panel: a value for each row, None where there is none."""

    title: str
    values: Sequence[float | None]
    shown: Sequence[str]
    ranges: Sequence[tuple[float, float] | None] = ()
    """The least and the greatest of the repeats."""
    is_better: str = ""
    """"high" or "low", where one is: the best row stands out."""
    mark: float | None = None
    """A value to compare with, as a line through the panel."""


def bars(rows: Sequence[str], panels: Sequence[Bars]) -> str:
    """Horizontal bars in panels side by side; all rows have their name once, at the left."""
    height = 30 + _ROW * len(rows) + 6
    each = (WIDTH - _NAMES - _GAP * (len(panels) - 1)) / len(panels)
    parts = [
        f'<text class="name" x="{_NAMES - 10}" y="{_middle(row)}" text-anchor="end">{escape(name)}</text>'
        for row, name in enumerate(rows)
    ]
    parts += [
        f'<line class="rule" x1="0" x2="{WIDTH}" y1="{30 + _ROW * row}" y2="{30 + _ROW * row}"/>'
        for row in range(len(rows) + 1)
    ]
    for number, panel in enumerate(panels):
        parts += _panel(panel, _NAMES + number * (each + _GAP), each, len(rows), rows)
    return _svg(height, "".join(parts), "bars")


def _middle(row: int) -> float:
    return 30 + _ROW * row + _ROW / 2 + 4


def _panel(panel: Bars, left: float, width: float, count: int, rows: Sequence[str]) -> list[str]:
    parts = [f'<text class="title" x="{left:.1f}" y="18">{escape(panel.title)}</text>']
    ranges = panel.ranges or [None] * count
    present = [value for value in panel.values if value is not None]
    tops = [*present, *(high for found in ranges if found for _, high in [found])]
    top = max([*tops, panel.mark or 0], default=0) or 1
    room = width - _CHARACTER * max((len(text) for text in panel.shown), default=0) - 8
    best = _best(present, panel.is_better)
    if panel.mark is not None:
        x = left + room * panel.mark / top
        parts.append(
            f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="26" y2="{30 + _ROW * count}"/>'
        )
    for row, (value, text, found) in enumerate(zip(panel.values, panel.shown, ranges, strict=True)):
        y = 30 + _ROW * row + (_ROW - _BAR) / 2
        if value is None:
            parts.append(
                f'<text class="none" x="{left:.1f}" y="{_middle(row)}">{escape(text)}</text>'
            )
            continue
        length = max(room * value / top, 1)
        kind = "bar best" if best and best[0] <= value <= best[1] else "bar"
        told = f"{rows[row]}, {panel.title}: {text}"
        parts.append(
            f'<rect class="{kind}" x="{left:.1f}" y="{y:.1f}" width="{length:.1f}" height="{_BAR}" rx="2">'
            f"<title>{escape(told)}</title></rect>"
        )
        end = length
        if found is not None and found[1] > found[0]:
            low, high = (room * edge / top for edge in found)
            parts.append(
                f'<path class="range" d="M{left + low:.1f} {y + _BAR / 2}H{left + high:.1f}'
                f'M{left + low:.1f} {y + 3}v6M{left + high:.1f} {y + 3}v6"/>'
            )
            end = max(end, high)
        parts.append(
            f'<text class="value" x="{left + end + 6:.1f}" y="{_middle(row)}">{escape(text)}</text>'
        )
    return parts


def _best(present: Sequence[float], is_better: str) -> tuple[float, float] | None:
    """The values that stand out: the best and what is as good; none where most are."""
    if not is_better or not present:
        return None
    best = max(present) if is_better == "high" else min(present)
    low, high = 0.995 * best, 1.005 * best
    alike = sum(low <= value <= high for value in present)
    return (low, high) if 2 * alike <= len(present) else None


# -- points ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Point:
    """A named point of a plane."""

    x: float
    y: float
    name: str
    kind: str = ""
    """Points of a kind have one colour: "a", "b", "c", "d"."""


def points(found: Sequence[Point], x_title: str, y_title: str, y_mark: float) -> str:
    """Named points; x grows by factors, y evenly, with a line at `y_mark`."""
    height, left, right, top, bottom = 380, 62, 96, 34, 46
    x_ticks = _ticks_of_factors(min(p.x for p in found), max(p.x for p in found))
    y_ticks = _even_ticks(min(y_mark, *(p.y for p in found)), max(y_mark, *(p.y for p in found)))
    low, high = math.log(x_ticks[0]), math.log(x_ticks[-1])

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log(x) - low) / (high - low)
        up = (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0])
        return left + across * (WIDTH - left - right), height - bottom - up * (
            height - top - bottom
        )

    parts = [f'<text class="title" x="0" y="16">{escape(y_title)}</text>']
    for tick in y_ticks:
        y = place(x_ticks[0], tick)[1]
        parts.append(
            f'<line class="rule" x1="{left}" x2="{WIDTH - right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(
            f'<text class="tick" x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
        )
    for tick in x_ticks:
        x = place(tick, y_ticks[0])[0]
        parts.append(
            f'<line class="rule" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{height - bottom}"/>'
            f'<text class="tick" x="{x:.1f}" y="{height - bottom + 18}" text-anchor="middle">{tick:g}</text>'
        )
    parts.append(
        f'<text class="title" x="{WIDTH - right}" y="{height - 6}" text-anchor="end">{escape(x_title)}</text>'
    )
    level = place(x_ticks[0], y_mark)[1]
    parts.append(
        f'<line class="mark" x1="{left}" x2="{WIDTH - right}" y1="{level:.1f}" y2="{level:.1f}"/>'
    )
    taken: list[tuple[float, float]] = []
    for point in sorted(found, key=lambda p: (p.y, p.x)):
        x, y = place(point.x, point.y)
        at = y + 4
        while any(abs(at - other_y) < 14 and abs(x - other_x) < 90 for other_x, other_y in taken):
            at -= 14
        taken.append((x, at))
        parts.append(
            f'<circle class="point {point.kind}" cx="{x:.1f}" cy="{y:.1f}" r="6">'
            f"<title>{escape(point.name)}</title></circle>"
            f'<text class="value" x="{x + 11:.1f}" y="{at:.1f}">{escape(point.name)}</text>'
        )
    return _svg(height, "".join(parts), "points")


def _ticks_of_factors(low: float, high: float) -> list[float]:
    """1, 2, 5, 10 … around a range."""
    steps = [f * 10.0**e for e in range(-6, 13) for f in (1, 2, 5)]
    first = max(i for i, step in enumerate(steps) if step <= max(low, 1e-6))
    last = min((i for i, step in enumerate(steps) if step >= high), default=len(steps) - 1)
    return steps[first : max(last, first + 1) + 1]


def _even_ticks(low: float, high: float) -> list[float]:
    spread = max(high - low, 1e-9)
    size = 10.0 ** math.floor(math.log10(spread / 4))
    step = next(size * f for f in (1, 2, 5, 10) if spread / (size * f) <= 6)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(n * step, 9) for n in range(first, max(last, first + 1) + 1)]


# -- orders ---------------------------------------------------------------------------------------


def paths(found: Sequence[tuple[str, np.ndarray, np.ndarray]]) -> str:
    """One square an order: where in the epoch (across) which record comes (up), both from 0 to 1."""
    across = 4
    side = (WIDTH - 24 * (across - 1)) / across
    parts: list[str] = []
    for number, (name, x, y) in enumerate(found):
        left = (number % across) * (side + 24)
        top = (number // across) * (side + 56) + 28
        dots = "".join(
            f"M{left + 5 + a * (side - 10):.1f} {top + side - 5 - b * (side - 10):.1f}h0"
            for a, b in zip(x.tolist(), y.tolist(), strict=True)
        )
        parts.append(
            f'<text class="title" x="{left:.1f}" y="{top - 10:.1f}">{escape(name)}</text>'
            f'<rect class="frame" x="{left:.1f}" y="{top:.1f}" width="{side:.1f}" height="{side:.1f}" rx="4"/>'
            f'<path class="dots" d="{dots}"/>'
        )
    rows = -(-len(found) // across)
    return _svg(rows * (side + 56) - 24, "".join(parts), "paths")


def _svg(height: float, inside: str, kind: str) -> str:
    return (
        f'<div class="wide"><svg class="plot {kind}" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'role="img">{inside}</svg></div>'
    )

"""Renders a report as one HTML page without other files or scripts. It is light or dark like the system. Text from
files is escaped, and the page's security policy forbids loading anything.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from html import escape
from string import Template

from penstock.bench.tables import Contents, Report, Table, TableColumn, contents

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<link rel="icon" href="data:,">
<style>
:root { color-scheme: light dark; --bar: #9fb6c9; --best: #0f6fb5; }
@media (prefers-color-scheme: dark) { :root { --bar: #45606f; --best: #4fb0f0; } }
body { max-width: 66rem; margin: 2rem auto; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif; }
p, dd { max-width: 80ch; overflow-wrap: anywhere; white-space: pre-line; }
.answer p:first-child { font-weight: bold; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-size: 20px; font-weight: bold; padding: 1rem 0 0.5rem; }
th, td { padding: 4px 16px 4px 0; line-height: 2.2; text-align: left; white-space: nowrap; }
td.number, th.number { text-align: right; }
td { background: linear-gradient(var(--bar) 0 0) left bottom / var(--part, 0) 6px no-repeat content-box; }
td.best { --bar: var(--best); color: var(--best); font-weight: bold; }
</style>
</head>
<body>
<main>
<h1>$title</h1>
<p>$lead</p>
<div class="answer">$answer</div>
$tables
<h2>How it was measured</h2>
<dl>
$facts
</dl>
</main>
</body>
</html>
""")

_NUMBER = ' class="number"'


def html(report: Report) -> str:
    """Render a report as one HTML page that needs no other file."""
    shown = contents(report)
    return page(
        shown.title,
        f"{shown.source}: {shown.lead}",
        report.sentences,
        shown.tables,
        list(_facts(report, shown)),
    )


def page(
    title: str,
    lead: str,
    sentences: Sequence[str],
    tables: Sequence[Table],
    facts: Sequence[tuple[str, str]],
) -> str:
    """Return the page as text."""
    return _PAGE.substitute(
        title=escape(title),
        lead=escape(lead),
        answer="".join(f"<p>{escape(sentence)}</p>" for sentence in sentences),
        tables="".join(map(_table, tables)),
        facts="".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts),
    )


def _facts(report: Report, shown: Contents) -> Iterator[tuple[str, str]]:
    for name, problem in shown.problems:
        yield f"not measured: {name}", problem
    yield from shown.facts
    yield "method", report.how
    yield "noise", report.noise.sentence(shown.spreads)
    machine = report.machine
    cores = f"{machine.cores} core" + "s" * (machine.cores != 1)
    yield "machine", f"{machine.cpu}, {cores}, {machine.system}, Python {machine.python}"
    kind = f" ({machine.file_system})" if machine.file_system else ""
    yield "folder", f"{machine.folder}{kind}"
    yield "when", f"{time.strftime('%Y-%m-%d %H:%M')}, for {report.seconds:.0f} s"


def _table(table: Table) -> str:
    heads = "".join(
        f'<th scope="col"{_NUMBER if column.values else ""}>{escape(column.title)}</th>'
        for column in table.columns
    )
    names, *others = table.columns
    cells = zip(*(_cells(column) for column in others), strict=True)
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(row)}</tr>\n'
        for name, row in zip(names.cells, cells, strict=True)
    )
    return (
        f'<div class="wide"><table><caption>{escape(table.title)}</caption>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n"
        f"<p>{escape(table.note)}</p>\n"
    )


def _cells(column: TableColumn) -> Iterator[str]:
    """Yield the cells of a column. A bar below each number shows its ratio to the largest number."""
    values = [value for value in column.values if value is not None]
    top = max(values, default=0) or 1
    best = _best(values, column.best)
    for number, text in enumerate(column.cells):
        value = column.values[number] if column.values else None
        kind = _NUMBER if column.values else ""
        if value is not None and column.best:
            kind = ' class="number best"' if best[0] <= value <= best[1] else kind
            kind += f' style="--part: {value / top:.1%}"'
        yield f"<td{kind}>{escape(text)}</td>"


def _best(values: Sequence[float], end: str) -> tuple[float, float]:
    """Return the range of values to highlight: the best value and values within half a percent of it. If most values
    are that good, return an empty range."""
    best = (max if end == "high" else min)(values, default=0)
    low, high = 0.995 * best, 1.005 * best
    alike = sum(low <= value <= high for value in values)
    return (low, high) if 2 * alike <= len(values) else (1, 0)

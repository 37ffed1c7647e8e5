"""The output of `penstock bench` on a terminal."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from penstock import bench, describe, tables
from penstock.cli import output


def show(report: Any) -> None:
    """Print the tables of a report, the conclusions, and the noise."""
    found = bench.contents(report)
    parts: list[Any] = [describe.escape(line) for line in found.lead.split("\n")]
    for table in found.tables:
        parts += ["", _table(table)]
    if found.problems:
        reasons = tables.facts((name, describe.escape(why)) for name, why in found.problems)
        parts += ["", "not measured", reasons]
    said = [Text(text, style="" if n else "bold") for n, text in enumerate(report.sentences)]
    noise = tables.dim(report.noise.sentence(found.spreads))
    output.show(*parts, "", *said, "", noise, tables.dim(report.how))


def _table(table: bench.Table) -> Any:
    columns = [column for column in table.columns if not column.page_only]
    right = [column.title for column in columns if column.values]
    shown = tables.table(*(column.title for column in columns), right=right)
    for name, *cells in zip(*(column.cells for column in columns), strict=True):
        shown.add_row(tables.name(name), *cells)
    return shown

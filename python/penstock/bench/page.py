"""One HTML page, complete in itself: no script, nothing from elsewhere, light or dark as the
reader's system is. What a file says is escaped, and the page forbids itself to load anything."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from penstock.bench.measure import Machine

STYLE = """
:root { color-scheme: light dark; --paper: #fcfcfa; --card: #ffffff; --ink: #1c2126; --soft: #5d6770;
  --line: #e3e6e8; --bar: #9fb6c9; --best: #0f6fb5; --range: #37424c; --warn: #9a5b00;
  --a: #0f6fb5; --b: #c2571a; --c: #4c8f3a; --d: #8457b3; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181c; --card: #1b2126; --ink: #e6e9ec;
  --soft: #9aa5ae; --line: #2c343b; --bar: #45606f; --best: #4fb0f0; --range: #c9d2d9; --warn: #e3a94f;
  --a: #4fb0f0; --b: #f08c52; --c: #83c46f; --d: #b792e0; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 1064px; margin: 0 auto; padding: 44px 28px 72px; }
h1 { font-size: 30px; line-height: 1.2; margin: 0 0 6px; letter-spacing: -0.01em; }
h2 { font-size: 20px; margin: 0 0 14px; }
p { margin: 0 0 12px; max-width: 74ch; }
.lead { color: var(--soft); overflow-wrap: anywhere; }
.answer { border-left: 4px solid var(--best); background: var(--card); padding: 16px 22px;
  margin: 26px 0 30px; border-radius: 0 8px 8px 0; box-shadow: 0 0 0 1px var(--line); }
.answer p { font-size: 17px; margin: 0 0 6px; } .answer p:first-child { font-weight: 600; }
.answer p:not(:first-child) { color: var(--soft); font-size: 16px; }
figure, section { background: var(--card); box-shadow: 0 0 0 1px var(--line); border-radius: 10px;
  padding: 22px 24px 18px; margin: 0 0 24px; }
figcaption, .note { color: var(--soft); font-size: 14px; line-height: 1.5; margin-top: 12px; max-width: 92ch; }
.wide { overflow-x: auto; } svg.plot { display: block; width: 100%; min-width: 700px; height: auto; }
svg text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: var(--ink);
  font-variant-numeric: tabular-nums; }
svg .value { fill: var(--ink); } svg .title { font-weight: 600; fill: var(--soft); } svg .name { font-size: 13px; }
svg .tick, svg .none { fill: var(--soft); } svg .none { font-style: italic; }
.rule { stroke: var(--line); stroke-width: 1; } .frame { fill: none; stroke: var(--line); }
.bar { fill: var(--bar); } .bar.best { fill: var(--best); }
.range { stroke: var(--range); stroke-width: 1.2; fill: none; }
.mark { stroke: var(--soft); stroke-width: 1.2; stroke-dasharray: 3 3; }
.dots { stroke: var(--a); stroke-width: 2; stroke-linecap: round; fill: none; opacity: 0.75; }
.point { fill: var(--soft); stroke: var(--card); stroke-width: 1.5; }
.point.a { fill: var(--a); } .point.b { fill: var(--b); } .point.c { fill: var(--c); } .point.d { fill: var(--d); }
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; width: 100%; }
th { text-align: left; color: var(--soft); font-weight: 600; }
th, td { padding: 6px 14px 6px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; white-space: nowrap; }
tr:last-child td { border-bottom: 0; } td.name { font-weight: 600; white-space: nowrap; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 18px; margin: 0; font-size: 14px; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 600px) { main { padding: 24px 14px; } figure, section { padding: 16px 14px; } }
"""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot with its heading and how it was measured."""

    title: str
    svg: str
    caption: str


@dataclass(frozen=True, slots=True)
class Table:
    """The numbers behind the plots; columns in `numbers` are set to the right."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Sequence[str] = ()
    note: str = ""


def page(
    title: str,
    lead: str,
    sentences: Sequence[str],
    parts: Sequence[Figure | Table],
    facts: Sequence[tuple[str, str]],
) -> str:
    """The page as text."""
    inside = "".join(_figure(p) if isinstance(p, Figure) else _table(p) for p in parts)
    answer = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
    listed = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{escape(title)}</title>\n<link rel="icon" href="data:,">\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{escape(title)}</h1>\n"
        f'<p class="lead">{escape(lead)}</p>\n<div class="answer">{answer}</div>\n{inside}\n'
        f"<section><h2>How it was measured</h2><dl>{listed}</dl></section>\n</main>\n</body>\n</html>\n"
    )


def machine_facts(machine: Machine, seconds: float) -> list[tuple[str, str]]:
    """Where and when."""
    kind = f" ({machine.file_system})" if machine.file_system else ""
    cores = f"{machine.cores} core" + "s" * (machine.cores != 1)
    return [
        ("machine", f"{machine.cpu}, {cores}, {machine.system}, Python {machine.python}"),
        ("temporary files", f"{machine.folder}{kind}"),
        ("when", f"{time.strftime('%Y-%m-%d %H:%M')}, for {seconds:.0f} s"),
    ]


def _figure(figure: Figure) -> str:
    return (
        f"<figure><h2>{escape(figure.title)}</h2>{figure.svg}"
        f"<figcaption>{escape(figure.caption)}</figcaption></figure>\n"
    )


def _table(table: Table) -> str:
    numbers = [heading in table.numbers for heading in table.headings]
    head = "".join(
        f"<th{' class=number' * right}>{escape(heading)}</th>"
        for heading, right in zip(table.headings, numbers, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(_cell(text, place, numbers[place]) for place, text in enumerate(row))
        + "</tr>"
        for row in table.rows
    )
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<section><h2>{escape(table.title)}</h2><div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{note}</section>\n"
    )


def _cell(text: str, place: int, is_number: bool) -> str:
    kind = "number" if is_number else "name" if not place else ""
    return f"<td class={kind}>{escape(text)}</td>" if kind else f"<td>{escape(text)}</td>"

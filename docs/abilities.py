"""Writes the table of what each format can do into README.md and docs/formats/README.md, from the
registry: `python docs/abilities.py`. A test runs it and finds nothing to change."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import penstock as ps

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", ROOT / "docs" / "formats" / "README.md")
BLOCK = re.compile(r"(<!-- abilities -->\n).*?(<!-- end of abilities -->)", re.DOTALL)
HEADS = (
    "format",
    "files",
    "read",
    "write",
    "random access",
    "compressed",
    "memory map",
    "append",
    "overlay",
    "remote",
)


def row(one: ps.Ability) -> tuple[str, ...]:
    """One format's cells."""

    def mark(has: bool) -> str:
        return "yes" if has else "–"

    return (
        one.format,
        " ".join(f"`{ending}`" for ending in one.extensions) or "folders",
        "yes",
        mark(one.write),
        mark(one.random_access),
        ", ".join(one.compressions) or "–",
        mark(one.memory_map),
        mark(one.append),
        mark(one.overlay),
        mark(one.extensions != ("/",)),
    )


def table() -> str:
    """The table in Markdown."""
    rows = [HEADS, tuple("---" for _ in HEADS), *(row(one) for one in ps.abilities())]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


def renewed(text: str) -> str:
    """A page with the table as it is now."""
    return BLOCK.sub(lambda found: found[1] + table() + found[2], text)


if __name__ == "__main__":
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if BLOCK.search(text) is None:
            sys.exit(f"{page}: no place for the table")
        page.write_text(renewed(text), encoding="utf-8")

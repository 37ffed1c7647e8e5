"""Writes the table of what each format can do into README.md and docs/formats/README.md, from the
registry: `python docs/abilities.py`. A test runs it and finds nothing to change."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from penstock.contract.format import FormatInfo
from penstock.formats import FORMATS

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


def row(info: FormatInfo) -> tuple[str, ...]:
    """One format's cells."""

    def mark(has: bool) -> str:
        return "yes" if has else "–"

    return (
        info.name,
        " ".join(f"`{ending}`" for ending in info.extensions) or "folders",
        "yes",
        mark(info.can_write),
        mark(info.can_take),
        ", ".join(info.compressions) or "–",
        mark(info.can_map),
        mark(info.can_append),
        mark(info.can_overlay),
        "–",
    )


def table() -> str:
    """The table in Markdown."""
    rows = [HEADS, tuple("---" for _ in HEADS), *(row(fmt.info) for fmt in FORMATS)]
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

"""The guide answers what people ask: one short page each, with a program, found from one table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_examples import PAGES, ROOT

GUIDE = ROOT / "docs" / "guide"
INDEX = (GUIDE / "README.md").read_text("utf-8")
TASKS = sorted(page for page in GUIDE.glob("*.md") if page.name != "README.md")
# Two screens, with some room: what is longer belongs to docs/reference.
MAX_LINES = 120


def text_of(page: Path) -> str:
    return page.read_text("utf-8")


@pytest.mark.parametrize("page", TASKS, ids=lambda page: page.stem)
def test_a_page_of_the_guide_is_short_has_a_program_and_is_in_the_index(page: Path) -> None:
    assert text_of(page).count("\n") <= MAX_LINES
    assert "```python\n" in text_of(page)
    assert f"]({page.name})" in INDEX


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs" / "reference").glob("*.md")), ids=lambda page: page.stem
)
def test_a_reference_page_is_linked_from_the_guide(page: Path) -> None:
    linked = {
        (GUIDE / target).resolve()
        for guide in [*TASKS, GUIDE / "README.md"]
        for target in re.findall(r"\]\(([^)#\s]+)", text_of(guide))
    }
    assert page.resolve() in linked


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    prose = re.sub(r"^```.*?^```$", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in headings}


def test_every_link_to_a_heading_finds_it() -> None:
    dead = [
        f"{page.relative_to(ROOT)}: {target}#{heading}"
        for page in PAGES
        for target, heading in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", text_of(page))
        if "://" not in target and heading not in anchors(page.parent / target if target else page)
    ]
    assert not dead

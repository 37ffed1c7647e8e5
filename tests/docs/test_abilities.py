"""The tables of abilities in the README and the docs equal the registry."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from penstock.formats import FORMATS
from reading import ROOT

ABILITIES: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "abilities.py"))


@pytest.mark.parametrize("page", ABILITIES["PAGES"], ids=lambda page: page.name)
def test_the_table_of_abilities_is_what_the_registry_says(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert ABILITIES["BLOCK"].search(text) is not None
    assert text == ABILITIES["renewed"](text), "run: python docs/abilities.py"


def test_every_format_has_a_page() -> None:
    for fmt in FORMATS:
        page = ROOT / "docs" / "formats" / f"{fmt.info.name}.md"
        assert page.exists(), fmt.info.name
        assert f"({fmt.info.name}.md)" in (ROOT / "docs" / "formats" / "README.md").read_text()

"""The reference of a new format lists each field of FormatInfo, with its type and default."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields

from penstock.contract.format import FormatInfo
from reading import ROOT

PAGE = (ROOT / "docs" / "reference" / "new-format.md").read_text("utf-8")


def test_the_page_lists_each_field_with_its_type_and_default() -> None:
    section = PAGE.split("## ")[1]
    listed = re.findall(r"^\| `(\w+)` \| `([^`]+)`(?:, `?([^`|]+?)`?)? \|", section, re.MULTILINE)
    wanted = [
        (field.name, field.type, "" if field.default is MISSING else str(field.default))
        for field in fields(FormatInfo)
    ]
    assert listed == wanted

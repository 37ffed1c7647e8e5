"""`penstock formats` lists the formats and what each can do."""

from __future__ import annotations

import pytest
from running import run

import penstock as ps
from log_format import LogFormat
from penstock import formats


def test_each_format_is_listed_with_its_abilities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "FORMATS", list(formats.FORMATS))  # put back afterwards
    formats.register(LogFormat())
    found = {one["format"]: one for one in run("formats", "--json").document["formats"]}
    assert list(found) == [fmt.info.name for fmt in formats.FORMATS]
    assert found["log"] == {
        "format": "log",
        "extensions": [".log1"],
        "write": True,
        "append": True,
        "random_access": True,
        "compressions": [],
        "memory_map": False,
        "overlay": True,
        "checksums": "CRC-32 of each record",
        "repair": "record",
        "index": True,
        "package": "log_format",
    }
    assert (found["mds"]["write"], found["mds"]["repair"]) == (False, "none")
    assert {one["package"] for name, one in found.items() if name != "log"} == {"penstock"}
    page = run("formats").out
    for fmt in formats.FORMATS:
        assert fmt.info.name in page
    assert "log_format" in page
    assert str(ps.abilities()).strip() == page.strip()

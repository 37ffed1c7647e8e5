"""The program of docs/guide/ray.md, on a cluster."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reading import ROOT

PROGRAM = re.search(
    r"^```python\n(.*?)^```$",
    (ROOT / "docs" / "guide" / "ray.md").read_text("utf-8"),
    re.MULTILINE | re.DOTALL,
)


@pytest.mark.usefixtures("nodes", "in_order")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data")
def test_the_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert PROGRAM is not None
    exec(PROGRAM[1], {})
    printed = capsys.readouterr().out
    assert "10000 ['id', 'vector']" in printed
    assert "9,900 records" in printed

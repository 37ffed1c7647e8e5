"""The Parquet and Arrow files of the public corpus, and the facts about them in its manifest."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CORPUS = Path(__file__).resolve().parents[2].parent / "shared" / "corpus"
PROGRAM = Path(__file__).with_name("read_corpus.py")


@dataclass(frozen=True)
class Case:
    """A file with its number of records and its fields, or None if reading it must end in an error."""

    path: str
    num_records: int | None
    fields: str


def cases(kind: str) -> list[Case]:
    """The data files of one format. Without the corpus, the test is skipped and says so."""
    if not (CORPUS / "MANIFEST.md").exists():
        pytest.skip(f"the public corpus is not at {CORPUS}")
    found: list[Case] = []
    for line in (CORPUS / "MANIFEST.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) < 9 or not cells[1].startswith(f"{kind}/"):
            continue
        if cells[1].endswith((".csv", ".json", ".json.gz", ".md", ".txt")):
            continue
        text = cells[8]
        broken = "refuses it" in text or "fails:" in text
        rows = re.search(r"(\d+) rows", text)
        count = None if broken or rows is None else int(rows.group(1))
        found.append(Case(str(CORPUS / cells[1]), count, text))
    return found


def outcomes(
    kind: str, files: list[str], mmap: bool = False, compare: bool = True
) -> list[dict[str, Any]]:
    """The result of reading each file, each in a separate process.

    With `compare`, pyarrow reads it too. pyarrow makes fewer checks, and a hostile file may crash it.
    """
    how = ("mmap" if mmap else "read") + ("\tcompare" if compare else "\ttouch")
    done = subprocess.run(
        [sys.executable, str(PROGRAM)],
        input="".join(f"{kind}\t{how}\t{file}\n" for file in files),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "2"},
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def check_bounds(found: dict[str, Any]) -> None:
    """No signal, no unexpected exception, at most two seconds and 300 MB."""
    assert found["signal"] == 0, found
    assert "stray" not in found, found
    assert found["seconds"] < 2, found
    assert found["bytes"] < 300 << 20, found


def check_case(case: Case, found: dict[str, Any]) -> None:
    """The file gave the records that its manifest states, or the expected error."""
    check_bounds(found)
    if case.num_records is None:
        assert "error" in found, (case, found)
        assert found["file"] == case.path
        return
    assert found.get("num_records") == case.num_records, (case, found)
    assert found["same"], (case, found)
    # The manifest lists the first fields, as "name: type", after facts about the whole file.
    for name in found["names"][:2]:
        assert f"{name}: " in case.fields or not name

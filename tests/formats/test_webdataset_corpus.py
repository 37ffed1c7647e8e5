"""Every archive that other projects publish has the records that the manifest states, or is refused."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest

import penstock as ps
from reading import shared_path

CORPUS = shared_path("corpus")
GROUPS = re.compile(r"(\d+) key groups by the WebDataset rule, extensions ([\w., ]+?);")
SECONDS = 2.0


def stated() -> dict[str, str]:
    """The manifest's facts about each archive."""
    rows: dict[str, str] = {}
    for line in (CORPUS / "MANIFEST.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0].startswith("webdataset/") and (CORPUS / cells[0]).is_file():
            rows[cells[0]] = cells[-1]
    return {name: text for name, text in rows.items() if not name.endswith((".json", ".md"))}


ARCHIVES = stated()


def scanned(path: Path) -> tuple[int, list[str]]:
    dataset = ps.open(str(path), index="never", format="webdataset")
    return sum(batch.num_rows for batch in dataset.scan()), dataset.schema.names[1:-1]


def test_there_are_archives() -> None:
    assert len(ARCHIVES) >= 50
    assert sum(GROUPS.search(text) is not None for text in ARCHIVES.values()) >= 12


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_has_what_the_manifest_states(name: str, tmp_path: Path) -> None:
    scanned(shared_path("specs", "golden", "webdataset", "typed.tar"))  # imports are not counted
    start = time.perf_counter()
    groups = GROUPS.search(ARCHIVES[name])
    if groups is not None:
        wanted = int(groups[1]), {field.strip() for field in groups[2].split(",")}
        count, fields = scanned(CORPUS / name)
        assert (count, wanted[1] <= set(fields)) == (wanted[0], True)
        neutral = tmp_path / "neutral"
        shutil.copy(CORPUS / name, neutral)
        assert ps.open(str(neutral), index="never").shards[0].format == "webdataset"
    else:
        try:
            assert scanned(CORPUS / name) == (0, [])
        except ps.PenstockError as error:
            assert error.file == str(CORPUS / name)
    assert time.perf_counter() - start < SECONDS

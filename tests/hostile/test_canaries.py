"""Nothing in a file runs code, and nothing in it opens another file.

Each file of `hostile_files.py` attempts one or the other, in a way that its format, or a library that reads the
format, supports. Next to the files is a folder of canaries, and the kernel reports every file in it that any code
opens. Each pickle would create a file. The hostile files are read in subprocesses (`read_hostile.py`), which also
watch Python's audit events.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from hostile_files import HOSTILE, SECRET, Place
from reading_apart import answers, warm_files


@pytest.fixture(scope="module")
def readings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The result for every hostile file, read in several ways."""
    base = tmp_path_factory.mktemp("hostile")
    tasks: list[dict[str, Any]] = []
    for name, make in HOSTILE.items():
        place = Place(base / name)
        path = str(make(place))
        watched = [str(place.outside), *map(str, sorted(place.outside.iterdir()))]
        own = str(base / name / "own")
        options: list[dict[str, Any]] = [{}, {"damage": "skip"}, {"mmap": True}]
        tasks.append(
            {
                "kind": "hostile",
                "path": path,
                "own": own,
                "beside": [str(p) for p in place.folder.rglob("*") if not p.is_symlink()],
                "watched": watched,
                "options": options,
            }
        )
    found = answers(tasks, warm_files(base))
    return dict(zip(HOSTILE, found, strict=True))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_runs_nothing_and_opens_nothing(
    name: str, readings: dict[str, dict[str, Any]]
) -> None:
    answer = readings[name]
    assert "died" not in answer, answer
    for reading in answer["readings"]:
        assert "stray" not in reading, reading["stray"]
        assert reading["events"] == [], reading
        assert reading["opened"] == [], reading
        assert SECRET not in reading["values"]
        if "error" in reading:
            assert reading["file"], reading["text"]
    folder = Path(answer["path"])
    folder = folder if folder.is_dir() else folder.parent
    assert folder.name == "data"
    assert not (folder.parent / "sung").exists()


def test_the_watch_detects_forbidden_actions(tmp_path: Path) -> None:
    """Without this test, a watch that sees nothing would let every file pass."""
    place = Place(tmp_path)
    tasks = [
        {
            "kind": "hostile",
            "path": str(place.outside / name),
            "own": str(tmp_path / "own"),
            "watched": [str(place.outside)],
            "options": [{}],
        }
        for name in ("canary.tfrecord", "canary.h5", "canary.parquet", "canary.tar")
    ]
    for answer in answers(tasks):
        assert answer["path"] in answer["readings"][0]["opened"]
    assert pickle.loads(place.bomb) is None
    assert place.sung.exists()
    assert os.listdir(place.folder) == []

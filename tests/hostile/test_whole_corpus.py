"""Every file that other projects publish gives its records, or an error that says why it does not.

No file is left out: files that are not data (the JSON, CSV and text next to the data) must raise an error that says
so. Each file is opened by its own name and by a name that does not reveal the format, with an index in a different
folder. It is scanned, counted, taken from, and read again past its damage; images are decoded. Bounds for each
reading: two seconds of CPU, 300 MB in addition to the pixels of an image, no signal, no other file, no code.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from reading import SHARED
from reading_apart import answers, warm_files

CORPUS = SHARED / "corpus"
SECONDS = 2.0
BYTES = 300 << 20
PICTURES = ("jpeg", "png", "webp")
COMPANIONS = (".json", ".json.gz", ".md", ".csv", ".txt", ".yaml", ".lst", ".idx")
"""The endings of files that describe data but are not data."""
FILES = sorted(path for path in CORPUS.rglob("*") if path.is_file())
KINDS = sorted({path.relative_to(CORPUS).parts[0] for path in FILES})
each_kind = pytest.mark.parametrize("kind", KINDS)
COUNT = re.compile(r"\b(\d+) (?:records|rows|samples)\b")
Readings = dict[Path, dict[str, Any]]


@pytest.fixture(scope="module")
def readings(tmp_path_factory: pytest.TempPathFactory) -> Readings:
    """The result for every file, which takes half a minute."""
    folder = tmp_path_factory.mktemp("corpus")
    tasks: list[dict[str, Any]] = []
    for number, path in enumerate(FILES):
        beside = [path.with_name("index.json"), path.with_suffix(".idx")]
        facts = {"beside": [str(p) for p in beside], "neutral": True, "skip": True}
        tasks.append({"kind": "file", "path": str(path), "own": str(folder / str(number)), **facts})
    tasks += [
        {"kind": "picture", "path": str(path), "own": str(folder / "pictures")}
        for path in FILES
        if path.relative_to(CORPUS).parts[0] in PICTURES
    ]
    found: Readings = {path: {} for path in FILES}
    for task, answer in zip(tasks, answers(tasks, warm_files(folder)), strict=True):
        if task["kind"] == "picture" and "named" in answer:
            answer = {"picture": answer["named"]}
        found[Path(task["path"])].update(answer)
    return found


def of_kind(readings: Readings, kind: str) -> Readings:
    return {path: a for path, a in readings.items() if path.relative_to(CORPUS).parts[0] == kind}


def ways(readings: Readings, kind: str) -> list[tuple[Path, str, dict[str, Any]]]:
    """Every reading of every file of a kind, with the way in which it was read."""
    return [
        (path, way, found)
        for path, answer in of_kind(readings, kind).items()
        for way in ("named", "neutral", "asked", "skip", "picture")
        if (found := answer.get(way)) is not None
    ]


def test_no_file_is_left_out(readings: Readings) -> None:
    assert len(FILES) > 1000, f"the corpus is not at {CORPUS}"
    died = {path: answer["died"] for path, answer in readings.items() if "died" in answer}
    assert not died
    assert all("named" in answer and "neutral" in answer for answer in readings.values())
    assert sum("picture" in answer for answer in readings.values()) > 400


@each_kind
def test_a_file_gives_records_or_an_error_that_names_it(readings: Readings, kind: str) -> None:
    for path, way, found in ways(readings, kind):
        assert "stray" not in found, f"{path}, {way}:\n{found['stray']}"
        if "error" in found:
            assert found["error"] not in ("PenstockError", "InternalError"), (path, found)
            name = {"picture": "record 0", "neutral": "/neutral", "asked": "/neutral"}
            assert name.get(way, str(path)) in found["text"], (path, way, found)
            assert not re.search(r" at 0x|object at|Traceback|\.py\b", found["text"]), found
        else:
            assert "shape" in found if way == "picture" else found["num_records"] >= 0


@each_kind
def test_a_file_costs_little(readings: Readings, kind: str) -> None:
    for path, way, found in ways(readings, kind):
        assert found["seconds"] < SECONDS, (path, way, found)
        assert found["bytes"] - found.get("pixels", 0) < BYTES, (path, way, found)


@each_kind
def test_a_file_opens_no_other_and_runs_nothing(readings: Readings, kind: str) -> None:
    for path, way, found in ways(readings, kind):
        assert found["events"] == [], (path, way)


@each_kind
def test_a_neutral_name_changes_nothing_if_the_bytes_identify_the_format(
    readings: Readings, kind: str
) -> None:
    for path, answer in of_kind(readings, kind).items():
        named, neutral = answer["named"], answer["neutral"]
        if "error" in named:
            assert "error" in neutral, (path, named, neutral)
        elif path.suffix == ".msgpack":  # any bytes are MessagePack
            assert "format=" in neutral["text"], neutral
            assert answer["asked"]["same"], answer
        else:
            assert "error" not in neutral, (path, neutral)
            assert neutral["format"] == named["format"], (path, neutral)
            assert neutral["num_records"] == named["num_records"]
            assert not named["num_records"] or neutral["same"], path


def test_other_files_are_not_taken_for_data(readings: Readings) -> None:
    companions = [path for path in FILES if path.name.endswith(COMPANIONS)]
    assert len(companions) > 200
    pictures = [p for p in FILES if p.relative_to(CORPUS).parts[0] in PICTURES]
    for path in companions + pictures:
        assert "error" in readings[path]["named"], path
        assert "error" in readings[path]["neutral"], path


def test_most_data_is_read(readings: Readings) -> None:
    """A reader that refuses everything would pass all the other tests."""
    read = [p for p, answer in readings.items() if "error" not in answer["named"]]
    seen = [p for p, answer in readings.items() if "shape" in answer.get("picture", {})]
    assert len(read) > 260
    assert len(seen) > 240
    assert {p.relative_to(CORPUS).parts[0] for p in read} == {
        *(kind for kind in KINDS if kind not in PICTURES)
    } - {"MANIFEST.md", "tfds-metadata", "riegeli-neighbour", "ffcv"}


def test_records_are_as_many_as_the_manifest_states(readings: Readings) -> None:
    compared = 0
    for line in (CORPUS / "MANIFEST.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        answer = readings.get(CORPUS / cells[0], {}).get("named", {})
        count = COUNT.search(cells[-1])
        if count is not None and "num_records" in answer:
            assert answer["num_records"] == int(count[1]), line
            compared += 1
    assert compared > 120

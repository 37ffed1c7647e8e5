"""The pages in a real browser: their tables are shown, in light and dark mode, and the pages load nothing else."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import look_at

import penstock as ps
from penstock.bench.page import page
from penstock.bench.tables import Table, TableColumn
from penstock.cli import bench_tables

LIGHT, DARK, BAR, DARK_BAR = "#0f6fb5", "#4fb0f0", "#9fb6c9", "#45606f"


def reports(folder: Path) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    pixels = rng.integers(0, 255, (12, 24, 24, 3), np.uint8).repeat(2, 1).repeat(2, 2)
    path = folder / "some.arrow"
    labels = [n // 3 for n in range(12)]
    ps.write({"label": labels, "image": ps.encode_images(pixels, "png")}, path)
    ps.write({"label": np.arange(1200) // 300}, folder / "many.arrow", num_shards=3)
    quick = {"rounds": 1, "seconds": 1}
    return {
        "formats": ps.bench.formats(path, only=["arrow", "mds"], **quick),
        "images": ps.bench.images(path, qualities=[80], **quick),
        "shuffle": ps.bench.shuffle(folder / "many-*.arrow", batch_size=40, **quick),
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return reports(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def pages(made: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name, report in made.items():
        found[name] = folder / name / "page.html"
        found[name].parent.mkdir()
        found[name].write_text(ps.bench.html(report), encoding="utf-8")
    return found


TABLES = {"formats": 1, "images": 1, "shuffle": 2}


@pytest.mark.parametrize("name", TABLES)
def test_a_page_has_its_tables_and_asks_for_nothing(pages: dict[str, Path], name: str) -> None:
    seen = look_at(pages[name])
    assert seen.console == []
    assert seen.requests == []
    assert seen.dom.count("<table") == TABLES[name]
    assert "<script" not in seen.dom
    assert seen.share_of(LIGHT) > 0.0001, "what is best stands out"
    assert seen.share_of(BAR) > 0.001
    assert seen.share_of(DARK) == 0


def test_a_page_is_dark_if_the_system_is(pages: dict[str, Path]) -> None:
    seen = look_at(pages["formats"], "--blink-settings=preferredColorScheme=0")
    assert seen.share_of(DARK) > 0.0001, "what is best stands out"
    assert seen.share_of(DARK_BAR) > 0.001
    assert seen.share_of(LIGHT) == seen.share_of(BAR) == 0
    assert seen.share_of("#121212") > 0.5, "the browser's own dark"


def test_the_browser_would_notice_complaints_and_requests(tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<script>console.error('broken')</script><img src='http://example.invalid/x.png'>"
    )
    seen = look_at(bad)
    assert any("broken" in line for line in seen.console)
    assert "http://example.invalid/x.png" in seen.requests


def test_what_a_file_says_is_text_on_a_page() -> None:
    evil = "<img src=x onerror=alert(1)>&\"'"
    columns = [
        TableColumn(evil, [evil]),
        TableColumn(evil, [evil], [1.0], "high"),
        TableColumn(evil, [evil]),
    ]
    made = page(evil, evil, [evil, evil], [Table(evil, columns, evil)], [(evil, evil)])
    assert "<img" not in made
    assert made.count("&lt;img src=x onerror=alert(1)&gt;") == 15


def test_tables_can_be_read_aloud(pages: dict[str, Path]) -> None:
    """A page has a language, one main part, a caption for each table, and a heading for each row and column."""
    for name, path in pages.items():
        text = path.read_text(encoding="utf-8")
        assert '<html lang="en">' in text
        assert text.count("<main>") == text.count("<h1>") == 1
        assert text.count("<caption>") == TABLES[name]
        assert text.count("<th ") == text.count('<th scope="col"') + text.count('<th scope="row"')
        for row in re.findall("<tr>.*?</tr>", text.partition("<tbody>")[2]):
            assert row.startswith('<tr><th scope="')


def test_a_page_has_every_number_of_the_terminal(
    made: dict[str, Any], pages: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for name, report in made.items():
        bench_tables.show(report)
        printed = capsys.readouterr().out
        on_page = re.sub("<[^>]*>", " ", pages[name].read_text(encoding="utf-8"))
        numbers = set(re.findall(r"[0-9][0-9.,]*", printed))
        assert len(numbers) > 10
        assert not [number for number in numbers if number not in html.unescape(on_page)]


def test_every_class_has_a_style(pages: dict[str, Path]) -> None:
    for path in pages.values():
        text = path.read_text(encoding="utf-8")
        for names in re.findall(r'class="([^"]+)"', text):
            for name in names.split():
                assert f".{name}" in text.partition("</style>")[0], name

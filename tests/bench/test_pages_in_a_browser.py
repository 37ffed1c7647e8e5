"""The pages in a real browser: their plots are there, in light and dark, and nothing is loaded."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from browser import look_at

import penstock as ps
from penstock.bench.page import STYLE, Figure, Table, page
from penstock.bench.plots import Bars, bars

LIGHT, DARK, BAR = "#0f6fb5", "#4fb0f0", "#9fb6c9"


def reports(folder: Path) -> dict[str, object]:
    rng = np.random.default_rng(7)
    pixels = rng.integers(0, 255, (12, 24, 24, 3), np.uint8).repeat(2, 1).repeat(2, 2)
    path = folder / "some.arrow"
    labels = [n // 3 for n in range(12)]
    ps.write({"label": labels, "image": ps.encode_images(pixels, "png")}, path)
    quick = {"rounds": 1, "seconds": 1}
    return {
        "formats": ps.bench.formats(path, only=["arrow", "mds"], **quick),
        "images": ps.bench.images(path, qualities=[80], **quick),
        "shuffle": ps.bench.shuffle(path, batch_size=4, **quick),
    }


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name, report in reports(folder).items():
        found[name] = folder / name / "page.html"
        found[name].parent.mkdir()
        found[name].write_text(ps.bench.html(report), encoding="utf-8")
    return found


PLOTS = {"formats": 2, "images": 3, "shuffle": 4}


@pytest.mark.parametrize("name", PLOTS)
def test_a_page_has_its_plots_and_asks_for_nothing(pages: dict[str, Path], name: str) -> None:
    seen = look_at(pages[name])
    assert seen.console == []
    assert seen.requests == []
    assert seen.dom.count("<svg") == PLOTS[name]
    assert "<script" not in seen.dom
    assert seen.share_of(LIGHT) > 0.0001, "what is best stands out"
    assert seen.share_of(BAR) > 0.001
    assert seen.share_of(DARK) == 0


def test_a_page_is_dark_where_the_system_is(pages: dict[str, Path]) -> None:
    seen = look_at(pages["formats"], "--blink-settings=preferredColorScheme=0")
    assert seen.share_of(DARK) > 0.001
    assert seen.share_of("#14181c") > 0.05


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
    made = page(
        evil,
        evil,
        [evil],
        [
            Figure(evil, bars([evil], [Bars(evil, [1.0], [evil])]), evil),
            Table(evil, [evil], [[evil]], [evil], evil),
        ],
        [(evil, evil)],
    )
    assert "<img" not in made
    assert made.count("&lt;img src=x onerror=alert(1)&gt;") >= 14


def test_every_class_of_a_plot_has_a_style(pages: dict[str, Path]) -> None:
    for path in pages.values():
        for names in re.findall(r'class="([^"]+)"', path.read_text(encoding="utf-8")):
            for name in names.split():
                assert name in {"bars", "points", "paths"} or f".{name}" in STYLE, name

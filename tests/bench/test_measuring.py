"""The basis of the measurements: samples, repeats, memory, similarity of images, processes."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock.bench.image_metrics import mean_square_error, psnr, ssim
from penstock.bench.jobs import FailedJobError, run_job, workplace
from penstock.bench.measure import measured, memory_growth_of, seconds_of
from penstock.bench.sample import draw, spread_over


def test_a_sample_is_spread_over_the_data(tmp_path: Path) -> None:
    runs = spread_over(10_000, 100)
    assert sum(last - first for first, last in runs) == 100
    assert runs[0][0] == 0
    assert runs[-1][1] == 10_000
    assert all(a[1] <= b[0] for a, b in pairwise(runs))
    assert spread_over(5, 100) == [(0, 5)]
    assert sum(last - first for first, last in spread_over(7, 3)) == 3


def test_a_sample_keeps_to_its_bytes_and_its_records(tmp_path: Path) -> None:
    ps.write({"x": [b"%04d" % n * 250 for n in range(500)]}, tmp_path / "x.arrow")
    ds = ps.open(tmp_path / "x.arrow")
    few, path, _ = draw(ds, str(tmp_path / ""), 10_000, 100_000)
    assert 90 <= few.num_records <= 100
    assert few.num_all_records == 500
    assert len(ps.open(path)) == few.num_records


def test_the_median_and_the_spread_of_repeats() -> None:
    found = measured([1.0, 4.0, 2.0])
    assert (found.median, found.least, found.most, found.repeats) == (2, 1, 4, 3)
    assert found.spread == 1.5


def test_a_quick_call_is_repeated_until_it_can_be_timed() -> None:
    calls = []
    seconds = seconds_of(lambda: calls.append(time.sleep(0.002)), 0.02)
    assert 2 <= len(calls) <= 10
    assert 0.002 <= seconds < 0.05


def test_memory_that_is_used_and_given_back_is_seen() -> None:
    def use() -> int:
        return int(np.ones(40_000_000, np.uint8).sum())

    assert use() == 40_000_000
    for _ in range(2):  # the second time too, although the peak so far is equally high
        found, growth = memory_growth_of(use)
        assert found == 40_000_000
        assert 38_000_000 < growth < 80_000_000


def test_psnr_and_ssim_of_known_pictures() -> None:
    rng = np.random.default_rng(1)
    picture = rng.integers(20, 200, (40, 50, 3), np.uint8)
    brighter = picture + np.uint8(10)
    assert mean_square_error(picture, brighter) == 100
    assert psnr(100) == pytest.approx(28.13, abs=0.01)
    assert psnr(0) == math.inf
    assert ssim(picture, picture) == pytest.approx(1)
    noisy = np.clip(picture + rng.normal(0, 30, picture.shape), 0, 255).astype(np.uint8)
    noisier = np.clip(picture + rng.normal(0, 60, picture.shape), 0, 255).astype(np.uint8)
    assert 1 > ssim(picture, noisy) > ssim(picture, noisier) > 0


def test_ssim_is_that_of_its_definition() -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.integers(0, 255, (11, 13), np.uint8) for _ in range(2))
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    found = []
    for y in range(11 - 7):
        for x in range(13 - 7):
            p, q = (one[y : y + 8, x : x + 8].astype(float) for one in (a, b))
            covariance = np.mean((p - p.mean()) * (q - q.mean()))
            above = (2 * p.mean() * q.mean() + c1) * (2 * covariance + c2)
            below = (p.mean() ** 2 + q.mean() ** 2 + c1) * (p.var() + q.var() + c2)
            found.append(above / below)
    assert ssim(a, b) == pytest.approx(np.mean(found))


def test_a_job_that_fails_reports_the_reason() -> None:
    with pytest.raises(FailedJobError, match=r"(?i)no such file"):
        run_job(
            {
                "kind": "image", "side": "decode", "sample": "nothing-there.arrow",
                "target": "nothing-there.arrow", "threads": 1,
            },
            60,
        )  # fmt: skip


def test_a_job_that_takes_too_long_is_ended() -> None:
    begun = time.monotonic()
    with pytest.raises(FailedJobError, match="took longer than"):
        run_job({"kind": "image", "sample": "x" * 100}, 0.01)
    assert time.monotonic() - begun < 30


def test_a_workplace_goes_also_when_work_fails(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), workplace(str(tmp_path)) as place:
        (Path(place) / "x").write_text("x")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["INT", "TERM"])
def test_an_interrupted_bench_leaves_nothing(tmp_path: Path, name: str) -> None:
    import signal

    data, place = tmp_path / "x.arrow", tmp_path / "place"
    place.mkdir()
    ps.write({"x": [b"x" * 1000] * 20_000}, data)
    command = ["bench", "formats", str(data), "--temporary", str(place), "--rounds", "9"]
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONFAULTHANDLER": ""},
    )
    deadline = time.monotonic() + 60
    while not list(place.glob("*/candidate/*")):
        assert time.monotonic() < deadline, "it never began to write"
        time.sleep(0.01)
    process.send_signal(getattr(signal, f"SIG{name}"))
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.strip() == b"interrupted"
    assert list(place.iterdir()) == []

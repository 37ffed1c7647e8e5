"""The reports: what is measured, what is refused, and that their sentences follow from the numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock import formats
from penstock.bench.formats import FormatRow, _candidates
from penstock.bench.formats import _sentences as format_sentences
from penstock.bench.images import ImageRow, bounded
from penstock.bench.images import _sentences as image_sentences
from penstock.bench.measure import Measured
from penstock.cli.output import plain


def rate(median: float, part: float = 0.05) -> Measured:
    return Measured(median, median * (1 - part), median * (1 + part), 3)


def test_every_format_is_a_candidate_once_plain_and_once_compressed() -> None:
    found = [(one.format, one.compression) for one in _candidates(None)]
    assert {name for name, _ in found} == {kind.info.name for kind in formats.FORMATS}
    assert [packed for name, packed in found if name == "tfrecord"] == [None, "gzip"]
    assert [packed for name, packed in found if name == "parquet"] == [None, "snappy"], (
        "zstd is usual"
    )
    assert [packed for name, packed in found if name == "npy"] == [None]


def test_a_format_is_measured_or_has_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write({"id": range(300), "name": [b"x" * n for n in range(300)]}, path)
    only = ["tfrecord", "msgpack", "recordio", "mds"]
    report = ps.bench.formats(path, only=only, rounds=1, seconds=1, folder=str(tmp_path))
    rows = {row.name: row for row in report.rows}
    assert "does not write" in rows["mds"].problem
    assert "RecordIO holds" in rows["recordio"].problem
    for name in ("tfrecord", "tfrecord gzip", "msgpack"):
        row = rows[name]
        assert row.problem is None
        assert row.num_bytes > 1000
        assert min(row.write.median, row.scan.median, row.random.median) > 0
    assert rows["tfrecord"].index_bytes > 0
    assert rows["tfrecord"].num_bytes == path.stat().st_size
    assert rows["tfrecord gzip"].num_bytes < rows["tfrecord"].num_bytes
    assert sorted(p.name for p in tmp_path.iterdir()) == [".x.tfrecord.penstock", "x.tfrecord"]
    assert json.loads(json.dumps(plain(report.to_dict())))["sample"]["num_records"] == 300


def test_the_first_round_is_completed_and_reported_without_time(tmp_path: Path) -> None:
    ps.write({"id": range(30)}, tmp_path / "x.arrow")
    seen: list[float] = []
    report = ps.bench.formats(
        tmp_path / "x.arrow",
        only=["arrow"],
        seconds=0,
        progress=lambda name, part: seen.append(part),
    )
    assert [row.scan.repeats for row in report.measured_rows] == [1, 1]
    assert all(0 <= part <= 1 for part in seen)


def test_formats_says_what_it_does_not_know(tmp_path: Path) -> None:
    ps.write({"id": range(3)}, tmp_path / "x.arrow")
    with pytest.raises(ValueError, match="unknown format 'parquette'"):
        ps.bench.formats(tmp_path / "x.arrow", only=["parquette"])
    ps.write({"id": np.zeros(0, np.int64)}, tmp_path / "none.arrow")
    with pytest.raises(ValueError, match="has no records"):
        ps.bench.formats(tmp_path / "none.arrow")


def test_a_difference_within_the_spread_is_not_called_slower() -> None:
    def row(name: str, num_bytes: int, scan: float, random: float) -> FormatRow:
        rates = (rate(1), rate(scan), rate(random))
        return FormatRow(name, name, None, None, num_bytes, 0, *rates)

    said = format_sentences([row("a", 100, 50, 9), row("b", 50, 52, 3), row("c", 90, 20, 1)], 100)
    assert said[0].startswith("All in all: a,")
    assert "Smallest: b, 50 B, 50% of the Arrow file." in said
    assert "Quickest to scan: b, 52 records/s; as quick within the spread of repeats: a." in said
    assert "Quickest at random: a, 9 records/s, 3.0 times b." in said


def test_one_round_names_no_winner() -> None:
    def row(name: str, scan: float, repeats: int, spread: float = 0.0) -> FormatRow:
        found = Measured(scan, scan * (1 - spread), scan * (1 + spread), repeats)
        return FormatRow(name, name, None, None, 100, 0, found, found, found)

    once = format_sentences([row("npz", 90, 1), row("tfrecord", 50, 1)], 1 << 24)
    assert "one round" in once[0] and not any("Quickest" in one or "All in" in one for one in once)
    noisy = format_sentences([row("npz", 60, 5, 0.2), row("tfrecord", 50, 5, 0.2)], 1 << 24)
    assert "as good within the spread of repeats: tfrecord" in noisy[0]
    assert "npz cannot be appended to or read as a stream" in noisy[0]
    assert any(one.startswith("Beyond speed: tfrecord can be appended to;") for one in noisy)
    clear = format_sentences([row("npz", 90, 5), row("tfrecord", 50, 5)], 1 << 24)
    assert "as good" not in clear[0] and "npz cannot be appended to" in clear[0]


def test_images_are_compared_by_their_contents(tmp_path: Path) -> None:
    y, x = np.mgrid[0:64, 0:80]
    waves = np.stack([127 + 100 * np.sin(x / 9 + y / (5 + n)) for n in range(6)])
    pixels = np.stack([waves] * 3, axis=-1).astype(np.uint8)
    ps.write({"id": range(6), "photo": ps.encode_images(pixels, "png")}, tmp_path / "x.arrow")
    report = ps.bench.images(tmp_path / "x.arrow", qualities=[50, 95], rounds=1, seconds=1)
    assert report.column == "photo"
    assert report.sizes == "80 x 64 pixels"
    rows = {row.name: row for row in report.rows}
    assert all(row.problem is None for row in report.rows)
    for name in ("as it is", "PNG", "WebP lossless", "raw"):
        assert rows[name].is_exact
        assert rows[name].psnr is None
        assert rows[name].ssim == pytest.approx(1)
    assert rows["JPEG 50"].psnr < rows["JPEG 95"].psnr
    assert rows["JPEG 50"].num_bytes < rows["JPEG 95"].num_bytes < rows["raw"].num_bytes
    assert rows["raw"].num_bytes == 6 * (64 * 80 * 3 + len(b"P6\n80 64\n255\n"))
    assert rows["as it is"].encode is None
    assert rows["PNG"].encode.median > 0


def test_images_needs_a_column_of_images(tmp_path: Path) -> None:
    ps.write({"id": range(3), "x": [b"no image"] * 3}, tmp_path / "x.arrow")
    with pytest.raises(
        ValueError, match=r"no column of .* was found to hold encoded images; there are: id, x"
    ):
        ps.bench.images(tmp_path / "x.arrow")
    with pytest.raises(ValueError, match="no column 'y'"):
        ps.bench.images(tmp_path / "x.arrow", column="y")
    with pytest.raises(ValueError, match="qualities are from 1 to 100"):
        ps.bench.images(tmp_path / "x.arrow", qualities=[0])


def test_the_recommended_codec_delivers_the_most() -> None:
    def row(name: str, codec: str | None, num_bytes: int, decode: float, psnr: float | None):
        delivered = bounded(rate(decode), 1e6 * 10 / num_bytes)
        return ImageRow(
            name, codec, None, None, num_bytes, None, rate(decode), rate(decode), 0, psnr, psnr,
            1.0, 1.0, psnr is None, delivered,
        )  # fmt: skip

    now = row("as it is", None, 10_000, 500, None)
    blurred, good = row("JPEG 50", "jpeg", 1000, 5000, 30), row("JPEG 95", "jpeg", 5000, 3000, 42)
    said = image_sentences([now, blurred, good], 1, 38, 10)
    assert said[0] == (
        "With storage that gives 1 MB/s, and at least 38 dB, JPEG 95 is quickest: 2,000 images/s, "
        "4.00 times the current rate, with 0.50 times the bytes."
    )
    alike = row("PNG", "png", 10_000, 510, None)
    assert "overlap" in image_sentences([now, alike], 1, 38, 10)[0]


def test_shuffle_finds_labels_chunks_and_shards(tmp_path: Path) -> None:
    count = 40_000
    data = {"x": np.random.default_rng(0).random((count, 16)), "cls": np.arange(count) * 8 // count}
    ps.write(data, tmp_path / "x.arrow", num_shards=4)
    report = ps.bench.shuffle(tmp_path / "x-*.arrow", rounds=1, seconds=0.5, batch_size=100)
    assert (report.label, report.num_labels, report.num_shards) == ("cls", 8, 4)
    assert report.num_records == count
    rows = {row.name: row for row in report.rows}
    assert rows["Sequential"].mixing.moved == 0
    assert rows["Sequential"].by_chunks
    assert list(rows) == [
        "Sequential",
        "Interleaved",
        "Buffered 1,000",
        "Buffered 10,000",
        "Shuffled",
    ]
    moved = [row.mixing.moved for name, row in rows.items() if name.startswith(("S", "B"))]
    assert moved == sorted(moved)
    off = [row.mixing.label_distance for name, row in rows.items() if name != "Interleaved"]
    assert off == sorted(off, reverse=True)
    assert not rows["Shuffled"].by_chunks
    assert rows["Shuffled"].mixing.is_exact
    assert rows["Shuffled"].seeks > 10 * rows["Sequential"].seeks
    assert sum("Shuffled" in sentence for sentence in report.sentences) >= 3
    assert json.loads(json.dumps(plain(report.to_dict())))["rows"][0]["name"] == "Sequential"


def test_shuffle_takes_orders_and_disks_of_others(tmp_path: Path) -> None:
    ps.write({"id": np.arange(5000)}, tmp_path / "x.tfrecord")
    disk = ps.bench.Disk("tape", 1000, 1)
    report = ps.bench.shuffle(
        tmp_path / "x.tfrecord",
        orders={"mine": ps.Shuffled(9)},
        disks=[disk],
        rounds=1,
        seconds=0.2,
    )
    (row,) = report.rows
    assert row.spec == {"name": "shuffled", "seed": 9}
    assert report.label is None, "numbers that all differ are not labels"
    assert row.disk_seconds[0] == pytest.approx(row.seeks + row.block_bytes / 1e6)
    with pytest.raises(ValueError, match="are not labels"):
        ps.bench.shuffle(tmp_path / "x.tfrecord", label="id", rounds=1)
    with pytest.raises(ValueError, match="no column 'nothing'"):
        ps.bench.shuffle(tmp_path / "x.tfrecord", label="nothing")

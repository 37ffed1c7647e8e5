"""The progress line on the terminal, and whether the right bottleneck is named."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.engine.pipeline import default_threads
from penstock.loader import _caching
from penstock.storage.local import LocalSource, LocalStorage

COUNT = 400


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("progress") / "n.tfrecord"
    ps.write({"id": range(COUNT), "text": ["x" * 100] * COUNT}, path)
    return path


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("progress") / "photos.tfrecord"
    noise = np.random.default_rng(0).integers(0, 255, (24, 256, 256, 3), dtype=np.uint8)
    ps.write({"image": ps.encode_images(list(noise), "jpeg", quality=90)}, path)
    return path


class SlowSource(LocalSource):
    """A file on a slow disk."""

    def read(self, start: int, length: int) -> Any:
        time.sleep(0.03)
        return super().read(start, length)

    def gather(self, starts: Any, lengths: Any) -> Any:
        time.sleep(0.03)
        return super().gather(starts, lengths)

    def local_file(self) -> Any:
        return None  # which would be read without this class


class SlowStorage(LocalStorage):
    def source(self, path: str, *, mmap: bool = False) -> Any:
        return SlowSource(path)


def slow_map(batch: dict[str, Any]) -> dict[str, Any]:
    time.sleep(0.01)
    return batch


def after_an_epoch(loader: ps.Loader, seconds_a_batch: float = 0) -> ps.LoaderStats:
    for _ in loader:
        time.sleep(seconds_a_batch)
    return loader.stats()


@pytest.mark.parametrize("threads", [0, 1, 2])
def test_a_slow_disk_is_named(data: Path, threads: int) -> None:
    ds = ps.open(data, storage=SlowStorage())
    stats = after_an_epoch(ps.Loader(ds, 16, order=ps.Shuffled(0), threads=threads))
    assert max(stats.stage_seconds, key=stats.stage_seconds.__getitem__) == "read"
    assert "reading: keep the data on a faster disk" in stats.bottleneck
    assert stats.wait_share > 0.5


@pytest.mark.parametrize("threads", [0, 1, 2])
@pytest.mark.parametrize("order", [ps.Sequential(), ps.Shuffled(0)])
def test_decompression_is_named(tmp_path: Path, threads: int, order: Any) -> None:
    path = tmp_path / "packed.tfrecord.gz"
    ps.write({"a": [bytes(20_000)] * 2000}, path)
    loader = ps.Loader(ps.open(path), 16, order=order, threads=threads)
    stats = after_an_epoch(loader)
    assert max(stats.stage_seconds, key=stats.stage_seconds.__getitem__) == "read", stats
    assert "decompressing" in stats.bottleneck and "faster disk" not in stats.bottleneck


@pytest.mark.parametrize("threads", [0, 2])
def test_files_that_are_not_compressed_are_not_decompressed(data: Path, threads: int) -> None:
    loader = ps.Loader(ps.open(data), 4, order=ps.Shuffled(0), columns=["id"], threads=threads)
    stats = after_an_epoch(loader)
    assert min(stats.stage_seconds[stage] for stage in ("read", "verify", "columns")) > 0
    assert sorted(stats.stage_seconds) == ["columns", "decode", "map", "read", "verify"]
    assert not stats.is_compressed
    busy = replace(stats, stage_seconds={"read": 9.0}, wait_cpu_seconds=9.0, loop_seconds=0.0)
    assert "copying many small pieces" in busy.bottleneck
    assert "decompressing" in replace(busy, is_compressed=True).bottleneck


@pytest.mark.parametrize("threads", [0, 2])
def test_a_slow_map_is_named(data: Path, threads: int) -> None:
    stats = after_an_epoch(ps.Loader(ps.open(data), 16, map=slow_map, threads=threads))
    assert "the function given as map" in stats.bottleneck
    assert stats.stage_seconds["map"] > 0.01 * 25


def parquet(path: Path) -> ps.Dataset:
    tokens = np.random.default_rng(0).integers(0, 50_000, (4000, 200), np.int32)
    ps.write({"tokens": list(tokens)}, path)
    return ps.open(path)


@pytest.mark.parametrize("is_mixed", [False, True])
def test_scattered_records_of_parquet_lead_to_a_copy_in_memory_or_blocks(
    tmp_path: Path, is_mixed: bool
) -> None:
    ds = parquet(tmp_path / "a.parquet")
    sets: Any = {"a": ds, "b": ds} if is_mixed else ds
    order = ps.Mixture({"a": 0.5, "b": 0.5}, seed=0) if is_mixed else ps.Shuffled(0)
    stats = after_an_epoch(ps.Loader(sets, 400, order=order, threads=1))
    assert max(stats.stage_seconds, key=stats.stage_seconds.__getitem__) == "columns", stats
    advice = 'cache="memory"' + (not is_mixed) * " or order=penstock.Blocked(seed)"
    assert f"records into columns: give {advice}, ask for fewer columns=" in stats.bottleneck
    assert stats.since(stats).parses_less_with == advice
    assert "parses_less_with" not in stats.to_dict()
    cached = ps.Loader(sets, 400, order=order, cache="memory")
    assert cached.stats().parses_less_with == ""


def test_an_order_in_blocks_is_named_where_it_helps_and_the_records_do_not_fit_in_memory(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = parquet(tmp_path / "a.parquet")
    blocks = "order=penstock.Blocked(seed)"
    monkeypatch.setattr(_caching, "_free_memory", lambda: 1000)

    def advised(data: ps.Dataset, order: Any) -> str:
        return ps.Loader(data, 4, order=order).stats().parses_less_with

    assert advised(ds, ps.Shuffled(0)) == blocks
    assert advised(ds.subset([3, 5]), ps.Shuffled(0)) == blocks
    assert advised(ds, ps.Sequential()) == advised(ds, ps.Blocked(0)) == ""
    assert advised(ps.open(data), ps.Shuffled(0)) == ""  # each record is read alone


def test_a_slow_consumer_is_named(data: Path) -> None:
    stats = after_an_epoch(ps.Loader(ps.open(data), 16), seconds_a_batch=0.03)
    assert "The loader keeps up" in stats.bottleneck
    assert stats.loop_seconds > 0.03 * 24


def test_heavy_decoding_is_named(photos: Path) -> None:
    cores = default_threads()
    for threads in {0, cores}:
        loader = ps.Loader(ps.open(photos), 8, decode={"image": ps.Image()}, threads=threads)
        stats = after_an_epoch(loader)
        advice = "give more threads=" if threads < cores else "use a machine with more cores"
        assert f"decoding: {advice}" in stats.bottleneck


def test_verifying_is_distinguished_from_making_columns(tmp_path: Path) -> None:
    path = tmp_path / "large.tfrecord"
    ps.write({"x": [os.urandom(1 << 20)] * 24}, path)
    whole = after_an_epoch(ps.Loader(ps.open(path), 4, threads=1))
    assert whole.stage_seconds["verify"] > 0
    without = after_an_epoch(ps.Loader(ps.open(path, checksums="headers"), 4, threads=1))
    assert without.stage_seconds["verify"] == 0


def test_stats_between_two_calls(data: Path) -> None:
    loader = ps.Loader(ps.open(data), 16)
    first = after_an_epoch(loader)
    since = after_an_epoch(loader).since(first)
    assert (since.num_batches, since.num_records) == (25, COUNT)
    assert 0 < since.records_per_second
    assert since.bytes_per_second > since.records_per_second


_SCRIPT = """
import sys, time, penstock as ps
loader = ps.Loader(ps.open(sys.argv[1], index="never"), 16, progress=True, rank={rank}, world_size=2)
for batch in loader:
    time.sleep(0.2)
"""


def on_a_terminal(script: str, *arguments: object) -> str:
    """The output that a person sees."""
    mine, its = pty.openpty()
    command = [sys.executable, "-c", script, *map(str, arguments)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(command, stdout=its, stderr=its, env=environment) as process:
        os.close(its)
        seen = io.BytesIO()
        while True:
            try:
                part = os.read(mine, 4096)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            seen.write(part)
        assert process.wait() == 0
    os.close(mine)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen.getvalue().decode())


def test_a_terminal_shows_steps_rates_and_the_bottleneck(data: Path) -> None:
    seen = on_a_terminal(_SCRIPT.format(rank=0), data)
    assert "epoch 0" in seen
    assert re.search(r"\d+/13", seen)
    assert re.search(r"[\d,]+ records/s, [\d.]+ kB/s, waited \d+%", seen)
    # Which of the two is named depends on the load of the machine.
    assert re.search("The loader keeps up|The loop waited", seen.rsplit("records/s.", 1)[1])


def test_only_rank_0_shows_it(data: Path) -> None:
    assert on_a_terminal(_SCRIPT.format(rank=1), data).strip() == ""


def test_nothing_is_shown_without_a_terminal(data: Path) -> None:
    command = [sys.executable, "-c", _SCRIPT.format(rank=0), str(data)]
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stdout == done.stderr == b""

"""Each damaged record is listed once, however often and in whatever way it is read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps

BAD = (7, 23, 41)


@pytest.mark.parametrize("ending", ["tfrecord", "msgpack", "tar"])
@pytest.mark.parametrize("order", [ps.Sequential(), ps.Shuffled(0), ps.Blocked(0)])
def test_a_damaged_record_is_listed_once(tmp_path: Path, ending: str, order: Any) -> None:
    path = tmp_path / f"a.{ending}"
    ps.write({"a": [b"AAAA%04d" % n * 5 for n in range(60)]}, path)
    data = bytearray(path.read_bytes())
    for record in BAD:
        data[data.index(b"AAAA%04d" % record)] ^= 1
    before = path.stat()
    path.write_bytes(data)
    # Simulate damage by the disk, with unchanged times: if a file was written after its index was
    # made, it counts as rewritten.
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    ds = ps.open(path, damage="skip")
    loader = ps.Loader(ds, 8, order=order)
    for _ in range(2):
        list(loader)
    other = ps.Loader(ds, 5, order=ps.Shuffled(3), columns=["a"])
    list(other)
    assert len(loader.damage) == len(other.damage) == len(BAD)
    list(ds.scan())
    assert len(ds.damage) == len(BAD)
    # Each region is the whole record, as a scan of another dataset finds it.
    alone = ps.open(path, damage="skip")
    list(alone.scan())
    assert set(ds.damage) == set(alone.damage)


def test_a_damaged_image_is_listed_once(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 64, 64, 3), np.uint8)
    images = [image.as_py() for image in ps.encode_images(list(pixels), "jpeg").storage]
    for record in (2, 9):
        images[record] = images[record][: len(images[record]) // 2]
    ps.write({"image": images}, tmp_path / "a.tfrecord")
    ds = ps.open(tmp_path / "a.tfrecord", damage="skip")
    look = ps.Image(16, crop="random", flip=True)
    loader = ps.Loader(ds, 4, order=ps.Shuffled(0), decode={"image": look})
    for _ in range(5):
        list(loader)
    assert len(loader.damage) == 2
    joined = ps.Loader(
        [ds, ps.open(tmp_path / "a.tfrecord", damage="skip")], 4, decode={"image": look}
    )
    list(joined), list(joined)
    assert len(joined.damage) == 4


@pytest.mark.parametrize("ending", ["tfrecord", "msgpack", "tar"])
@pytest.mark.parametrize("damage", ["skip", "stop"])
@pytest.mark.parametrize("index", ["never", "auto"])
@pytest.mark.parametrize("is_chosen", [False, True], ids=["all", "view"])
def test_a_region_without_records_is_listed(
    tmp_path: Path, ending: str, damage: Any, index: str, is_chosen: bool
) -> None:
    """Records that are not found have no numbers, so the loader does not ask for them. Here the last one is cut."""
    path = tmp_path / f"a.{ending}"
    values = [b"AAAA%04d" % n * 50 for n in range(60)]
    ps.write({"a": values}, path, index=False)
    data = path.read_bytes()
    path.write_bytes(data[: data.index(values[-1]) + 100])
    alone = ps.open(path, damage=damage, index=index)
    list(alone.scan())
    ds = ps.open(path, damage=damage, index=index)
    loader = ps.Loader(ds.subset(range(len(ds))) if is_chosen else ds, 8)
    assert sum(len(batch["a"]) for batch in loader) == 59
    assert len(ds.damage) == 1
    assert loader.damage == ds.damage == alone.damage
    assert loader.stats().num_skipped == 1
    assert "1 record" in str(loader.stats())
    list(ds.scan())
    assert ds.damage == alone.damage

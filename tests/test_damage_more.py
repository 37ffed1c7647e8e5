"""Verbs over damaged files deliver what a scan delivers, and tell what is missing where it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import frames
import penstock as ps


def flip(path: Path, at: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def ids_of(source: Any, **options: Any) -> list[int]:
    ds = source if isinstance(source, ps.Dataset) else ps.open(source, **options)
    return [n for batch in ds.scan(columns=["id"]) for n in batch.column("id").to_pylist()]


def ids_file(path: Path, count: int = 1000) -> list[int]:
    """A file of ids, and where each record starts."""
    ps.write({"id": range(count)}, str(path), index=False)
    starts, data, at = [], path.read_bytes(), 0
    while at < len(data):
        starts.append(at)
        at += frames.FRAMING + int.from_bytes(data[at : at + 8], "little")
    return starts


# -- records that are hopped over -----------------------------------------------------------------


@pytest.mark.parametrize("index", ["never", "auto"])
def test_counting_before_a_scan_changes_nothing(tmp_path: Path, index: str) -> None:
    rng = np.random.default_rng(0)
    some = [rng.bytes(40_000) for _ in range(300)]
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frames.file_of([b"%d" % n for n in range(3)]))
    ps.write({"record": some}, str(path), index=False, overwrite=True, payload="raw")
    flip(path, frames.starts_of(some)[40] + 9)
    ds = ps.open(str(path), damage="skip", raw=True, index=index)
    want = some[:40] + some[41:]
    assert len(ds) == 299
    assert [p for batch in ds.scan() for p in batch.column(0).to_pylist()] == want
    again = ps.open(str(path), damage="skip", raw=True, index=index)
    got = []
    for batch in again.scan(threads=1):
        got += batch.column(0).to_pylist()
        assert len(again) == 299
    assert got == want

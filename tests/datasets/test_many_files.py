"""Behaviour that needs several files: names that stand for many files, and files that change."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import frames
import penstock as ps
from reading import run_python

PEAK = r"""
import re, sys
import penstock as ps
for _ in ps.open(sys.argv[1], index="never", raw=True).scan():
    pass
print(int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1]) >> 10)
"""
"""A program that prints its peak memory in MiB."""


def test_compressed_files_that_were_read_keep_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    payloads = [rng.integers(0, 4, 4000, np.uint8).tobytes() for _ in range(1500)]
    first = tmp_path / "a" / "0.tfrecord.gz"
    first.parent.mkdir()
    first.write_bytes(frames.gzip_of(frames.file_of(payloads), level=1))
    few = int(run_python(PEAK, str(first.parent)))
    for number in range(1, 40):
        shutil.copy(first, first.with_name(f"{number}.tfrecord.gz"))
    assert int(run_python(PEAK, str(first.parent))) < few + 80


@pytest.mark.parametrize("made", [frames.gzip_of, frames.zlib_of])
def test_a_compressed_file_that_is_cut_while_it_is_open(
    tmp_path: Path, made: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "a.tfrecord"
    data = made(frames.file_of([b"%d" % n for n in range(1000)]))
    path.write_bytes(data)
    dataset = ps.open(path, raw=True, index="never")
    os.truncate(path, len(data) - 9)
    with pytest.raises(ps.ChangedError, match=r"(cut|truncated) while it was open"):
        list(dataset.scan())


@pytest.mark.parametrize("batch_records", [None, 7, 256, 501, 5000])
def test_batches_of_any_size_bring_the_records_before_an_error(
    tmp_path: Path, batch_records: int | None
) -> None:
    data = bytearray(frames.file_of([bytes(100)] * 1000))
    data[500 * 116 + 50] ^= 1
    path = tmp_path / "a.tfrecord"
    path.write_bytes(data)
    found = 0
    with pytest.raises(ps.ChecksumError) as caught:
        for batch in ps.open(path, raw=True, index="never").scan(batch_records=batch_records):
            found += batch.num_rows
    assert (found, caught.value.record) == (500, 500)


def test_sidecars_in_a_list_are_not_data(tmp_path: Path) -> None:
    for number in range(2):
        path = tmp_path / f"toy.tfrecord-0000{number}-of-00002"
        ps.write({"i": [number]}, path, format="tfrecord")
        ps.index(path, text=True)
    # Including hidden files, as `find` lists them.
    listed = sorted(str(path) for path in tmp_path.iterdir())
    assert len(listed) == 6
    assert len(ps.open(listed)) == 2
    assert ps.verify(listed).ok


@pytest.mark.parametrize("name", ["x@0", "run@1700000000.tfrecord", "x@99999999999"])
def test_numbers_that_name_no_set(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileNotFoundError, match="no such file"):
        ps.open(tmp_path / name)


def test_a_link_is_written_through(tmp_path: Path) -> None:
    real, link = tmp_path / "real.tfrecord", tmp_path / "link.tfrecord"
    ps.write({"i": [1]}, real)
    link.symlink_to(real)
    ps.write({"i": [1, 2]}, link, overwrite=True)
    assert link.is_symlink()
    assert len(ps.open(real)) == 2


@pytest.mark.parametrize("name", ["a.tfrecord", "a.tfrecord.gz"])
def test_a_limit_holds_with_and_without_an_index(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    ps.write([b"x" * 100] * 5 + [b"y" * 5000] + [b"z" * 100] * 5, path, payload="raw")
    ends = set()
    for index in ("auto", "never"):
        dataset = ps.open(path, raw=True, index=index, limits={"record_bytes": 1000})
        found = 0
        with pytest.raises(ps.LimitError) as caught:
            for batch in dataset.scan():
                found += batch.num_rows
        ends.add((found, caught.value.record, caught.value.found))
    assert ends == {(5, 5, 5000)}

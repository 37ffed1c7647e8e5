"""An index with checksums reveals every flipped bit, in every format."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import numpy as np
import pytest
from held import WRITABLE, small_table
from test_laws import same, whole

import penstock as ps
from penstock.contract.format import Format
from penstock.framing.index.blocks import BLOCK_BYTES
from penstock.verbs.write.write import write
from places import Place, at

per_format = pytest.mark.parametrize("fmt", WRITABLE, ids=lambda fmt: fmt.info.name)


@per_format
def test_every_flipped_bit_is_found(fmt: Format, place: Place) -> None:
    path = str(place / "a") + fmt.info.extensions[0]
    path = write(small_table(fmt), path, format=fmt.info.name).paths[0]
    wanted = whole(ps.open(path))
    assert len(ps.index(path, checksums=True)) == 1
    assert ps.verify(path).ok
    root = at(path)
    is_file = root.is_file()
    if is_file:
        same(whole(ps.open(path, checksums="index")), wanted)
        same(ps.open(path, checksums="index").take([3, 1]), wanted.take([3, 1]))
    files = (
        [root] if is_file else sorted((one for one in root.rglob("*") if one.is_file()), key=str)
    )
    rng = random.Random(fmt.info.name)
    for _ in range(40):
        file = rng.choice(files)
        right = file.read_bytes()
        told = file.stat() if isinstance(file, Path) else None
        data = bytearray(right)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        file.write_bytes(data)
        if told:
            os.utime(file, ns=(told.st_atime_ns, told.st_mtime_ns))
        assert not ps.verify(path, format=fmt.info.name).ok
        if is_file:
            with pytest.raises(ps.ChecksumError, match="differ from those that were indexed"):
                whole(ps.open(path, checksums="index", format=fmt.info.name))
        file.write_bytes(right)
    assert ps.verify(path).ok


def test_a_read_compares_only_what_it_needs_and_names_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.arange(1_000_000))
    ps.index(path, checksums=True)
    data = bytearray(path.read_bytes())
    data[128 + 8 * 700_000] ^= 1
    path.write_bytes(data)
    dataset = ps.open(path, checksums="index")
    assert dataset[5]["data"] == 5
    with pytest.raises(ps.ChecksumError) as caught:
        dataset.take([700_000])
    assert caught.value.byte == 5 * BLOCK_BYTES
    (finding,) = ps.verify(path).findings
    assert (finding.start_byte, finding.end_byte) == (5 * BLOCK_BYTES, 6 * BLOCK_BYTES)


@pytest.mark.parametrize("name", ["a.npy", "a.msgpack"])
def test_a_file_that_was_written_since_is_reported_as_changed(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    ps.write({"data": list(range(100))}, path)
    kept = ps.index(path, checksums=True)
    time.sleep(0.03)
    ps.write({"data": [7] * 100}, tmp_path / f"other-{name}", index=False)
    path.write_bytes((tmp_path / f"other-{name}").read_bytes())
    for _ in range(2):
        (finding,) = [f for f in ps.verify(path).findings if f.severity == "error"]
        assert finding.kind == "changed"
        assert "penstock index --checksums --force" in finding.message
        assert ps.open(path)[3]["data"] == 7
        with pytest.raises(ps.PenstockError):
            ps.open(path, checksums="index")[3]
        with pytest.raises(ps.StaleIndexError, match="rewritten, or it is damaged"):
            ps.index(path)
    assert ps.index(path, checksums=True, force=True) == kept
    assert ps.verify(path).ok
    assert ps.open(path, checksums="index")[3]["data"] == 7


def test_without_checksums_or_with_a_map_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.arange(10))
    with pytest.raises(ps.StaleIndexError) as caught:
        ps.open(path, checksums="index")
    assert "penstock index --checksums" in (caught.value.hint or "")
    with pytest.raises(ValueError, match="mmap=True"):
        ps.open(path, checksums="index", mmap=True)


def test_a_file_that_penstock_rewrites_has_no_old_checksums(tmp_path: Path) -> None:
    for name in ("a.npy", "a.msgpack", "a.tfrecord"):
        path = tmp_path / name
        ps.write({"data": list(range(100))}, path)
        ps.index(path, checksums=True)
        ps.write({"data": [7] * 100}, path, overwrite=True)
        assert ps.verify(path).ok, name


def test_checksums_are_kept_if_records_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "a.msgpack"
    ps.write({"data": [b"x" * 1000] * 2000}, path)
    ps.index(path, checksums=True)
    ps.append({"data": [b"y" * 1000] * 1500}, path)
    assert ps.verify(path).ok
    assert ps.open(path, checksums="index")[3400]["data"] == b"y" * 1000
    data = bytearray(path.read_bytes())
    data[3_000_000] ^= 1
    path.write_bytes(data)
    assert not ps.verify(path).ok

"""The CRC-32 of stored members: verify always compares it, and reading compares it when a whole member is read."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.formats.npz._checks import MemberCheck
from penstock.formats.npz.zip_directory import read_directory
from penstock.limits import Limits
from penstock.storage.local import LocalSource, LocalStorage

LARGE = 1_000_000  # int64 values: several chunks


def flipped(path: Path, at: int, bit: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= bit
    path.write_bytes(data)


def member_start(path: Path, name: str) -> int:
    members = read_directory(LocalSource(str(path)), Limits()).members
    return next(member.start for member in members if member.name == name)


def table_of(path: Path, **options: Any) -> pa.Table:
    return pa.table(ps.open(str(path), index="never", **options))


def rich(path: Path, compression: str | None) -> None:
    """Columns that are stored as several members, and types in the archive's comment."""
    table = {
        "id": pa.array(range(40), pa.int32()),
        "text": pa.array([f"number {n}" if n % 7 else None for n in range(40)], pa.large_string()),
        "tokens": pa.array([list(range(n % 4)) for n in range(40)], pa.list_(pa.int16())),
        "größe": pa.array(np.arange(40) / 8, pa.float32()),
    }
    ps.write(pa.table(table), str(path), compression=compression)


@pytest.mark.parametrize("compression", [None, "deflate"])
def test_every_flipped_bit_is_detected(compression: str | None, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    rich(path, compression)
    right, wanted = path.read_bytes(), table_of(path)
    assert ps.verify(str(path)).ok
    rng = random.Random(7)
    for at in range(len(right)):
        data = bytearray(right)
        data[at] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        if ps.verify(str(path), format="npz").ok:
            found = table_of(path, format="npz")
            assert found.equals(wanted), at
            assert found.schema.equals(wanted.schema, check_metadata=True), at


@pytest.mark.parametrize("threads", [1, 2])
def test_a_scan_of_a_damaged_member_is_an_error(threads: int, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.arange(LARGE), y=np.ones(LARGE, np.int8))
    flipped(path, member_start(path, "x.npy") + 128 + 8 * 500_000)
    dataset = ps.open(str(path))
    for _ in range(2):
        with pytest.raises(ps.ChecksumError, match=r"the member 'x\.npy' does not match"):
            list(dataset.scan(threads=threads))
    assert sum(b.num_rows for b in dataset.scan(["y"], threads=threads)) == LARGE
    assert sum(b.num_rows for b in ps.open(str(path), checksums="none").scan()) == LARGE


def test_verify_names_the_member_once(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.arange(LARGE), y=np.ones(LARGE, np.int8), version=np.array(7))
    start = member_start(path, "x.npy")
    flipped(path, start + 128 + 8 * 500_000)
    (finding,) = ps.verify(str(path)).findings
    assert (finding.kind, finding.start_byte) == ("data_checksum", start)
    assert "'x.npy'" in finding.message
    flipped(path, start + 128 + 8 * 500_000)
    assert ps.verify(str(path)).ok


def test_arrays_in_fortran_order_are_verified(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.asfortranarray(np.arange(6000).reshape(2000, 3)))
    flipped(path, member_start(path, "x.npy") + 3000)
    assert not ps.verify(str(path)).ok
    with pytest.raises(ps.ChecksumError):
        list(ps.open(str(path)).scan())


@pytest.mark.parametrize("mmap", [False, True])
def test_no_record_of_a_damaged_member_is_taken(mmap: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.arange(1000), y=np.arange(1000))
    flipped(path, member_start(path, "x.npy") + 128 + 8 * 500)
    dataset = ps.open(str(path), mmap=mmap)
    for _ in range(2):
        for asked in (3, slice(None), slice(2, 9), slice(None, None, -7)):
            with pytest.raises(ps.ChecksumError, match=r"the member 'x\.npy' does not match"):
                dataset[asked]
    assert dataset.take([5, 3], columns=["y"])["y"].to_pylist() == [5, 3]
    for checksums in ("headers", "none"):
        assert ps.open(str(path), mmap=mmap, checksums=checksums)[3]["x"] == 3


@pytest.mark.parametrize("order", [ps.Sequential(), ps.Shuffled(0), ps.Blocked(0)])
def test_a_loader_delivers_no_record_of_a_damaged_member(order: ps.Order, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.ones((2000, 3, 8), np.float32), y=np.arange(2000))
    flipped(path, member_start(path, "x.npy") + 128 + 96 * 1168)
    with pytest.raises(ps.ChecksumError, match=r"the member 'x\.npy' does not match"):
        next(iter(ps.Loader(ps.open(str(path)), 100, order=order)))
    good = ps.Loader(ps.open(str(path)), 100, order=order, columns=["y"])
    assert sum(len(batch["y"]) for batch in good) == 2000
    skipping = ps.Loader(ps.open(str(path), damage="skip"), 100, order=order)
    with pytest.warns(UserWarning, match="all 2000 records of epoch 0 were damaged"):
        assert not list(skipping)


def test_a_take_does_not_fetch_whole_members_from_another_machine(
    tmp_path: Path, monkeypatch: Any
) -> None:
    path = tmp_path / "a.npz"
    ps.write({"x": [[n] for n in range(1000)], "y": list(range(1000))}, str(path))
    flipped(path, member_start(path, "x#values.npy") + 128 + 8 * 500)
    monkeypatch.setattr(LocalSource, "storage", LocalStorage())
    dataset = ps.open(str(path))
    assert dataset[3] == {"x": [3], "y": 3}
    with pytest.raises(ps.ChecksumError, match=r"'x#values\.npy' does not match"):
        next(iter(ps.Loader(dataset.subset(range(9)).rename({"x": "z"}), 4)))
    assert len(next(iter(ps.Loader(dataset, 4, columns=["y"])))["y"]) == 4


def test_a_member_is_read_once_to_compare_its_checksum(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.arange(LARGE))
    dataset = ps.open(str(path))
    assert dataset[7]["x"] == 7
    monkeypatch.setattr(MemberCheck, "_crc", None)
    assert dataset[8]["x"] == 8
    assert sum(len(b["x"]) for b in ps.Loader(dataset, 1 << 16, order=ps.Shuffled(0))) == LARGE


def test_lists_are_verified_as_they_are_scanned(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    lists = pa.ListArray.from_arrays(np.arange(0, 800_001, 2, np.int32), np.arange(800_000))
    ps.write(pa.table({"tokens": lists}), str(path))
    for name, at in (("tokens#offsets.npy", 8 * 5 + 7), ("tokens#values.npy", 8 * 300_000)):
        place = member_start(path, name) + 128 + at
        flipped(path, place, 0x40)
        with pytest.raises(ps.FormatError):
            list(ps.open(str(path)).scan())
        flipped(path, place, 0x40)
    assert sum(b.num_rows for b in ps.open(str(path)).scan()) == 400_000


def test_values_without_axes_are_verified_when_the_file_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.arange(3), version=np.array(7))
    flipped(path, member_start(path, "version.npy") + 128)
    with pytest.raises(ps.ChecksumError, match=r"'version\.npy'"):
        ps.open(str(path))


def test_damaged_types_in_the_comment_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    rich(path, None)
    flipped(path, path.stat().st_size - 100, 4)
    with pytest.raises(ps.ChecksumError, match="types in the archive's comment"):
        ps.open(str(path))
    dataset = ps.open(str(path), damage="skip")
    assert sum(batch.num_rows for batch in dataset.scan()) == 40
    assert len(dataset.damage) == 1

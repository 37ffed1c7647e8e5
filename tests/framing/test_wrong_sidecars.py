"""Sidecars that are damaged, forged, of another file, or not files at all."""

from __future__ import annotations

import os
import random
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_stale_index import SEED, check_nothing_wrong, payloads

import frames
import penstock as ps
from fuzz.indexes import HEADER, with_fields
from penstock._core import Buffer
from penstock.framing.index import sidecar
from penstock.storage import MemoryStorage
from penstock.storage.local import LocalStorage
from reading import index_of, records_of

pytestmark = pytest.mark.usefixtures("index_beside")


def test_a_link_in_the_place_of_a_sidecar_is_not_followed(tmp_path: Path) -> None:
    """Somebody else may have packed it, to have another file overwritten."""
    some = payloads(random.Random(SEED))
    path, precious = tmp_path / "a.tfrecord", tmp_path / "precious"
    path.write_bytes(frames.file_of(some))
    precious.write_text("mine")
    os.symlink(precious, str(index_of(path)))
    assert len(ps.open(path, raw=True)) == len(some)
    assert precious.read_text() == "mine"
    assert not index_of(path).is_symlink()


def test_a_pipe_in_the_place_of_a_sidecar_is_not_an_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    some = payloads(random.Random(SEED))
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frames.file_of(some))
    os.mkfifo(str(index_of(path)))
    assert check_nothing_wrong(str(path), some) == "read"
    assert [Path(kept).parent for kept in ps.index(path)] == [tmp_path / "cache/penstock/index"]


@pytest.fixture
def indexed(tmp_path: Path) -> tuple[Path, list[bytes]]:
    """A file with its sidecar."""
    some = payloads(random.Random(SEED), 25)
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frames.file_of(some))
    len(ps.open(str(path), raw=True))
    return path, some


def test_a_sidecar_that_knows_no_state_of_its_file_is_read(
    indexed: tuple[Path, list[bytes]],
) -> None:
    """As writers make them."""
    path, some = indexed
    beside = index_of(path)
    good = beside.read_bytes()
    beside.write_bytes(with_fields(good, inode=0, size=0, mtime_ns=0, ctime_ns=0))
    assert ps.open(str(path), raw=True).files.reader(0).has_index
    assert check_nothing_wrong(str(path), some) == "read"


def test_every_bit_of_the_sidecar_is_noticed(indexed: tuple[Path, list[bytes]]) -> None:
    """All bits through `sidecar.load`; one bit of each byte through `open`."""
    path, some = indexed
    beside = index_of(path)
    good = beside.read_bytes()
    rng = random.Random(SEED)
    storage = MemoryStorage()
    for bit in range(8 * len(good)):
        bad = bytearray(good)
        bad[bit >> 3] ^= 1 << (bit & 7)
        storage.files["bad"] = bytes(bad)
        with pytest.raises(ps.StaleIndexError):
            sidecar.load("bad", storage)
    for byte in range(len(good)):
        bad = bytearray(good)
        bad[byte] ^= 1 << rng.randrange(8)
        beside.write_bytes(bad)
        dataset = ps.open(str(path), raw=True)
        assert dataset[7]["record"] == some[7], byte
        if byte % 16 == 0:
            assert check_nothing_wrong(str(path), some) == "read", byte


def test_a_sidecar_cut_at_any_byte_is_noticed(indexed: tuple[Path, list[bytes]]) -> None:
    """All cuts through `sidecar.load`; every eighth through `open`."""
    path, some = indexed
    beside = index_of(path)
    good = beside.read_bytes()
    storage = MemoryStorage()
    for cut in range(len(good)):
        for bad in (good[:cut], good + bytes(cut + 1)):
            storage.files["bad"] = bad
            with pytest.raises(ps.StaleIndexError):
                sidecar.load("bad", storage)
        if cut % 8 == 0:
            beside.write_bytes(good[:cut])
            assert check_nothing_wrong(str(path), some) == "read", cut


def test_the_sidecar_may_be_anything(indexed: tuple[Path, list[bytes]]) -> None:
    path, some = indexed
    beside = index_of(path)
    good = beside.read_bytes()
    rng = random.Random(SEED)
    for _ in range(150):
        garbage = rng.randbytes(rng.randrange(2000))
        beside.write_bytes(garbage if rng.random() < 0.5 else good[:64] + garbage)
        assert check_nothing_wrong(str(path), some) == "read"


def forge(good: sidecar.Index, numbers: list[int], checksums: list[int], path: Path) -> None:
    """Write a sidecar with right checksums and the contents that a forger chooses."""
    told = np.array(numbers, np.uint64), np.array(checksums, np.uint32)
    forged = replace(good, num_records=len(checksums), starts=told[0], checksums=told[1])
    sidecar.save(forged, str(path), LocalStorage())


def test_forged_sidecars_deliver_nothing_that_is_not_in_the_file(
    indexed: tuple[Path, list[bytes]],
) -> None:
    """Right checksums, wrong places: anywhere in the file and far beyond it, falling, twice the
    same, into other records. A forger who knows the format can hide records, not make them up."""
    path, some = indexed
    good = sidecar.load(str(index_of(path)), LocalStorage())
    starts = frames.starts_of(some)
    checksums = [frames.masked(payload) for payload in some]
    rng = random.Random(SEED)
    for round_ in range(400):
        numbers, sums = list(starts), list(checksums)
        for _ in range(rng.choice((1, 3, 25))):
            at = rng.randrange(len(numbers))
            far = (rng.randrange(starts[-1] + 50), 1 << 63, (1 << 64) - 1, rng.getrandbits(64), 0)
            numbers[at] = rng.choice(far)
        if rng.random() < 0.3:
            sums[rng.randrange(len(sums))] = rng.getrandbits(32)
        if rng.random() < 0.2:
            rng.shuffle(numbers)
        if rng.random() < 0.2:
            keep = rng.randrange(len(sums))
            numbers, sums = numbers[: keep + 1], sums[:keep]
        forge(good, numbers, sums, path)
        options = {"index": "auto", "raw": True}
        try:
            dataset = ps.open(str(path), **options)
            for number in range(len(dataset)):
                try:
                    assert dataset[number]["record"] in some, (SEED, round_)
                except ps.PenstockError:
                    pass
            assert set(records_of(dataset, threads=1)) <= set(some)
        except ps.PenstockError:
            pass


def test_a_forged_count_reserves_no_memory(indexed: tuple[Path, list[bytes]]) -> None:
    path, some = indexed
    beside = index_of(path)
    good = beside.read_bytes()
    places = {
        "num_sections": 4,
        "num_records": 5,
        "plain_bytes": 7,
        "num_points": 8,
        "body_bytes": 13,
    }
    for count in (1 << 20, (1 << 32) - 1, 1 << 60, (1 << 64) - 1):
        for name, place in places.items():
            if name == "num_sections" and count >= 1 << 32:
                continue
            fields = list(HEADER.unpack_from(good))
            fields[place] = count
            header = HEADER.pack(*fields)
            crc = struct.pack("<I", Buffer.from_bytes(header).crc32c())
            beside.write_bytes(header + crc + good[len(header) + 4 :])
            assert check_nothing_wrong(str(path), some) == "read"


def test_the_sidecar_of_another_file_is_refused(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    one, two = payloads(rng, 20), payloads(rng, 20)
    first, second = tmp_path / "1.tfrecord", tmp_path / "2.tfrecord"
    first.write_bytes(frames.file_of(one))
    second.write_bytes(frames.file_of(two))
    len(ps.open(str(first), raw=True))
    index_of(first).rename(str(index_of(second)))
    assert check_nothing_wrong(str(second), two) == "read"


def test_forged_seek_points_deliver_nothing_wrong(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    some = [rng.randbytes(3000) for _ in range(1500)]
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frames.gzip_of(frames.file_of(some), level=1))
    dataset = ps.open(str(path), raw=True)
    assert len(dataset) == len(some)
    index = sidecar.load(str(index_of(path)), LocalStorage())
    assert len(index.points) >= 3
    for round_ in range(30):
        points = list(index.points)
        at = rng.randrange(len(points))
        p = points[at]
        points[at] = rng.choice(
            [
                sidecar.SeekPoint(rng.randrange(1 << 40), p.plain_start, p.bytes_before(), p.check),
                sidecar.SeekPoint(
                    p.compressed_bit, rng.randrange(1 << 40), p.bytes_before(), p.check
                ),
                sidecar.SeekPoint(p.compressed_bit, p.plain_start, rng.randbytes(32768), p.check),
                sidecar.SeekPoint(p.compressed_bit + 1, p.plain_start, p.bytes_before(), p.check),
                sidecar.SeekPoint(1 << 63, p.plain_start, b"", p.check),
            ]
        )
        forged = sidecar.Index(
            index.num_records,
            index.data_bytes,
            index.plain_bytes,
            index.compression,
            index.starts,
            index.checksums,
            tuple(points),
            index.layout,
        )
        sidecar.save(forged, str(path), LocalStorage())
        for number in (0, 400, 800, 1200, 1499):
            try:
                assert ps.open(str(path), raw=True)[number]["record"] == some[number], round_
            except ps.PenstockError:
                pass


@pytest.mark.parametrize("name", ["a.tfrecord", "a.tfrecord.gz", "a.tar", "a.rec", "a.msgpack"])
def test_a_fingerprint_is_of_what_the_records_hold(name: str, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    images = [rng.randbytes(2000) for _ in range(50)]
    path = tmp_path / name

    def write() -> str:
        ps.write({"label": [0] * 50, "image": images}, path, overwrite=True)
        return ps.open(path).fingerprint

    first = write()
    assert write() == first == ps.open(path, index="never").fingerprint
    images[7], images[8] = images[8], images[7]
    assert write() != first

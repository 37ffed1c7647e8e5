"""Damage of many bytes: holes, truncation, broken members, and several threads that find it."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import frames
import penstock as ps
from damaging import PATH, SEED, flipped
from penstock.storage import MemoryStorage
from reading import read_all, read_bytes, salvaged


@pytest.mark.parametrize("size", [512, 4096, 1 << 16])
@pytest.mark.parametrize("fill", ["zeros", "noise", "older"])
def test_holes_lose_the_records_they_hit(size: int, fill: str, index_folder: str) -> None:
    """Zeroed pages, lost pages, and pages of an older state, in a file of 400 KiB."""
    rng = random.Random(f"{size}{fill}")
    some = [rng.randbytes(rng.randrange(3000)) for _ in range(270)]
    starts, data = frames.starts_of(some), frames.file_of(some)
    older = frames.file_of([rng.randbytes(1000) for _ in range(400)])[: len(data)]
    storage = MemoryStorage({PATH: data})
    assert len(ps.open(PATH, storage=storage, raw=True, index=index_folder)) == len(some)
    for _ in range(25):
        at = rng.randrange(0, len(data) - size, 512)
        hole = {"zeros": bytes(size), "noise": rng.randbytes(size), "older": older[at : at + size]}
        bad = data[:at] + hole[fill] + data[at + size :]
        good = [
            payload
            for n, payload in enumerate(some)
            if bad[starts[n] : starts[n + 1]] == data[starts[n] : starts[n + 1]]
        ]
        strict = read_bytes(bad)
        assert isinstance(strict.error, ps.FormatError)
        assert strict.records == some[: len(strict.records)]
        by_index = read_bytes(bad, damage="skip", index=index_folder)
        assert by_index.error is None
        # The index has each record's checksum, so records of the older state are recognised as
        # different.
        assert by_index.records == good
        without = read_bytes(bad, damage="skip")
        assert without.error is None
        if fill != "older":
            assert without.records == good
        else:
            assert set(good) - set(without.records) == set()


def test_a_zeroed_head_is_not_an_empty_record() -> None:
    got = read_bytes(frames.frame(b"x") + bytes(4096) + frames.frame(b"y"), damage="skip")
    assert got.records == [b"x", b"y"]


# -- cuts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["plain", "gzip", "members", "zlib"])
def test_every_truncation_is_reported_or_at_a_boundary(compression: str, index_folder: str) -> None:
    some = [b"", b"one", b"x" * 300, b"", b"y" * 40]
    plain = frames.file_of(some)
    starts = frames.starts_of(some)
    wrap = {
        "plain": bytes,
        "gzip": frames.gzip_of,
        "members": lambda data: frames.gzip_of(data, 4),
        "zlib": frames.zlib_of,
    }
    data = wrap[compression](plain)
    storage = MemoryStorage({PATH: data})
    assert len(ps.open(PATH, storage=storage, raw=True, index=index_folder)) == len(some)
    for cut in range(len(data)):
        part = data[:cut]
        got = read_bytes(part)
        assert got.records == some[: len(got.records)]
        if compression == "plain" and cut in starts:
            # A file truncated at a record boundary is a valid TFRecord; without an index the loss cannot be detected.
            assert got.error is None
        elif compression == "members" and got.error is None:
            # The same holds for a cut between members that is also one between records.
            assert got.records == some[: len(got.records)]
        elif cut:
            assert isinstance(got.error, ps.FormatError), cut
        for damage in ("stop", "skip"):
            assert read_bytes(part, damage=damage).records == got.records, (damage, cut)
    # A truncated file has another size, so an index detects every truncation.
    for cut in range(len(data)):
        storage.files[PATH] = data[:cut]
        folder = index_folder
        opened = read_all(PATH, storage=storage, index=folder)
        assert opened.records == some[: len(opened.records)]


# -- members and threads --------------------------------------------------------------------------


def test_a_broken_member_affects_no_other_member(tmp_path: Path) -> None:
    """One bit is flipped in the compressed data of a file that penstock wrote in many members."""
    path, index = str(tmp_path / "m.tfrecord.gz"), str(tmp_path / "index")
    values = np.random.default_rng(SEED).integers(-(1 << 62), 1 << 62, 60_000)
    ps.write(pa.table({"x": values}), path)
    data = Path(path).read_bytes()
    storage = MemoryStorage({path: data})
    assert len(ps.open(path, storage=storage, index=index)) == len(values)
    for place in (len(data) // 4, len(data) // 4 + 50_000, 50):
        storage.files[path] = flipped(data, 8 * place)
        for choice in ("never", index):
            dataset = ps.open(path, storage=storage, index=choice, damage="skip")
            got = [x for batch in dataset.scan() for x in batch.column("x").to_pylist()]
            lost = np.setdiff1d(values, got)
            assert len(got) + len(lost) == len(values), "nothing is forged"
            assert len(lost) <= 7000, "no more than one member holds"
            assert bool(dataset.damage) == bool(len(lost)), "what is lost is told"
            for region in dataset.damage:
                assert region.start_byte <= region.end_byte


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_skip_the_same_damage(
    threads: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = random.Random(SEED)
    some = [rng.randbytes(20_000) for _ in range(200)]
    starts = frames.starts_of(some)
    data = bytearray(frames.file_of(some))
    hit = sorted(rng.sample(range(200), 10))
    for record in hit:
        data[rng.randrange(starts[record], starts[record + 1])] ^= 0x10
    got = read_bytes(bytes(data), damage="skip", threads=threads)
    good = [p for n, p in enumerate(some) if n not in hit]
    assert got.records == good
    assert sorted(r.start_byte for r in got.damage) == [starts[n] for n in hit]


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_bytes_after_a_stop_do_not_matter(tmp_path: Path, threads: int) -> None:
    """Several threads read ahead, and find a record there that does not fit the schema."""
    good = frames.frame(frames.example({"x": [1, 2, 3], "b": [b"z" * 2000]}))
    wrong = frames.frame(frames.example({"x": [b"not a number"], "b": [b"z" * 2000]}))
    data = flipped(good * 2100, 8 * (50 * len(good) + 300)) + wrong * 4000
    path = tmp_path / "a.tfrecord"
    path.write_bytes(data)
    schema = pa.schema([("x", pa.list_(pa.int64())), ("b", pa.binary())])
    for _ in range(5):
        dataset = ps.open(path, index="never", damage="stop", schema=schema)
        assert sum(batch.num_rows for batch in dataset.scan(threads=threads)) == 50
        (region,) = dataset.damage
        assert (region.start_byte, region.end_byte) == (50 * len(good) + 12, len(data))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", [1000, 40_000, 700_000])
def test_a_file_that_is_cut_while_it_is_scanned(tmp_path: Path, size: int, threads: int) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frames.frame(bytes(size)) * (150_000_000 // size))
    batches = iter(ps.open(path, index="never", raw=True).scan(threads=threads))
    next(batches)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ps.ChangedError, match=r"(cut|truncated) while it was open|not what it was"):
        list(batches)


def test_a_head_beyond_the_limit_in_a_member_that_is_wrong() -> None:
    data = bytearray(frames.gzip_of(frames.frame(b"a" * 10) * 5 + frames.head(1 << 33) + bytes(50)))
    data[-8] ^= 1
    storage = MemoryStorage({PATH: bytes(data)})
    dataset = ps.open(PATH, storage=storage, raw=True, index="never", damage="skip")
    assert len(dataset.take(range(5))) == 5
    assert sum(batch.num_rows for batch in dataset.scan()) == 5
    assert any("longer than the limit" in region.reason for region in dataset.damage)
    assert salvaged(bytes(data)) == [b"a" * 10] * 5

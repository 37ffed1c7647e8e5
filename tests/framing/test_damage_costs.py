"""Damage must neither take long to handle nor lose intact records."""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import frames
import penstock as ps
from penstock import _core
from penstock.framing.damage import _header_chains as chains_of
from penstock.framing.damage._header_chains import HeaderChains
from penstock.framing.framings import TFRECORD
from penstock.framing.read.framed import FramedReader
from penstock.framing.streams import gzip_members


def test_damaged_heads_at_the_end_cost_nothing_with_an_index(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    payloads = [b"%4d" % n * 20 for n in range(20)]
    path.write_bytes(frames.file_of(payloads))
    ps.index(path)
    data = bytearray(path.read_bytes())
    for start in frames.starts_of(payloads)[18:20]:
        data[start] ^= 0x55
        data[start + 5] ^= 0x55
    path.write_bytes(data)
    dataset = ps.open(path, raw=True, damage="skip")
    scanned = [x for batch in dataset.scan() for x in batch["record"].to_pylist()]
    assert scanned == payloads == dataset.take(range(20))["record"].to_pylist()
    assert ps.repair(path, into=tmp_path / "b.tfrecord").num_records == 20


class _Bytes:
    """A stream in memory that counts the bytes that are read from it."""

    container = ""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.num_bytes_read = 0

    def read(self, start: int, length: int) -> _core.Buffer:
        part = self._data[start : start + length]
        self.num_bytes_read += len(part)
        return _core.Buffer.from_bytes(part)

    def size(self) -> int:
        return len(self._data)


def test_a_chain_of_heads_is_followed_once() -> None:
    record = frames.frame(b"x" * 84)
    stream: Any = _Bytes(record * 40_000 + b"\xff" * 50 + record)
    chains = HeaderChains(stream, TFRECORD)
    size = stream.size()
    assert not chains.follow(0).is_out
    assert stream.num_bytes_read < 1.1 * size
    for place in range(100, 40_000 * 100, 100 * 97):
        assert chains.follow(place).to == 40_000 * 100
    assert stream.num_bytes_read < 1.1 * size
    # A chain that joins this one is followed only up to that point.
    assert chains.follow(size - 100).is_out


def test_places_are_forgotten_in_the_order_of_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains_of, "_KEPT_PLACES", 10)
    record, junk = frames.frame(b""), b"\xff" * 16
    stream: Any = _Bytes(record * 12 + junk + record + junk + record + junk)
    chains = HeaderChains(stream, TFRECORD)
    chains.follow(0)
    assert chains.known(11 * 16) is not None
    chains.follow(13 * 16)
    assert chains.known(13 * 16) is not None, "there was room for one chain more"
    chains = HeaderChains(stream, TFRECORD)
    chains.follow(0)
    chains.follow(5 * 16)
    assert chains.known(11 * 16) is not None
    chains.follow(13 * 16)
    assert chains.known(2 * 16) is None, "what was passed is forgotten where there are too many"


def test_a_file_of_broken_members_is_searched_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = [frames.gzip_member(frames.frame(b"%d" % number), 1) for number in range(400)]
    for number in range(1, 400, 2):
        members[number][24] |= 6  # a block type that does not exist
    path = tmp_path / "x.tfrecord.gz"
    path.write_bytes(b"".join(members))
    num_hops = 0
    hop = gzip_members.hop

    def counted(source: Any, start: int = 0, dead: Any = ()) -> Any:
        nonlocal num_hops
        found = hop(source, start, dead)
        num_hops += len(found[0])
        return found

    monkeypatch.setattr(gzip_members, "hop", counted)
    dataset = ps.open(path, raw=True, damage="skip")
    rows = [row["record"] for row in dataset]
    assert rows == [b"%d" % number for number in range(0, 400, 2)]
    assert num_hops < 4 * 400


def test_records_after_a_bad_one_are_not_read_again_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.tfrecord"
    bad = b"\x0a\x05no"  # a truncated Example after a valid checksum
    good = b"\x0a\x0b\x0a\x09\x0a\x01a\x12\x04\x0a\x02\x0a\x00"
    path.write_bytes(b"".join(frames.frame(bad if n % 4 == 3 else good) for n in range(8_000)))
    ps.index(path)
    num_rows = 0
    decode = FramedReader.decode

    def counted(reader: Any, chunk: Any, records: Any, columns: Any) -> Any:
        nonlocal num_rows
        num_rows += chunk.num_records if records is None else len(records)
        return decode(reader, chunk, records, columns)

    monkeypatch.setattr(FramedReader, "decode", counted)
    dataset = ps.open(path, damage="skip", schema=pa.schema({"a": pa.binary()}))
    assert sum(batch.num_rows for batch in dataset.scan(threads=1)) == 6_000
    assert num_rows < 8_000 * 40


def test_an_impossible_length_hides_no_head_that_can_be_restored(tmp_path: Path) -> None:
    """The first candidate for a damaged length is the stored length, even if it is huge."""
    rng = random.Random(1)
    payloads = [rng.randbytes(100_000) for _ in range(60)]
    starts = frames.starts_of(payloads)
    data = bytearray(frames.file_of(payloads))
    for record, place, change in [(5, 4, 15), (15, 1, 1), (16, 1, 1), (30, 1, 1), (31, 1, 1)]:
        data[starts[record] + place] ^= change
    path = tmp_path / "a.tfrecord.gz"
    path.write_bytes(gzip.compress(bytes(data), 1))
    assert ps.repair(path, into=tmp_path / "b.tfrecord.gz").num_records == 60


@pytest.mark.parametrize("value", [2.0, 1.9999, -2.0])
def test_a_number_that_looks_like_a_head_of_anything_leads_nowhere(
    tmp_path: Path, value: float
) -> None:
    inner = frames.file_of([struct.pack("<d", value), b"inner"])
    payloads = [b"first", inner] + [b"record %d" % number for number in range(20)]
    data = bytearray(frames.file_of(payloads))
    for place in (0, 5, 40):
        data[frames.starts_of(payloads)[1] + place] ^= 0x55
    path = tmp_path / "a.tfrecord"
    path.write_bytes(data)
    dataset = ps.open(path, raw=True, damage="skip", index="never")
    assert [row["record"] for row in dataset] == [payloads[0], *payloads[2:]]


def test_wrong_payloads_along_a_chain_of_records_affect_no_others(tmp_path: Path) -> None:
    payloads = [
        b"record %d" % n if n % 3 else frames.file_of([b"value %d" % n, b"%08d" % n])
        for n in range(100)
    ]
    starts = frames.starts_of(payloads)
    data = bytearray(frames.file_of(payloads))
    for place in (starts[1] + 12, starts[3] + 26, starts[90] + 13):
        data[place] ^= 1
    for place in (starts[90], starts[90] + 3):
        data[place] ^= 0x55
    path = tmp_path / "a.tfrecord"
    path.write_bytes(data)
    dataset = ps.open(path, raw=True, damage="skip", index="never")
    right = [payloads[n] for n in range(100) if n not in (1, 3, 90)]
    assert [row["record"] for row in dataset] == right


def test_thousands_of_faults_end_no_salvage_of_frames_without_checksums(tmp_path: Path) -> None:
    rng = random.Random(2)
    payloads = [b"%07d" % number + b"x" * 30 for number in range(60_000)]
    path = tmp_path / "a.rec"
    ps.write({"record": payloads}, path, format="recordio", index=False)
    data = bytearray(path.read_bytes())
    bad = rng.sample(range(59_000), 8_000)
    for record in bad:
        data[record * 48] ^= 0x55
    path.write_bytes(data)
    report = ps.repair(path, into=tmp_path / "b.rec", format="recordio", salvage=True)
    assert report.num_records == 52_000


@pytest.mark.parametrize("wrap", [bytes, frames.gzip_of, frames.zlib_of])
def test_without_checksums_nothing_is_asked_of_them(
    tmp_path: Path, wrap: Callable[[bytes], bytes]
) -> None:
    """Some writers leave the checksums out."""
    path = tmp_path / "a.tfrecord"
    payloads = [b"record %d" % number for number in range(5000)]
    bare = b"".join(struct.pack("<QI", len(p), 0) + p + bytes(4) for p in payloads)
    path.write_bytes(wrap(bare))
    with pytest.raises(ps.FormatError):
        list(ps.open(path, raw=True, checksums="headers", format="tfrecord"))
    for threads in (1, 2):
        dataset = ps.open(path, raw=True, checksums="none", format="tfrecord")
        rows = [x for batch in dataset.scan(threads=threads) for x in batch[0].to_pylist()]
        assert rows == payloads
        assert dataset.take([4999, 7])[0].to_pylist() == [payloads[4999], payloads[7]]
    assert not list(tmp_path.glob("*.penstock")), "such an index is for nobody else"
    path.write_bytes(wrap(bare[:-7]))
    with pytest.raises(ps.TruncatedError):
        list(ps.open(path, raw=True, checksums="none", format="tfrecord"))

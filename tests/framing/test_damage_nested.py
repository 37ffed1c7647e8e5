"""Damage in files whose records contain records: no inner record may be treated as a record of the file."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

import frames
import penstock as ps
from damaging import DATA, PATH, PAYLOADS, SEED, flipped
from penstock import _core
from penstock.framing.framings import TFRECORD
from penstock.storage import MemoryStorage
from reading import read_bytes, records_of, salvaged


def nested(rng: random.Random, inner_records: int) -> bytes:
    return frames.file_of([rng.randbytes(rng.randrange(60)) for _ in range(inner_records)])


@pytest.mark.parametrize("depth", [1, 2])
def test_records_inside_records_are_never_taken_for_records(depth: int, index_folder: str) -> None:
    """A TFRecord whose records contain TFRecords: every bit of every outer head is flipped, one at a time."""
    rng = random.Random(depth)
    outer = [nested(rng, n) for n in (5, 0, 1, 9, 3)]
    if depth == 2:
        outer = [frames.file_of([payload, nested(rng, 2), payload]) for payload in outer]
    data, starts = frames.file_of(outer), frames.starts_of(outer)
    storage = MemoryStorage({PATH: data})
    assert len(ps.open(PATH, storage=storage, raw=True, index=index_folder)) == len(outer)
    for record in range(len(outer)):
        for bit in range(8 * starts[record], 8 * (starts[record] + frames.HEAD)):
            bad = flipped(data, bit)
            by_index = read_bytes(bad, damage="skip", index=index_folder)
            assert by_index.records == outer, "with the index none is forged and none is lost"
            without = read_bytes(bad, damage="skip")
            assert without.records == outer, "the payload's own checksum says where it ends"


def test_two_broken_outer_heads_give_no_false_record() -> None:
    """The head and the checksum of a record are broken, so nothing shows where it ends."""
    rng = random.Random(SEED)
    outer = [nested(rng, n) for n in (4, 6, 3, 5)]
    data, starts = frames.file_of(outer), frames.starts_of(outer)
    for record in range(len(outer)):
        for _ in range(50):
            bad = flipped(data, 8 * starts[record] + rng.randrange(96))
            bad = flipped(bad, 8 * (starts[record + 1] - 4) + rng.randrange(32))
            got = read_bytes(bad, damage="skip")
            assert got.error is None
            assert got.records == outer[:record] + outer[record + 1 :]


def test_a_truncated_last_record_gives_no_false_record() -> None:
    rng = random.Random(SEED)
    outer = [nested(rng, 3), nested(rng, 8)]
    data = frames.file_of(outer)
    first_end = frames.starts_of(outer)[1]
    for cut in range(first_end + 1, len(data)):
        got = read_bytes(data[:cut], damage="skip")
        inner_end = frames.starts_of(outer)[1] + frames.HEAD
        if got.records != outer[:1]:
            raise AssertionError(f"forged after a cut at {cut}, {cut - inner_end} into the payload")


def test_salvage_keeps_inner_records_and_the_files_records() -> None:
    rng = random.Random(SEED)
    inner = [rng.randbytes(50) for _ in range(4)]
    outer = [b"before", frames.file_of(inner), b"after" * 20]
    data, starts = frames.file_of(outer), frames.starts_of(outer)
    bad = flipped(data, 8 * starts[1])
    bad = flipped(bad, 8 * (starts[2] - 1))
    assert salvaged(bad) == [outer[0], *inner, outer[2]]


def test_salvage_of_a_good_file_changes_nothing() -> None:
    assert salvaged(DATA) == PAYLOADS


@pytest.mark.parametrize("compression", ["plain", "gzip", "members"])
@pytest.mark.parametrize("broken", ["head", "head and checksum"])
def test_large_records_of_records_are_skipped(compression: str, broken: str) -> None:
    """A record with a broken head contains 100,000 valid heads. Each is a place where records might continue, but do
    not. Reading goes back and forth in the file."""
    inner = frames.frame(b"0123456789") * 100_000
    crc = _core.Buffer.from_bytes(inner).crc32c()
    crc = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    large = frames.head(len(inner)) + inner + crc.to_bytes(4, "little")
    data = frames.frame(b"before") + large + frames.frame(b"after") + large + frames.frame(b"last")
    bad = flipped(data, 8 * 22)
    if broken != "head":
        bad = flipped(bad, 8 * (22 + len(large) - 1))
    wrap = {
        "plain": bytes,
        "gzip": lambda data: frames.gzip_of(data, 1, 1),
        "members": lambda data: frames.gzip_of(data, 5, 1),
    }
    got = read_bytes(wrap[compression](bad), damage="skip")
    assert got.error is None
    restored = [inner] if broken == "head" else []
    assert got.records == [b"before", *restored, b"after", inner, b"last"]
    (region,) = got.damage
    assert (region.start_byte, region.end_byte) == (22, 22 + len(large))
    assert region.num_records == (0 if broken == "head" else None)
    kept = [] if broken == "head" else [b"0123456789"] * 100_000
    assert salvaged(wrap[compression](bad)) == [got.records[0], *kept, *got.records[1:]]


def test_a_head_with_one_wrong_byte_still_gives_its_length() -> None:
    """This holds for every byte of the head. The test tries all lengths that differ in one byte: no other one has the
    same checksum."""
    rng = random.Random(SEED)
    for _ in range(50):
        length = rng.getrandbits(rng.choice([8, 20, 63]))
        head = bytearray(frames.head(length))
        head[rng.randrange(len(head))] ^= rng.randrange(1, 256)
        assert list(TFRECORD.lengths(bytes(head))) == [length]
        near = [
            bytes([*head[:k], value, *head[k + 1 : 8]]) for k in range(8) for value in range(256)
        ]
        right = {of for of in near if frames.head(int.from_bytes(of, "little"))[8:] == head[8:]}
        assert {int.from_bytes(of, "little") for of in right} <= {length}


@pytest.mark.parametrize("power", [5, 8, 9, 12])
def test_a_flipped_length_of_eight_bytes_is_not_the_head_inside(power: int) -> None:
    """A length of 8 + 2^k is one bit away from 8, and a head inside the payload looks like a record of 8 bytes."""
    inner = frames.file_of([bytes(8 + 2**power - 16)])
    assert len(inner) == 8 + 2**power
    outer = [b"first", inner, b"last"]
    data, (_, start, end) = frames.file_of(outer), frames.starts_of(outer)[:3]
    for bit in range(8 * start, 8 * end if power < 9 else 8 * (start + 40)):
        got = read_bytes(flipped(data, bit), damage="skip")
        is_payload = 8 * (start + frames.HEAD) <= bit
        assert got.records == ([b"first", b"last"] if is_payload else outer)
        assert len(got.damage) == 1


@pytest.mark.parametrize("bit", [0, 8, 30, 64, 95])
def test_a_truncated_record_with_a_damaged_head_gives_no_false_record(bit: int) -> None:
    """The record is truncated at the end of an inner frame. Only its restored head shows that it is not complete."""
    inner = [b"inner-A", b"inner-B", b"inner-C"]
    data = frames.file_of([b"first", frames.file_of(inner)])
    start = frames.starts_of([b"first", b""])[1]
    for kept in range(len(inner)):
        cut = data[: start + frames.HEAD + len(frames.file_of(inner[:kept]))]
        for bad in (cut, flipped(cut, 8 * start + bit)):
            got = read_bytes(bad, damage="skip")
            assert got.error is None
            assert got.records == [b"first"]
            (region,) = got.damage
            assert region.end_byte == len(bad)
            assert salvaged(bad) == [b"first", *inner[:kept]]


def test_bytes_missing_before_the_end_of_a_file_are_not_a_single_loss() -> None:
    """A record claims more bytes than there are, and frames in the available bytes lead to the end. They may be
    records after a gap, or contents of the record, so the number of lost records is unknown."""
    rng = random.Random(SEED)
    small = [b"small record %03d" % number for number in range(100)]
    data = frames.file_of([b"first", rng.randbytes(10_000), *small])
    bad = data[:3000] + data[9000:]
    got = read_bytes(bad, damage="skip")
    assert got.records == [b"first"]
    (region,) = got.damage
    assert region.num_records is None
    assert "repair(..., salvage=True) keeps them" in region.reason
    assert salvaged(bad) == [b"first", *small]
    whole = data[:3000]
    (region,) = read_bytes(whole, damage="skip").damage
    assert region.num_records == 1


def test_records_between_two_damaged_heads_are_reported() -> None:
    """They may be the contents of one large record, so they are not delivered. But the report says that salvage can
    keep them."""
    records = [b"record %05d" % number * 3 for number in range(200)]
    data, starts = bytearray(frames.file_of(records)), frames.starts_of(records)
    for record in (20, 180):
        data[starts[record] : starts[record] + 60] = bytes(60)
    got = read_bytes(bytes(data), damage="skip")
    assert got.records == records[:20] + records[182:]
    (region,) = got.damage
    assert region.num_records is None
    assert "repair(..., salvage=True) keeps them" in region.reason
    assert salvaged(bytes(data)) == records[:20] + records[22:180] + records[182:]
    lost = bytearray(frames.file_of([b"first", bytes(5000), b"last"]))
    lost[21:60] = bytes(39)
    (region,) = read_bytes(bytes(lost), damage="skip").damage
    assert "salvage" not in region.reason


def test_a_frame_that_moved_to_a_record_boundary_is_not_in_the_index(tmp_path: Path) -> None:
    """Two blocks of a file changed places, so there is a frame from a payload at the position of a record."""
    inner = b"".join(frames.frame(b"inner%d" % n + bytes(74)) for n in range(3))
    size = 176
    some = [b"%02d" % n + b"A" * (size - 2) for n in range(20)]
    some[10] = b"B" * 84 + inner + b"tail"
    data = bytearray(frames.file_of(some))
    path = tmp_path / "a.tfrecord"
    path.write_bytes(data)
    ps.index(path)
    begin = data.index(frames.frame(b"inner0" + bytes(74)))
    border = sum(len(payload) + 16 for payload in some[:15])
    data[border : border + 96], data[begin : begin + 96] = (
        data[begin : begin + 96],
        data[border : border + 96],
    )
    data[border - 192 : border] = bytes(192)
    path.write_bytes(data)
    left = [payload for n, payload in enumerate(some) if n not in (10, 14, 15)]
    report = ps.verify(path, payloads=False)
    assert report.num_records == len(left)
    assert ("unknown_record", 15) in [(f.kind, f.record) for f in report.findings]
    dataset = ps.open(path, damage="skip", raw=True)
    assert [r for batch in dataset.scan() for r in batch["record"].to_pylist()] == left
    assert sum(region.num_records or 0 for region in dataset.damage) == 3
    ps.repair(path, into=tmp_path / "b.tfrecord")
    assert pa.table(ps.open(tmp_path / "b.tfrecord", raw=True))["record"].to_pylist() == left
    ps.repair(path, into=tmp_path / "c.tfrecord", salvage=True)
    kept = records_of(ps.open(tmp_path / "c.tfrecord", raw=True))
    assert [record for record in kept if record in left] == left
    assert b"inner0" + bytes(74) in kept


@pytest.mark.parametrize("count", [1, 2, 5])
def test_how_many_records_are_lost_at_the_end_is_known_to_an_index(
    count: int, tmp_path: Path
) -> None:
    some = [b"%03d" % n * 30 for n in range(50)]
    data = bytearray(frames.file_of(some))
    path = tmp_path / "a.tfrecord"
    path.write_bytes(data)
    ps.index(path)
    data[-106 * count :] = random.Random(SEED).randbytes(106 * count)
    path.write_bytes(data)
    dataset = ps.open(path, damage="skip", raw=True)
    assert sum(batch.num_rows for batch in dataset.scan()) == 50 - count
    assert [region.num_records for region in dataset.damage] == [1] * count

"""Bytes are missing from a payload, so the head before it leads into a later record.

There may be a valid head of a frame inside that record's payload. It must not be treated as a record of the file.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import frames
import penstock as ps
from damaging import SEED
from reading import read_all, read_bytes, records_of, salvaged

# All inner frames have the same size, so that many losses lead to the boundary of one.
OUTER = [
    frames.file_of([b"in %d.%d" % (record, inner) for inner in range(4)]) for record in range(5)
]
DATA, STARTS = frames.file_of(OUTER), frames.starts_of(OUTER)


def losses(record: int) -> Iterator[tuple[int, int]]:
    """Positions in a record's payload and its checksum where bytes are removed, and the number of bytes."""
    begin, end = STARTS[record] + frames.HEAD, STARTS[record + 1]
    for start in range(begin, end):
        for length in range(1, end - start + 1):
            yield start, length


def losses_at_the_head(record: int) -> Iterator[tuple[int, int]]:
    """Positions where bytes are removed, at the end of the record before or in the head, and the number of bytes."""
    for start in range(STARTS[record] - 20, STARTS[record] + frames.HEAD):
        for length in range(1, min(150, len(DATA) - start) + 1):
            yield start, length


def without(start: int, length: int, data: bytes = DATA) -> bytes:
    return data[:start] + data[start + length :]


@pytest.mark.parametrize("record", [0, 1, 4])
def test_skip_gives_no_record_that_was_inside_another(record: int) -> None:
    others = OUTER[:record] + OUTER[record + 1 :]
    for start, length in losses(record):
        got = read_bytes(without(start, length), damage="skip")
        assert got.error is None
        assert got.damage
        assert got.records[:record] == OUTER[:record]
        assert set(got.records) <= set(others), f"{length} bytes lost at {start}"
        assert got.records == [r for r in others if r in set(got.records)]


@pytest.mark.parametrize("record", [1, 4])
def test_losses_at_a_head_give_no_false_record_where_reading_continues(record: int) -> None:
    """If the number of missing bytes moves a frame inside the next payload exactly to the boundary, no head is wrong
    until that frame has been read. The damage after it is reported."""
    aligned = 0
    lost = list(losses_at_the_head(record))
    at_border = [loss for loss in lost if loss[0] == STARTS[record]]
    for start, length in [*at_border, *random.Random(SEED).sample(lost, 1500)]:
        data = without(start, length)
        got = read_bytes(data, damage="skip")
        forged = [one for one in got.records if one not in OUTER]
        if forged:
            aligned += 1
            assert start == STARTS[record], f"{length} bytes lost at {start}"
            assert forged == read_bytes(data, damage="stop").records[record:]
            assert "may be the checksum" in got.damage[0].reason or record == 4
    assert 0 < aligned < 20


def test_losses_in_a_record_beyond_the_limit_give_no_false_record() -> None:
    """The payload of that record is not read, and its head leads into the next record."""
    payloads = [b"." * 300, *OUTER]
    data, second = frames.file_of(payloads), frames.starts_of(payloads)[1]
    for start in range(second - 20, second):
        for length in range(1, 100, 3):
            lost = without(start, length, data)
            got = read_bytes(lost, damage="skip", limits=ps.Limits(record_bytes=200))
            assert set(got.records) <= set(OUTER), f"{length} bytes lost at {start}"
            assert got.records[-3:] == OUTER[-3:]


@pytest.mark.parametrize("tail", [0, 1, 4, 11])
def test_a_damaged_head_is_restored_though_the_file_ends_in_half_a_head(tail: int) -> None:
    data = bytearray(DATA + frames.head(30)[:tail])
    data[STARTS[2] + 1] ^= 1
    assert read_bytes(bytes(data), damage="skip").records == OUTER


@pytest.mark.parametrize("length", [1, 12, 21, 33, 40])
def test_only_the_record_that_lacks_bytes_is_lost(length: int) -> None:
    """The next record is found among the bytes that the head of the bad record claims."""
    got = read_bytes(without(STARTS[1] + 30, length), damage="skip")
    assert got.records == [OUTER[0], *OUTER[2:]]
    (region,) = got.damage
    assert (region.start_byte, region.end_byte) == (STARTS[1], STARTS[2] - length)
    assert "some of its bytes are missing" in region.reason


def test_records_without_inner_records_lose_nothing_more() -> None:
    rng = random.Random(SEED)
    payloads = [rng.randbytes(rng.randrange(200, 400)) for _ in range(20)]
    data, starts = frames.file_of(payloads), frames.starts_of(payloads)
    for record in range(19):
        start = starts[record] + frames.HEAD + rng.randrange(100)
        got = read_bytes(without(start, rng.randrange(1, 90), data), damage="skip")
        assert got.records == payloads[:record] + payloads[record + 1 :]


@pytest.mark.parametrize("compression", ["", "gzip", "zlib"])
@pytest.mark.parametrize("threads", [1, 2])
def test_scan_verify_and_repair_agree(tmp_path: Path, compression: str, threads: int) -> None:
    rng = random.Random(SEED)
    path, whole = tmp_path / "lost.tfrecord", tmp_path / "whole.tfrecord"
    wrap = {"": bytes, "gzip": lambda d: frames.gzip_of(d, 1, 1), "zlib": frames.zlib_of}
    for start, length in rng.sample(list(losses(1)), 40):
        path.write_bytes(wrap[compression](without(start, length)))
        got = read_all(path, damage="skip", threads=threads)
        assert got.error is None
        assert set(got.records) <= {OUTER[0], *OUTER[2:]}
        report = ps.verify(path, index="never", threads=threads)
        assert not report.ok
        assert report.num_records == len(got.records)
        spans = [(f.start_byte, f.end_byte, f.num_records) for f in report.findings]
        assert spans == [(r.start_byte, r.end_byte, r.num_records) for r in got.damage]
        ps.repair(path, into=whole, overwrite=True, threads=threads)
        assert records_of(ps.open(whole, raw=True)) == got.records


def test_salvage_keeps_all_that_reading_delivers_and_what_was_inside() -> None:
    inner = {b"in %d.%d" % (record, place) for record in range(5) for place in range(4)}
    for start, length in random.Random(SEED).sample(list(losses(1)), 300):
        bad = without(start, length)
        kept = salvaged(bad)
        assert set(kept) <= inner.union(OUTER)
        rest = iter(kept)
        assert all(record in rest for record in read_bytes(bad, damage="skip").records)


def test_len_and_take_agree_with_scan(tmp_path: Path) -> None:
    path = tmp_path / "lost.tfrecord"
    for start, length in random.Random(SEED).sample(list(losses(1)), 60):
        path.write_bytes(without(start, length))
        dataset = ps.open(path, raw=True, damage="skip", index="never")
        scanned = records_of(dataset)
        assert len(dataset) == len(scanned)
        assert dataset.take(range(len(dataset))).column("record").to_pylist() == scanned


def test_an_index_of_the_whole_file_gives_no_false_record(index_folder: str) -> None:
    """The file has its old size: as many bytes were added later in the file."""
    for start, length in random.Random(SEED).sample(list(losses(1)), 100):
        with_index = read_bytes(
            without(start, length) + bytes(length), damage="skip", index=index_folder
        )
        assert with_index.error is None
        assert set(with_index.records) <= set(OUTER)


@pytest.mark.parametrize("threads", [1, 2])
def test_changed_bytes_next_to_a_head_in_a_payload_lose_one_record(
    tmp_path: Path, threads: int
) -> None:
    """A record contains a truncated TFRecord, whose last head extends beyond the record's end although no bytes are
    missing. The heads from the next boundary on lead to the end, so the record's own head is trusted."""
    odd = frames.frame(b"inside") + frames.frame(bytes(5000))[:40]
    payloads = [b"first", odd, b"second", odd, odd, b"last"] * 3
    data = bytearray(frames.file_of(payloads))
    bad = [1, 3, 4, 9, 16]
    for record in bad:
        data[frames.starts_of(payloads)[record] + frames.HEAD + 20] ^= 1
    path = tmp_path / "changed.tfrecord"
    path.write_bytes(data)
    got = read_all(path, damage="skip", threads=threads)
    assert got.records == [p for record, p in enumerate(payloads) if record not in bad]
    assert [region.num_records for region in got.damage] == [1] * len(bad)


def test_many_such_records_take_no_longer_than_their_bytes() -> None:
    """Heads that lead to the end are followed once, not once for every bad record."""
    odd = frames.head(1 << 20) + bytes(20)
    payloads = [odd] * 20_000
    data = bytearray(frames.file_of(payloads))
    for start in frames.starts_of(payloads)[:-1]:
        data[start + frames.HEAD + 30] ^= 1
    got = read_bytes(bytes(data), damage="skip")
    assert not got.records
    assert sum(region.num_records or 0 for region in got.damage) == len(payloads)


def test_salvage_adds_nothing_of_such_a_payload() -> None:
    """The file is truncated too, so no heads lead to its end."""
    odd = b"." * 20 + frames.frame(bytes(5000))[:40]
    payloads = [b"x" * 1000] * 400 + [odd] + [b"y" * 1000] * 1600
    data = bytearray(frames.file_of(payloads)[:-3])
    data[frames.starts_of(payloads)[400] + frames.HEAD + 40] ^= 1
    assert salvaged(bytes(data)) == [*payloads[:400], *payloads[401:-1]]

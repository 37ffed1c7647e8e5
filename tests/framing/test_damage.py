"""Damage of single bits: each is reported, and affects only its own record, however the file is read."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import frames
import penstock as ps
from damaging import DATA, PATH, PAYLOADS, SEED, SIZE, STARTS, flipped
from penstock import _core
from penstock.storage import MemoryStorage
from reading import Delivered, read_bytes, records_of
from strategies import payloads


def record_at(bit: int, starts: list[int]) -> int:
    """The record that a bit belongs to."""
    return next(n for n, end in enumerate(starts[1:]) if bit >> 3 < end)


def payload_bits() -> Iterator[tuple[int, int]]:
    for record in range(len(PAYLOADS)):
        begin, end = STARTS[record] + frames.HEAD, STARTS[record + 1] - frames.TAIL
        for bit in range(8 * begin, 8 * end):
            yield record, bit


def framing_bits() -> Iterator[tuple[int, int]]:
    for record in range(len(PAYLOADS)):
        begin, end = STARTS[record], STARTS[record + 1]
        for at in (*range(begin, begin + frames.HEAD), *range(end - frames.TAIL, end)):
            for bit in range(8 * at, 8 * at + 8):
                yield record, bit


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with the index of the undamaged file of 64 KiB."""
    folder = str(tmp_path_factory.mktemp("indexes"))
    dataset = ps.open(PATH, storage=MemoryStorage({PATH: DATA}), raw=True, index=folder)
    assert len(dataset) == len(PAYLOADS)
    return folder


def check_error(bad: bytes, record: int, index: str) -> None:
    """The default mode returns the records before the damaged one, and then an error that names it."""
    got = read_bytes(bad, index=index)
    assert isinstance(got.error, ps.FormatError)
    assert got.error.file == PATH
    assert got.error.record == record
    assert got.error.byte is not None
    assert STARTS[record] <= got.error.byte < STARTS[record + 1]
    assert got.records == PAYLOADS[:record]


def costs_nothing(bit: int, starts: list[int], known: bool) -> bool:
    """Whether the payload can still be verified: by its own checksum if the bit is in a head, by the index if the bit
    is in the stored checksum."""
    record = record_at(bit, starts)
    at = bit >> 3
    return at < starts[record] + frames.HEAD or (known and at >= starts[record + 1] - frames.TAIL)


def check_skip(bit: int, index: str) -> None:
    """Skipping returns every other record, and the damaged one only if its payload can be verified. It reports the
    regions that it skipped."""
    got = read_bytes(flipped(DATA, bit), damage="skip", index=index)
    record = record_at(bit, STARTS)
    restored = costs_nothing(bit, STARTS, index != "never")
    assert got.error is None
    assert (
        got.records
        == PAYLOADS[:record] + PAYLOADS[record : record + restored] + (PAYLOADS[record + 1 :])
    )
    (region,) = got.damage
    assert region.num_records == (0 if restored else 1)
    assert (region.start_byte, region.end_byte) == (STARTS[record], STARTS[record + 1])
    assert region.file == PATH
    assert region.reason


# -- every bit of 64 KiB --------------------------------------------------------------------------


def test_the_file_of_these_tests_is_64_kib() -> None:
    assert len(DATA) == SIZE
    assert sum(1 for _ in payload_bits()) + sum(1 for _ in framing_bits()) == 524_288


def test_every_flipped_payload_bit_is_detected() -> None:
    """Exhaustive over the payload bits of 64 KiB, with `_core.walk` and `Frames.verify`: the walk finds all records,
    and verification rejects exactly the changed one."""
    bad = bytearray(DATA)
    for record, bit in payload_bits():
        bad[bit >> 3] ^= 1 << (bit & 7)
        window = _core.Buffer.from_bytes(bytes(bad))
        found, consumed, need, fault = _core.walk("tfrecord", window, 0, SIZE)
        assert (len(found), consumed, need, fault) == (len(PAYLOADS), SIZE, 0, None), bit
        faults = found.verify(None)
        assert [f.record for f in faults] == [record], bit
        bad[bit >> 3] ^= 1 << (bit & 7)


@pytest.mark.parametrize("index", ["never", "known"])
def test_all_framing_bits_are_errors_that_name_the_record(index: str, indexes: str) -> None:
    """Exhaustive over the head and checksum bits of 64 KiB, through `open` and `scan`."""
    for record, bit in framing_bits():
        check_error(flipped(DATA, bit), record, indexes if index == "known" else index)


@pytest.mark.parametrize("index", ["never", "known"])
def test_with_skip_framing_bits_lose_no_verified_payload(index: str, indexes: str) -> None:
    """Exhaustive over the head and checksum bits of 64 KiB, through `open` and `scan`."""
    for _, bit in framing_bits():
        check_skip(bit, indexes if index == "known" else index)


@pytest.mark.parametrize("index", ["never", "known"])
def test_sampled_payload_bits_in_both_modes(index: str, indexes: str) -> None:
    """2,000 of the payload bits of 64 KiB, through `open` and `scan`."""
    folder = indexes if index == "known" else index
    for record, bit in random.Random(SEED).sample(list(payload_bits()), 2000):
        check_error(flipped(DATA, bit), record, folder)
        check_skip(bit, folder)


@pytest.mark.stress
@pytest.mark.parametrize("index", ["never", "known"])
def test_all_524288_bits_in_both_modes(index: str, indexes: str) -> None:
    """Exhaustive over all bits of 64 KiB, through `open` and `scan`."""
    folder = indexes if index == "known" else index
    for record, bit in (*payload_bits(), *framing_bits()):
        check_error(flipped(DATA, bit), record, folder)
        check_skip(bit, folder)


SMALL = [b"", b"a", b"twelve bytes", b"a little longer than a view holds", b"", b"last"]


@pytest.mark.parametrize("compression", ["plain", "gzip", "members", "zlib"])
@pytest.mark.parametrize("known", [False, True])
def test_every_flipped_bit_of_a_small_file_is_detected(
    compression: str, known: bool, index_folder: str
) -> None:
    """Exhaustive over the bits of a small file. If a changed byte still inflates to the same records (a gzip header's
    time and unused flags), that is not damage to the records."""
    plain = frames.file_of(SMALL)
    wrap = {
        "plain": bytes,
        "gzip": frames.gzip_of,
        "members": lambda data: frames.gzip_of(data, 3),
        "zlib": frames.zlib_of,
    }
    data = wrap[compression](plain)
    folder = index_folder if known else "never"
    if known:
        storage = MemoryStorage({PATH: data})
        assert len(ps.open(PATH, storage=storage, raw=True, index=folder)) == len(SMALL)
    for bit in range(8 * len(data)):
        bad = flipped(data, bit)
        got = read_bytes(bad, index=folder)
        assert got.records == SMALL[: len(got.records)], bit
        if got.error is None:
            assert compression != "plain", bit
            assert got.records == SMALL, bit
        skipping = read_bytes(bad, damage="skip", index=folder)
        assert_part_of(skipping, SMALL)
        if compression == "plain":
            starts = frames.starts_of(SMALL)
            record = record_at(bit, starts)
            good = SMALL[:record] + SMALL[record + 1 :]
            assert skipping.records == (SMALL if costs_nothing(bit, starts, known) else good), bit


def assert_part_of(got: Delivered, whole: list[bytes]) -> None:
    """The skipped scan must return a subsequence of the records, and the missing records must be reported."""
    left = iter(whole)
    assert all(any(record == other for other in left) for record in got.records), got
    assert len(got.records) == len(whole) or got.damage or got.error, got


# -- more than one damage -------------------------------------------------------------------------


@pytest.mark.parametrize("index", ["never", "known"])
def test_several_flips_lose_the_records_they_hit(index: str, indexes: str) -> None:
    folder = indexes if index == "known" else index
    rng = random.Random(SEED)
    for _ in range(500):
        bits = rng.sample(range(8 * SIZE), rng.randrange(2, 6))
        bad = DATA
        for bit in bits:
            bad = flipped(bad, bit)
        known = folder != "never"
        lost = {record_at(bit, STARTS) for bit in bits if not costs_nothing(bit, STARTS, known)}
        got = read_bytes(bad, damage="skip", index=folder)
        good = [p for n, p in enumerate(PAYLOADS) if n not in lost]
        assert got.error is None
        if known:
            assert got.records == good, bits
            continue
        # Without an index, the end of a record with a broken head is unknown. If the next record is
        # broken too, no record is certain until heads lead to the end of the file.
        assert_part_of(got, good)
        reported = sum(r.end_byte - r.start_byte for r in got.damage if r.num_records != 0)
        assert reported == SIZE - sum(frames.FRAMING + len(r) for r in got.records), bits


@given(payloads, st.data())
def test_any_flipped_bit_loses_at_most_one_record(some: list[bytes], data: st.DataObject) -> None:
    whole = frames.file_of(some)
    if not whole:
        return
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    starts = frames.starts_of(some)
    record = record_at(bit, starts)
    got = read_bytes(flipped(whole, bit), damage="skip")
    restored = costs_nothing(bit, starts, known=False)
    assert got.records == (some if restored else some[:record] + some[record + 1 :])
    strict = read_bytes(flipped(whole, bit))
    assert strict.error is not None
    assert strict.error.record == record


# -- how damage is read around --------------------------------------------------------------------


def test_stop_reads_up_to_the_damage_and_notes_the_rest() -> None:
    for record, bit in random.Random(SEED).sample(list(framing_bits()), 200):
        got = read_bytes(flipped(DATA, bit), damage="stop")
        assert got.error is None
        assert got.records == PAYLOADS[:record], bit
        assert STARTS[record] <= got.damage[0].start_byte < STARTS[record + 1]
        assert got.damage[0].end_byte == SIZE


def test_taking_a_damaged_record_names_it_and_others_can_be_taken(indexes: str) -> None:
    record = 7
    bad = flipped(DATA, 8 * (STARTS[record] + 20))
    storage = MemoryStorage({PATH: bad})
    dataset = ps.open(PATH, storage=storage, raw=True, index=indexes)
    assert dataset[6]["record"] == PAYLOADS[6]
    assert dataset[8]["record"] == PAYLOADS[8]
    with pytest.raises(ps.ChecksumError) as caught:
        dataset[record]
    assert caught.value.record == record
    assert caught.value.file == PATH


def test_a_restored_record_is_counted_and_taken() -> None:
    for record in (0, 7, len(PAYLOADS) - 1):
        storage = MemoryStorage({PATH: flipped(DATA, 8 * STARTS[record] + 9)})
        dataset = ps.open(PATH, storage=storage, raw=True, index="never", damage="skip")
        assert len(dataset) == len(PAYLOADS)
        order = [record, 0, record, len(PAYLOADS) - 1, record]
        taken = dataset.take(order).column("record").to_pylist()
        assert taken == [PAYLOADS[n] for n in order]


@pytest.mark.parametrize("at", [0, 9, -1])
def test_records_that_the_index_restores_can_be_taken_and_scanned(at: int, indexes: str) -> None:
    record = 7
    byte = (STARTS[record] if at >= 0 else STARTS[record + 1]) + at
    storage = MemoryStorage({PATH: flipped(DATA, 8 * byte)})
    skipping = ps.open(PATH, storage=storage, raw=True, index=indexes, damage="skip")
    assert records_of(skipping) == PAYLOADS
    assert [r.num_records for r in skipping.damage] == [0]
    assert skipping.take([8, 7]).column("record").to_pylist() == [PAYLOADS[8], PAYLOADS[7]]
    strict = ps.open(PATH, storage=storage, raw=True, index=indexes)
    with pytest.raises(ps.ChecksumError):
        strict.take([8, 7])


def test_reading_around_damage_counts_what_is_delivered() -> None:
    record = 7
    bad = flipped(flipped(DATA, 8 * STARTS[record]), 8 * (STARTS[record] + 20))
    dataset = ps.open(
        PATH, storage=MemoryStorage({PATH: bad}), raw=True, index="never", damage="skip"
    )
    assert len(records_of(dataset)) == len(PAYLOADS) - 1
    assert len(dataset) == len(PAYLOADS) - 1
    assert dataset[record]["record"] == PAYLOADS[record + 1]

"""Damage: every bit, every cut, holes, and records inside records."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import frames
import penstock as ps
from memory_storage import MemoryStorage
from penstock import _core
from reading import Delivered, read_all, read_bytes, records_of
from strategies import payloads

SIZE = 1 << 16
SEED = 20
PATH = "m.tfrecord"


def sixty_four_kib() -> list[bytes]:
    """Payloads of unequal size whose file is exactly 64 KiB; one is empty."""
    rng = random.Random(SEED)
    lengths = [0, 1, 11, 2000] + [rng.randrange(2, 1900) for _ in range(58)]
    while sum(lengths) + 16 * (len(lengths) + 1) > SIZE:
        lengths.pop()
    lengths.append(SIZE - sum(lengths) - 16 * (len(lengths) + 1))
    return [rng.randbytes(length) for length in lengths]


PAYLOADS = sixty_four_kib()
STARTS = frames.starts_of(PAYLOADS)
DATA = frames.file_of(PAYLOADS)


def flipped(data: bytes, bit: int) -> bytes:
    """`data` with one bit turned over."""
    bad = bytearray(data)
    bad[bit >> 3] ^= 1 << (bit & 7)
    return bytes(bad)


def record_at(bit: int, starts: list[int]) -> int:
    """Which record a bit belongs to."""
    return next(n for n, end in enumerate(starts[1:]) if bit >> 3 < end)


def is_framing(bit: int, starts: list[int]) -> bool:
    """Whether a bit is of a head or of a stored checksum."""
    record = record_at(bit, starts)
    at = bit >> 3
    return at < starts[record] + frames.HEAD or at >= starts[record + 1] - frames.TAIL


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
    """A folder with the index of the undamaged 64 KiB file."""
    folder = str(tmp_path_factory.mktemp("indexes"))
    dataset = ps.open(PATH, storage=MemoryStorage({PATH: DATA}), raw=True, index=folder)
    assert len(dataset) == len(PAYLOADS)
    return folder


def check_error(bad: bytes, record: int, index: str) -> None:
    """The default mode gives what comes before the damaged record, and an error that names it."""
    got = read_bytes(bad, index=index)
    assert isinstance(got.error, ps.FormatError)
    assert got.error.file == PATH
    assert got.error.record == record
    assert got.error.byte is not None
    assert STARTS[record] <= got.error.byte < STARTS[record + 1]
    assert got.records == PAYLOADS[:record]


def costs_nothing(bit: int, starts: list[int], known: bool) -> bool:
    """Whether the payload is proved right all the same: by its own checksum where the bit is of a
    head, by the index where it is of the stored checksum."""
    record = record_at(bit, starts)
    at = bit >> 3
    return at < starts[record] + frames.HEAD or (known and at >= starts[record + 1] - frames.TAIL)


def check_skip(bit: int, index: str) -> None:
    """Skipping gives every other record, and this one if its payload is proved right; nothing else;
    and it says what it passed over."""
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


def test_all_payload_bits_are_seen_by_the_walk_and_its_proof() -> None:
    """Exhaustive over the payload bits of 64 KiB, through `_core.walk` and `Frames.verify`: the
    walk finds all records, and the proof rejects exactly the one that was hit."""
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
def test_framing_bits_cost_no_payload_that_is_proved_under_skip(index: str, indexes: str) -> None:
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
def test_no_bit_of_a_small_file_is_silent(compression: str, known: bool, index_folder: str) -> None:
    """Exhaustive over the bits of a small file. A changed byte that inflates to the same records
    (a gzip header's time, its flags for nobody) is no damage to them."""
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
    """What skipping gave is a subsequence of the records, and what is missing was reported."""
    left = iter(whole)
    assert all(any(record == other for other in left) for record in got.records), got
    assert len(got.records) == len(whole) or got.damage or got.error, got


# -- more than one damage -------------------------------------------------------------------------


@pytest.mark.parametrize("index", ["never", "known"])
def test_several_flips_cost_the_records_they_hit(index: str, indexes: str) -> None:
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
        # Without an index a broken head hides its record's end; where the next record is broken,
        # too, nobody can prove where records go on until heads lead to the end of the file.
        assert_part_of(got, good)
        reported = sum(r.end_byte - r.start_byte for r in got.damage if r.num_records != 0)
        assert reported == SIZE - sum(frames.FRAMING + len(r) for r in got.records), bits


@pytest.mark.parametrize("size", [512, 4096, 1 << 16])
@pytest.mark.parametrize("fill", ["zeros", "noise", "older"])
def test_holes_cost_the_records_they_hit(size: int, fill: str, index_folder: str) -> None:
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
        # The index holds each record's checksum: records of the older state are not these.
        assert by_index.records == good
        without = read_bytes(bad, damage="skip")
        assert without.error is None
        if fill != "older":
            assert without.records == good
        else:
            assert set(good) - set(without.records) == set()


def test_a_zeroed_head_is_no_record_of_no_bytes() -> None:
    got = read_bytes(frames.frame(b"x") + bytes(4096) + frames.frame(b"y"), damage="skip")
    assert got.records == [b"x", b"y"]


# -- cuts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["plain", "gzip", "members", "zlib"])
def test_every_cut_is_reported_or_at_a_border(compression: str, index_folder: str) -> None:
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
            # A cut at a border leaves a whole TFRecord; without an index nobody can know.
            assert got.error is None
        elif compression == "members" and got.error is None:
            # The same holds for a cut between members that is also one between records.
            assert got.records == some[: len(got.records)]
        elif cut:
            assert isinstance(got.error, ps.FormatError), cut
        for damage in ("stop", "skip"):
            assert read_bytes(part, damage=damage).records == got.records, (damage, cut)
    # A cut file has another size, so an index tells every cut.
    for cut in range(len(data)):
        storage.files[PATH] = data[:cut]
        folder = index_folder
        opened = read_all(PATH, storage=storage, index=folder)
        assert opened.records == some[: len(opened.records)]


def test_stop_reads_up_to_the_damage_and_notes_the_rest() -> None:
    for record, bit in random.Random(SEED).sample(list(framing_bits()), 200):
        got = read_bytes(flipped(DATA, bit), damage="stop")
        assert got.error is None
        assert got.records == PAYLOADS[:record], bit
        assert STARTS[record] <= got.damage[0].start_byte < STARTS[record + 1]
        assert got.damage[0].end_byte == SIZE


# -- records inside records -----------------------------------------------------------------------


def nested(rng: random.Random, inner_records: int) -> bytes:
    return frames.file_of([rng.randbytes(rng.randrange(60)) for _ in range(inner_records)])


@pytest.mark.parametrize("depth", [1, 2])
def test_records_inside_records_are_never_taken_for_records(depth: int, index_folder: str) -> None:
    """A TFRecord that holds TFRecords; every bit of every outer head flipped, one at a time."""
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


def test_two_broken_outer_heads_forge_nothing() -> None:
    """Head and checksum of one record broken, so that nothing proves where it ends."""
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


def test_a_last_record_that_is_cut_forges_nothing() -> None:
    rng = random.Random(SEED)
    outer = [nested(rng, 3), nested(rng, 8)]
    data = frames.file_of(outer)
    first_end = frames.starts_of(outer)[1]
    for cut in range(first_end + 1, len(data)):
        got = read_bytes(data[:cut], damage="skip")
        inner_end = frames.starts_of(outer)[1] + frames.HEAD
        if got.records != outer[:1]:
            raise AssertionError(f"forged after a cut at {cut}, {cut - inner_end} into the payload")


def test_salvage_gives_inner_records_marked_as_unproved() -> None:
    rng = random.Random(SEED)
    inner = [rng.randbytes(50) for _ in range(4)]
    outer = [b"before", frames.file_of(inner), b"after" * 20]
    data, starts = frames.file_of(outer), frames.starts_of(outer)
    bad = flipped(data, 8 * starts[1])
    bad = flipped(bad, 8 * (starts[2] - 1))
    got = read_bytes(bad, damage="salvage")
    assert got.error is None
    assert len(got.unproved) == len(got.records)
    proved = [r for r, mark in zip(got.records, got.unproved, strict=True) if not mark]
    unproved = [r for r, mark in zip(got.records, got.unproved, strict=True) if mark]
    assert [r for r in got.records if r in outer] == [outer[0], outer[2]]
    assert all(record in outer for record in proved), "what is not marked is a real record"
    assert set(unproved) <= {*inner, *outer}
    assert set(inner) <= set(unproved)


def test_salvage_of_a_good_file_marks_nothing() -> None:
    got = read_bytes(DATA, damage="salvage")
    assert got.records == PAYLOADS
    assert got.unproved == [False] * len(PAYLOADS)


@given(payloads, st.data())
def test_any_flip_of_any_file_costs_at_most_one_record(
    some: list[bytes], data: st.DataObject
) -> None:
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


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_pass_over_the_same_damage(
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


def test_taking_a_damaged_record_names_it_and_others_can_be_had(indexes: str) -> None:
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
def test_what_the_index_restores_is_taken_as_it_is_scanned(at: int, indexes: str) -> None:
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


@pytest.mark.parametrize("compression", ["plain", "gzip", "members"])
@pytest.mark.parametrize("broken", ["head", "head and checksum"])
def test_large_records_of_records_are_passed_over(compression: str, broken: str) -> None:
    """100,000 right heads inside the payload of a record whose own head is broken: each is a
    place where records might go on, and none is. Reading goes back and forth in the file."""
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
    salvaged = read_bytes(wrap[compression](bad), damage="salvage")
    marked = sum(salvaged.unproved)
    assert marked == (0 if broken == "head" else 100_000)
    assert len(salvaged.records) == len(got.records) + marked


def test_a_broken_member_takes_no_other_one_with_it(tmp_path: Path) -> None:
    """One bit flipped in the compressed data of a file that penstock wrote in many members."""
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

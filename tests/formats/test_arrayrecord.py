"""ArrayRecord: files written by array_record, both ways of reading, and everything that can be wrong."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from array_record.python.array_record_module import ArrayRecordWriter

import penstock as ps
from fuzz.riegeli_files import (
    BLOCK,
    SIGNATURE,
    chunk,
    chunk_of,
    file_of,
    hash64,
    numbers,
    varint,
)
from penstock import _core
from penstock.formats.arrayrecord import format as arrayrecord
from penstock.formats.arrayrecord._footer import MAGIC
from penstock.storage import MemoryStorage

PEERS = (
    ("recordio", "uncompressed.array_record"),
    ("recordio", "zstd_group2.array_record"),
)
SMALL = [b"one", b"", b"three" * 9, b"four"]


def opened(data: bytes, path: str = "x.array_record", **options: Any) -> ps.Dataset:
    return ps.open(path, storage=MemoryStorage({path: data}), **options)


def records(data: bytes, **options: Any) -> list[bytes]:
    return [row["record"] for row in opened(data, **options)]


def two_chunks() -> bytes:
    return file_of([chunk(SMALL[:2]), chunk(SMALL[2:])])


# -- the peer's files -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", PEERS)
def test_golden_records_equal_what_the_peer_wrote(golden: Path, name: tuple[str, str]) -> None:
    path = golden.joinpath(*name)
    wanted = json.loads(Path(f"{path}.expected.json").read_text())["records_hex"]
    dataset = ps.open(path)
    assert [row["record"].hex() for row in dataset] == wanted
    order = [4, 0, 0, 3, -1, 1]
    assert [r.hex() for r in dataset.take(order)["record"].to_pylist()] == [
        wanted[n] for n in order
    ]


def test_corpus_records_equal_what_the_peer_wrote(corpus: Path) -> None:
    folder = corpus / "array_record" / "peer-made"
    files = json.loads((folder / "array_record.expected.json").read_text())["files"]
    assert len(files) == 2
    for name, said in files.items():
        got = [row["record"] for row in ps.open(folder / name)]
        assert [{"len": len(r), "sha256": hashlib.sha256(r).hexdigest()} for r in got] == said[
            "records"
        ]


def test_a_shard_of_a_numbered_set_is_read(corpus: Path, tmp_path: Path) -> None:
    path = corpus / "array_record" / "array_record" / "digits.array_record-00000-of-00002"
    assert [row["record"] for row in ps.open(path)] == [b"0", b"1", b"2", b"3", b"4"]
    for number in range(2):
        name = f"digits.array_record-{number:05}-of-00002"
        (tmp_path / name).write_bytes(path.read_bytes())
    assert len(ps.open(tmp_path / "digits.array_record@2")) == 10
    assert len(ps.open(tmp_path / "digits.array_record@*")) == 10
    (tmp_path / "digits.array_record-00001-of-00002").unlink()
    with pytest.raises(FileNotFoundError):
        ps.open(tmp_path / "digits.array_record@2")


def test_files_are_known_by_their_bytes(golden: Path) -> None:
    for name in PEERS:
        dataset = opened(golden.joinpath(*name).read_bytes(), "neutral")
        assert dataset.shards[0].format == "arrayrecord"


def test_plain_riegeli_files_are_refused_clearly(corpus: Path) -> None:
    files = sorted(corpus.glob("riegeli-neighbour/**/*.riegeli"))
    assert len(files) == 7
    for path in files:
        with pytest.raises(ps.UnsupportedError, match="plain Riegeli"):
            ps.open(path)
        with pytest.raises(ps.TruncatedError, match="postscript"):
            opened(path.read_bytes(), "neutral")


def test_files_made_here_are_as_the_peers_are(golden: Path) -> None:
    """The hash of the tests' writer equals array_record's, so files made by this writer are valid test data."""
    data = golden.joinpath(*PEERS[0]).read_bytes()
    assert data.startswith(SIGNATURE)
    for length in range(40):
        assert chunk_of(data[:length], 0, 0)[16:24] == hash64(data[:length]).to_bytes(8, "little")
    assert data[64 : 64 + len(chunk([b"one"]))] == chunk([b"one"])
    assert data[BLOCK + 24 + 40 : BLOCK + 24 + 60].count(numbers(0x14E, MAGIC)[-10:])


# -- reading --------------------------------------------------------------------------------------


def test_records_are_stored_as_they_were_written() -> None:
    assert records(two_chunks()) == SMALL
    assert records(file_of([])) == []
    assert len(opened(file_of([]))) == 0
    assert records(file_of([chunk([b"a"]), chunk([]), chunk([b"b", b"c"])])) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("parts", [True, False])
def test_any_records_in_any_order(monkeypatch: pytest.MonkeyPatch, parts: bool) -> None:
    if parts:
        monkeypatch.setattr(arrayrecord, "PICK_BYTES", 100)
        monkeypatch.setattr(arrayrecord, "ARRAYRECORD_STEP_BYTES", 100)
        monkeypatch.setattr(arrayrecord, "CHUNK_BYTES", 300)
    rng = random.Random(1)
    many = [rng.randbytes(rng.choice((0, 3, 20, 90))) for _ in range(300)]
    for group in (1, 7, 300):
        data = file_of([chunk(many[at : at + group]) for at in range(0, 300, group)])
        dataset = opened(data)
        assert [row["record"] for row in dataset] == many
        order = [rng.randrange(300) for _ in range(200)]
        assert dataset.take(order)["record"].to_pylist() == [many[n] for n in order]
        assert dataset.take([])["record"].to_pylist() == []
        assert dataset.take(order).schema == dataset.schema
        assert [b.num_rows for b in [dataset.take([3, 5])]] == [2]
        assert sum(b.num_rows for b in dataset.scan(columns=[])) == 300


def test_payloads_that_are_examples_become_columns(tmp_path: Path) -> None:
    table = pa.table({"id": list(range(50)), "name": [b"n%d" % n for n in range(50)]})
    ps.write(table, tmp_path / "x.tfrecord")
    payloads = [row["record"] for row in ps.open(tmp_path / "x.tfrecord", raw=True)]
    data = file_of([chunk(payloads[at : at + 8]) for at in range(0, 50, 8)])
    dataset = opened(data)
    assert list(dataset) == list(ps.open(tmp_path / "x.tfrecord"))
    assert dataset.take([49, 3]).to_pylist() == [table.slice(n, 1).to_pylist()[0] for n in (49, 3)]
    assert records(data, raw=True) == payloads
    assert opened(data, schema=pa.schema([("id", pa.int32())]))[7] == {"id": 7}
    assert opened(data, columns=["name"])[9] == {"name": b"n9"}
    with pytest.raises(ps.SchemaError) as caught:
        list(opened(data, schema=pa.schema([("name", pa.int64())])))
    assert (caught.value.record, caught.value.field) == (0, "name")
    for other in (list(range(30)), list(range(50))):
        some = opened(data, infer_records=5).take(other)
        assert some["id"].to_pylist() == other


def test_it_is_read_and_not_written(tmp_path: Path) -> None:
    with pytest.raises(ps.UnsupportedError, match="cannot write"):
        ps.write({"x": [1]}, tmp_path / "x.array_record")
    assert list(tmp_path.iterdir()) == []


def test_it_can_be_converted(tmp_path: Path) -> None:
    (tmp_path / "a.array_record").write_bytes(two_chunks())
    ps.convert(tmp_path / "a.array_record", tmp_path / "b.tfrecord")
    assert [row["record"] for row in ps.open(tmp_path / "b.tfrecord")] == SMALL


# -- what is wrong --------------------------------------------------------------------------------


def test_every_truncation_is_an_error_with_its_place(golden: Path) -> None:
    data = golden.joinpath(*PEERS[1]).read_bytes()
    lengths = [*range(1, 700), *range(700, len(data), 499), BLOCK, BLOCK + 1, len(data) - 1]
    for length in lengths:
        with pytest.raises(ps.TruncatedError) as caught:
            opened(data[:length])
        assert caught.value.file == "x.array_record"
    with pytest.raises(ps.TruncatedError):
        opened(b"")
    with pytest.raises(ps.FormatError):
        opened(data + bytes(BLOCK))


def test_a_file_cut_between_two_blocks_is_truncated(tmp_path: Path) -> None:
    path = tmp_path / "x.array_record"
    writer = ArrayRecordWriter(str(path), "group_size:1,uncompressed")
    for number in range(3):
        writer.write(bytes([number]) * 100_000)
    writer.close()
    data = path.read_bytes()
    assert len(data) == 6 * BLOCK
    for blocks in range(1, 6):
        with pytest.raises(ps.TruncatedError, match="postscript"):
            opened(data[: blocks * BLOCK])


def meaningful(data: bytes) -> list[int]:
    """The bytes of a small file, without the chunks of padding after footer and end."""
    places: list[int] = []
    for at, end in ((64, BLOCK), (BLOCK, 2 * BLOCK)):
        places += range(BLOCK if at == BLOCK else 0, BLOCK + 24 if at == BLOCK else 64)
        kind = ord("r")
        while at < end and kind == ord("r"):
            kind, size, _, _ = _core.riegeli_head(_core.Buffer.from_bytes(data[at:]), at)
            at += 24 if at == BLOCK else 0
            if kind == ord("r"):
                places += range(at, at + 40 + size)
            at += 40 + size
    return places


@pytest.mark.parametrize("name", PEERS)
def test_every_flipped_byte_is_an_error(golden: Path, name: tuple[str, str]) -> None:
    data = golden.joinpath(*name).read_bytes()
    places = meaningful(data)
    assert 400 < len(places) < 800
    for place in places:
        bad = bytearray(data)
        bad[place] ^= 1 << place % 8
        with pytest.raises(ps.PenstockError) as caught:
            records(bytes(bad))
        assert caught.value.file == "x.array_record", place


def test_damage_names_the_first_record_of_its_chunk() -> None:
    data = two_chunks()
    place = data.index(b"threethree")
    bad = data[:place] + b"T" + data[place + 1 :]
    with pytest.raises(ps.ChecksumError, match="hash of a chunk's data") as caught:
        records(bad)
    assert caught.value.record == 2
    assert caught.value.byte == 64 + len(chunk(SMALL[:2]))
    with pytest.raises(ps.ChecksumError) as caught:
        opened(bad).take([0, 3])
    assert caught.value.record == 2
    assert opened(bad).take([1, 0])["record"].to_pylist() == [b"", b"one"]
    assert records(bad, checksums="headers")[2].startswith(b"Threethree")


def test_records_before_the_damage_come_first() -> None:
    data = two_chunks()
    place = data.index(b"threethree")
    seen: list[bytes] = []
    dataset = opened(data[:place] + b"T" + data[place + 1 :])
    with pytest.raises(ps.ChecksumError):
        seen.extend(r for batch in dataset.scan() for r in batch["record"].to_pylist())
    assert seen == SMALL[:2] or seen == []
    batches = dataset.scan()
    assert next(batches)["record"].to_pylist() == SMALL[:2]


def test_reading_continues_after_a_damaged_chunk() -> None:
    groups = [[b"a%d" % n, b"b%d" % n] for n in range(5)]
    data = bytearray(file_of([chunk(group) for group in groups]))
    for text in (b"b1", b"a3"):
        data[data.index(text)] ^= 1
    dataset = opened(bytes(data), damage="skip")
    assert [row["record"] for row in dataset] == groups[0] + groups[2] + groups[4]
    assert [region.num_records for region in dataset.damage] == [2, 2]
    stopped = opened(bytes(data), damage="stop")
    assert [row["record"] for row in stopped] == groups[0]
    first = bytearray(two_chunks())
    first[first.index(b"one")] ^= 1
    assert [row["record"] for row in opened(bytes(first), damage="skip")] == SMALL[2:]


def test_the_error_for_a_transposed_chunk_says_what_to_do() -> None:
    data = file_of([chunk_of(b"\0" * 20, 2, 5, b"t")])
    with pytest.raises(ps.UnsupportedError, match="transpose:false"):
        records(data, raw=True)


@pytest.mark.parametrize(
    "bad",
    [
        chunk([b"ab", b"c"], count=3),
        chunk([b"ab", b"c"], count=1),
        chunk([b"ab", b"c"], size=2),
        chunk([b"ab", b"c"], size=4),
        chunk([b"ab"], kind=b"x"),
        chunk_of(b"", 1, 1),
        chunk_of(b"\0", 1, 1),
        chunk_of(b"\0\x7f", 1, 1),
        chunk_of(b"\0\1\x80", 1, 0),
        chunk_of(b"\0\2\1\1aa", 1, 2),
        chunk_of(b"\0" + varint(10) + b"\xff" * 9 + b"\1" + b"aa", 1, 2),
        chunk_of(b"q\1\1a", 1, 1),
        chunk_of(b"z\1\1a", 1, 1),
        chunk_of(b"z\2\1aaaa", 1, 1),
        chunk_of(b"b\3\1aaaaa", 1, 1),
        chunk_of(b"s\3\1\1aaaaa", 1, 1),
        chunk_of(b"z" + varint(10) + varint(1 << 62) + b"aaaaaa", 1, 1),
    ],
)
def test_a_false_chunk_with_right_hashes_is_refused(bad: bytes) -> None:
    with pytest.raises(ps.FormatError) as caught:
        records(file_of([chunk([b"first"]), bad]), raw=True)
    assert caught.value.file == "x.array_record"


GOOD = [chunk([b"ab"]), chunk([b"c", b"d"])]
FIRST, SECOND = 64, 64 + len(GOOD[0])


@pytest.mark.parametrize(
    ("lie", "message"),
    [
        ({"listed": [(FIRST, 2, 1)], "head": numbers(1, 2, 3)}, "counts of chunks and records"),
        ({"listed": [(FIRST, 2, 1)], "head": numbers(1, 1, 3)}, "counts of chunks and records"),
        ({"listed": [(FIRST, 2, 1), (FIRST, 2, 2)]}, "impossible positions"),
        ({"listed": [(SECOND, 2, 2), (FIRST, 2, 1)]}, "impossible positions"),
        ({"listed": [(0, 2, 1)]}, "impossible positions"),
        ({"listed": [(1 << 40, 2, 1)]}, "impossible positions"),
        ({"listed": [((1 << 64) - 1, 2, 1)]}, "impossible positions"),
        ({"listed": [(FIRST, 2, 1 << 40)]}, "impossible positions"),
        ({"listed": [(FIRST, 1 << 63, 1)]}, "impossible sizes"),
        ({"listed": [(FIRST, 1 << 50, 1)]}, "member_bytes"),
        ({"listed": [(FIRST, 2, 1), (SECOND, 2, 1)]}, "contradicts the footer"),
        ({"listed": [(FIRST, 3, 1), (SECOND, 2, 2)]}, "contradicts the footer"),
        ({"listed": [(FIRST + 1, 2, 1)]}, "does not match"),
        ({"head": numbers(2, 2, 3)}, "version"),
        ({"head": b"\x0b"}, "start of the footer is invalid"),
        ({"head": b"\x08"}, "start of the footer is invalid"),
        ({"magic": 5}, "postscript"),
        ({"footer_offset": 1 << 50}, "not in the file"),
        ({"footer_offset": 0}, "not in the file"),
        ({"footer_offset": BLOCK}, "not in the file"),
        ({"footer_offset": FIRST}, "footer"),
        ({"footer_offset": FIRST + 3}, "does not match"),
    ],
)
def test_a_false_footer_with_right_hashes_is_refused(lie: dict[str, Any], message: str) -> None:
    with pytest.raises(ps.PenstockError, match=message):
        records(file_of(GOOD, **lie), raw=True)


def test_limits_are_kept() -> None:
    data = file_of([chunk([bytes(500)]), chunk([bytes(100)] * 20)])
    with pytest.raises(ps.LimitError):
        records(data, limits={"record_bytes": 499}, raw=True)
    with pytest.raises(ps.LimitError, match="member_bytes"):
        records(data, limits={"member_bytes": 1999}, raw=True)
    with pytest.raises(ps.LimitError, match="footer_bytes"):
        records(data, limits={"footer_bytes": 50}, raw=True)
    limits = {"record_bytes": 500, "member_bytes": 2000}
    assert len(records(data, limits=limits, raw=True)) == 21


def test_the_kernel_takes_no_places_beyond_the_buffer() -> None:
    buffer = _core.Buffer.from_bytes(SIGNATURE)

    def column(value: int) -> pa.Array:
        return pa.array([value], pa.uint64())

    for start, length in ((65, 1), (1 << 63, 1 << 63), (0, 65), ((1 << 64) - 1, 5)):
        with pytest.raises(_core.KernelError):
            zeros = [column(0)] * 3
            _core.riegeli_records(buffer, column(start), column(length), *zeros, 10, 10)
    with pytest.raises(ValueError, match="one length"):
        columns = [column(0)] * 4
        _core.riegeli_records(buffer, pa.array([], pa.uint64()), *columns, 10, 10)
    with pytest.raises(_core.KernelError):
        _core.riegeli_head(buffer.slice(0, 63), 0)

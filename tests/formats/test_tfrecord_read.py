"""Reading TFRecord: the golden files, detection of the format, and hostile lengths."""

from __future__ import annotations

import gzip
import json
import os
import random
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given

import frames
import penstock as ps
from penstock import _core, formats
from penstock.storage import MemoryStorage
from reading import SHARED, read_all, read_bytes, records_of, run_python
from strategies import payloads

GOLDEN = SHARED / "specs" / "golden" / "tfrecord"
FILES = sorted(p.name.removesuffix(".expected.json") for p in GOLDEN.glob("*.expected.json"))

# Files in which TensorFlow skips damage silently and penstock does not (specs/tfrecord.md, 5).
STRICTER = {
    "trailing_garbage_3.tfrecord": ps.TruncatedError,
    "trunc_in_header.tfrecord": ps.TruncatedError,
    "missing_gzip_trailer.tfrecord.gz": ps.TruncatedError,
    "two_streams.tfrecord.z": ps.FormatError,
}
# Files at which TensorFlow stops silently and penstock continues, each with the longer file that it
# is a part of.
FURTHER = {
    "empty_member_first.tfrecord.gz": "gzip.tfrecord.gz",
    # Each record has its own checksum, so the records before the member's wrong checksum are good.
    "bad_gzip_crc.tfrecord.gz": "gzip.tfrecord.gz",
}


def expected_records(name: str) -> list[bytes]:
    data = json.loads((GOLDEN / f"{name}.expected.json").read_text())
    return [bytes.fromhex(record) for record in data["records_hex"]]


def test_the_golden_files_are_there() -> None:
    assert len(FILES) >= 20, f"golden files missing from {GOLDEN}"


@pytest.mark.parametrize("name", FILES)
def test_golden_file_gives_its_records_and_its_error(name: str) -> None:
    said = json.loads((GOLDEN / f"{name}.expected.json").read_text())
    got = read_all(str(GOLDEN / name))
    if name in STRICTER:
        assert isinstance(got.error, STRICTER[name]), got.error
    elif said["error"] is None:
        assert got.error is None
    else:
        assert isinstance(got.error, ps.FormatError)
    if got.error is not None:
        assert got.error.file == str(GOLDEN / name)
        assert got.error.byte is not None
    records = expected_records(FURTHER.get(name, name))
    if name == "empty_member_in_middle.tfrecord.gz":
        assert got.records[: len(records)] == records
        assert len(got.records) > len(records), "what follows the empty member is read, too"
    else:
        assert got.records == records


@pytest.mark.parametrize("name", FILES)
def test_golden_file_reads_the_same_with_any_options(name: str, index_folder: str) -> None:
    path = str(GOLDEN / name)
    plain = read_all(path)
    for options in ({"threads": 3}, {"mmap": True}, {"index": index_folder}):
        got = read_all(path, **options)
        assert (got.records, type(got.error)) == (plain.records, type(plain.error)), options


@pytest.mark.parametrize("name", FILES)
def test_golden_file_through_its_index(name: str, index_folder: str) -> None:
    path = str(GOLDEN / name)
    plain = read_all(path)
    dataset = ps.open(path, raw=True, index=index_folder) if plain.records else None
    if dataset is None:
        return
    if plain.error is not None and not isinstance(plain.error, ps.ChecksumError):
        with pytest.raises(ps.FormatError):
            len(dataset)
    elif plain.error is None:
        assert len(dataset) == len(plain.records)
        assert dataset[::-1].column(0).to_pylist() == plain.records[::-1]
        assert records_of(dataset) == plain.records


def test_golden_crc_vectors() -> None:
    for vector in json.loads((GOLDEN / "crc_vectors.json").read_text()):
        payload = bytes.fromhex(vector["input_hex"])
        assert _core.Buffer.from_bytes(payload).crc32c() == int(vector["crc32c"], 16)
        assert frames.masked(payload) == int(vector["masked"], 16)
        framed = bytes.fromhex(vector["framed_hex"])
        assert frames.frame(payload) == framed
        assert read_bytes(framed).records == [payload]


def test_golden_examples_decode_to_columns() -> None:
    path = GOLDEN.parent / "tf_example" / "examples.tfrecord"
    said = json.loads((path.parent / "examples.tfrecord.expected.json").read_text())
    dataset = ps.open(str(path), index="never")
    rows = [row for batch in dataset.scan() for row in batch.to_pylist()]
    assert len(rows) == len(said) == 5
    for row, features in zip(rows, said, strict=True):
        for key, values in features.items():
            wanted = None if values is None else [_plain(value) for value in values]
            found = row[key]
            if wanted is not None and len(wanted) == 1 and not isinstance(found, list):
                found = [found]
            assert found == wanted, key
        missing = set(row) - set(features)
        assert all(row[key] is None for key in missing)


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return bytes.fromhex(value["bytes_hex"])
    return float(value) if isinstance(value, str) else value


# -- payloads of any kind and size ----------------------------------------------------------------


@given(payloads)
def test_any_payloads_come_back(some: list[bytes]) -> None:
    data = frames.file_of(some)
    assert read_bytes(data).records == some
    assert read_bytes(frames.gzip_of(data, 3)).records == some
    assert read_bytes(frames.zlib_of(data)).records == some


def test_many_gzip_members_even_one_a_byte() -> None:
    some = [b"first", b"", b"third" * 9]
    data = frames.file_of(some)
    assert read_bytes(frames.gzip_of(data, len(data))).records == some
    empty = frames.gzip_of(b"")
    assert read_bytes(empty * 3 + frames.gzip_of(data, 2) + empty).records == some


def test_a_gzip_header_with_every_flag_is_read() -> None:
    plain = frames.file_of([b"payload"] * 3)
    deflater = zlib.compressobj(6, zlib.DEFLATED, -15)
    body = deflater.compress(plain) + deflater.flush()
    bare = b"\x1f\x8b\x08\x1e" + b"\1\2\3\4" + b"\0\3" + struct.pack("<H", 5) + b"extra"
    bare += b"name\0" + b"comment\0"
    bare += struct.pack("<H", zlib.crc32(bare) & 0xFFFF)
    data = bare + body + struct.pack("<II", zlib.crc32(plain), len(plain))
    assert read_bytes(data).records == [b"payload"] * 3


def test_an_empty_file_has_no_records() -> None:
    assert read_bytes(b"").records == []
    assert read_bytes(frames.gzip_of(b"")).records == []
    assert read_bytes(frames.zlib_of(b"")).records == []


# -- which files are TFRecord ---------------------------------------------------------------------

# Lengths of a first record whose bytes spell the magic numbers of gzip, zlib, JPEG, bzip2 and zip.
MAGIC_LENGTHS = (35_615, 559_903, 40_056, 0x0178, 0x5E78, 0xDA78, 16_767_231, 6_838_850, 67_324_752)


@pytest.mark.parametrize("length", MAGIC_LENGTHS)
def test_a_first_record_that_spells_a_magic_number_is_still_a_record(length: int) -> None:
    head = frames.head(length)
    assert formats.by_bytes(head + bytes(4084), length + 16, "x").info.name == "tfrecord"
    # The whole file, if it is small enough for the slow checksum of the tests.
    if length < 100_000:
        payload = random.Random(length).randbytes(length)
        got = read_bytes(frames.file_of([payload, b"second"]), path="no-extension")
        assert got.records == [payload, b"second"]


def test_random_lengths_are_never_taken_for_another_format() -> None:
    """The first records of 10^5 files have random lengths, and the names do not reveal the format."""
    seed = int(os.environ.get("PENSTOCK_SEED", "1"))
    rng = random.Random(seed)
    for _ in range(100_000):
        length = rng.getrandbits(rng.randrange(1, 40))
        found = formats.by_bytes(frames.head(length), length + 16, "x").info.name
        assert found == "tfrecord", f"seed {seed}: {length} bytes"


def test_random_garbage_is_a_format_error() -> None:
    rng = random.Random(7)
    for size in (1, 7, 11, 12, 13, 100, 5000):
        for _ in range(50):
            garbage = rng.randbytes(size)
            with pytest.raises(ps.FormatError) as caught:
                ps.open("garbage", storage=MemoryStorage({"garbage": garbage}), index="never")
            assert caught.value.file == "garbage"


def test_a_named_format_is_not_overruled() -> None:
    data = frames.file_of([b"x" * 35_615])
    got = read_bytes(data, path="thing.parquet", format="tfrecord")
    assert got.records == [b"x" * 35_615]


def test_other_gzip_files_are_not_tfrecord() -> None:
    data = gzip.compress(b"just some text, " * 100)
    with pytest.raises(ps.UnsupportedError, match="compressed with gzip"):
        ps.open("text.gz", storage=MemoryStorage({"text.gz": data}), index="never")


# -- wrong lengths ------------------------------------------------------------------------------

LIES = (2**31 - 1, 2**31 + 5, 2**32 + 1, 100 * 10**9, 10**12, 2**63, 2**64 - 17, 2**64 - 1)
REFUSE = """
import resource, sys, time
import penstock as ps
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.monotonic()
for path in sys.argv[2:]:
    for damage in ("error", "skip"):
        for mode in ({"raw": True}, {}):
            try:
                dataset = ps.open(path, index=sys.argv[1], damage=damage, **mode)
                records = sum(batch.num_rows for batch in dataset.scan())
                assert damage == "skip", (path, records)
            except (ps.LimitError, ps.TruncatedError) as error:
                assert damage == "error", (path, error)
                assert error.file == path and error.byte == 17, str(error)
            else:
                assert records == 1, (path, records)
                assert dataset.damage, path
    try:
        len(ps.open(path, index=sys.argv[1], raw=True))
        assert False, path
    except (ps.LimitError, ps.TruncatedError):
        pass
spent = time.monotonic() - start
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
assert spent / len(sys.argv[2:]) < 2, f"{spent:.1f} s"
assert grown < 100, f"{grown:.0f} MiB"
"""


@pytest.mark.parametrize("kind", ["plain", "gzip", "zlib"])
def test_absurd_lengths_with_right_checksums_are_refused(kind: str, tmp_path: Path) -> None:
    wrap = {"plain": bytes, "gzip": frames.gzip_of, "zlib": frames.zlib_of}[kind]
    paths = []
    for length in LIES:
        path = tmp_path / f"{length}.tfrecord"
        path.write_bytes(wrap(frames.frame(b"x") + frames.head(length) + b"y" * 100))
        paths.append(str(path))
    run_python(REFUSE, str(tmp_path / "indexes"), *paths, megabytes=1024)


BOMB = """
import resource, sys
import penstock as ps
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    dataset = ps.open(sys.argv[1], index="never", raw=True, limits={"record_bytes": 1 << 20})
    print(sum(batch.num_rows for batch in dataset.scan()))
except ps.LimitError as error:
    assert "record_bytes" in str(error)
    print("LimitError")
except ps.FormatError as error:
    print("FormatError")
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
assert grown < 100, f"{grown:.0f} MiB"
"""


def test_a_bomb_of_one_huge_record_is_refused_by_the_limit(tmp_path: Path) -> None:
    size = 400 << 20
    path = tmp_path / "bomb.tfrecord.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(frames.head(size))
        for _ in range(size >> 20):
            file.write(bytes(1 << 20))
    assert path.stat().st_size < 4 << 20
    assert run_python(BOMB, str(path)).strip() == "LimitError"


def test_a_bomb_of_zeros_is_not_a_record(tmp_path: Path) -> None:
    path = tmp_path / "bomb.tfrecord.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(frames.frame(b"one"))
        for _ in range(400):
            file.write(bytes(1 << 20))
    assert run_python(BOMB, str(path)).strip() == "FormatError"


def test_a_bomb_of_empty_records_streams_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb.tfrecord.gz"
    with gzip.open(path, "wb", 1) as file:
        for _ in range(200):
            file.write(frames.frame(b"") * 65_536)
    assert run_python(BOMB, str(path)).strip() == str(200 * 65_536)


DEEP = """
import sys
import pyarrow as pa
import penstock as ps
try:
    dataset = ps.open(sys.argv[1], index="never", schema=pa.schema([("a", "int64")]))
    rows = [row for batch in dataset.scan(threads=1) for row in batch.to_pylist()]
    print(rows)
except ps.FormatError as error:
    print(type(error).__name__)
"""


@pytest.mark.parametrize("closed", [True, False])
def test_groups_a_million_deep_end_no_process(closed: bool, tmp_path: Path) -> None:
    depth = 1_000_000
    groups = b"\x3b" * depth + (b"\x3c" * depth if closed else b"")
    path = tmp_path / "deep.tfrecord"
    payload = groups + frames.example({"a": [7]})
    path.write_bytes(frames.frame(payload))
    said = run_python(DEEP, str(path)).strip()
    assert said in ("FormatError", "LimitError", "[{'a': 7}]")
    assert closed or said != "[{'a': 7}]"


# -- what can be asked ----------------------------------------------------------------------------


def test_checksums_can_be_left_unverified() -> None:
    data = bytearray(frames.file_of([b"first payload", b"second payload"]))
    data[14] ^= 1
    bad = bytes(data)
    assert isinstance(read_bytes(bad).error, ps.ChecksumError)
    for checksums in ("headers", "none"):
        got = read_bytes(bad, checksums=checksums)
        assert got.error is None
        assert got.records == [b"fi" + bytes([ord("r") ^ 1]) + b"st payload", b"second payload"]


def test_a_cache_of_remote_files_is_refused_and_local_files_need_no_cache(tmp_path: Path) -> None:
    storage = MemoryStorage({"a.tfrecord": frames.frame(b"x")})
    with pytest.raises(ps.UnsupportedError, match="cache="):
        ps.open("a.tfrecord", storage=storage, cache=str(tmp_path))
    (tmp_path / "a.tfrecord").write_bytes(frames.frame(b"x"))
    assert len(ps.open(tmp_path / "a.tfrecord", raw=True, cache=str(tmp_path))) == 1


def test_an_unknown_option_lists_the_known_options() -> None:
    storage = MemoryStorage({"a.tfrecord": frames.frame(b"x")})
    with pytest.raises(TypeError, match="infer_records"):
        ps.open("a.tfrecord", storage=storage, index="never", infer_record=3)
    with pytest.raises(ValueError, match="skip"):
        ps.open("a.tfrecord", storage=storage, damage="ignore")


def test_a_payload_that_is_not_an_example_opens_as_record() -> None:
    storage = MemoryStorage({"a.tfrecord": frames.file_of([b"\xff\xff no protobuf", b""])})
    dataset = ps.open("a.tfrecord", storage=storage, index="never")
    assert dataset.schema.names == ["record"]


def test_the_limit_of_a_record_can_be_raised_and_lowered() -> None:
    data = frames.file_of([b"x" * 1000])
    got = read_bytes(data, limits={"record_bytes": 999})
    assert isinstance(got.error, ps.LimitError)
    assert "record_bytes" in str(got.error)
    assert read_bytes(data, limits={"record_bytes": 1000}).records == [b"x" * 1000]

"""Verify finds everything that is wrong, and reports the right kind of fault."""

from __future__ import annotations

import gzip
import json
import os
import random
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

import penstock as ps
from frames import example, feature, gzip_of, message
from penstock import _core
from reading import SHARED

GOLDEN = SHARED / "specs" / "golden" / "tfrecord"

# The expected result for each of TensorFlow's files: the kinds of findings, and the number of good records.
EXPECTED: dict[str, tuple[list[str], int]] = {
    "bad_data_crc.tfrecord": (["data_checksum"], 4),
    "bad_gzip_crc.tfrecord.gz": (["compression_checksum"], 5),
    "bad_length_crc.tfrecord": (["length_checksum"], 5),
    "bad_length_crc_first.tfrecord": (["length_checksum"], 5),
    "bad_payload.tfrecord": (["data_checksum"], 4),
    "empty.tfrecord": ([], 0),
    "empty_member_first.tfrecord.gz": (["empty_member"], 5),
    "empty_member_in_middle.tfrecord.gz": (["empty_member"], 10),
    "empty_member_last.tfrecord.gz": ([], 5),
    "gzip.tfrecord.gz": ([], 5),
    "gzip_trailing_garbage.tfrecord.gz": (["trailing_bytes"], 5),
    "member_split_mid_record.tfrecord.gz": ([], 5),
    "missing_gzip_trailer.tfrecord.gz": (["cut_trailer"], 5),
    "multi_member.tfrecord.gz": ([], 6),
    "plain.tfrecord": ([], 5),
    "trailing_garbage_16.tfrecord": (["length_checksum"], 5),
    "trailing_garbage_3.tfrecord": (["short_tail"], 5),
    "trailing_zeros_16.tfrecord": (["length_checksum"], 5),
    "trunc_in_footer.tfrecord": (["truncated"], 4),
    "trunc_in_header.tfrecord": (["short_tail"], 4),
    "trunc_in_payload.tfrecord": (["truncated"], 4),
    "two_streams.tfrecord.z": (["second_stream"], 6),
    "zero_length_only.tfrecord": ([], 1),
    "zlib.tfrecord.z": ([], 5),
}


def frames(payloads: list[bytes]) -> bytes:
    return _core.frame_records(pa.array(payloads, pa.binary())).data.to_bytes()


def kinds(report: ps.Report) -> list[str]:
    return [finding.kind for finding in report.findings]


def test_every_golden_file_is_expected_here() -> None:
    names = {p.name for p in GOLDEN.iterdir() if not p.name.endswith(".json")}
    assert names == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_faults_at_which_tensorflow_stops_or_that_it_skips_are_found(name: str) -> None:
    wanted, right = EXPECTED[name]
    report = ps.verify(str(GOLDEN / name), index="never")
    assert (kinds(report), report.num_records) == (wanted, right)
    assert report.ok == (not wanted)
    observed = json.loads((GOLDEN / f"{name}.expected.json").read_text())
    if observed["error"] is not None:
        assert not report.ok
    else:
        assert report.num_records >= len(observed["records_hex"])


def test_every_tfrecord_of_the_corpus_is_right() -> None:
    files = [p for p in (SHARED / "corpus" / "tfrecord").rglob("*") if p.is_file()]
    files = [p for p in files if p.suffix != ".json"]
    assert len(files) >= 30
    for path in files:
        report = ps.verify(str(path), index="never")
        assert report.ok, str(report)


def test_each_flipped_bit_is_found_where_it_is(tmp_path: Path) -> None:
    payloads = [bytes([n]) * (n % 23) for n in range(12)]
    data = frames(payloads)
    starts = np.cumsum([0, *(len(p) + 16 for p in payloads)])
    path = tmp_path / "a.tfrecord"
    for bit in range(len(data) * 8):
        broken = bytearray(data)
        broken[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(broken)
        report = ps.verify(str(path), index="never", threads=1)
        record = int(np.searchsorted(starts, bit // 8, "right")) - 1
        (finding,) = report.findings
        assert finding.record == record
        assert (finding.start_byte, finding.end_byte) == (starts[record], starts[record + 1])
        in_head = bit // 8 - starts[record] < 12
        assert finding.restored == in_head
        assert report.num_records == len(payloads) - (not in_head)


def test_every_cut_is_found(tmp_path: Path) -> None:
    payloads = [bytes([n]) * (n % 23) for n in range(12)]
    data = frames(payloads)
    starts = np.cumsum([0, *(len(p) + 16 for p in payloads)]).tolist()
    path = tmp_path / "a.tfrecord"
    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        report = ps.verify(str(path), index="never", threads=1)
        if cut in starts:
            assert report.ok
            assert report.num_records == starts.index(cut)
            continue
        (finding,) = report.findings
        left = cut - max(s for s in starts if s < cut)
        assert finding.kind == ("short_tail" if left < 12 else "truncated")
        assert finding.end_byte == cut
        # A scan and building an index report the same about it.
        dataset = ps.open(str(path), raw=True, index="never")
        with pytest.raises(ps.TruncatedError) as scanned:
            list(dataset.scan(threads=1))
        with pytest.raises(ps.TruncatedError) as counted:
            len(dataset)
        assert str(counted.value) == str(scanned.value)
        assert ("too few for a record header" in str(scanned.value)) == (left < 12)


def test_tensorflow_is_not_mentioned_if_it_cannot_read_the_format(tmp_path: Path) -> None:
    ps.write({"cls": [1, 2, 3]}, tmp_path / "a.tar", index=False)
    plain = (tmp_path / "a.tar").read_bytes()
    path = tmp_path / "b.tar.gz"
    path.write_bytes(gzip.compress(b"") + gzip.compress(plain) + b"junk")
    (finding,) = ps.verify(str(path), index="never").findings
    assert finding.kind == "trailing_bytes"
    assert "TensorFlow" not in finding.message


@pytest.mark.parametrize("container", ["gzip", "zlib"])
def test_every_cut_and_changed_byte_of_a_compressed_file_is_found(
    tmp_path: Path, container: str
) -> None:
    payloads = [bytes([n]) * (n % 23) for n in range(40)]
    plain = frames(payloads)
    data = gzip.compress(plain, mtime=0) if container == "gzip" else zlib.compress(plain)
    path = tmp_path / "a.tfrecord"
    for cut in range(1, len(data)):
        path.write_bytes(data[:cut])
        report = ps.verify(str(path), index="never", threads=1, compression=container)
        assert not report.ok, cut
        assert report.num_records <= 40
    silent: list[int] = []
    for place in range(len(data)):
        broken = bytearray(data)
        broken[place] ^= 0x11
        path.write_bytes(broken)
        report = ps.verify(str(path), index="never", threads=1, compression=container)
        if report.ok:
            silent.append(place)
    # Time, extra flags and operating system in gzip's head do not affect the data, and no checksum
    # covers them.
    assert silent == ([4, 5, 6, 7, 8, 9] if container == "gzip" else [])


def test_threads_and_chunks_do_not_change_the_report(tmp_path: Path) -> None:
    rng = random.Random(4)
    payloads = [rng.randbytes(rng.randrange(3000)) for _ in range(4000)]
    data = bytearray(frames(payloads))
    for _ in range(30):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    for name in ("a.tfrecord", "b.tfrecord"):
        (tmp_path / name).write_bytes(data)
    one = ps.verify(str(tmp_path / "*.tfrecord"), threads=1, index="never")
    for threads in (2, 4):
        assert ps.verify(str(tmp_path / "*.tfrecord"), threads=threads, index="never") == one
    assert 50 <= len(one.findings) <= 60
    assert one.num_records + (one.num_lost or 0) == 8000


def test_long_records_are_verified_and_limits_are_kept(tmp_path: Path) -> None:
    payloads = [b"a", random.Random(1).randbytes(5 << 20), b"b"]
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frames(payloads))
    assert ps.verify(str(path), index="never").num_records == 3
    report = ps.verify(str(path), index="never", limits={"record_bytes": 1 << 20})
    assert kinds(report) == ["limit"]
    assert report.num_records == 2


def test_a_payload_that_is_not_an_example_is_named(tmp_path: Path) -> None:
    ps.write({"x": np.arange(100)}, str(tmp_path / "a.tfrecord"), index=False)
    path = tmp_path / "b.tfrecord"
    path.write_bytes((tmp_path / "a.tfrecord").read_bytes() + frames([b"hello", b""]))
    report = ps.verify(str(path), index="never")
    assert kinds(report) == ["message"]
    assert report.findings[0].record == 100
    assert ps.verify(str(path), index="never", payloads=False).ok
    path.write_bytes(frames([b"hello", b"world"]))
    assert ps.verify(str(path), index="never").ok


BROKEN = {
    "no message": b"\xff\xff\xff",
    "a key that is no text": message(1, message(1, message(1, b"\xff") + message(2, feature([5])))),
    "cut": example({"a": [5]})[:-2],
    "an endless varint": b"\x0a" + b"\xff" * 11 + b"\x01",
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize(
    ("at", "count", "pack"),
    [(0, 3000, bytes), (30, 50, bytes), (500, 3000, bytes), (1500, 3000, bytes), (0, 50, gzip_of)],
)
def test_one_broken_payload_among_examples_is_one_fault_wherever_it_is(
    tmp_path: Path, broken: bytes, at: int, count: int, pack: Callable[[bytes], bytes]
) -> None:
    payloads = [example({"a": [n]}) for n in range(count)]
    payloads.insert(at, broken)
    path = tmp_path / "a.tfrecord"
    path.write_bytes(pack(frames(payloads)))
    report = ps.verify(str(path), index="never")
    assert [(found.kind, found.record) for found in report.findings] == [("message", at)]
    ds = ps.open(path, index="never")
    assert ds.schema.names == ["a"]
    with pytest.raises(ps.FormatError) as caught:
        list(ds.scan())
    assert caught.value.record == at
    ds = ps.open(path, damage="skip", index="never")
    assert [n for batch in ds.scan() for n in batch["a"].to_pylist()] == list(range(count))
    assert [region.num_records for region in ds.damage] == [1]


def test_payloads_of_which_many_are_not_examples_stay_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frames([example({"a": [n]}) for n in range(17)] + [b"\xff\xff\xff"] * 2))
    assert ps.open(path, index="never").schema.names == ["record"]
    assert ps.verify(str(path), index="never").ok


def test_a_stale_index_is_a_note(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"x": np.arange(100)}, str(path))
    assert not ps.verify(str(path)).findings
    path.write_bytes(frames([b"other"]))
    report = ps.verify(str(path))
    assert report.ok
    assert kinds(report) == ["stale_index"]


def test_parquet_and_arrow_are_decoded_whole(tmp_path: Path) -> None:
    table = pa.table({"x": np.random.default_rng(0).integers(0, 1 << 60, 4000)})
    pq.write_table(
        table, tmp_path / "a.parquet", row_group_size=1000, write_page_checksum=True,
        use_dictionary=False, compression="none",
    )  # fmt: skip
    feather.write_feather(table, tmp_path / "a.arrow", compression="lz4", chunksize=1000)
    for name in ("a.parquet", "a.arrow"):
        report = ps.verify(str(tmp_path / name))
        assert report.ok
        assert report.num_records == 4000
        data = bytearray((tmp_path / name).read_bytes())
        data[len(data) // 2 : len(data) // 2 + 64] = bytes(64)
        (tmp_path / name).write_bytes(data)
        report = ps.verify(str(tmp_path / name))
        if name == "a.parquet":
            assert not report.ok
            assert report.num_records == 3000
            assert report.num_lost == 1000
        (tmp_path / name).write_bytes(data[:-20])
        assert not ps.verify(str(tmp_path / name)).ok


def test_progress_ends_with_everything_done(tmp_path: Path) -> None:
    for kind in (None, "gzip", "zlib"):
        ps.write({"x": np.arange(50000)}, str(tmp_path / f"{kind}.tfrecord"), compression=kind)
    pq.write_table(pa.table({"x": np.arange(5000)}), tmp_path / "a.parquet", row_group_size=100)
    for path in sorted(tmp_path.iterdir()):
        if path.suffix == ".penstock":
            continue
        calls: list[tuple[int, int, int]] = []
        report = ps.verify(str(path), progress=lambda *call, calls=calls: calls.append(call))
        assert calls == sorted(calls)
        assert calls[-1] == (report.num_records, path.stat().st_size, path.stat().st_size), path


def test_a_missing_shard_is_not_skipped(tmp_path: Path) -> None:
    ps.write({"x": np.arange(30)}, str(tmp_path / "a.tfrecord"), num_shards=3)
    lost = tmp_path / "a-00001-of-00003.tfrecord"
    lost.unlink()
    report = ps.verify(str(tmp_path / "a-*.tfrecord"))
    assert [(one.kind, one.file) for one in report.findings] == [("missing", str(lost))]
    assert not report.ok


def test_a_report_is_plain_values_for_json(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frames([b"x"])[:-1])
    report = ps.verify(str(path))
    again = json.loads(json.dumps(report.to_dict()))
    assert again["ok"] is False
    assert again["findings"][0]["kind"] == "truncated"
    assert "truncated" in str(report)
    assert "a.tfrecord" in str(report)


def test_a_flipped_flag_of_a_gzip_head_ends_the_verification(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord.gz"
    ps.write({"id": list(range(5000))}, path, index=False)
    data = bytearray(path.read_bytes())
    data[3] ^= 2  # set the flag for a header checksum, which is not there
    path.write_bytes(data)
    assert not ps.verify(path, index="never").ok


@pytest.mark.parametrize("name", ["a.tfrecord", "a.parquet", "a.arrow", "a.h5", "a.npy", "a.bin"])
@pytest.mark.parametrize("size", [512, 1024, 8192, 10_240, 20_480])
def test_zeros_are_not_an_empty_archive_unless_the_name_says_so(
    name: str, size: int, tmp_path: Path
) -> None:
    """A system crash may leave a file of zeros."""
    path = tmp_path / name
    path.write_bytes(bytes(size))
    assert not ps.verify(path).ok
    tar = tmp_path / "a.tar"
    tar.write_bytes(bytes(size))
    assert ps.verify(tar).ok and len(ps.open(tar)) == 0


@pytest.mark.parametrize("left", [0, 1, 60, 99])
def test_a_file_that_was_cut_between_two_records_is_a_fault_while_its_index_lists_the_others(
    tmp_path: Path, left: int
) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"x": np.arange(100)}, str(path))
    size = path.stat().st_size // 100 * left
    os.truncate(path, size)
    report = ps.verify(str(path))
    (found,) = report.findings
    assert (found.kind, found.record, found.start_byte, found.num_records) == (
        "truncated", left, size, 100 - left,
    )  # fmt: skip
    assert report.num_records == left
    assert "penstock index --force" in found.message
    ps.index(str(path), force=True)
    assert ps.verify(str(path)).ok


def test_a_file_that_needs_an_option_does_not_end_the_check_of_the_others(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["a"], file["b"] = np.arange(5), np.arange(7)
    ps.write({"x": [1, 2]}, str(tmp_path / "b.tfrecord"))
    with pytest.raises(ps.SchemaError, match="differ in length"):
        ps.verify(str(path))
    report = ps.verify([str(path), str(tmp_path / "b.tfrecord")])
    (found,) = report.findings
    assert (found.kind, found.file, report.num_records) == ("schema", str(path), 2)
    assert "datasets=['a']" in found.message

"""Verbs on damaged files deliver the records that a scan delivers, and report missing records at their place."""

from __future__ import annotations

import gzip
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import frames
import penstock as ps


def flip(path: Path, at: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def ids_of(source: Any, **options: Any) -> list[int]:
    ds = source if isinstance(source, ps.Dataset) else ps.open(source, **options)
    return [n for batch in ds.scan(columns=["id"]) for n in batch.column("id").to_pylist()]


def ids_file(path: Path, count: int = 1000) -> list[int]:
    """A file of ids, and the position of each record."""
    ps.write({"id": range(count)}, str(path), index=False)
    starts, data, at = [], path.read_bytes(), 0
    while at < len(data):
        starts.append(at)
        at += frames.FRAMING + int.from_bytes(data[at : at + 8], "little")
    return starts


HIT = [3, 400, 401, 998]


@pytest.mark.parametrize("damage", ["skip", "stop"])
@pytest.mark.parametrize("index", ["never", "auto", "known"])
@pytest.mark.parametrize("offset", [9, 20], ids=["head", "payload"])
def test_convert_writes_what_a_scan_delivers(
    tmp_path: Path, damage: str, index: str, offset: int
) -> None:
    path = tmp_path / "a.tfrecord"
    starts = ids_file(path)
    if index == "known":
        ps.index(str(path))
    hit = [n for n in HIT if n != 401]
    for number in hit:
        flip(path, starts[number] + offset)
    index = "never" if index == "never" else "auto"

    def opened() -> ps.Dataset:
        return ps.open(str(path), damage=damage, index=index)

    restored = offset == 9
    good = [n for n in range(1000) if restored or n not in hit]
    want = good[:3] if damage == "stop" else good
    assert ids_of(opened()) == want
    for options in ({}, {"num_shards": 3}, {"shard_records": 300}, {"shard_bytes": 4000}):
        prove = {} if "shard_bytes" in options else {"prove": True}
        made = ps.convert(opened(), str(tmp_path / "b.parquet"), overwrite=True, **options, **prove)
        assert made.num_records == len(want)
        assert ids_of(list(made.paths)) == want
    ds = opened()
    ps.convert(ds, str(tmp_path / "c.tfrecord"), prove=True)
    assert ids_of(str(tmp_path / "c.tfrecord")) == want
    assert len(ds.damage) == (1 if damage == "stop" else len(hit))


def test_convert_by_the_shell_writes_what_a_scan_delivers(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    starts = ids_file(path)
    for number in HIT:
        flip(path, starts[number] + 9)
    target = tmp_path / "b.parquet"
    words = ["convert", str(path), str(target), "--damage", "skip"]
    subprocess.run([sys.executable, "-m", "penstock", *words], check=True, capture_output=True)
    assert ids_of(str(target)) == ids_of(str(path), damage="skip")


def test_convert_of_damaged_shards_into_a_folder_keeps_them_separate(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.tfrecord", "b.tfrecord", "c.tfrecord")]
    for path in paths:
        start = ids_file(path, 50)[7]
        flip(path, start + 9)
        flip(path, start + 20)
    ds = ps.open([str(path) for path in paths], damage="skip", index="never")
    made = ps.convert(ds, str(tmp_path / "out") + "/", format="parquet", prove=True)
    want = [n for n in range(50) if n != 7]
    assert [ids_of(path) for path in made.paths] == [want] * 3


def test_convert_of_a_damaged_dataset_continues_after_a_stop(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    starts = ids_file(path)
    for number in (3, 400, 998):
        flip(path, starts[number] + 9)

    def opened() -> ps.Dataset:
        return ps.open(str(path), damage="skip", index="never")

    def stop(records: int, *_: int) -> None:
        if records > 500:
            raise KeyboardInterrupt

    target = str(tmp_path / "b.parquet")
    with pytest.raises(KeyboardInterrupt):
        ps.convert(opened(), target, num_shards=4, progress=stop)
    assert list(tmp_path.glob(".penstock-part-*"))
    made = ps.convert(opened(), target, num_shards=4)
    assert ids_of(list(made.paths)) == ids_of(opened())
    assert not list(tmp_path.glob(".penstock-*"))


def test_the_readable_records_of_a_damaged_dataset_are_shuffled(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    starts = ids_file(path)
    ds = ps.open(str(path), damage="skip", index="never")
    made = ps.convert(ds, str(tmp_path / "b.parquet"), shuffle=1)
    assert sorted(ids_of(made.paths[0])) == list(range(1000))
    flip(path, starts[5] + 20)
    ds = ps.open(str(path), damage="skip", index="never")
    made = ps.convert(ds, str(tmp_path / "c.parquet"), shuffle=1, prove=True)
    assert made.num_records == 999
    assert sorted(ids_of(made.paths[0])) == [n for n in range(1000) if n != 5]
    assert len(ds.damage) == 1


# -- records that are hopped over -----------------------------------------------------------------


@pytest.mark.parametrize("index", ["never", "auto"])
def test_counting_before_a_scan_changes_nothing(tmp_path: Path, index: str) -> None:
    rng = np.random.default_rng(0)
    some = [rng.bytes(40_000) for _ in range(300)]
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frames.file_of([b"%d" % n for n in range(3)]))
    ps.write({"record": some}, str(path), index=False, overwrite=True, payload="raw")
    flip(path, frames.starts_of(some)[40] + 9)
    flip(path, frames.starts_of(some)[40] + 20)
    ds = ps.open(str(path), damage="skip", raw=True, index=index)
    want = some[:40] + some[41:]
    assert len(ds) == 299
    assert [p for batch in ds.scan() for p in batch.column(0).to_pylist()] == want
    again = ps.open(str(path), damage="skip", raw=True, index=index)
    got = []
    for batch in again.scan(threads=1):
        got += batch.column(0).to_pylist()
        assert len(again) == 299
    assert got == want


# -- damage of two kinds in one chunk -------------------------------------------------------------


def example(n: int) -> bytes:
    """An Example with one int64, `id`."""
    value = bytes([0x0A, 1, n])
    feature = bytes([0x1A, len(value)]) + value
    entry = b"\x0a\x02id\x12" + bytes([len(feature)]) + feature
    features = bytes([0x0A, len(entry)]) + entry
    return bytes([0x0A, len(features)]) + features


BAD = b"\x0a\x7f\x01"


def mixed(path: Path, folder: Path, malformed: list[int], heads: list[int]) -> list[int]:
    payloads = [BAD if n in malformed else example(n) for n in range(20)]
    path.write_bytes(frames.file_of(payloads))
    ps.index(str(path), folder=str(folder))
    starts = frames.starts_of(payloads)
    for number in heads:
        flip(path, starts[number] + 9)
    return starts


@pytest.mark.parametrize(
    ("malformed", "heads"),
    [([12], [5]), ([5], [12]), ([5, 7, 19], [0, 6, 12]), ([0, 1], [18]), ([4], [5]), ([4, 9], [])],
)
@pytest.mark.parametrize("index", ["never", "folder"])
@pytest.mark.parametrize("threads", [1, 4])
def test_a_malformed_message_loses_only_itself(
    tmp_path: Path, malformed: list[int], heads: list[int], index: str, threads: int
) -> None:
    path, folder = tmp_path / "a.tfrecord", tmp_path / "indexes"
    starts = mixed(path, folder, malformed, heads)
    kept = "never" if index == "never" else str(folder)
    schema = pa.schema({"id": pa.int64()})
    ds = ps.open(str(path), damage="skip", index=kept, schema=schema)
    got = [n for b in ds.scan(threads=threads) for n in b.column("id").to_pylist()]
    assert got == [n for n in range(20) if n not in malformed]
    found = [(r.start_byte, r.end_byte, r.num_records) for r in ds.damage]
    lost = sorted(malformed + heads)
    assert found == [(starts[n], starts[n + 1], int(n in malformed)) for n in lost]


# -- what is reported of damage ----------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("damage", ["stop", "skip"])
def test_damage_is_reported_in_order_as_far_as_the_scan_got(
    tmp_path: Path, threads: int, damage: str
) -> None:
    rng = np.random.default_rng(0)
    some = [rng.bytes(9_000) for _ in range(2000)]
    starts = frames.starts_of(some)
    paths = [tmp_path / f"{name}.tfrecord" for name in "abc"]
    hit = [700, 1100, 1101, 1999]
    for path in paths:
        ps.write({"record": some}, str(path), index=False, payload="raw")
        flip(path, starts[700] + 20)
        flip(path, starts[1100] + 9)
        flip(path, starts[1101] + 20)
        flip(path, starts[1999] + 9)
    ds = ps.open([str(p) for p in paths], damage=damage, raw=True, index="never")
    for number, batch in enumerate(ds.scan(threads=threads)):
        assert batch.num_rows
        if number == 0:
            assert not ds.damage
    found = [(r.file, r.start_byte) for r in ds.damage]
    if damage == "skip":
        assert found == [(str(path), starts[n]) for path in paths for n in hit]
    else:
        assert [file for file, _ in found] == [str(path) for path in paths]
        assert all(starts[700] <= at < starts[701] for _, at in found)


def test_damage_that_was_not_reached_is_not_reported(tmp_path: Path) -> None:
    some = [bytes(9_000)] * 2000
    path = tmp_path / "a.tfrecord"
    ps.write({"record": some}, str(path), index=False, payload="raw")
    flip(path, frames.starts_of(some)[1900] + 9)
    ds = ps.open(str(path), damage="skip", raw=True, index="never")
    batches = ds.scan(threads=4)
    next(batches)
    assert ds.damage == []
    assert sum(batch.num_rows for batch in batches) > 1000
    assert len(ds.damage) == 1


@pytest.mark.parametrize("damage", ["stop", "skip"])
@pytest.mark.parametrize(
    ("pack", "cut"), [(gzip.compress, 3), (gzip.compress, 8), (zlib.compress, 4)]
)
def test_a_missing_checksum_of_the_compressor_is_reported(
    tmp_path: Path, pack: Any, cut: int, damage: str
) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(pack(frames.file_of([example(n) for n in range(10)]))[:-cut])
    ds = ps.open(str(path), damage=damage)
    assert ids_of(ds) == list(range(10))
    [region] = ds.damage
    assert "is truncated" in region.reason
    assert len(ds) == 10
    # A stored index would hide from the next reader the damage that this reader found.
    with pytest.raises(ps.TruncatedError):
        ids_of(str(path))


@pytest.mark.parametrize("damage", ["error", "stop", "skip"])
def test_a_malformed_message_and_a_field_of_another_type(tmp_path: Path, damage: str) -> None:
    """A record that does not fit the schema is an error, whatever is skipped before it."""
    floats = example(0).replace(b"\x1a\x03\x0a\x01\x00", b"\x0a\x03\x0a\x01x")
    payloads = [example(0), BAD, example(2), floats, example(4)]
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frames.file_of(payloads))
    schema = pa.schema({"id": pa.int64()})
    ds = ps.open(str(path), damage=damage, index="never", schema=schema)
    got: list[int] = []
    caught: ps.PenstockError | None = None
    try:
        for batch in ds.scan():
            got += batch.column("id").to_pylist()
    except ps.PenstockError as error:
        caught = error
    assert got == ([0, 2] if damage == "skip" else [0])
    if damage == "skip":
        assert isinstance(caught, ps.SchemaError)
        assert caught.record == 3
        starts = frames.starts_of(payloads)
        assert [(r.start_byte, r.end_byte) for r in ds.damage] == [(starts[1], starts[2])]
    else:
        assert isinstance(caught, ps.FormatError) == (damage == "error")


@pytest.mark.parametrize("damage", ["error", "stop", "skip"])
@pytest.mark.parametrize("index", ["never", "auto"])
def test_a_broken_head_in_front_of_all_records_does_not_make_them_bytes(
    tmp_path: Path, damage: str, index: str
) -> None:
    path = tmp_path / "a.tfrecord"
    ids_file(path, 300)
    if index == "auto":
        ps.index(str(path))
    flip(path, 0)

    def opened() -> ps.Dataset:
        return ps.open(path, damage=damage, index=index)

    if damage == "error" and index == "never":
        with pytest.raises(ps.ChecksumError) as caught:
            opened()
        assert (caught.value.record, caught.value.byte) == (0, 0)
        return
    assert opened().schema.names[0] == "id"
    if damage != "stop" or index == "auto":
        assert opened()[7]["id"] == 7
    if damage == "error":
        with pytest.raises(ps.ChecksumError):
            list(opened().scan())
    else:
        assert ids_of(opened()) == ([] if damage == "stop" else list(range(300)))


def test_other_files_show_what_the_records_after_a_broken_head_are(tmp_path: Path) -> None:
    for name in ("a", "b"):
        ids_file(tmp_path / f"{name}.tfrecord", 30)
    flip(tmp_path / "a.tfrecord", 0)
    ds = ps.open(tmp_path / "*.tfrecord", index="never")
    assert ds.schema.names == ["id"]
    with pytest.raises(ps.ChecksumError, match=r"a\.tfrecord"):
        list(ds.scan())


def test_if_no_payload_is_valid_opening_reports_the_first_fault(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.tfrecord"
    starts = ids_file(path, 3)
    for start in starts:
        flip(path, start + 14)
    with pytest.raises(ps.ChecksumError) as caught:
        ps.open(path, index="never")
    assert caught.value.record == 0
    assert (
        ids_of(ps.open(path, index="never", schema=pa.schema([("id", pa.int64())]), damage="skip"))
        == []
    )


@pytest.mark.parametrize("offset", [0, 14], ids=["head", "payload"])
def test_inferring_a_schema_from_all_records_reports_damage(tmp_path: Path, offset: int) -> None:
    path = tmp_path / "a.tfrecord"
    flip_at = ids_file(path, 100)[41] + offset
    flip(path, flip_at)
    with pytest.raises(ps.ChecksumError) as caught:
        ps.schemas(str(path), everything=True)
    assert caught.value.record == 41
    assert caught.value.file == str(path)
    assert ps.schemas(str(path)).schema.names == ["id"]
    passing = ps.open(path, damage="skip", index="never")
    assert ps.schemas(passing, everything=True).schema.names == ["id"]


# -- whatever is made from a dataset tells it what was skipped --------------------------------------

"""MessagePack files that are truncated, damaged or hostile: errors name the position, and limits hold."""

from __future__ import annotations

import os
import random
from pathlib import Path

import msgpack
import numpy as np
import pyarrow as pa
import pytest
from msgpack_files import numpy_map, opened, packed, table

import penstock as ps
from penstock.framing.index import sidecar

SMALL = packed(
    {"a": 1, "b": [1.5, 2], "c": {"x": "é"}, "d": msgpack.Timestamp(5), "e": b"\x00"},
    {"a": 300, "b": [], "c": None, "d": msgpack.ExtType(3, b"abc"), "e": b""},
    {"a": None, "t": numpy_map(np.zeros((2, 2), np.float32))},
)


def test_a_cut_file_ends_in_whole_records_or_a_located_error() -> None:
    for content in (SMALL, msgpack.packb([{"a": 1, "b": "xyz"}, {"a": 2, "b": ""}])):
        for cut in range(len(content)):
            try:
                found = table(content[:cut])
            except ps.PenstockError as error:
                assert error.file == "a.msgpack", cut
                assert isinstance(error, ps.TruncatedError), cut
            else:
                assert content is SMALL or not cut
                assert found.num_rows < 3


def test_a_flipped_bit_is_data_or_an_error_of_penstock() -> None:
    rng = random.Random(7)
    for content in (SMALL, msgpack.packb([{"a": 1, "b": "xyz"}, {"a": 2, "b": ""}])):
        for place in range(len(content)):
            for value in (0xC1, 0xDD, 0xFF, rng.randrange(256)):
                bad = content[:place] + bytes([value]) + content[place + 1 :]
                try:
                    for batch in opened(bad).scan(threads=1):
                        batch.validate(full=True)
                except ps.PenstockError as error:
                    assert error.file == "a.msgpack"


def test_an_index_finds_a_flipped_byte(tmp_path: Path) -> None:
    path = tmp_path / "a.msgpack"
    ps.write(pa.table({"a": list(range(100))}), path)
    data, told = bytearray(path.read_bytes()), path.stat()
    data[4 * 50 + 3] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(told.st_atime_ns, told.st_mtime_ns))  # as damage leaves them
    with pytest.raises(ps.ChecksumError) as caught:
        list(ps.open(path).scan())
    assert caught.value.record == 50
    assert not ps.verify(path).ok
    assert ps.open(path, index="never").take([50]).num_rows == 1


def test_with_an_index_reading_continues_after_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.msgpack"
    ps.write(pa.table({"a": list(range(200, 300))}), path)
    good, told = path.read_bytes(), path.stat()
    index = Path(sidecar.path_for(str(path), None))
    kept = index.read_bytes()
    for place in (5 * 50, 5 * 50 + 4):
        path.write_bytes(good[:place] + b"\xc1" + good[place + 1 :])
        os.utime(path, ns=(told.st_atime_ns, told.st_mtime_ns))  # as damage leaves them
        index.write_bytes(kept)  # the first read notes the state of the file
        dataset = ps.open(path, damage="skip")
        found = pa.table(dataset).column("a").to_pylist()
        assert found == [*range(200, 250), *range(251, 300)]
        (region,) = dataset.damage
        assert (region.start_byte, region.end_byte) == (250, 255)


def test_a_byte_that_begins_no_value_is_reported_and_the_records_before_it_saved(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.msgpack"
    good = packed(*({"a": n} for n in range(10)))
    path.write_bytes(good + b"\xc1" + good)
    with pytest.raises(ps.FormatError, match="begins with the byte c1") as caught:
        list(ps.open(path, index="never").scan())
    assert (caught.value.record, caught.value.byte) == (10, len(good))
    for damage in ("stop", "skip"):
        dataset = ps.open(path, index="never", damage=damage)
        assert sum(batch.num_rows for batch in dataset.scan()) == 10
        (region,) = dataset.damage
        assert (region.start_byte, region.end_byte) == (len(good), 2 * len(good) + 1)
    report = ps.verify(path)
    assert [finding.record for finding in report.findings] == [10]
    ps.repair(path, into=tmp_path / "saved.msgpack")
    assert (tmp_path / "saved.msgpack").read_bytes() == good


def test_claims_are_held_to_the_bytes_and_to_the_limits() -> None:
    for claim in (
        b"\xdb\xff\xff\xff\xff",
        b"\xdd\x7f\xff\xff\xff",
        b"\xc6\x7f\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
    ):
        with pytest.raises(ps.FormatError) as caught:
            table(packed({"a": 1}) + claim + b"abc")
        assert isinstance(caught.value, ps.TruncatedError | ps.LimitError)
    long = packed({"a": bytes(5000)})
    with pytest.raises(ps.LimitError, match="record_bytes"):
        table(packed({"a": b""}) + long, limits={"record_bytes": 4000})
    assert table(long, limits={"record_bytes": 6000}).num_rows == 1


def test_nesting_beyond_the_limit_is_an_error_unless_it_is_not_read() -> None:
    deep = b"\x81\xa1a" + b"\x91" * 200_000 + b"\xc0"
    with pytest.raises(ps.LimitError, match="nesting"):
        table(deep)
    assert table(deep, raw=True).num_rows == 1
    shallow = b"\x81\xa1a" + b"\x91" * 60 + b"\xc0"
    assert table(shallow).schema.field("a").metadata is None
    assert table(shallow, limits={"nesting": 70}).num_rows == 1
    with pytest.raises(ps.LimitError, match="'nesting': "):
        table(shallow, limits={"nesting": 50})
    late = packed({"a": [1]}) + b"\x81\xa1a" + b"\x91" * 200 + b"\x01"
    with pytest.raises(ps.PenstockError):
        table(late, infer_records=1)


def test_nulls_that_cost_nothing_in_the_file_take_no_more_memory_than_others() -> None:
    wide = packed({"t": numpy_map(np.zeros(2000, np.float64))}) + b"\x80" * 100_000
    sparse = packed({f"key {n}": n for n in range(1000)}) + b"\x80" * 100_000
    for content in (wide, sparse):
        records = 0
        for batch in opened(content).scan():
            assert batch.nbytes < 32 << 20
            records += batch.num_rows
        assert records == 100_001


def test_nulls_that_cost_nothing_in_the_file_have_a_limit() -> None:
    wide = packed({"t": numpy_map(np.zeros(100_000, np.float64))}) + b"\x80" * 100_000
    less = {"batch_bytes": 128 << 20}
    with pytest.raises(ps.LimitError, match="'batch_bytes': "):
        opened(wide, limits=less).take(range(100_001))
    with pytest.raises(ps.LimitError, match="'batch_bytes': "):
        table(wide, limits={"batch_bytes": 500_000})
    sparse = packed({f"key {n}": n for n in range(1000)}) + b"\x80" * 100_000
    with pytest.raises(ps.LimitError, match="batch_bytes"):
        opened(sparse, limits=less).take(range(100_001))
    assert len(opened(wide, raw=True)) == 100_001


def test_a_record_of_many_windows_is_read_in_time_proportional_to_its_size() -> None:
    many = {"a": list(range(3_000_000))}
    data = packed({"a": [1]}, many, {"a": [2]})
    found = table(data)
    assert found.num_rows == 3
    assert found.column("a")[1].as_py() == many["a"]

"""Arrow IPC files that are unsupported, truncated, damaged or hostile: errors name the position, and limits hold."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from arrow_files import ARROW, BOTH, MMAP, stored, ten
from columnar_cases import numbers, of_every_kind, opened, scan, write
from columnar_corpus import check_bounds, outcomes

import penstock as ps
from penstock.contract.format import SkippedRegion


def test_data_that_is_not_arrow_is_refused_clearly(tmp_path: Path) -> None:
    path = stored(tmp_path / "a", ten(), False)
    with pytest.raises(ps.UnsupportedError, match="raw=True"):
        opened(ARROW, path, raw=True)
    with pytest.raises(TypeError, match="arrow has no option 'rows'"):
        opened(ARROW, path, format_options={"rows": 1})
    with pytest.raises(ValueError, match="compression must be None, lz4 or zstd"):
        write(ARROW, tmp_path / "b", [], pa.schema([]), compression="gzip")
    (tmp_path / "c").write_bytes(b"FEA1" + bytes(100) + b"FEA1")
    assert ARROW.sniff(b"FEA1" + bytes(100), 108)
    with pytest.raises(ps.UnsupportedError, match="Feather version 1"):
        opened(ARROW, tmp_path / "c")
    (tmp_path / "d").write_bytes(b"")
    with pytest.raises(ps.FormatError, match="is not an Arrow stream"):
        opened(ARROW, tmp_path / "d")
    with pytest.raises(FileNotFoundError):
        opened(ARROW, tmp_path / "none")


@BOTH
@pytest.mark.parametrize("kind", ["field", "child", "dictionary"])
def test_a_name_that_is_not_text_is_an_error_before_anything_is_read(
    tmp_path: Path, stream: bool, kind: str
) -> None:
    """pyarrow returns such batches, and raises a UnicodeDecodeError when the name is read."""
    child: Any = pa.array([{"somebody": 1}])
    if kind == "dictionary":
        child = pa.DictionaryArray.from_arrays(pa.array([0]), child)
    batch = pa.record_batch({"somebody": [1]} if kind == "field" else {"a": child})
    path = stored(tmp_path / "a.arrow", [batch], stream)
    path.write_bytes(path.read_bytes().replace(b"somebody", b"some\xffody"))
    with pytest.raises(ps.FormatError, match=r"not UTF-8\n  found 'some.xffody'") as caught:
        ps.open(path, index="never")
    assert caught.value.file == str(path)


def test_every_truncation_of_a_file_is_an_error(tmp_path: Path) -> None:
    whole = stored(tmp_path / "a", [numbers(5)], False).read_bytes()
    for length in range(len(whole)):
        (tmp_path / "b").write_bytes(whole[:length])
        with pytest.raises(ps.FormatError) as caught:
            opened(ARROW, tmp_path / "b")
        assert caught.value.file == str(tmp_path / "b")


def test_every_truncation_of_a_stream_is_an_error_or_between_batches(tmp_path: Path) -> None:
    whole = stored(tmp_path / "a", [numbers(5), numbers(5, 5)], True).read_bytes()
    ends = [chunk.end_byte for chunk in opened(ARROW, tmp_path / "a").chunks()]
    first = next(iter(opened(ARROW, tmp_path / "a").chunks())).start_byte
    for length in range(len(whole)):
        (tmp_path / "b").write_bytes(whole[:length])
        try:
            table = scan(opened(ARROW, tmp_path / "b"))
        except ps.FormatError as error:
            assert error.file == str(tmp_path / "b")
        else:
            # A stream stores neither its end nor its number of batches.
            assert length in (first, *ends) or length > ends[-1] + 3
            assert table.num_rows in (0, 5, 10)


@BOTH
def test_an_error_stays_an_error_when_asked_again(tmp_path: Path, stream: bool) -> None:
    path = stored(tmp_path / "a", ten(), stream)
    damaged = bytearray(path.read_bytes())
    place = list(opened(ARROW, path).chunks())[5].start_byte
    damaged[place + 4 : place + 8] = b"\x00\x00\x00\x80"
    path.write_bytes(damaged)
    reader = opened(ARROW, path)
    for _ in range(2):
        with pytest.raises(ps.FormatError) as caught:
            list(reader.chunks())
        assert caught.value.byte == place
        with pytest.raises(ps.FormatError):
            _ = reader.num_records


@BOTH
def test_a_broken_header_is_skipped_on_request(tmp_path: Path, stream: bool) -> None:
    path = stored(tmp_path / "a", ten(), stream)
    damaged = bytearray(path.read_bytes())
    chunk = list(opened(ARROW, path).chunks())[5]
    damaged[chunk.start_byte + 4 : chunk.start_byte + 8] = b"\x00\x00\x00\x80"
    path.write_bytes(damaged)
    reader = opened(ARROW, path, damage="skip")
    ids = scan(reader, ["id"])["id"].to_pylist()
    found = [stretch for group in reader.found_by(1) for stretch in group()]
    (region,) = [one for one in found if isinstance(one, SkippedRegion)]
    assert found[5] is region  # at its position among the chunks
    assert (region.file, region.start_byte, region.num_records) == (
        str(path),
        chunk.start_byte,
        None,
    )
    if stream:
        assert ids == list(range(500))
        assert region.end_byte == path.stat().st_size
    else:
        assert ids == [*range(500), *range(600, 1000)]
        assert region.end_byte == chunk.end_byte


@BOTH
@MMAP
def test_a_broken_body_is_an_error_with_its_place(tmp_path: Path, stream: bool, mmap: bool) -> None:
    path = stored(tmp_path / "a", [numbers(100), numbers(100, 100)], stream)
    first, _ = opened(ARROW, path).chunks()
    damaged = bytearray(path.read_bytes())
    damaged[first.end_byte - 2000 : first.end_byte] = b"\xff" * 2000
    path.write_bytes(damaged)
    reader = opened(ARROW, path, mmap=mmap)
    first, second = reader.chunks()
    with pytest.raises(ps.FormatError) as caught:
        reader.decode(first, None, None)
    assert (caught.value.file, caught.value.byte) == (str(path), first.start_byte)
    assert reader.decode(second, None, None).equals(numbers(100, 100))


@BOTH
@MMAP
def test_patched_files_never_end_the_process(tmp_path: Path, stream: bool, mmap: bool) -> None:
    rows = [0, 1, 2]
    batch = of_every_kind().take(pa.array(rows)).select(["text", "nested", "dictionary", "map"])
    whole = stored(tmp_path / "a", [batch], stream).read_bytes()
    files: list[str] = []
    for at in range(0, len(whole), 7):
        path = tmp_path / str(at)
        path.write_bytes(whole[:at] + (b"\x7f\xff", b"\xff\xff")[at % 2] + whole[at + 2 :])
        files.append(str(path))
    for outcome in outcomes("arrow", files, mmap, compare=False):
        check_bounds(outcome)


@BOTH
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_compressed_claim_is_compared_with_the_limit(
    tmp_path: Path, stream: bool, codec: str
) -> None:
    batch = pa.record_batch({"a": pa.array(np.zeros(1 << 20, np.int64))})
    path = stored(tmp_path / "a", [batch], stream, compression=codec)
    assert scan(opened(ARROW, path)).num_rows == 1 << 20
    reader = opened(ARROW, path, limits=ps.Limits(batch_bytes=1 << 22))
    with pytest.raises(ps.LimitError, match="batch_bytes=4194304") as caught:
        scan(reader)
    assert caught.value.file == str(path)


@BOTH
def test_a_deeply_nested_schema_ends_in_an_error(tmp_path: Path, stream: bool) -> None:
    kind = pa.int32()
    for _ in range(300):
        kind = pa.list_(kind)
    batch = pa.RecordBatch.from_pylist([], schema=pa.schema([("a", kind)]))
    start = pa.ipc.new_stream if stream else pa.ipc.new_file
    path = str(tmp_path / "a")
    with start(path, batch.schema):
        pass
    (outcome,) = outcomes("arrow", [path])
    check_bounds(outcome)
    assert outcome["error"] == "FormatError"


def test_what_a_compressed_batch_claims_is_checked_before_parts_are_planned(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    batch = pa.record_batch({"n": np.zeros(3000, np.int64)})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(path, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    data = path.read_bytes()
    for true, claimed in [(24_000, 1 << 45), (3000, 1 << 42)]:
        data = data.replace(true.to_bytes(8, "little"), claimed.to_bytes(8, "little"))
    path.write_bytes(data)
    for call in (lambda: list(ps.open(path).scan()), lambda: ps.open(path).take([1])):
        tracemalloc.start()
        with pytest.raises(ps.LimitError, match="batch_bytes"):
            call()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 10 << 20, "no plan is made of two million parts"
    assert [finding.kind for finding in ps.verify(path).findings] == ["limit"]

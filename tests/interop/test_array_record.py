"""penstock reads files of array_record's own writer as array_record's own reader does."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter

import penstock as ps

OPTIONS = (
    "",
    "group_size:1",
    "group_size:1,uncompressed",
    "group_size:500,uncompressed",
    "group_size:65536",
    "zstd:9",
    "group_size:7,brotli:5",
    "group_size:100,snappy",
    "pad_to_block_boundary:true,group_size:50",
)


def some_records() -> list[bytes]:
    rng = random.Random(1)
    sizes = [0, 1, 165, 3000]
    made = [rng.randbytes(rng.choice(sizes)) + b"a" * rng.choice((0, 500)) for _ in range(2000)]
    return [*made, rng.randbytes(200_000), b"", *[b""] * 300]


def write(path: Path, records: list[bytes], options: str) -> None:
    writer = ArrayRecordWriter(str(path), options)
    for record in records:
        writer.write(record)
    writer.close()


@pytest.mark.parametrize("options", OPTIONS)
def test_files_of_the_peer_are_read_in_order_and_at_random(tmp_path: Path, options: str) -> None:
    path, records = tmp_path / "x.array_record", some_records()
    write(path, records, options)
    reader = ArrayRecordReader(str(path))
    assert reader.read_all() == records
    dataset = ps.open(path)
    assert len(dataset) == reader.num_records() == len(records)
    assert [r for batch in dataset.scan() for r in batch["record"].to_pylist()] == records
    rng = random.Random(2)
    order = [rng.randrange(len(records)) for _ in range(300)]
    assert dataset.take(order)["record"].to_pylist() == reader.read(order)
    reader.close()


def test_transposed_files_of_the_peer_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "x.array_record", [b"a", b"b"], "transpose:true,group_size:2")
    with pytest.raises(ps.UnsupportedError, match="transpose:false"):
        list(ps.open(tmp_path / "x.array_record", raw=True))


def test_a_file_without_records_is_read_as_such(tmp_path: Path) -> None:
    write(tmp_path / "x.array_record", [], "")
    assert list(ps.open(tmp_path / "x.array_record")) == []


def test_a_truncated_file_that_array_record_reads_as_empty_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.array_record"
    write(path, some_records(), "group_size:10")
    data = path.read_bytes()
    for length in (0, 100, 65536, len(data) // 2, len(data) - 65536, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(ps.PenstockError):
            ps.open(path)

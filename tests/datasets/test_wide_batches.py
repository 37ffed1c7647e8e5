"""Records that are much larger as columns than in the file: each record has only one of many columns, or missing
values are filled with large defaults. Their batches are divided so that memory stays bounded, and nothing else
changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import frames
import penstock as ps
from reading import run_python

NUM_COLUMNS = 400
NUM_RECORDS = 40_000
MOST_BYTES = 32 << 20

EXAMPLES = [frames.example({f"f{number:03d}": [number]}) for number in range(NUM_COLUMNS)]
PAYLOADS = EXAMPLES * (NUM_RECORDS // NUM_COLUMNS)


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 1.5 MB that becomes 128 MB of columns."""
    path = tmp_path_factory.mktemp("sparse") / "sparse.tfrecord"
    path.write_bytes(frames.file_of(PAYLOADS))
    return path


def check(batches: list[pa.RecordBatch], num_records: int = NUM_RECORDS) -> None:
    assert len(batches) > 3
    assert max(batch.nbytes for batch in batches) < MOST_BYTES
    assert sum(batch.num_rows for batch in batches) == num_records
    table = pa.Table.from_batches(batches)
    for number in (0, 1, 17, NUM_COLUMNS - 1):
        column = table.column(f"f{number:03d}")
        assert column.null_count == len(column) - num_records // NUM_COLUMNS
        assert column[number].as_py() == number


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("way", ["plain", "gzip", "indexed", "gzip indexed"])
def test_batches_are_cut(sparse: Path, tmp_path: Path, way: str, threads: int) -> None:
    path = sparse
    if "gzip" in way:
        path = tmp_path / "sparse.tfrecord.gz"
        path.write_bytes(frames.gzip_of(sparse.read_bytes(), 1, 1))
    dataset = ps.open(path, index="never")
    if "indexed" in way:
        assert len(dataset) == NUM_RECORDS
    check(list(dataset.scan(threads=threads)))


def test_few_columns_of_many_are_not_cut(sparse: Path) -> None:
    (batch,) = ps.open(sparse, index="never").scan(["f001", "f007"], threads=1)
    assert batch.num_rows == NUM_RECORDS


def test_batches_of_a_wanted_size_are_made_of_the_parts(sparse: Path) -> None:
    batches = list(ps.open(sparse, index="never").scan(batch_records=1000))
    assert [batch.num_rows for batch in batches] == [1000] * (NUM_RECORDS // 1000)
    check(batches)


@pytest.mark.parametrize("threads", [1, 2])
def test_defaults_take_bounded_memory(tmp_path: Path, threads: int) -> None:
    """Half a gigabyte of default values in a file of 400 KB."""
    path = tmp_path / "defaults.tfrecord"
    path.write_bytes(frames.file_of([frames.example({"id": [1]})] * 12_000))
    code = """
import resource, sys
import penstock as ps
rss = lambda: int(next(l for l in open("/proc/self/status") if "VmHWM" in l).split()[1]) >> 10
features = {
    "id": ps.features.FixedLen([], "int64"),
    "values": ps.features.FixedLen([10_000], "float32", default=[1.5] * 10_000),
    "text": ps.features.FixedLen([], "string", default="x" * 1000),
}
dataset = ps.open(sys.argv[1], schema=features)
next(dataset.scan(["id"]))
before, records = rss(), 0
for batch in dataset.scan(batch_records=4, threads=int(sys.argv[2])):
    records += batch.num_rows
assert records == 12_000, records
print(rss() - before)
"""
    assert int(run_python(code, str(path), str(threads))) < 300


def test_a_record_beyond_the_limit_is_an_error(sparse: Path) -> None:
    schema = pa.schema([("f001", pa.list_(pa.float32(), 1 << 30))])
    dataset = ps.open(sparse, schema=schema)
    for read in (lambda: next(dataset.scan()), lambda: dataset.take([5])):
        with pytest.raises(ps.LimitError, match="batch_bytes"):
            read()


class TestDamage:
    """When a chunk is read in parts, damage has the same effect as in a chunk that is read whole."""

    BAD = (5003, 20_000, 20_001, NUM_RECORDS - 1)

    @pytest.fixture
    def damaged(self, tmp_path: Path) -> Path:
        data = bytearray(frames.file_of(PAYLOADS))
        starts = frames.starts_of(PAYLOADS)
        for record in self.BAD:
            data[starts[record] + frames.HEAD] ^= 1
        path = tmp_path / "damaged.tfrecord"
        path.write_bytes(data)
        return path

    @pytest.fixture
    def no_example(self, tmp_path: Path) -> Path:
        payloads = [b"\xff" * 9 if r in self.BAD else p for r, p in enumerate(PAYLOADS)]
        path = tmp_path / "no_example.tfrecord"
        path.write_bytes(frames.file_of(payloads))
        return path

    @pytest.mark.parametrize("threads", [1, 2])
    @pytest.mark.parametrize("kind", ["damaged", "no_example"])
    @pytest.mark.parametrize("indexed", [False, True])
    def test_skip(
        self, kind: str, indexed: bool, threads: int, request: pytest.FixtureRequest
    ) -> None:
        dataset = ps.open(request.getfixturevalue(kind), damage="skip", index="never")
        if indexed:
            assert len(dataset) == NUM_RECORDS
        batches = list(dataset.scan(threads=threads))
        assert max(batch.nbytes for batch in batches) < MOST_BYTES
        assert sum(batch.num_rows for batch in batches) == NUM_RECORDS - len(self.BAD)
        assert [region.num_records for region in dataset.damage] == [1] * len(self.BAD)
        starts = frames.starts_of(PAYLOADS)
        if kind == "damaged":
            assert [r.start_byte for r in dataset.damage] == [starts[bad] for bad in self.BAD]

    @pytest.mark.parametrize("threads", [1, 2])
    @pytest.mark.parametrize("damage", ["error", "stop"])
    @pytest.mark.parametrize("kind", ["damaged", "no_example"])
    def test_bytes_before_a_fault_come_first(
        self, kind: str, damage: Any, threads: int, request: pytest.FixtureRequest
    ) -> None:
        dataset = ps.open(request.getfixturevalue(kind), damage=damage, index="never")
        records = 0
        error: ps.PenstockError | None = None
        try:
            for batch in dataset.scan(threads=threads):
                records += batch.num_rows
        except ps.PenstockError as caught:
            error = caught
        assert records == self.BAD[0]
        assert (error is None) == (damage == "stop")
        assert len(dataset.damage) == (damage == "stop")
        if error is not None:
            assert error.record == self.BAD[0]

    @pytest.mark.parametrize("threads", [1, 2])
    @pytest.mark.parametrize("compression", ["", "gzip"])
    @pytest.mark.parametrize("indexed", [False, True])
    def test_a_lost_record_and_a_record_that_is_not_an_example(
        self, tmp_path: Path, compression: str, indexed: bool, threads: int
    ) -> None:
        """Both are in one chunk: records must keep their numbers when the chunk is divided."""
        payloads = [*PAYLOADS[:5000], b"\xff" * 9, *PAYLOADS[5001:]]
        whole, starts = frames.file_of(payloads), frames.starts_of(payloads)
        path = tmp_path / "both.tfrecord"
        path.write_bytes(frames.gzip_of(whole, 1, 1) if compression else whole)
        if indexed:
            ps.index(path)
        data = bytearray(whole)
        data[starts[10]] ^= 1  # in the head
        data[starts[10] + frames.HEAD] ^= 1  # in the payload
        if not compression:
            path.write_bytes(data)
        lost = [5000] if compression else [10, 5000]
        dataset = ps.open(path, damage="skip", index="auto" if indexed else "never")
        batches = list(dataset.scan(threads=threads))
        assert sum(batch.num_rows for batch in batches) == NUM_RECORDS - len(lost)
        found = pa.Table.from_batches(batches).column("f011").drop_null()
        assert len(found) == NUM_RECORDS // NUM_COLUMNS
        assert [region.start_byte for region in dataset.damage] == [starts[bad] for bad in lost]

    @pytest.mark.parametrize("threads", [1, 2])
    def test_lost_records_are_reported_if_nothing_of_a_part_is_left(
        self, tmp_path: Path, threads: int
    ) -> None:
        path = tmp_path / "hole.tfrecord"
        data = bytearray(frames.file_of(PAYLOADS))
        path.write_bytes(data)
        ps.index(path)
        first, last = (frames.starts_of(PAYLOADS)[record] for record in (8000, 32_000))
        data[first:last] = bytes(range(1, 256)) * ((last - first) // 255) + bytes(
            (last - first) % 255
        )
        path.write_bytes(data)
        dataset = ps.open(path, damage="skip")
        assert sum(batch.num_rows for batch in dataset.scan(threads=threads)) == 16_000
        regions = dataset.damage
        assert (regions[0].start_byte, regions[-1].end_byte) == (first, last)
        assert [r.end_byte for r in regions[:-1]] == [r.start_byte for r in regions[1:]]

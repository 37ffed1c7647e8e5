"""What holds for every registered format, each asked only for the abilities it claims."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

import penstock as ps
from penstock.format import Format
from penstock.formats import FORMATS
from penstock.verbs.write import write
from strategies import batches

THREADS = (1, 2, 5)
per_format = pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.info.name)
# Hypothesis runs many examples in one folder; each writes over the file of the one before.
in_one_folder = settings(
    max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def some_table(num_records: int = 5000) -> pa.Table:
    """Columns that every format holds as they are, large enough for many chunks."""
    rng = np.random.default_rng(3)
    words = [f"word {n % 97}".encode() for n in range(num_records)]
    lists = [list(range(n % 4 + (n == 0) * 2)) for n in range(num_records)]
    return pa.table(
        {
            "id": pa.array(np.arange(num_records)),
            "score": pa.array(rng.standard_normal(num_records).astype(np.float32)),
            "text": pa.array([rng.bytes(400) + word for word in words], pa.binary()),
            "tokens": pa.array(lists, pa.list_(pa.int64())),
        }
    )


TABLE = some_table()


def written(fmt: Format, folder: Path, data: Any, name: str = "a", **options: Any) -> str:
    """A file of this format."""
    path = str(folder / f"{name}{fmt.info.extensions[0]}")
    write(data, path, format=fmt.info.name, index=False, overwrite=True, **options)
    return path


def opened(path: str, folder: Path, schema: pa.Schema | None = None, **options: Any) -> ps.Dataset:
    """A dataset whose sidecars are kept apart."""
    return ps.open(path, schema=schema, index=str(folder / "indexes"), **options)


def whole(dataset: ps.Dataset, **options: Any) -> pa.Table:
    found = list(dataset.scan(**options))
    return pa.Table.from_batches(found, schema=found[0].schema if found else dataset.schema)


def same(found: Any, wanted: Any) -> None:
    """Equal values, column by column; fields' nullability and metadata may differ."""
    assert found.schema.names == wanted.schema.names
    for name in wanted.schema.names:
        left, right = found.column(name), wanted.column(name)
        if left.type != right.type:
            left = left.cast(right.type)
        assert left.to_pylist() == right.to_pylist(), name


@per_format
@in_one_folder
@given(batch=batches())
def test_write_then_read_gives_the_same_batch(
    fmt: Format, batch: pa.RecordBatch, tmp_path: Path
) -> None:
    path = written(fmt, tmp_path, batch)
    dataset = ps.open(path, schema=batch.schema, index="never")
    found = whole(dataset)
    same(found, batch)
    if fmt.info.lossless:
        assert found.schema.equals(batch.schema)


@per_format
@in_one_folder
@given(batch=batches())
def test_what_is_inferred_is_what_was_written(
    fmt: Format, batch: pa.RecordBatch, tmp_path: Path
) -> None:
    path = written(fmt, tmp_path, batch)
    same(whole(ps.open(path, index="never")), batch)


@per_format
def test_take_equals_scan(fmt: Format, tmp_path: Path) -> None:
    path = written(fmt, tmp_path, TABLE)
    dataset = opened(path, tmp_path)
    everything = whole(dataset)
    rng = random.Random(1)
    asked = [
        [0],
        [len(dataset) - 1, 0, -1],
        [rng.randrange(len(dataset)) for _ in range(300)],
        list(range(100, 400)),
        [7, 7, 7],
        [],
    ]
    for numbers in asked:
        got = dataset.take(numbers)
        assert got.num_rows == len(numbers)
        wanted = everything.take(pa.array([n % len(dataset) for n in numbers], pa.int64()))
        same(got, wanted)
    same(dataset[5:9], everything.slice(5, 4))
    assert dataset[12] == everything.slice(12, 1).to_pylist()[0]
    assert dataset.__getitems__([3, 1]) == everything.take([3, 1]).to_pylist()
    for wrong in (len(dataset), -len(dataset) - 1):
        with pytest.raises(ps.RecordIndexError):
            dataset[wrong]


@per_format
def test_projection_commutes(fmt: Format, tmp_path: Path) -> None:
    path = written(fmt, tmp_path, TABLE)
    everything = whole(opened(path, tmp_path))
    for columns in (["score"], ["tokens", "id"], ["text", "score", "id", "tokens"], []):
        dataset = opened(path, tmp_path)
        projected = list(dataset.scan(columns=columns))
        assert sum(batch.num_rows for batch in projected) == TABLE.num_rows
        assert all(batch.schema.names == columns for batch in projected)
        if not columns:
            continue
        same(pa.Table.from_batches(projected), everything.select(columns))
        narrow = opened(path, tmp_path, columns=columns)
        assert narrow.schema.names == columns
        same(whole(narrow), everything.select(columns))
        same(narrow.take([9, 3]), everything.select(columns).take([9, 3]))
    with pytest.raises(ps.SchemaError):
        list(opened(path, tmp_path).scan(columns=["no such column"]))


@per_format
def test_threads_and_batch_sizes_give_the_same_records_in_the_same_order(
    fmt: Format, tmp_path: Path
) -> None:
    paths = [written(fmt, tmp_path, TABLE.slice(n * 1000, 1000), f"s{n}") for n in range(5)]
    dataset = opened(paths, tmp_path)  # type: ignore[arg-type]
    for threads in THREADS:
        same(whole(dataset, threads=threads), TABLE)
        for batch_records in (1, 7, 1000, 1024, 10_000):
            if batch_records == 1 and threads != 2:
                continue
            found = list(dataset.scan(threads=threads, batch_records=batch_records))
            sizes = [batch.num_rows for batch in found]
            assert all(size == batch_records for size in sizes[:-1])
            assert 0 < sizes[-1] <= batch_records
            same(pa.Table.from_batches(found), TABLE)


@per_format
def test_an_index_changes_nothing_that_is_read(fmt: Format, tmp_path: Path) -> None:
    path = written(fmt, tmp_path, TABLE)
    without = whole(ps.open(path, index="never"))
    dataset = opened(path, tmp_path)
    assert len(dataset) == TABLE.num_rows
    same(whole(dataset), without)
    same(whole(opened(path, tmp_path)), without)
    same(whole(opened(path, tmp_path, mmap=True)), without)


@per_format
def test_every_truncation_is_located(fmt: Format, tmp_path: Path) -> None:
    """Cut at every byte of a small file. Where the format has no end marker, a cut between
    records is told by the index, which then no longer fits."""
    path = written(fmt, tmp_path, TABLE.slice(0, 12).select(["id", "score"]))
    data = Path(path).read_bytes()
    wanted = whole(ps.open(path, index="never")).to_pylist()
    borders = 0
    for cut in range(len(data)):
        Path(path).write_bytes(data[:cut])
        try:
            # The schema is given, so that a file of no records is read at all.
            schema = TABLE.select(["id", "score"]).schema
            found = whole(ps.open(path, index="never", schema=schema, format=fmt.info.name))
        except ps.FormatError as error:
            located = (error.file, str(error).startswith(path))
        else:
            borders += 1
            located = (path, True)
            assert found.to_pylist() == wanted[: found.num_rows]
            assert found.num_rows < len(wanted)
        assert located == (path, True), cut
    assert borders <= (len(wanted) if fmt.info.name == "tfrecord" else 1)


@per_format
def test_two_runs_write_the_same_bytes(fmt: Format, tmp_path: Path) -> None:
    first = Path(written(fmt, tmp_path, TABLE, "one", threads=1)).read_bytes()
    for threads in THREADS:
        again = Path(written(fmt, tmp_path, TABLE, "two", threads=threads)).read_bytes()
        assert again == first, threads
    recut = pa.Table.from_batches(TABLE.to_batches(max_chunksize=333))
    assert Path(written(fmt, tmp_path, recut, "three")).read_bytes() == first


@per_format
def test_no_flipped_bit_is_silent_where_there_is_a_checksum(fmt: Format, tmp_path: Path) -> None:
    if not fmt.info.has_checksums:
        pytest.skip("the format stores no checksums and makes no such promise")
    # Parquet's pages have checksums, its footer has none: flips there may be silent.
    path = written(fmt, tmp_path, TABLE.slice(0, 12).select(["id", "score"]))
    data = bytearray(Path(path).read_bytes())
    schema = TABLE.select(["id", "score"]).schema
    wanted = whole(ps.open(path, index="never", schema=schema)).to_pylist()
    covered = len(data)
    if fmt.info.name == "parquet":
        covered = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for bit in range(8 * covered):
        data[bit >> 3] ^= 1 << (bit & 7)
        Path(path).write_bytes(data)
        try:
            found = whole(ps.open(path, index="never", schema=schema, format=fmt.info.name))
            assert found.to_pylist() == wanted, bit
            assert fmt.info.name != "tfrecord", bit
        except (ps.PenstockError, FileNotFoundError):
            pass
        data[bit >> 3] ^= 1 << (bit & 7)


@per_format
def test_a_pickled_dataset_reads_the_same(fmt: Format, tmp_path: Path) -> None:
    path = written(fmt, tmp_path, TABLE)
    dataset = opened(path, tmp_path, columns=["id", "text"])
    again = pickle.loads(pickle.dumps(dataset))
    assert again.schema.equals(dataset.schema)
    assert len(again) == len(dataset)
    assert again.fingerprint == dataset.fingerprint
    same(whole(again), whole(dataset))
    twice = pickle.loads(pickle.dumps(again))
    assert twice[17] == dataset[17]


@per_format
def test_shards_tell_format_records_and_bytes(fmt: Format, tmp_path: Path) -> None:
    paths = [written(fmt, tmp_path, TABLE.slice(n * 10, 10 + n), f"s{n}") for n in range(3)]
    dataset = opened(paths, tmp_path)  # type: ignore[arg-type]
    for shard, path, num_records in zip(dataset.shards, paths, (10, 11, 12), strict=True):
        assert shard.path == path
        assert shard.format == fmt.info.name
        assert shard.num_records == num_records
        assert shard.num_bytes == Path(path).stat().st_size
    assert len(dataset) == 33


@per_format
def test_a_dataset_is_an_arrow_stream(fmt: Format, tmp_path: Path) -> None:
    dataset = opened(written(fmt, tmp_path, TABLE), tmp_path)
    same(pa.table(dataset), TABLE)


@per_format
def test_no_records_are_a_file_too(fmt: Format, tmp_path: Path) -> None:
    path = written(fmt, tmp_path, TABLE.slice(0, 0))
    dataset = opened(path, tmp_path, schema=TABLE.schema)
    assert len(dataset) == 0
    assert sum(batch.num_rows for batch in dataset.scan()) == 0
    assert dataset.take([]).num_rows == 0


@per_format
def test_a_format_is_told_by_its_bytes(fmt: Format, tmp_path: Path) -> None:
    path = Path(written(fmt, tmp_path, TABLE))
    nameless = path.rename(tmp_path / "nameless")
    assert opened(str(nameless), tmp_path).shards[0].format == fmt.info.name

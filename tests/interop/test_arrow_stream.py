"""Reads a TFRecord in one line of pyarrow, polars, duckdb and pandas."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import frames
import penstock as ps


@pytest.fixture
def dataset(tmp_path: Path) -> ps.Dataset:
    paths = []
    for shard in range(2):
        payloads = [
            frames.example(
                {
                    "label": [shard * 100 + n],
                    "score": [n / 4],
                    "name": [f"number {n}".encode()],
                    "tokens": list(range(n % 3)) if n else [1, 2],
                }
            )
            for n in range(100)
        ]
        path = tmp_path / f"train-{shard:05}-of-00002.tfrecord"
        path.write_bytes(frames.file_of(payloads))
        paths.append(str(path))
    return ps.open(str(tmp_path / "train@2.tfrecord"), index=str(tmp_path / "indexes"))


def test_pyarrow_reads_it_as_a_table(dataset: ps.Dataset) -> None:
    table = pa.table(dataset)
    assert table.num_rows == 200
    assert table["label"].to_pylist() == list(range(200))


def test_pyarrow_reads_it_as_a_stream(dataset: ps.Dataset) -> None:
    reader = pa.RecordBatchReader.from_stream(dataset)
    assert reader.schema.names == dataset.schema.names
    assert sum(batch.num_rows for batch in reader) == 200


def test_polars_reads_it(dataset: ps.Dataset) -> None:
    frame = pl.DataFrame(dataset)
    assert frame["label"].mean() == 99.5
    assert frame["tokens"].to_list()[2] == [0, 1]


def test_duckdb_asks_it_a_question(dataset: ps.Dataset) -> None:
    stream = pa.RecordBatchReader.from_stream(dataset)
    assert duckdb.sql("select avg(label) from stream").fetchall() == [(99.5,)]


def test_duckdb_takes_the_dataset_itself(dataset: ps.Dataset) -> None:
    assert duckdb.sql("select count(*) from dataset where score >= 12.5").fetchall() == [(100,)]


def test_pandas_reads_it(dataset: ps.Dataset) -> None:
    frame = pd.DataFrame.from_arrow(dataset)
    assert frame["label"].sum() == 19_900
    assert pa.table(dataset).to_pandas()["name"][3] == b"number 3"


def test_batches_go_one_by_one(dataset: ps.Dataset) -> None:
    batch = next(dataset.scan(columns=["label"], batch_records=64))
    assert pl.DataFrame(batch)["label"].to_list() == list(range(64))
    assert pa.record_batch(batch).num_rows == 64


def test_raw_records_are_a_column_of_views(dataset: ps.Dataset) -> None:
    raw = ps.open(list(dataset.paths), raw=True, index="never")
    table = pa.table(raw)
    assert table.schema.field("record").type == pa.binary_view()
    assert pl.DataFrame(raw)["record"].len() == 200


def test_a_stream_ends_in_the_error_it_deserves(tmp_path: Path) -> None:
    path = tmp_path / "bad.tfrecord"
    data = bytearray(frames.file_of([frames.example({"a": [n]}) for n in range(10)]))
    data[-6] ^= 1
    path.write_bytes(data)
    dataset = ps.open(str(path), index="never")
    with pytest.raises((ps.ChecksumError, OSError, pa.ArrowException), match="checksum"):
        pa.table(dataset)

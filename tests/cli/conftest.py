"""Small datasets for the tests of the command line."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import penstock as ps
from reading import HOSTILE


@pytest.fixture
def table() -> pa.Table:
    """300 records with every kind of value that an Example has."""
    count = 300
    return pa.table(
        {
            "id": pa.array(range(count)),
            "name": [("cat", "dog", HOSTILE)[n % 3] for n in range(count)],
            "score": pa.array([None if n % 4 == 0 else n / 2 for n in range(count)], pa.float32()),
            "tokens": pa.array([list(range(n % 5)) for n in range(count)], pa.list_(pa.int64())),
        }
    )


@pytest.fixture
def shards(tmp_path: Path, table: pa.Table) -> Path:
    """A folder of three TFRecord shards."""
    folder = tmp_path / "shards"
    folder.mkdir()
    ps.write(table, folder / "train.tfrecord", num_shards=3)
    return folder


@pytest.fixture
def single(tmp_path: Path, table: pa.Table) -> Path:
    """One TFRecord file."""
    path = tmp_path / "single.tfrecord"
    ps.write(table, path)
    return path


@pytest.fixture
def damaged(tmp_path: Path, single: Path) -> Path:
    """The same file with one bit of one payload flipped, and no index."""
    data = bytearray(single.read_bytes())
    data[len(data) // 2] ^= 1
    path = tmp_path / "damaged.tfrecord"
    path.write_bytes(data)
    return path

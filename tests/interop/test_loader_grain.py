"""Grain reads a Dataset directly, because it has a length and returns records by number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grain
import numpy as np
import pyarrow as pa
import pytest
from absl import flags

import penstock as ps

COUNT = 100


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("grain") / "numbers.tfrecord"
    ps.write({"id": pa.array(range(COUNT)), "name": [f"n{n}" for n in range(COUNT)]}, path)
    return path


def test_a_map_dataset_shuffles_and_batches_records(numbers: Path) -> None:
    source = grain.MapDataset.source(ps.open(numbers)).seed(3)
    batches = list(source.shuffle().batch(20))
    assert sorted(n for b in batches for n in b["id"].tolist()) == list(range(COUNT))
    assert batches[0]["id"].tolist() != list(range(20))
    assert batches[0]["name"][0] == f"n{batches[0]['id'][0]}"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_reads_by_its_sampler(numbers: Path, workers: int) -> None:
    """With workers, the dataset is pickled and opened again in each worker."""
    flags.FLAGS.mark_as_parsed()  # Grain's workers ask for its flags; programs of absl parse them
    ds = ps.open(numbers)
    sampler = grain.samplers.IndexSampler(
        COUNT, shuffle=True, seed=5, num_epochs=1, shard_options=grain.sharding.NoSharding()
    )
    ours = grain.DataLoader(
        data_source=ds,
        sampler=sampler,
        operations=[grain.transforms.Batch(10)],
        worker_count=workers,
    )
    batches = list(ours)
    assert len(batches) == 10
    assert sorted(np.concatenate([b["id"] for b in batches]).tolist()) == list(range(COUNT))
    for batch in batches:
        assert list(batch["name"]) == [f"n{n}" for n in batch["id"]]


def test_packed_rows_are_batched_as_arrays(tmp_path: Path) -> None:
    """As in docs/guide/keras.md. Without the map, Grain takes each place of a list for a column."""
    tokens = [[n] * (n % 7 + 1) for n in range(COUNT)]
    ps.write({"tokens": tokens}, tmp_path / "documents.parquet")
    rows = ps.packed(ps.open(tmp_path / "documents.parquet"), "tokens", 16, eos=1)
    dtypes = {field.name: field.type.value_type.to_pandas_dtype() for field in rows.schema}

    def as_arrays(row: dict[str, Any]) -> dict[str, np.ndarray]:
        return {name: np.array(values, dtypes[name]) for name, values in row.items()}

    batches = grain.MapDataset.source(rows).map(as_arrays).batch(8)
    for batch, expected in zip(batches, ps.Loader(rows, 8), strict=True):
        assert batch.keys() == expected.keys()
        for name, array in batch.items():
            assert array.dtype == expected[name].dtype
            assert np.array_equal(array, expected[name])

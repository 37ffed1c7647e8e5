"""Mistakes in `map=` and `map_records=`, and statistics for loggers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps


@pytest.fixture
def data(tmp_path: Path) -> ps.Dataset:
    ps.write({"id": np.arange(30)}, tmp_path / "ids.tfrecord")
    return ps.open(tmp_path / "ids.tfrecord")


def forgets(batch: dict[str, Any]) -> None:
    batch["id"] += 1


@pytest.mark.parametrize("threads", [0, 2])
def test_a_map_that_returns_nothing_is_an_error(data: ps.Dataset, threads: int) -> None:
    with pytest.raises(ps.SchemaError, match="map returned None"):
        next(iter(ps.Loader(data, 5, map=forgets, threads=threads)))


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("word", ["map", "map_records"])
def test_an_error_in_a_function_names_the_records(
    data: ps.Dataset, threads: int, word: str
) -> None:
    def wrong(batch: dict[str, Any]) -> Any:
        if np.max(batch["id"]) >= 14:
            raise KeyError("caption")
        return batch

    loader = ps.Loader(data, 5, threads=threads, **{word: wrong})
    with pytest.raises(KeyError) as caught:
        list(loader)
    assert caught.value.__notes__ == [
        "raised in map= or map_records= of a loader, in the batch of records 10, 11, 12, …"
    ]


def test_statistics_are_flat_numbers_for_loggers(data: ps.Dataset) -> None:
    loader = ps.Loader(data, 5)
    list(loader)
    found = loader.stats().to_dict()
    assert found["num_records"] == 30
    assert {"records_per_second", "wait_share", "stage_seconds/read"} <= set(found)
    assert all(isinstance(value, (int, float)) for value in found.values())

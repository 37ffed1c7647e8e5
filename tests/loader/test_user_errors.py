"""Mistakes in `map=` and `map_records=`, and statistics for loggers."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from user_functions import failing_at_14, failing_column

import penstock as ps


@pytest.fixture
def data(tmp_path: Path) -> ps.Dataset:
    ps.write({"id": np.arange(30)}, tmp_path / "ids.tfrecord")
    return ps.open(tmp_path / "ids.tfrecord")


def forgets(batch: dict[str, Any]) -> None:
    batch["id"] += 1


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("shuffle", r"order=penstock\.Shuffled\(seed=0\)"),
        ("num_workers", "threads="),
        ("collate_fn", "map="),
    ],
)
def test_a_keyword_of_torch_says_what_does_the_same(data: ps.Dataset, word: str, said: str) -> None:
    how: dict[str, Any] = {word: True}
    with pytest.raises(TypeError, match=f"Loader has no {word}=; use {said}"):
        ps.Loader(data, 32, **how)
    with pytest.raises(TypeError, match="unexpected keyword argument 'shufle'"):
        ps.Loader(data, 32, shufle=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert "batch_size: 'int | None' = None" in str(inspect.signature(ps.Loader))


@pytest.mark.parametrize("threads", [0, 2])
def test_a_map_that_returns_nothing_is_an_error(data: ps.Dataset, threads: int) -> None:
    with pytest.raises(ps.SchemaError, match="map returned None"):
        next(iter(ps.Loader(data, 5, map=forgets, threads=threads)))


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("processes", [0, 1])
@pytest.mark.parametrize("word", ["map", "map_records", "decode"])
def test_an_error_in_a_function_names_the_records(
    data: ps.Dataset, threads: int, processes: int, word: str
) -> None:
    function: Any = {"id": failing_column} if word == "decode" else failing_at_14
    loader = ps.Loader(data, 5, threads=threads, processes=processes, **{word: function})
    with pytest.raises(KeyError, match="caption") as caught:
        list(loader)
    batch = "in the batch of records 10, 11, 12, …"
    note = {
        "map": f"raised in map= of a loader, {batch}",
        "map_records": "raised in map_records= of a loader, for record 14",
        "decode": f"raised in decode= of 'id' of a loader, {batch}",
    }
    assert caught.value.__notes__ == [note[word]]
    loader.set_epoch(loader.epoch + 1)
    assert next(iter(loader))["id"].tolist() == [0, 1, 2, 3, 4], "the loader still works"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (None, "map_records returned None; it must return the record, a dict"),
        (3, "map_records returned int; it must return the record, a dict"),
        ({"x": 3}, r"map_records returned the names \['x'\], and \['id'\] for the first record"),
    ],
)
def test_a_wrong_record_of_map_records_is_named(data: ps.Dataset, wrong: Any, message: str) -> None:
    loader = ps.Loader(data, 5, map_records=lambda one: wrong if one["id"] == 12 else one)
    with pytest.raises(ps.SchemaError, match=message) as caught:
        list(loader)
    assert caught.value.__notes__ == ["raised in map_records= of a loader, for record 12"]


def test_columns_of_a_map_must_have_equally_many_rows(tmp_path: Path) -> None:
    rows = {"id": np.arange(30), "words": [[n] * (n % 3) for n in range(30)], "t": ["a"] * 30}
    ps.write(rows, tmp_path / "a.parquet")

    def lists(batch: dict[str, Any]) -> dict[str, Any]:
        values, offsets = batch["words"]
        return {**batch, "words": (values[: offsets[3]], offsets[:4])}

    wrong: list[tuple[Any, str, str]] = [
        (lambda batch: {**batch, "id": batch["id"][:3]}, "'id'", "'words'"),
        (lambda batch: {**batch, "t": batch["t"][:3]}, "'t'", "'id'"),
        (lists, "'words'", "'id'"),
    ]
    for function, few, many in wrong:
        loader = ps.Loader(ps.open(tmp_path), 5, map=function)
        with pytest.raises(ps.SchemaError, match=f"3 rows of {few} and 5 of {many}") as caught:
            list(loader)
        assert caught.value.__notes__ == [
            "raised in map= of a loader, in the batch of records 0, 1, 2, …"
        ]


@pytest.mark.parametrize(
    "function",
    [
        lambda batch: {name: column[:3] for name, column in batch.items()},
        lambda batch: {name: column.repeat(2) for name, column in batch.items()},
        lambda batch: {**batch, "table": np.zeros(9), "sum": batch["id"].sum()},
        lambda batch: {**batch, "other": (batch["id"], batch["id"][:2])},
        lambda batch: {**batch, "id": (batch["id"], batch["score"][:2])},
        lambda batch: batch["id"][:2],
    ],
)
def test_a_map_may_change_the_rows_of_all_columns_and_add_columns(
    tmp_path: Path, function: Any
) -> None:
    ps.write({"id": np.arange(30), "score": np.arange(30)}, tmp_path / "a.parquet")
    assert len(list(ps.Loader(ps.open(tmp_path), 5, map=function))) == 6


def test_statistics_are_flat_numbers_for_loggers(data: ps.Dataset) -> None:
    loader = ps.Loader(data, 5)
    list(loader)
    found = loader.stats().to_dict()
    assert found["num_records"] == 30
    assert {"records_per_second", "wait_share", "stage_seconds/read"} <= set(found)
    assert all(isinstance(value, (int, float)) for value in found.values())

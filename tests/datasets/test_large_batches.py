"""A batch beyond Arrow's 32-bit offsets is a LimitError that says what to do, whichever code notices it first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import penstock as ps
from penstock.columns.joined import join, picked
from penstock.datasets.scan import rebatch
from penstock.errors import LimitError
from penstock.storage.pyarrow_files import translated

BLOB = b"x" * (8 << 20)
BATCH = pa.record_batch({"b": pa.array([BLOB] * 10, pa.binary())})
MANY = [0] * 300
"""This many of the blobs exceed 2 GiB; no test allocates that much."""


def with_translation() -> pa.RecordBatch:
    with translated("a.parquet"):
        return pa.concat_batches([BATCH] * 30)


@pytest.mark.parametrize(
    "call",
    [
        lambda: join([BATCH] * 30),
        lambda: picked(BATCH, pa.array(MANY)),
        lambda: next(rebatch(iter([BATCH] * 30), 280)),
        with_translation,
    ],
)
def test_too_many_records_for_one_batch_are_a_limit(call: Callable[[], pa.RecordBatch]) -> None:
    with pytest.raises(LimitError, match="2 GiB") as caught:
        call()
    assert caught.value.record is None
    assert "smaller" in str(caught.value.hint)


@pytest.mark.parametrize("damage", ["error", "skip"])
@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_take_of_too_much_is_a_limit_and_skips_nothing(
    ending: str, damage: str, tmp_path: Path
) -> None:
    ps.write(BATCH, tmp_path / f"a.{ending}")
    dataset = ps.open(tmp_path / f"a.{ending}", damage=damage)
    with pytest.raises(ps.LimitError, match="2 GiB"):
        dataset.take(MANY)
    assert dataset.damage == []
    assert dataset.take([3]).num_rows == 1


@pytest.mark.parametrize("damage", ["error", "skip"])
def test_a_scan_reads_fewer_records_at_a_time_if_a_chunk_is_too_large(
    damage: str, tmp_path: Path
) -> None:
    table = pa.table({"id": range(100), "b": [bytes([n]) * 1000 for n in range(100)]})
    ps.write(table, tmp_path / "a.npz")
    dataset = ps.open(tmp_path / "a.npz", damage=damage, limits={"batch_bytes": 10_000})
    batches = list(dataset.scan())
    assert [n for batch in batches for n in batch["id"].to_pylist()] == list(range(100))
    assert all(batch.num_rows <= 10 for batch in batches)
    assert dataset.damage == []

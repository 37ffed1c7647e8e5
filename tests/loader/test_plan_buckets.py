"""`ps.plan` and `ps.audit` of loaders with `buckets=`, compared with the batches that the loaders deliver."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import penstock as ps
from penstock.loader._buckets import BucketSequence

SIZES = [4, 9, 20]
COUNT = 300


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ps.Dataset:
    folder = tmp_path_factory.mktemp("plan")
    lengths = np.random.default_rng(0).integers(0, 21, COUNT)
    rows = {"id": np.arange(COUNT), "tokens": [np.arange(length) for length in lengths]}
    ps.write(rows, folder / "tokens.tfrecord", num_shards=3)
    return ps.open(folder)


def loader_of(data: Any, world_size: int = 1, rank: int = 0, **options: Any) -> ps.Loader:
    given: dict[str, Any] = {"order": ps.Shuffled(3), "batch_size": 8, **options}
    return ps.Loader(
        data, world_size=world_size, rank=rank, threads=0, buckets={"tokens": SIZES}, **given
    )


@example(world_size=5, batch_size=35, uneven="drop", drop_last=True, done=1, epoch=0)
@given(
    world_size=st.integers(1, 5),
    batch_size=st.integers(1, 40),
    uneven=st.sampled_from(["wrap", "drop", "pad"]),
    drop_last=st.booleans(),
    done=st.integers(0, 3),
    epoch=st.integers(0, 2),
)
def test_the_plan_equals_what_loaders_of_all_ranks_deliver(
    data: ps.Dataset,
    world_size: int,
    batch_size: int,
    uneven: str,
    drop_last: bool,
    done: int,
    epoch: int,
) -> None:
    options = {
        "batch_size": batch_size, "uneven": uneven, "drop_last": drop_last, "epoch": epoch
    }  # fmt: skip
    planner = loader_of(data, world_size, **options)
    seen: Counter[int] = Counter()
    for _, batch in zip(range(done), loader_of(data, 1, **options), strict=False):
        seen.update(batch["id"][batch.get("mask", slice(None))].tolist())
    first = loader_of(data, 1, **options)
    batches = iter(first)
    for _ in range(min(done, len(first))):
        next(batches)
    planner.load_state_dict(first.state_dict())
    if planner.epoch != epoch:
        return  # all steps are done
    report = ps.plan(planner, audit=True)
    assert report.ok and report.coverage is not None and report.buckets is not None
    steps: Counter[int] = Counter()
    padding = 0
    for share in report.ranks:
        one = loader_of(data, world_size, share.rank, **options)
        one.load_state_dict(first.state_dict())
        delivered = list(one)
        assert len(delivered) == share.num_batches == report.num_steps
        assert sum(len(batch["id"]) for batch in delivered) == share.num_records
        for batch in delivered:
            mask = batch.get("mask", slice(None))
            seen.update(batch["id"][mask].tolist())
            if not share.rank:
                steps[batch["tokens"].shape[1]] += 1
        if delivered:
            assert delivered[0]["id"][:3].tolist() == share.first_batch
            assert delivered[-1]["id"][:3].tolist() == share.last_batch
        padding += share.num_padding
    times = np.array([seen[n] for n in range(COUNT)])
    assert report.coverage.num_once == (times == 1).sum()
    assert report.coverage.num_missing == (times == 0).sum()
    assert report.coverage.num_missing == report.dropped[1] - report.dropped[0]
    assert report.coverage.num_repeated == (times > 1).sum()
    assert [b.num_steps for b in report.buckets] == [steps[size] for size in SIZES]
    assert [b.sizes for b in report.buckets] == [{"tokens": size} for size in SIZES]
    assert sum(b.num_padding for b in report.buckets) == padding
    assert report.position == COUNT - sum(b.num_records for b in report.buckets)


def test_a_repeated_record_is_named_with_its_steps_and_ranks(data: ps.Dataset) -> None:
    report = ps.plan(loader_of(data, 5), audit=True)
    assert report.coverage is not None and report.coverage.repeated
    for one in report.coverage.repeated:
        assert len(one.steps) == one.count == 2
        for step, rank in one.steps:
            assert one.record in [list(b["id"]) for b in loader_of(data, 5, rank)][step]


def test_an_audit_reads_the_epoch_and_compares_each_batch(
    data: ps.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = loader_of(data)
    report = ps.audit(one)
    assert report.coverage is not None
    assert report.coverage.num_once == COUNT and one.epoch == 1
    delivered = [numbers.copy() for numbers in loader_of(data).iter_numbers()]
    delivered[2][0] = 5
    monkeypatch.setattr(one, "iter_numbers", lambda: iter(delivered))
    one.set_epoch(0)
    with pytest.raises(AssertionError, match="batch 2 of rank 0"):
        ps.audit(one)


def twisted(of: Any, wrong: Any) -> Any:
    def numbers(self: BucketSequence, plan: Any, part: Any, epoch: int) -> np.ndarray:
        return wrong(self, part, of(self, plan, part, epoch))

    return numbers


def test_faults_in_the_steps_are_found(data: ps.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    right = BucketSequence.numbers

    def other_bucket(self: BucketSequence, part: Any, numbers: np.ndarray) -> np.ndarray:
        of_record = self.buckets.of_record
        others = np.flatnonzero(of_record != of_record[numbers[0]])
        return (
            np.where(np.arange(len(numbers)) == 0, others[0], numbers)
            if part.first == 8
            else numbers
        )

    monkeypatch.setattr(BucketSequence, "numbers", twisted(right, other_bucket))
    report = ps.plan(loader_of(data, 2), audit=True)
    assert not report.ok and report.coverage is not None
    assert report.coverage.num_mixed_steps == 1
    assert "1 step has records of two buckets" in str(report)

    def again(self: BucketSequence, part: Any, numbers: np.ndarray) -> np.ndarray:
        return (
            np.where(np.arange(len(numbers)) == 1, numbers[0], numbers)
            if not part.first
            else numbers
        )

    monkeypatch.setattr(BucketSequence, "numbers", twisted(right, again))
    report = ps.plan(loader_of(data, 2), audit=True)
    assert not report.ok and report.coverage is not None
    assert not report.coverage.explained
    assert report.coverage.num_missing == 1
    assert "a bug" in str(report)


def test_a_plan_without_an_audit_has_the_steps_too(data: ps.Dataset, tmp_path: Path) -> None:
    report = ps.plan(loader_of(data, 2, uneven="pad"))
    assert report.coverage is None and report.ok and report.buckets is not None
    assert sum(bucket.num_steps for bucket in report.buckets) == report.num_steps
    assert [bucket.num_padding for bucket in report.buckets] == [
        -bucket.num_records % 16 for bucket in report.buckets
    ]

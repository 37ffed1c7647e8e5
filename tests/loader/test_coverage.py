"""Which rank reads which records, counted independently of the arithmetic that assigns records to ranks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.loader import coverage

COUNT = 203


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plan")
    ps.write({"id": range(COUNT)}, folder / "n.tfrecord", num_shards=3)
    return folder


def loader(shards: Path, rank: int = 0, **more: Any) -> ps.Loader:
    given = {"batch_size": 8, "world_size": 5, "order": ps.Shuffled(7), "record_numbers": "n"}
    return ps.Loader(ps.open(shards), rank=rank, **{**given, **more})


@dataclass(frozen=True)
class Twisted:
    """A faulty order: one record comes twice, and another one not at all."""

    seed: int = 0
    layout: None = None

    def length(self, num_records: int) -> int:
        return num_records

    def take(self, num_records: int, epoch: int, start: int, stop: int) -> np.ndarray:
        numbers = np.arange(start, stop)
        return np.where(numbers == 100, 3, numbers)

    def spec(self) -> dict[str, Any]:
        return {"name": "twisted"}


@pytest.mark.parametrize("uneven", ["wrap", "drop", "pad"])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("position", [0, 80])
def test_the_plan_equals_what_loaders_of_all_ranks_deliver(
    shards: Path, uneven: str, drop_last: bool, position: int
) -> None:
    given = {"uneven": uneven, "drop_last": drop_last}
    planner = loader(shards, **given)
    planner.load_state_dict({**planner.state_dict(), "position": position})
    report = ps.plan(planner, audit=True)
    seen: Counter[int] = Counter(ps.Shuffled(7).take(COUNT, 0, 0, position).tolist())
    for share in report.ranks:
        one = loader(shards, share.rank, **given)
        one.load_state_dict({**one.state_dict(), "position": position})
        batches = [(batch["n"], batch.get("mask")) for batch in one]
        assert len(batches) == share.num_batches == report.num_steps
        assert sum(len(numbers) for numbers, _ in batches) == share.num_records
        assert batches[0][0][:3].tolist() == share.first_batch
        assert batches[-1][0][:3].tolist() == share.last_batch
        for numbers, mask in batches:
            seen.update((numbers if mask is None else numbers[mask]).tolist())
    found = report.coverage
    assert found is not None
    assert report.ok
    times = np.array([seen[n] for n in range(COUNT)])
    assert found.num_once == (times == 1).sum()
    assert found.num_missing == (times == 0).sum() == report.dropped[1] - report.dropped[0]
    assert found.num_repeated == (times > 1).sum()
    assert [one.record for one in found.missing] == np.flatnonzero(times == 0)[:10].tolist()
    assert [one.count for one in found.repeated] == times[times > 1].tolist()


def test_a_repeated_record_is_named_with_its_steps_and_ranks(shards: Path) -> None:
    report = ps.plan(loader(shards), audit=True)
    assert report.coverage is not None
    assert len(report.coverage.repeated) == 2
    for one in report.coverage.repeated:
        assert one.record == ps.open(shards / one.file)[one.record_in_file]["id"]
        for step, rank in one.steps:
            batches = [batch["n"].tolist() for batch in loader(shards, rank)]
            assert one.record in batches[step]
        assert len(one.steps) == one.count == 2


def test_an_order_that_loses_a_record_is_detected(shards: Path) -> None:
    report = ps.plan(loader(shards, order=Twisted()), audit=True)
    assert not report.ok
    assert report.coverage is not None
    assert [one.record for one in report.coverage.missing] == [100]
    # Records 0 and 1 fill up the last step; record 3 comes at positions 3 and 100.
    assert [one.record for one in report.coverage.repeated] == [0, 1, 3]
    assert report.coverage.repeated[2].steps == [(0, 0), (2, 2)]
    assert "a bug" in str(report)


def test_files_and_bytes_of_ranks_add_up(shards: Path) -> None:
    report = ps.plan(loader(shards, order=ps.Sequential(), uneven="drop"))
    size = sum(shard.num_bytes for shard in ps.open(shards).shards)
    assert abs(sum(rank.num_bytes or 0 for rank in report.ranks) / size - 200 / COUNT) < 0.01
    assert [rank.num_shards for rank in report.ranks] == [3] * 5
    assert report.coverage is None


def test_long_epochs_are_walked_in_blocks(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ps.plan(loader(shards), audit=True)
    monkeypatch.setattr(coverage, "BLOCK_POSITIONS", 80)
    assert ps.plan(loader(shards), audit=True) == whole


def test_an_audit_reads_an_epoch_and_the_loader_continues_with_the_next(shards: Path) -> None:
    one = loader(shards, world_size=1, batch_size=16)
    report = ps.audit(one)
    assert report.coverage is not None
    assert report.coverage.num_once == COUNT
    assert one.epoch == 1
    assert next(iter(one))["n"].tolist() == ps.Shuffled(7).take(COUNT, 1, 0, 16).tolist()


def test_an_audit_finds_what_was_not_planned(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = loader(shards)
    delivered = [numbers.copy() for numbers in loader(shards).iter_numbers()]
    delivered[2][0] = 5
    monkeypatch.setattr(one, "iter_numbers", lambda: iter(delivered))
    with pytest.raises(AssertionError, match="batch 2 of rank 0"):
        ps.audit(one)
    monkeypatch.setattr(one, "iter_numbers", lambda: iter(delivered[:2]))
    with pytest.raises(AssertionError, match="2 batches were delivered"):
        ps.audit(one)


@pytest.mark.parametrize("buckets", [None, {"tokens": {1: 9, 3: 4}}])
def test_an_audit_does_not_count_records_that_only_fill_a_batch(
    tmp_path: Path, buckets: Any
) -> None:
    ps.write({"tokens": [list(range(n % 4)) for n in range(50)]}, tmp_path / "x.parquet")
    size = 8 if buckets is None else None
    order = ps.Shuffled(seed=0)
    data = ps.open(tmp_path / "x.parquet")
    found = ps.audit(ps.Loader(data, size, order=order, uneven="pad", buckets=buckets))
    assert found.ok and found.coverage is not None
    assert (found.coverage.num_once, found.coverage.num_repeated) == (50, 0)


def test_an_audit_counts_damaged_records_as_missing(tmp_path: Path) -> None:
    path = tmp_path / "n.tfrecord"
    ps.write({"t": [f"text {n}" for n in range(50)]}, path)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"text 33", b"text 34"))
    one = ps.Loader(ps.open(path, damage="skip"), 8, order=ps.Shuffled(0))
    report = ps.audit(one)
    assert report.coverage is not None
    assert [m.record_in_file for m in report.coverage.missing] == [33]
    assert len(one.damage) == 1


@pytest.mark.parametrize("options", [{}, {"buckets": {"n": [10, 25]}}])
def test_an_audit_after_a_loop_that_was_left_reads_the_next_epoch(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    ps.write({"n": range(25)}, tmp_path / "n.tfrecord")
    one = ps.Loader(ps.open(tmp_path / "n.tfrecord"), 4, order=ps.Shuffled(0), **options)
    for _ in one:
        break
    report = ps.audit(one)
    assert (report.epoch, report.position) == (1, 0)
    assert report.coverage is not None and report.coverage.num_once == 25
    state = one.state_dict()
    assert (state["epoch"], state["position"]) == (2, 0)
    begun = iter(one)
    next(begun)
    one.load_state_dict(one.state_dict())  # the rest of this epoch
    report = ps.audit(one)
    assert (report.epoch, report.position) == (2, 4)
    assert report.coverage is not None and report.coverage.num_once == 21


def test_numbers_of_records_come_as_a_column_that_leads_to_the_file(shards: Path) -> None:
    one = loader(shards)
    batch = next(iter(one))
    assert batch["n"].dtype == np.int64
    assert batch["id"].tolist() == batch["n"].tolist()
    file, record = one.locate(batch["n"][0])
    assert ps.open(shards / file)[record]["id"] == batch["id"][0]


def test_a_column_of_numbers_does_not_hide_another(shards: Path) -> None:
    with pytest.raises(ps.SchemaError, match="a column of this name"):
        loader(shards, record_numbers="id")


def test_orders_that_choose_records_are_counted_and_explained(shards: Path) -> None:
    sets = {"a": ps.open(shards), "b": ps.open(shards)}
    order = ps.Mixture({"a": 0.9, "b": 0.1}, seed=1)
    one = ps.Loader(sets, 7, order=order, record_numbers="n")
    report = ps.plan(one, audit=True)
    times = np.bincount(np.concatenate([b["n"] for b in one]), minlength=2 * COUNT)
    assert report.ok
    assert report.coverage is not None
    assert report.coverage.num_repeated == (times > 1).sum() > 0
    assert report.coverage.num_missing == (times == 0).sum() > 0
    first = report.coverage.repeated[0]
    assert first.count == times[first.record]
    assert len(first.steps) == first.count

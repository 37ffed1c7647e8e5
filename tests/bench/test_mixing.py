"""How orders are judged: known orders have known figures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import penstock as ps
from penstock.bench.epochs import deliver, plan_of
from penstock.bench.mixing import Layout, compared, mean_of, mix_of, positions_of

COUNT = 20_000


@dataclass(frozen=True)
class Windowed:
    """Shuffled within windows that follow each other."""

    window: int

    def length(self, num_records: int) -> int:
        return num_records

    def take(self, num_records: int, epoch: int, start: int, stop: int) -> np.ndarray:
        windows = [
            np.random.default_rng((epoch, at)).permutation(min(self.window, num_records - at)) + at
            for at in range(0, num_records, self.window)
        ]
        return np.concatenate(windows)[start:stop]

    def spec(self) -> dict[str, object]:
        return {"name": "windowed"}


@pytest.fixture
def layout() -> Layout:
    labels = np.arange(COUNT) * 10 // COUNT
    return Layout(COUNT, np.full(20, 1000), np.arange(0, COUNT, 5000), labels)


def test_no_shuffle_moves_nothing_and_mixes_nothing(layout: Layout) -> None:
    mix = mix_of(ps.Sequential(), layout, 0, 100)
    assert mix.moved == 0
    assert mix.neighbours == pytest.approx(0.99)
    assert (mix.chunks, mix.shards, mix.labels) == (1, 1, 1)
    assert mix.label_distance == pytest.approx(0.9)
    assert mix.again == 1


def test_an_exact_shuffle_has_the_figures_that_theory_says(layout: Layout) -> None:
    mix = mix_of(ps.Shuffled(5), layout, 0, 100)
    assert mix.moved == pytest.approx(1 / 3, rel=0.02)
    assert mix.labels == pytest.approx(10, rel=0.001)
    assert mix.again == pytest.approx(99 / (COUNT - 1), rel=0.1)
    # Half of the sum of ten mean absolute deviations of a binomial of 100 at one in ten.
    deviation = np.sqrt(2 / np.pi * 100 * 0.1 * 0.9) / 100
    assert mix.label_distance == pytest.approx(10 * deviation / 2, rel=0.05)


def test_wider_windows_mix_better(layout: Layout) -> None:
    exact = mean_of([mix_of(ps.Shuffled(seed), layout, 0, 100) for seed in (1, 2, 3)])
    found = [
        compared(mix_of(Windowed(window), layout, 0, 100), exact, 4)
        for window in (500, 5000, COUNT)
    ]
    moved = [one.moved for one in found]
    off = [one.label_distance for one in found]
    again = [one.again for one in found]
    assert moved == sorted(moved)
    assert off == sorted(off, reverse=True)
    assert again == sorted(again, reverse=True)
    assert [one.is_exact for one in found] == [False, False, True]
    assert found[0].again == pytest.approx(COUNT / 500, rel=0.1)


def test_a_long_epoch_is_judged_by_batches_spread_over_it(layout: Layout) -> None:
    some = positions_of(ps.Sequential(), layout, 0, 100, most=1000)
    assert not some.is_whole
    assert (some.places == some.records).all()
    assert some.places[0, 0] == 0
    assert some.places[-1, -1] == COUNT - 1
    assert len(some.places) == 10


@pytest.mark.parametrize("window", [1, 300, 2500, 9000])
def test_both_ways_of_reading_give_every_record_exactly_once(window: int, tmp_path) -> None:
    path = tmp_path / "x.arrow"
    ps.write({"id": np.arange(COUNT)}, path)
    lengths = np.full(20, 1000)
    order = Windowed(window)
    records = order.take(COUNT, 0, 0, COUNT)
    plan = plan_of(records, lengths, 128, COUNT)
    assert plan.by_chunks
    assert plan.waiting_records <= window + 2 * 1000
    taken: list[np.ndarray] = []

    class Noting:
        def take(self, numbers: np.ndarray):
            taken.append(numbers)
            return ps.open(path).take(numbers)

    done = deliver(Noting(), plan, 60, COUNT)
    assert done.records == done.read_records == COUNT
    assert sorted(np.concatenate(taken).tolist()) == list(range(COUNT))
    assert all((np.diff(one) == 1).all() for one in taken), "chunks are read whole"
    by_records = plan_of(records, lengths, 128, 0)
    assert not by_records.by_chunks


def test_an_exact_shuffle_and_repeats_are_read_by_records() -> None:
    lengths = np.full(20, 1000)
    assert not plan_of(ps.Shuffled(0).take(COUNT, 0, 0, COUNT), lengths, 128, COUNT).by_chunks
    assert not plan_of(np.arange(COUNT) // 2, lengths, 128, COUNT).by_chunks

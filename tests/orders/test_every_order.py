"""What holds for every order: it is a pure function of positions, the same everywhere and for ever."""

from __future__ import annotations

import itertools
import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps

GOLDEN = Path(__file__).parents[1] / "golden" / "orders" / "orders.json"

LENGTHS = [40, 3, 0, 57, 100, 1, 99, 200]
WEIGHTS = [1.0, 0.0, 2.5] * 166 + [7.0, 0.1]
LABELS = ["cat", "dog", "dog", "owl"] * 125


def orders() -> dict[str, tuple[ps.Order, object, dict[str, object]]]:
    """By name: the order, the number of records, and further arguments of `take`."""
    shards = {"shard_lengths": LENGTHS}
    chunks = {"chunk_lengths": LENGTHS}
    return {
        "sequential": (ps.Sequential(), 500, {}),
        "shuffled": (ps.Shuffled(7), 500, {}),
        "blocked": (ps.Blocked(7), 500, {}),
        "blocked, chunks": (ps.Blocked(7, window_chunks=2), 500, chunks),
        "blocked, records": (ps.Blocked(7, window_chunks=None, window_records=150), 500, chunks),
        "blocked, equal": (ps.Blocked(7, window_records=70, chunk_records=9), 500, {}),
        "buffered": (ps.Buffered(7, 50), 500, {}),
        "buffered, all": (ps.Buffered(7, 1000), 500, {}),
        "interleaved": (ps.Interleaved(3, 4), 500, shards),
        "interleaved, shuffled": (ps.Interleaved(2, 1, seed=7), 500, shards),
        "buffered over": (ps.Buffered(7, 50, ps.Interleaved(3, 4, seed=8)), 500, shards),
        "mixture": (ps.Mixture({"a": 0.7, "b": 0.2, "c": 0.1}, 7), [250, 150, 100], {}),
        "mixture, length": (ps.Mixture({"a": 3, "b": 0, "c": 1}, 7, 700), [250, 150, 100], {}),
        "weighted": (ps.Weighted(WEIGHTS, 7), 500, {}),
        "weighted, length": (ps.Weighted(WEIGHTS, 7, 900), 500, {}),
        "balanced": (ps.Balanced(LABELS, 7), 500, {}),
        "balanced, length": (ps.Balanced(LABELS, 7, 901), 500, {}),
    }


ORDERS = orders()
every_order = pytest.mark.parametrize("name", ORDERS)
ONCE = [name for name in ORDERS if not name.startswith(("mix", "weighted", "balanced"))]


@every_order
def test_it_keeps_the_protocol(name: str) -> None:
    order, num_records, known = ORDERS[name]
    assert isinstance(order, ps.Order)
    assert (order.layout in known) or not known
    length = order.length(num_records)
    found = order.take(num_records, 0, 0, length, **known)
    assert found.dtype == np.int64
    assert found.shape == (length,)
    assert found.min() >= 0
    assert found.max() < 500


@pytest.mark.parametrize("name", ONCE)
def test_every_record_comes_once_an_epoch(name: str) -> None:
    order, num_records, known = ORDERS[name]
    for epoch in (0, 1, 5):
        assert sorted(order.take(num_records, epoch, 0, 500, **known)) == list(range(500))


@every_order
def test_any_part_is_a_part_of_the_whole(name: str) -> None:
    order, num_records, known = ORDERS[name]
    length = order.length(num_records)
    for epoch in (0, 3):
        whole = order.take(num_records, epoch, 0, length, **known)
        cuts = np.random.default_rng(1).integers(0, length + 1, (80, 2))
        for start, stop in [*np.sort(cuts).tolist(), (0, 0), (length, length)]:
            # A new order object each time: results must not depend on earlier calls.
            part = orders()[name][0].take(num_records, epoch, start, stop, **known)
            assert part.dtype == np.int64
            assert np.array_equal(part, whole[start:stop]), (epoch, start, stop)


@every_order
def test_positions_beyond_the_epoch_are_an_error(name: str) -> None:
    order, num_records, known = ORDERS[name]
    length = order.length(num_records)
    for start, stop in [(0, length + 1), (length + 1, length + 1), (-1, 3), (5, 4)]:
        with pytest.raises(ps.RecordIndexError, match="an epoch has positions 0 to"):
            order.take(num_records, 0, start, stop, **known)
    with pytest.raises(ValueError, match="epochs count from 0"):
        order.take(num_records, -1, 0, 1, **known)


@every_order
def test_epochs_differ_if_there_is_a_seed(name: str) -> None:
    order, num_records, known = ORDERS[name]
    stop = order.length(num_records)
    first, second = (order.take(num_records, epoch, 0, stop, **known) for epoch in (0, 1))
    assert np.array_equal(first, second) == (order.seed is None)


@every_order
def test_equal_orders_have_equal_specs_and_others_do_not(name: str) -> None:
    order = ORDERS[name][0]
    again = orders()[name][0]
    assert order == again
    assert hash(order) == hash(again)
    spec = json.loads(json.dumps(order.spec()))
    assert spec == again.spec() == order.spec()
    assert len(json.dumps(spec)) < 500
    for other, (unlike, *_) in ORDERS.items():
        assert (unlike == order) == (other == name)
        assert (unlike.spec() == spec) == (other == name)


@every_order
def test_it_survives_pickling_after_use(name: str) -> None:
    order, num_records, known = ORDERS[name]
    expected = order.take(num_records, 2, 10, 60, **known)
    again = pickle.loads(pickle.dumps(order))
    assert again == order
    assert repr(again) == repr(order)
    assert np.array_equal(again.take(num_records, 2, 10, 60, **known), expected)


def answers() -> dict[str, list[list[int]]]:
    """The first and the last positions of three epochs of every order."""
    found = {}
    for name, (order, num_records, known) in orders().items():
        length = order.length(num_records)
        found[name] = [
            order.take(num_records, epoch, start, start + 40, **known).tolist()
            for epoch in (0, 1, 1000)
            for start in (0, length - 40)
        ]
    return found


def test_orders_are_the_same_in_all_versions() -> None:
    """If these values change, the order of every user's training changes. That must not happen by accident."""
    assert answers() == json.loads(GOLDEN.read_text())


def test_orders_do_not_hang_on_the_process(tmp_path: Path) -> None:
    program = "import json, sys; sys.path.insert(0, sys.argv[1]); "
    program += "from orders import test_every_order as t; print(json.dumps(t.answers()))"
    command = [sys.executable, "-c", program, str(Path(__file__).parents[1])]
    out = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    assert json.loads(out) == answers()


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(0, 2**64 - 1), st.data())
def test_all_layouts_give_every_record_once(lengths: list[int], seed: int, data) -> None:
    num_records = sum(lengths)
    sizes = st.none() | st.integers(1, 60)
    small = st.integers(1, 9)
    for order in (
        ps.Blocked(seed, data.draw(sizes), data.draw(sizes)),
        ps.Interleaved(data.draw(small), data.draw(small), seed),
        ps.Buffered(seed, data.draw(small), ps.Interleaved(data.draw(small), seed=seed)),
    ):
        edges = [0, *sorted(data.draw(st.lists(st.integers(0, num_records), max_size=3)))]
        parts = [
            order.take(num_records, 1, a, b, **{order.layout: lengths})
            for a, b in itertools.pairwise([*edges, num_records])
        ]
        assert sorted(np.concatenate(parts).tolist()) == list(range(num_records))


def test_arrow_arrays_and_lists_work_like_numpy_arrays() -> None:
    for values in (pa.array(WEIGHTS), np.array(WEIGHTS), pa.chunked_array([WEIGHTS])):
        assert ps.Weighted(values, 7) == ORDERS["weighted"][0]
    for values in (pa.array(LABELS), np.array(LABELS), pa.array(LABELS).dictionary_encode()):
        assert ps.Balanced(values, 7) == ORDERS["balanced"][0]


if __name__ == "__main__":
    # The expected answers were written once, by running this file as a program.
    GOLDEN.write_text(json.dumps(answers(), indent=None).replace("]], ", "]],\n") + "\n")

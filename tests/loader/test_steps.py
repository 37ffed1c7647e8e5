"""The arithmetic of ranks: equal numbers of steps, every position once, and the same sequence on any number of
ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.loader._plan import UNEVEN, EpochPlan

plans = st.builds(
    EpochPlan,
    length=st.integers(0, 200),
    batch_size=st.integers(1, 17),
    world_size=st.integers(1, 13),
    uneven=st.sampled_from(UNEVEN),
    drop_last=st.booleans(),
)


def positions(
    plan: EpochPlan, position: int, step: int, rank: int, *, real: bool = False
) -> list[int]:
    part = plan.part(position, step, rank)
    found = [p for start, stop in plan.positions(part) for p in range(start, stop)]
    assert len(found) == part.num_records
    return found[: part.num_real] if real else found


def sequence(plan: EpochPlan, position: int = 0) -> list[int]:
    """The positions that all ranks get, step after step and rank after rank."""
    steps = range(plan.num_steps(position))
    ranks = range(plan.world_size)
    return [p for s in steps for r in ranks for p in positions(plan, position, s, r, real=True)]


@given(plans, st.integers(0, 200))
def test_ranks_have_equal_batches_and_together_a_run_of_the_order(
    plan: EpochPlan, position: int
) -> None:
    position = min(position, plan.length)
    seen = sequence(plan, position)
    left = plan.length - position
    rest = left % plan.step_records
    for step in range(plan.num_steps(position)):
        counts = {plan.part(position, step, rank).num_records for rank in range(plan.world_size)}
        assert len(counts) == 1
        assert counts.pop() <= plan.batch_size
    if plan.drop_last:
        assert seen == list(range(position, plan.length - rest))
    elif plan.uneven == "pad":
        assert seen == list(range(position, plan.length))
    elif plan.uneven == "drop":
        assert seen == list(range(position, plan.length - rest % plan.world_size))
    else:
        assert seen[:left] == list(range(position, plan.length))
        assert len(seen) - left < plan.world_size
        assert seen[left:] == [p % plan.length for p in range(len(seen) - left)]


@given(plans, st.integers(0, 30), st.integers(1, 13), st.integers(1, 17))
def test_continuing_with_other_ranks_and_batches_gives_the_same_sequence(
    plan: EpochPlan, steps: int, world_size: int, batch_size: int
) -> None:
    steps = min(steps, plan.num_steps())
    if not steps:
        return
    end = plan.part(0, steps - 1, 0).end
    before = [
        p for s in range(steps) for r in range(plan.world_size) for p in positions(plan, 0, s, r)
    ]
    other = EpochPlan(plan.length, batch_size, world_size, "pad")
    if steps < plan.num_steps():
        assert before + sequence(other, end) == list(range(plan.length))
    else:
        assert end == plan.length


def test_a_short_last_step_is_divided_as_torch_does_it() -> None:
    plan = EpochPlan(length=10, batch_size=4, world_size=4)
    assert [positions(plan, 0, 0, rank) for rank in range(4)] == [
        [0, 1, 2],
        [3, 4, 5],
        [6, 7, 8],
        [9, 0, 1],
    ]


def test_a_padded_batch_is_full_and_marks_the_real_records() -> None:
    plan = EpochPlan(length=5, batch_size=4, world_size=2, uneven="pad")
    parts = [plan.part(0, 0, rank) for rank in range(2)]
    assert [part.num_records for part in parts] == [4, 4]
    masks = np.stack([plan.mask(part) for part in parts]).tolist()
    assert masks == [[True, True, True, False], [True, True, False, False]]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"world_size": 0}, "world_size"),
        ({"uneven": "x"}, "uneven"),
    ],
)
def test_a_plan_refuses_invalid_arguments(wrong: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EpochPlan(**{"length": 1, "batch_size": 1, **wrong})

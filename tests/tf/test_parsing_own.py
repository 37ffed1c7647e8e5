"""Features of parsing that only penstock has: cached plans, batches in Arrow's memory, stand-ins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from beside_tensorflow import EXAMPLE, message
from parse_programs import components

import penstock.tf as ours
from formats import tf_examples as tfe
from penstock import _core
from penstock.tf import features as feature_kinds
from penstock.tf import parsing
from penstock.tf.recognised import record

OURS = ours


# Plans are cached


def test_features_may_be_new_objects_or_changed_between_calls() -> None:
    io, shape = OURS.io, [2]
    features = {"a": io.FixedLenFeature(shape, ours.int64)}
    assert io.parse_single_example(EXAMPLE, features)["a"].shape == [2]
    shape[:] = [1, 2]
    assert io.parse_single_example(EXAMPLE, features)["a"].shape == [1, 2]
    default = np.array([7, 8])
    features = {"zz": io.FixedLenFeature([2], ours.int64, default)}
    assert io.parse_single_example(EXAMPLE, features)["zz"].tolist() == [7, 8]
    default[0] = 9
    assert io.parse_single_example(EXAMPLE, features)["zz"].tolist() == [9, 8]
    features["zz"] = io.VarLenFeature(ours.int64)
    assert io.parse_single_example(EXAMPLE, features)["zz"].shape == [0]
    kinds = [io.RaggedFeature.RowLengths("a"), io.RaggedFeature.RowLimits("a")]
    for kind in kinds * 2:  # as tuples, these kinds are equal
        found = io.parse_single_example(
            EXAMPLE, {"c": io.RaggedFeature(ours.float32, partitions=[kind])}
        )
        assert found["c"].row_splits.tolist() == ([0, 1, 3] if kind is kinds[0] else [0, 1, 2])


def test_a_plan_is_made_once() -> None:
    plans = parsing._plans
    for n in range(3):
        OURS.io.parse_example(
            [EXAMPLE], {"once": OURS.io.FixedLenFeature([2], ours.int64, [n // 9, 0])}
        )
    known = [entries for where, entries in plans.items() if "once" in where]
    assert [len(entries) for entries in known] == [1]
    for n in range(parsing._MAX_PLANS + 9):
        OURS.io.parse_example([EXAMPLE], {f"k{n}": OURS.io.VarLenFeature(ours.int64)})
    assert len(plans) <= parsing._MAX_PLANS


# Batches in Arrow's memory


ALL: dict[str, Any] = {
    "a": feature_kinds.FixedLenFeature([2], ours.int64, [0, 0]),
    "b": feature_kinds.VarLenFeature(ours.string),
    "c": feature_kinds.FixedLenSequenceFeature([], ours.float32, True),
}


@pytest.mark.parametrize("count", [0, 3, 9000])
def test_a_batch_is_the_same_from_bytes_arrow_and_frames(count: int) -> None:
    payloads = [EXAMPLE, b"", EXAMPLE] * (count // 3)
    expected = components(parsing.parse_batch(payloads, ALL))
    array = pa.array(payloads, pa.binary())
    lying = [
        np.array(payloads, object),
        array,
        pa.array([b"no", *payloads], pa.large_binary())[1:],
        array.cast(pa.binary_view()),
        pa.record_batch({"record": array}),
        tfe.frames(payloads),
    ]
    for batch in lying:
        assert components(parsing.parse_batch(batch, ALL)) == expected
    assert isinstance(lying[-1], _core.Frames)


def test_arrays_are_writable_and_not_shared() -> None:
    for count in (2, 9000):
        found = parsing.parse_batch([EXAMPLE] * count, ALL)
        again = parsing.parse_batch([EXAMPLE] * count, ALL)
        for key in "ac":
            found[key].numpy()[:] = 5
            assert (found[key].numpy() == 5).all() and again[key][0, 0] != 5


def test_errors_of_batches_in_other_memory_say_the_same() -> None:
    payloads = [EXAMPLE, b"\xff"]
    lying = [payloads, pa.array(payloads, pa.binary()), tfe.frames(payloads)]
    assert len({message(lambda: parsing.parse_batch(b, ALL)) for b in lying}) == 1  # noqa: B023


def test_values_that_are_not_bytes_are_refused() -> None:
    with pytest.raises(TypeError, match="bytes"):
        parsing.parse_batch(pa.array([1, 2]), ALL)
    with pytest.raises((TypeError, ValueError)):
        parsing.parse_example(np.array([b"", 3], object), ALL)


# Stand-ins


@pytest.mark.parametrize(
    "use",
    [
        lambda r: r + 1,
        lambda r: 1 - r,
        lambda r: -r,
        lambda r: r == r,
        lambda r: r < 1,
        bool,
        int,
        float,
        len,
        list,
        str,
        repr,
        hash,
        lambda r: f"{r}",
        lambda r: r[0],
        lambda r: r.numpy(),
        lambda r: r.anything,
        lambda r: r(),
        np.asarray,
        lambda r: np.add(r, 1),
        lambda r: np.stack([r]),
        ours.convert_to_tensor,
        lambda r: 1 in r,
        lambda r: parsing.parse_single_example(
            parsing.parse_single_example(r, {"b": feature_kinds.FixedLenFeature([], ours.string)})[
                "b"
            ],
            ALL,
        ),
        lambda r: parsing.parse_single_example(r, ALL, "name"),
        lambda r: parsing.parse_sequence_example(r, ALL),
        lambda r: parsing.parse_single_sequence_example(r, ALL),
    ],
)
def test_every_other_use_of_a_stand_in_is_detected(use: Any) -> None:
    def call(function: Any, element: Any) -> Any:
        return function(element)

    spec = ours.TensorSpec([], ours.string)
    assert record(lambda r: parsing.parse_single_example(r, ALL), spec, call, [False]) is not None
    assert record(use, spec, call, [False]) is None

"""Which values and types are equal to `diff`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.verbs.diff.alike import alike, differing

NAN = float("nan")
OTHER_NAN = np.array([0x7FF8000000000001], np.int64).view(np.float64)[0]


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        (pa.array([1, 2, None], pa.int8()), pa.array([1, 3, None], pa.uint64()), [0, 1, 0]),
        (pa.array([-1]), pa.array([2**64 - 1], pa.uint64()), [1]),
        (pa.array([True, False]), pa.array([1, 1]), [0, 1]),
        (pa.array(["ä", "b"]), pa.array(["ä".encode(), b"c"], pa.binary_view()), [0, 1]),
        (pa.array([0.1, 0.5], pa.float32()), pa.array([0.1, 0.5]), [1, 0]),
        (pa.array([NAN, 0.0]), pa.array([OTHER_NAN, -0.0]), [0, 1]),
        (pa.array([NAN]), pa.array([NAN], pa.float32()), [0]),
        (pa.array([1], pa.timestamp("s")), pa.array([1001], pa.timestamp("ms")), [1]),
        (pa.array([1], pa.timestamp("s")), pa.array([10**9], pa.timestamp("ns")), [0]),
        (pa.array([2**62], pa.timestamp("s")), pa.array([0], pa.timestamp("ns")), [1]),
        (pa.array([5], pa.timestamp("s")), pa.array([5]), [0]),
        (pa.array([[1, 2], []]), pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), [0, 1]),
        (pa.array([None, [None]]), pa.array([None, [1]]), [0, 1]),
        (pa.array([{"x": 1}, None]), pa.array([{"x": 1, "y": None}, {"x": None}]), [0, 1]),
        (pa.array(["a"]).dictionary_encode(), pa.array([b"a"]), [0]),
        (pa.nulls(2), pa.array(["a", None]), [1, 0]),
    ],
)  # fmt: skip
def test_values_are_compared_by_meaning(a: pa.Array, b: pa.Array, wanted: list[int]) -> None:
    assert alike(a.type, b.type)
    assert differing(a, b).tolist() == [bool(word) for word in wanted]
    assert differing(b, a).tolist() == [bool(word) for word in wanted]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (pa.array([1]), pa.array([1.0])),
        (pa.array([1]), pa.array([[1]])),
        (pa.array([1]), pa.array(["1"])),
        (pa.array([0], pa.timestamp("s")), pa.array([0], pa.timestamp("s", "UTC"))),
        (pa.array([[1]]), pa.array([[b"1"]])),
    ],
)
def test_types_that_mean_other_things_differ(a: pa.Array, b: pa.Array) -> None:
    assert not alike(a.type, b.type)
    assert differing(a, b).all()
    assert not differing(a.slice(0, 0), b.slice(0, 0)).any()


LISTS = st.lists(st.none() | st.lists(st.none() | st.floats(width=32), max_size=3), max_size=8)


@given(LISTS, LISTS)
def test_lists_differ_if_python_says_so(a: list[Any], b: list[Any]) -> None:
    size = min(len(a), len(b))
    left = pa.array(a[:size], pa.list_(pa.float32()))
    right = pa.array(b[:size], pa.large_list(pa.float64()))
    wanted = [plain(x) != plain(y) for x, y in zip(a, b, strict=False)]
    assert differing(left, right).tolist() == wanted


def plain(value: list[float | None] | None) -> Any:
    if value is None:
        return None
    return [repr(x) if x is None or math.isnan(x) else x.hex() for x in value]

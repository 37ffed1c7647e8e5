"""Equal values have equal hashes, whatever their types, and different values have different hashes."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from penstock import _core
from penstock.columns.canonical import canonical
from penstock.columns.types import ImageType
from penstock.errors import SchemaError


def hashes(array: Any) -> list[bytes]:
    batch = pa.RecordBatch.from_arrays([array], names=["any name"])
    return pa.array(_core.secure_hashes(canonical(batch), bytes(32))).to_pylist()


def image(values: list[bytes]) -> Any:
    return pa.ExtensionArray.from_storage(ImageType("png"), pa.array(values, pa.binary()))


def tensor(values: list[list[int]]) -> Any:
    type_ = pa.fixed_shape_tensor(pa.int32(), [2])
    return pa.ExtensionArray.from_storage(type_, pa.array(values, type_.storage_type))


EQUAL: dict[str, list[Any]] = {
    "integers": [
        *(pa.array([5, None, 0], t) for t in (pa.int8(), pa.int32(), pa.int64(), pa.uint64())),
        pa.array([9, 5, None, 0], pa.uint16()).slice(1),
    ],
    "truth": [pa.array([True, False]), pa.array([1, 0], pa.int8())],
    "floats": [
        pa.array([1.5, 0.0, float("nan")], pa.float16()),
        pa.array([1.5, -0.0, float("nan")], pa.float32()),
        pa.array([1.5, 0.0, -float("nan")], pa.float64()),
    ],
    "texts": [
        *(
            pa.array(["cat", "", None, "é"], t)
            for t in (pa.string(), pa.large_string(), pa.string_view())
        ),
        *(
            pa.array([b"cat", b"", None, "é".encode()], t)
            for t in (pa.binary(), pa.large_binary(), pa.binary_view())
        ),
        pa.array(["cat", "", None, "é"]).dictionary_encode(),
    ],
    "images": [image([b"one"]), pa.array([b"one"]), pa.array([b"one"], pa.binary(3))],
    "lists": [
        pa.array([[1, 2], [3, 4]], pa.list_(pa.int64())),
        pa.array([[1, 2], [3, 4]], pa.large_list(pa.int8())),
        pa.array([[1, 2], [3, 4]], pa.list_(pa.int16(), 2)),
        pa.array([[1, 2], [3, 4]], pa.list_view(pa.int64())),
        pa.array([[0], [1, 2], [3, 4]]).slice(1),
        tensor([[1, 2], [3, 4]]),
    ],
    "lists with nulls": [
        pa.array([[1, None], None, []], pa.list_(pa.int64())),
        pa.array([[7], [1, None], None, []], pa.large_list(pa.int32())).slice(1),
    ],
    "structs": [
        pa.array([{"a": 1, "b": "x"}, None]),
        pa.array([{"c": None, "d": None}, {"c": 1, "d": b"x"}, None]).slice(1),
    ],
    "times": [
        pa.array([dt.date(1970, 1, 3)]),
        pa.array([2], pa.int64()),
    ],
    "nothing": [pa.nulls(2), pa.array([None, None], pa.string())],
}


@pytest.mark.parametrize("kind", sorted(EQUAL))
def test_equal_values_have_equal_hashes(kind: str) -> None:
    first, *others = map(hashes, EQUAL[kind])
    for other in others:
        assert other == first


def test_other_values_have_other_hashes() -> None:
    seen: set[bytes] = set()
    count = 0
    for arrays in EQUAL.values():
        for value in hashes(arrays[0])[:1]:
            seen.add(value)
            count += 1
    for array in (
        pa.array([[1], [1, 2]]),
        pa.array([[[1], [2]], [[1, 2]]]),
        pa.array([5.0]),
        pa.array(["5", "ca"]),
    ):
        seen.update(hashes(array))
        count += len(array)
    assert len(seen) == count - 1  # 1 equals True in Python, and no other list contains a null
    two = [pa.record_batch({"a": [x], "b": [y]}) for x, y in (("ab", "c"), ("a", "bc"))]
    one, other = (pa.array(_core.secure_hashes(canonical(b), bytes(32))) for b in two)
    assert one != other


def test_columns_are_hashed_in_the_order_that_is_asked_for() -> None:
    batch = pa.record_batch({"a": [1], "b": [2]})
    swapped = pa.record_batch({"b": [2], "x": ["other"], "a": [1]})
    keyed = [
        pa.array(_core.secure_hashes(canonical(one, ["a", "b"]), bytes(32)))
        for one in (batch, swapped)
    ]
    assert keyed[0] == keyed[1]


def test_a_type_without_a_rule_is_a_schema_error() -> None:
    month = pa.array([(1, 2, 3)], pa.month_day_nano_interval())
    with pytest.raises(SchemaError, match="field 'any name': values of type"):
        hashes(month)

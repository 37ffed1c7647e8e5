"""Ragged and sparse features, and those of SequenceExamples: rows that match their partitions, and rows that do
not."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
import tf_examples as tfe
from example_columns import column, example
from protobuf_example import Example

import penstock.features as f
from penstock.errors import LimitError, SchemaError

tf_any: Any = tf

VALUES = [1, 2, 3, 4, 5, 6]
PARTITIONS = [
    (f.RowLengths("p"), [2, 0, 4], [4, 0, 1]),
    (f.RowSplits("p"), [0, 2, 2, 6], [0, 4, 4, 5]),
    (f.RowStarts("p"), [0, 2, 2], [0, 4, 4]),
    (f.RowLimits("p"), [2, 2, 6], [4, 4, 5]),
    (f.ValueRowIds("p"), [0, 0, 2, 2, 2, 2], [0, 0, 0, 0, 2]),
]
ROWS = [[[1, 2], [], [3, 4, 5, 6]], [[1, 2, 3, 4], [], [5]]]


@pytest.mark.parametrize("dialect", ["protobuf", "tensorflow"])
@pytest.mark.parametrize(("partition", "first", "second"), PARTITIONS)
def test_partitions_make_rows(
    partition: Any, first: list[int], second: list[int], dialect: str
) -> None:
    payloads = [example(v=VALUES, p=first), example(v=VALUES[:5], p=second)]
    assert column(payloads, f.Ragged("int64", "v", [partition]), dialect) == ROWS


def test_partitions_nest_outermost_first() -> None:
    feature = f.Ragged("int64", "v", [f.RowLengths("p"), f.UniformRowLength(2)])
    payloads = [example(v=VALUES, p=[2, 0, 1]), example(), example(v=[7, 8], p=[1])]
    rows = [[[[1, 2], [3, 4]], [], [[5, 6]]], None, [[[7, 8]]]]
    assert column(payloads, feature) == rows
    assert column(payloads, feature, "tensorflow") == [rows[0], [], rows[2]]


HUGE = 1 << 62
MISFITS = [
    (f.RowLengths("p"), [2, 2]),
    (f.RowLengths("p"), [6, 1]),
    (f.RowLengths("p"), [-1, 7]),
    (f.RowLengths("p"), [HUGE, HUGE, HUGE]),
    (f.RowSplits("p"), [1, 6]),
    (f.RowSplits("p"), [0, 4, 2, 6]),
    (f.RowSplits("p"), [0, 4]),
    (f.RowStarts("p"), [1, 3]),
    (f.RowStarts("p"), [0, HUGE, -HUGE]),
    (f.RowLimits("p"), [4, 2, 6]),
    (f.RowLimits("p"), [-HUGE, HUGE]),
    (f.RowLimits("p"), []),
]


@pytest.mark.parametrize(("partition", "numbers"), MISFITS)
def test_rows_that_misfit_are_refused_or_cut_short(partition: Any, numbers: list[int]) -> None:
    good = next(first for kind, first, _ in PARTITIONS if type(kind) is type(partition))
    payloads = [example(v=VALUES, p=good), example(v=VALUES, p=numbers)]
    with pytest.raises(SchemaError, match="do not match") as caught:
        column(payloads, f.Ragged("int64", "v", [partition]))
    assert (caught.value.record, caught.value.field) == (1, "x")
    lenient = column(payloads, f.Ragged("int64", "v", [partition]), "tensorflow")
    assert lenient[0] == ROWS[0]
    kept = [value for row in lenient[1] for value in row]
    assert kept == [value for value in VALUES if value in kept]


CORNERS = [
    # name, partitions, their numbers, values, TensorFlow's result without and with validation
    ("uniform rows of rows", [2, "RowLengths"], [1, 1, 1], [1, 2, 3], [[[1], [2]]], None),
    ("uniform rows of none", [2, "RowLengths"], [3], [1, 2, 3], [], None),
    ("uniform rows of values", ["RowLengths", 2], [1], [1, 2, 3], None, None),
    ("uniform rows of uniform ones", [3, 1], [], [1, 2, 3, 4, 5], None, None),
    ("starts of no row", ["RowStarts"], [], [1, 2, 3], [], []),
    ("starts of no row of rows", ["RowStarts", 1], [], [1], [], []),
]


@pytest.mark.parametrize("corner", CORNERS, ids=lambda corner: corner[0])
@pytest.mark.parametrize("validate", [False, True])
def test_corners_of_partitions_are_as_in_tensorflow(corner: Any, validate: bool) -> None:
    _, forms, numbers, values, loose, exact = corner
    wanted = exact if validate else loose

    def partitions(of: Any) -> list[Any]:
        names = [
            (form, "p") if isinstance(form, str) else ("UniformRowLength", form) for form in forms
        ]
        return [getattr(of, name)(value) for name, value in names]

    payload = example(v=values, p=numbers)
    ragged = tf_any.io.RaggedFeature
    asked = ragged(tf_any.int64, "v", partitions(ragged), validate=validate)
    ours = f.Ragged("int64", "v", partitions(f), validate=validate)
    if wanted is None:
        with pytest.raises((ValueError, tf_any.errors.InvalidArgumentError)):
            tf_any.io.parse_single_example(payload, {"x": asked})
        with pytest.raises(SchemaError, match="do not match"):
            column([payload], ours, "tensorflow")
        return
    assert tf_any.io.parse_single_example(payload, {"x": asked})["x"].to_list() == wanted
    assert column([payload], ours, "tensorflow") == [wanted]


@pytest.mark.parametrize("numbers", [[0], [0, 0, 1, 0, 1, 1], [-1, 0, 0, 0, 0, 0]])
def test_row_ids_that_misfit_are_refused_in_both_dialects(numbers: list[int]) -> None:
    for dialect in ("protobuf", "tensorflow"):
        with pytest.raises(SchemaError, match="row ids"):
            feature = f.Ragged("int64", "v", [f.ValueRowIds("p")])
            column([example(v=VALUES, p=numbers)], feature, dialect)


def test_row_ids_cannot_ask_for_any_number_of_rows() -> None:
    feature = f.Ragged("int64", "v", [f.ValueRowIds("p")])
    for most in (1 << 40, (1 << 63) - 1):
        with pytest.raises(LimitError):
            column([example(v=[1], p=[most])], feature, "tensorflow")


def test_sparse_indices_are_sorted_and_checked() -> None:
    feature = f.Sparse(["i", "j"], "v", "float32", [30, 5])
    good = example(i=[20, 0, 20], j=[1, 3, 0], v=[0.5, 1.5, 2.5])
    assert column([good, example()], feature) == [
        {"indices": [[0, 3], [20, 0], [20, 1]], "values": [1.5, 2.5, 0.5]},
        None,
    ]
    outside = example(i=[30], j=[0], v=[0.5])
    with pytest.raises(SchemaError, match="outside the size") as caught:
        column([good, outside], feature)
    assert (caught.value.record, caught.value.field, caught.value.found) == (1, "x", 30)
    assert column([outside], feature, "tensorflow") == [{"indices": [[30, 0]], "values": [0.5]}]
    for dialect in ("protobuf", "tensorflow"):
        with pytest.raises(SchemaError, match="one index for each value"):
            column([example(i=[1], j=[1, 2], v=[0.5])], feature, dialect)


# SequenceExamples


def sequence(context: bytes, **lists: list[bytes]) -> bytes:
    """A SequenceExample from an Example and Examples whose feature "x" is a frame."""

    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    entries = b""
    for key, frames in lists.items():
        parts = [
            field(1, Example.FromString(p).features.feature["x"].SerializeToString())
            for p in frames
        ]
        entries += field(1, field(1, key.encode()) + field(2, b"".join(parts)))
    return context + field(2, entries)


@pytest.mark.parametrize("dialect", ["protobuf", "tensorflow"])
def test_a_sequence_example_has_context_and_lists(dialect: str) -> None:
    payload = sequence(
        example(id=[7], x=[1]),
        x=[example(x=[1]), example(x=[2])],
        r=[example(x=[1, 2]), example(x=[]), example(x=[3, 4])],
        n=[example(x=[2]), example(x=[]), example(x=[1, 1])],
        s=[example(x=[1, 2])],
    )
    rows = f.Ragged("int64", "r", [f.RowLengths("n")])
    schema: dict[str, Any] = {
        "id": f.FixedLen([], "int64"),
        "context/x": f.FixedLen([], "int64"),
        "feature_lists/x": f.Sequence(f.FixedLenSequence([], "int64")),
        "r": f.Sequence(f.Ragged("int64")),
        "rows": f.Sequence(rows),
        "s": f.Sequence(f.FixedLenSequence([2], "int64")),
        "absent": f.Sequence(f.VarLen("int64")),
    }
    missing = None if dialect == "protobuf" else []
    assert tfe.decode([payload], schema, dialect).to_pylist() == [
        {
            "id": 7,
            "context/x": 1,
            "feature_lists/x": [1, 2],
            "r": [[1, 2], [], [3, 4]],
            "rows": [[[1, 2]], [], [[3], [4]]],
            "s": [[1, 2]],
            "absent": missing,
        }
    ]


def test_partitions_of_frames_name_the_record() -> None:
    good = sequence(b"", v=[example(x=[1])], n=[example(x=[1])])
    bad = sequence(b"", v=[example(x=[1]), example(x=[1])], n=[example(x=[1]), example(x=[2])])
    other = sequence(b"", v=[example(x=[1])], n=[])
    feature = f.Sequence(f.Ragged("int64", "v", [f.RowLengths("n")]))
    for payload, message in [(bad, "do not match"), (other, "different frames")]:
        with pytest.raises(SchemaError, match=message) as caught:
            column([good, good, payload], feature)
        assert caught.value.record == 2

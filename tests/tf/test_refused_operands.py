"""Operands that TensorFlow refuses raise errors of the same classes; others give the same values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow  # noqa: ICN001 -- tf is penstock's here

import penstock.tf as tf

Program = Callable[[Any], Any]

PROGRAMS: dict[str, Program] = {
    "int + float": lambda t: t.constant([1, 2]) + t.constant([1.0, 2.0]),
    "int + 1.5": lambda t: t.constant([1]) + 1.5,
    "1.5 + int": lambda t: 1.5 + t.constant([1]),
    "int * 1.5": lambda t: t.constant([1]) * 1.5,
    "add(2, float)": lambda t: t.add(2, t.constant([1.0])),
    "add(2, int)": lambda t: t.add(2, t.constant([1])),
    "add(int, 2.5)": lambda t: t.add(t.constant([1]), 2.5),
    "add(2.5, int)": lambda t: t.add(2.5, t.constant([1])),
    "multiply(2, float)": lambda t: t.multiply(2, t.constant([1.5])),
    "2 ** float": lambda t: 2 ** t.constant([3.0]),
    "int ** 0.5": lambda t: t.constant([2]) ** 0.5,
    "int ** -1": lambda t: t.constant([2]) ** -1,
    "pow(int, -1)": lambda t: t.pow(t.constant([2]), -1),
    "bool * bool": lambda t: t.constant([True]) * t.constant([False]),
    "bool + bool": lambda t: t.constant([True]) + t.constant([True]),
    "sum of bools": lambda t: t.reduce_sum(t.constant([True])),
    "mean of bools": lambda t: t.reduce_mean(t.constant([True])),
    "int // 0": lambda t: t.constant([1, 2]) // 0,
    "int // some 0": lambda t: t.constant([1, 2]) // t.constant([0, 1]),
    "int // 2": lambda t: t.constant([7, -7]) // 2,
    "int % 0": lambda t: t.constant([1, 2]) % 0,
    "float // 2": lambda t: t.constant([7.5, -7.5]) // 2,
    "floordiv(int, 0)": lambda t: t.math.floordiv(t.constant(3), 0),
    "mod(int, 0)": lambda t: t.math.mod(t.constant(3), 0),
    "byte // byte 0": lambda t: t.constant([1], t.uint8) // t.constant([0], t.uint8),
    "shapes of a sum": lambda t: t.constant([1, 2]) + t.constant([1, 2, 3]),
    "shapes of ==": lambda t: t.constant([1, 2]) == t.constant([1, 2, 3]),
    "shapes of !=": lambda t: t.constant([1, 2]) != t.constant([1, 2, 3]),
    "shapes of matrices": lambda t: t.matmul(t.constant([[1.0, 2.0]]), t.constant([[1.0]])),
    "an index": lambda t: t.constant([1, 2])[5],
    "an axis of a mean": lambda t: t.reduce_mean(t.constant([1.0]), 3),
    "an axis of expand_dims": lambda t: t.expand_dims(t.constant([1]), 5),
    "axes of transpose": lambda t: t.transpose(t.constant([[1]]), [0]),
    "widths of pad": lambda t: t.pad(t.constant([1]), [[1, 1], [1, 1]]),
    "a size below 0": lambda t: t.fill([-1], 0),
    "a mask": lambda t: t.boolean_mask(t.constant([1, 2]), t.constant([True])),
    "not of ints": lambda t: t.logical_not(t.constant(1)),
    "and of ints": lambda t: t.logical_and(t.constant(1), t.constant(2)),
    "sigmoid of ints": lambda t: t.sigmoid(t.constant([1])),
    "softmax of ints": lambda t: t.nn.softmax(t.constant([1])),
    "[int, float]": lambda t: t.convert_to_tensor([1, 2.5]),
    "[int, text]": lambda t: t.convert_to_tensor([1, "a"]),
    "[text, int]": lambda t: t.convert_to_tensor(["a", 1]),
    "[bool, int]": lambda t: t.convert_to_tensor([True, 1]),
    "[int, bool]": lambda t: t.convert_to_tensor([1, True]),
    "[float, bool]": lambda t: t.convert_to_tensor([1.5, True]),
    "[int tensor, float]": lambda t: t.convert_to_tensor([t.constant(1), 2.5]),
    "[float tensor, int]": lambda t: t.convert_to_tensor([t.constant(1.0), 2]),
    "[int, float tensor]": lambda t: t.convert_to_tensor([1, t.constant(2.0)]),
    "tensors of two dtypes": lambda t: t.convert_to_tensor([t.constant(1), t.constant(2.0)]),
    "rows of two lengths": lambda t: t.convert_to_tensor([[1], [1, 2]]),
}


def outcome(t: Any, program: Program) -> Any:
    """The dtype and values of a result, or the class of the error."""
    try:
        found = program(t)
    except Exception as error:
        return type(error).__name__
    array = np.asarray(found)
    return array.dtype, array.tolist()


@pytest.mark.parametrize("name", PROGRAMS)
def test_operands_are_taken_and_refused_as_in_tensorflow(name: str) -> None:
    assert outcome(tf, PROGRAMS[name]) == outcome(tensorflow, PROGRAMS[name])


def test_sizes_of_placeholders_that_are_0_are_no_divisors() -> None:
    dataset = tf.data.Dataset.from_tensor_slices([[1, 2, 3]]).map(lambda x: x // tf.size(x))
    assert dataset.element_spec.shape.as_list() == [3]
    assert [x.numpy().tolist() for x in dataset] == [[0, 0, 1]]


MAPPED: dict[str, Any] = {
    "nothing": lambda t, x: None,
    "a fraction added": lambda t, x: x + 1.5,
    "a fraction before": lambda t, x: 1.5 + x,
    "a fraction times": lambda t, x: x * 1.5,
    "a tensor of floats": lambda t, x: x + t.constant(1.5),
    "add": lambda t, x: t.add(x, 1.5),
    "a text": lambda t, x: x + "a",
    "truths": lambda t, x: (x > 1) - (x > 0),
}


@pytest.mark.parametrize("name", MAPPED)
def test_functions_of_datasets_are_refused_with_tensorflows_error(name: str) -> None:
    kinds = []
    for t in (tf, tensorflow):
        with pytest.raises((TypeError, ValueError, t.errors.OpError)) as caught:
            list(t.data.Dataset.range(3).map(lambda x, t=t: MAPPED[name](t, x)))
        kinds.append(caught.type.__name__)
    assert kinds[0] == kinds[1]


def test_strings_of_numpy_become_plain_bytes() -> None:
    words = np.array([b"a", b"b"], "S1")
    for t in (tf, tensorflow):
        found = [x.numpy() for x in t.data.Dataset.from_tensor_slices(words)]
        found += [t.constant(words[0]).numpy(), *t.constant(words).numpy()]
        assert {type(word) for word in found} == {bytes}
        assert found == [b"a", b"b", b"a", b"a", b"b"]

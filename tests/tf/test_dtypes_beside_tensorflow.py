"""The dtypes of values of pandas and of mixed operands: TensorFlow and penstock.tf give the same, or both raise."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from beside_tensorflow import ours, theirs

from penstock.tf.tensor import beside

COLUMNS = {
    "floats": pd.Series([1.5, 2.5]),
    "integers": pd.Series([1 << 30, 1 << 30]),
    "nullable integers": pd.Series([1, 2], dtype="Int64"),
    "truth": pd.Series([True, False]),
    "text": pd.Series(["a", "b"]),
    "a table": pd.DataFrame({"a": [1, 2], "b": [1.5, 2.5]}),
    "a table's values": pd.DataFrame({"a": [1, 2], "b": [1.5, 2.5]}).values,
    "an index": pd.Series([1, 2]).index,
    "a list of columns": [pd.Series([1.5]), pd.Series([2.5])],
    "a list of NumPy integers": [np.int64(3), np.int64(4)],
    "a list of NumPy floats": [np.float64(3), np.float64(4)],
}


def shown(value: Any) -> Any:
    return value.dtype.name, np.asarray(value).tolist()


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_pandas_keep_their_dtype_as_in_tensorflow(name: str) -> None:
    column = COLUMNS[name]
    for make in (
        lambda t: t.constant(column),
        lambda t: t.convert_to_tensor(column),
        lambda t: next(iter(t.data.Dataset.from_tensor_slices(column))),
        lambda t: next(iter(t.data.Dataset.from_tensors(column))),
    ):
        assert shown(make(ours)) == shown(make(theirs))


def test_a_table_as_a_dict_of_columns_keeps_its_dtypes() -> None:
    table = pd.DataFrame({"a": [1 << 40, 2], "b": [0.1, 2.5], "c": ["x", "y"]})

    def first(t: Any) -> Any:
        row, label = next(iter(t.data.Dataset.from_tensor_slices((dict(table), table["a"]))))
        return {key: shown(value) for key, value in row.items()}, shown(label)

    assert first(ours) == first(theirs)


def test_a_sum_of_a_column_of_integers_does_not_overflow() -> None:
    assert ours.reduce_sum(COLUMNS["integers"]).numpy() == 1 << 31


OPERANDS = {
    "float32": lambda t: t.constant([1.0, 2.0]),
    "float64": lambda t: t.constant([1.0, 2.0], t.float64),
    "int32": lambda t: t.constant([1, 2]),
    "int64": lambda t: t.constant([1, 2], t.int64),
    "uint8": lambda t: t.constant([1, 2], t.uint8),
    "array of float64": lambda t: np.array([1.5, 2.5]),
    "array of float32": lambda t: np.array([1.5, 2.5], np.float32),
    "array of int64": lambda t: np.array([1, 3]),
    "scalar of NumPy": lambda t: np.float64(2.5),
    "column": lambda t: pd.Series([1.5, 2.5]),
    "int": lambda t: 2,
    "large int": lambda t: 300,
    "float": lambda t: 2.5,
    "list of floats": lambda t: [1.5, 2.5],
    "bool": lambda t: True,
    "text": lambda t: "x",
}
OPERATIONS = {
    **{
        name: lambda t, x, y, name=name: getattr(operator, name)(x, y)
        for name in (
            "add",
            "sub",
            "mul",
            "truediv",
            "floordiv",
            "mod",
            "lt",
            "ge",
            "eq",
            "ne",
            "and_",
        )
    },
    **{
        name: lambda t, x, y, name=name: getattr(t, name)(x, y)
        for name in ("subtract", "multiply", "divide", "maximum", "less", "equal")
    },
    "concat": lambda t, x, y: t.concat([x, y], 0),
    "stack": lambda t, x, y: t.stack([x, y]),
    "where": lambda t, x, y: t.where([True, False], x, y),
}


# Where the tensor comes second, pandas computes with a column, text has an operator % of its own, and NumPy's floats
# have no &.
ODD = {("mod", "text"), ("and_", "scalar of NumPy")}


def result(t: Any, operation: Any, x: Any, y: Any) -> Any:
    """The dtype and values; or the kind of the error."""
    try:
        return shown(operation(t, x, y))
    except (TypeError, t.errors.InvalidArgumentError, ValueError) as error:
        return "TypeError" if isinstance(error, TypeError) else "a wrong value"


@pytest.mark.parametrize("name", OPERATIONS)
def test_operands_of_two_dtypes_give_what_they_give_in_tensorflow(name: str) -> None:
    differ = []
    for first in ("float32", "float64", "int32", "int64", "uint8"):
        for second, make in OPERANDS.items():
            for turned in (False, True):
                if turned and (second == "column" or (name, second) in ODD):
                    continue
                both = []
                for t in (ours, theirs):
                    pair = OPERANDS[first](t), make(t)
                    both.append(result(t, OPERATIONS[name], *(pair[::-1] if turned else pair)))
                # `+` alone raises InvalidArgumentError for numbers of Python.
                same = both[0] == both[1] or (name == "add" and {*map(type, both)} == {str})
                if not same:
                    differ.append((first, second, turned, *both))
    assert differ == []


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32", "bool"])
@pytest.mark.parametrize("operation", ["neg", "sqrt", "exp", "floor", "square", "sign", "negative"])
def test_dtypes_without_an_operation_raise_as_in_tensorflow(dtype: str, operation: str) -> None:
    def run(t: Any) -> Any:
        value = t.cast(t.constant([0, 1]), dtype)
        try:
            found = operator.neg(value) if operation == "neg" else getattr(t.math, operation)(value)
        except t.errors.InvalidArgumentError:
            return "InvalidArgumentError"
        return found.dtype.name

    assert run(ours) == run(theirs)


def test_matrices_of_two_dtypes_are_not_multiplied() -> None:
    for t in (ours, theirs):
        with pytest.raises(t.errors.InvalidArgumentError):
            operator.matmul(t.constant([[1]]), t.constant([[1.0]]))


def test_a_tensor_does_not_change() -> None:
    for t in (ours, theirs):
        tensor = t.constant([1, 2])
        with pytest.raises(TypeError, match="not support item assignment"):
            tensor[0] = 5
        assert tensor.numpy().tolist() == [1, 2]


def test_operators_do_not_copy_an_operand_of_the_same_dtype() -> None:
    tensor, array = ours.constant([1.0, 2.0]), np.array([3.0, 4.0], np.float32)
    assert beside(tensor, array) is array
    assert beside(tensor, tensor) is tensor


@pytest.mark.parametrize(
    "function",
    [
        lambda a: np.percentile(a, 30),
        lambda a: np.isclose(a, [1.4, 5.0, 3.2], atol=0.5),
        np.std,
        lambda a: np.roll(a, 1),
        lambda a: np.average(a, weights=[0.1, 0.2, 0.7]),
        lambda a: np.linspace(a[0], a[1], 3),
    ],
)
def test_functions_of_numpy_compute_with_numpys_rules(function: Any) -> None:
    tensor = ours.constant([1, 5, 3])
    np.testing.assert_array_equal(np.asarray(function(tensor)), function(tensor.numpy()))

"""The dtypes of values of pandas and of mixed operands: TensorFlow and penstock.tf give the same, or both raise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from beside_tensorflow import ours, theirs

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

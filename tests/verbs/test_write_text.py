"""Errors when strings that are not valid Unicode are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import penstock as ps

HALF = "\ud800"


@pytest.mark.parametrize(
    ("data", "record"),
    [
        ({"a": ["ok", HALF]}, 1),
        ({"a": np.array(["ok", HALF])}, 1),
        ({"a": [["ok"], [], ["ok", HALF]]}, 2),
        ([{"a": "ok"}] * 3000 + [{"a": HALF}], 3000),
        ([{"a": {"b": {HALF: 1}}}], 0),
        (pd.DataFrame({"a": pd.Series(["ok", HALF], dtype=object)}), 1),
    ],
)
def test_a_string_that_is_not_text_is_an_error_that_says_where(
    tmp_path: Path, data: Any, record: int
) -> None:
    with pytest.raises(ps.SchemaError, match="surrogate") as caught:
        ps.write(data, tmp_path / "a.tfrecord")
    assert (caught.value.field, caught.value.record) == ("a", record)
    assert "bytes" in str(caught.value.hint)


@pytest.mark.parametrize("data", [{HALF: [1]}, [{HALF: 1}]])
def test_a_name_that_is_not_text_is_refused(tmp_path: Path, data: Any) -> None:
    with pytest.raises(ps.SchemaError, match="field name is not valid") as caught:
        ps.write(data, tmp_path / "a.tfrecord")
    assert caught.value.field == HALF


def test_a_constant_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"a": [1]}, path)
    with pytest.raises(ps.SchemaError, match="surrogate"):
        ps.add_fields(path, {"x": HALF}, into=tmp_path / "b.tfrecord")

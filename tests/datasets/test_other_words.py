"""The error for a method of other libraries names expressions that do the same."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import penstock
import penstock as ps
from penstock.datasets._other_words import INSTEAD


@pytest.fixture
def ds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ps.Dataset:
    monkeypatch.chdir(tmp_path)
    ps.write({"label": [3, 1, 2] * 100}, "a.parquet")
    return ps.open("a.parquet")


@pytest.mark.parametrize("name", INSTEAD)
def test_what_an_error_advises_can_be_evaluated(name: str, ds: ps.Dataset) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(ds, name)
    advised = str(caught.value).split("; use ")[1].split(", or ")
    known: dict[str, Any] = {"ds": ds, "penstock": penstock, "polars": pl, "function": dict}
    for text in advised:
        Path("new.parquet").unlink(missing_ok=True)
        assert eval(text, known) is not None


def test_the_advised_expressions_sort_and_sample(ds: ps.Dataset) -> None:
    assert ds.to_table().sort_by("label")["label"].to_pylist() == sorted([3, 1, 2] * 100)
    ps.sort(ds, "label", into="sorted.parquet")
    assert [record["label"] for record in ps.open("sorted.parquet")] == sorted([3, 1, 2] * 100)
    assert len(ps.split(ds, {"some": 0.1, "rest": 0.9})["some"]) == 30


def test_other_unknown_attributes_are_errors_as_always(ds: ps.Dataset) -> None:
    with pytest.raises(
        AttributeError, match=r"^'Dataset' object has no attribute 'nothing'$"
    ) as caught:
        getattr(ds, "noth" + "ing")
    assert (caught.value.name, caught.value.obj) == ("nothing", ds)
    assert not hasattr(ds, "sort") and len(copy.copy(ds)) == len(ds)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"text": "auto"}, r'types=\{"caption": "string"\} reads .*convert\(…, text="auto"\)'),
        ({"where": "label == 3"}, r'penstock.open\(…\).filter\("label == 3"\)'),
        ({"rename": {"label": "y"}}, r"penstock.open\(…\).rename\("),
    ],
)
def test_options_of_other_calls_are_errors_that_name_them(
    option: Any, message: str, ds: ps.Dataset
) -> None:
    with pytest.raises(TypeError, match=message):
        ps.open("a.parquet", **option)

"""How the loader converts columns: one kind of column after another."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock import features
from penstock.columns.types import VariableShapeTensorType
from penstock.loader._columns import ArrayOptions, as_arrays


def test_fixed_features_of_strings_are_arrays_of_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"one": [[b"a"], [b"b"]], "two": [[b"c", b""], [b"d\0", b"e"]]}, path)
    schema = {"one": features.FixedLen([1], "string"), "two": features.FixedLen([2, 1], "string")}
    batch = next(iter(ps.Loader(ps.open(path, schema=schema), 2)))
    assert batch["one"].tolist() == [[b"a"], [b"b"]]
    assert batch["two"].tolist() == [[[b"c"], [b""]], [[b"d\0"], [b"e"]]]


def test_tensors_of_text_whose_shapes_differ_are_arrays_of_str() -> None:
    kind = VariableShapeTensorType(pa.string(), 2)
    rows = [{"data": ["a", "b"], "shape": [1, 2]}, {"data": ["c"], "shape": [1, 1]}]
    column = pa.ExtensionArray.from_storage(kind, pa.array(rows, kind.storage_type))
    found = as_arrays(pa.record_batch({"x": column}), ArrayOptions())["x"]
    assert [one.tolist() for one in found] == [[["a", "b"]], [["c"]]]


Rule = Literal["offsets", "pad", "list"]
LISTS = ("boxes", "tokens", "words")


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> ps.Dataset:
    path = tmp_path_factory.mktemp("lists") / "a.parquet"
    columns = {name: [list(range(n % k)) for n in range(20)] for k, name in enumerate(LISTS, 3)}
    ps.write({"id": np.arange(20), **columns}, path)
    return ps.open(path)


def shown(column: Any, rule: str) -> list[list[int]]:
    """Return the lists of a column, after a check that it follows the rule."""
    if rule == "offsets":
        values, offsets = column
        return [part.tolist() for part in np.split(values, offsets[1:-1])]
    if rule == "pad":
        assert isinstance(column, np.ndarray)
        return column.tolist()
    assert isinstance(column, list)
    return [part.tolist() for part in column]


@given(rules=st.dictionaries(st.sampled_from(LISTS), st.sampled_from(["offsets", "pad", "list"])))
def test_each_column_of_lists_follows_the_rule_given_for_it(
    lists: ps.Dataset, rules: dict[str, Rule]
) -> None:
    rows = lists[:20].to_pylist()
    for start, batch in enumerate(ps.Loader(lists, 5, ragged=rules, threads=0)):
        mine = rows[5 * start : 5 * start + 5]
        assert batch["id"].tolist() == [row["id"] for row in mine]
        for name in LISTS:
            rule = rules.get(name, "offsets")
            longest = max(len(row[name]) for row in mine)
            fill = [[0] * (longest - len(row[name])) if rule == "pad" else [] for row in mine]
            want = [row[name] + more for row, more in zip(mine, fill, strict=True)]
            assert shown(batch[name], rule) == want


def test_a_fixed_length_overrides_a_rule_and_a_rule_applies_inside_structs(
    tmp_path: Path,
) -> None:
    ps.write({"a": [[1], [2, 3]], "s": [{"b": [4]}, {"b": [5, 6]}]}, tmp_path / "a.parquet")
    ds = ps.open(tmp_path)
    batch = next(iter(ps.Loader(ds, 2, ragged={"a": "list", "s": "pad"}, pad_to={"a": 3})))
    assert batch["a"].tolist() == [[1, 0, 0], [2, 3, 0]]
    assert batch["s"]["b"].tolist() == [[4, 0], [5, 6]]


def test_a_wrong_rule_names_what_is_wrong(lists: ps.Dataset) -> None:
    with pytest.raises(ps.SchemaError, match="no such column for ragged=") as caught:
        ps.Loader(lists, 5, ragged={"token": "pad"})
    assert caught.value.field == "token"
    wrong: Any = {"tokens": "padded"}
    with pytest.raises(ValueError, match="ragged='padded' is not one of offsets, pad, list"):
        ps.Loader(lists, 5, ragged=wrong)


@pytest.mark.parametrize(
    ("type_", "shape"),
    [
        (pa.list_(pa.float32(), 3), (3,)),
        (pa.list_(pa.list_(pa.int16(), 2), 2), (2, 2)),
        (pa.fixed_shape_tensor(pa.float64(), (2, 2)), (2, 2)),
    ],
    ids=str,
)
def test_fill_replaces_missing_lists_of_fixed_size_and_tensors(
    type_: Any, shape: tuple[int, ...], tmp_path: Path
) -> None:
    values = np.arange(1, 1 + 5 * np.prod(shape)).reshape(5, *shape)
    rows = [None if n in (0, 3) else values[n].tolist() for n in range(5)]
    storage = type_.storage_type if isinstance(type_, pa.BaseExtensionType) else type_
    flat = [row if row is None or storage is type_ else np.ravel(row).tolist() for row in rows]
    column = pa.array(flat, storage)
    if storage is not type_:
        column = pa.ExtensionArray.from_storage(type_, column)
    ps.write(pa.table({"id": range(5), "x": column}), tmp_path / "x.arrow")
    ds = ps.open(tmp_path / "x.arrow")
    expected = values.copy()
    expected[[0, 3]] = 7
    for view, rest in ((ds, expected), (ds.filter("id >= 2"), expected[2:])):
        (batch,) = ps.Loader(view, 5, fill={"x": 7})
        np.testing.assert_array_equal(batch["x"], rest)
    with pytest.raises(ps.SchemaError, match="a value is missing") as caught:
        next(iter(ps.Loader(ds.filter("id >= 2"), 5)))
    assert (caught.value.field, caught.value.record) == ("x", 3)
    (batch,) = ps.Loader(ds, 5, columns=["id"])
    assert list(batch) == ["id"]


@pytest.mark.parametrize(
    ("path", "value", "type_", "advised"),
    [
        ("age", -0.5, "int64", 0),
        ("age", float("nan"), "int64", 0),
        ("age", "x", "int64", 0),
        ("age", 1 << 70, "int64", 0),
        ("ok", 0, "bool", False),
        ("object.ok", 1.0, "bool", False),
        ("pairs", 0.5, "int16", 0),
        ("day", 0.5, "date32[day]", 0),
        ("name", 0, "string", ""),
        ("data", "x", "binary", b""),
        ("label", "cat", "int64", -1),
    ],
)
def test_a_fill_of_another_type_is_refused(
    tmp_path: Path, path: str, value: Any, type_: str, advised: Any
) -> None:
    columns = {
        "age": [1, None],
        "ok": [True, None],
        "object": [{"ok": None}, {"ok": True}],
        "pairs": pa.array([[1, None], None], pa.list_(pa.int16(), 2)),
        "day": pa.array([None, 3], pa.date32()),
        "name": ["a", None],
        "data": [b"a", None],
        "label": pa.array(["cat", None]).dictionary_encode(),
    }
    ps.write(pa.table(columns), tmp_path / "x.arrow")
    dataset = ps.open(tmp_path / "x.arrow").select([path.split(".", maxsplit=1)[0]])
    with pytest.raises(ps.SchemaError, match="does not fit the column's type") as caught:
        ps.Loader(dataset, 2, fill={path: value})
    error = caught.value
    assert (error.field, error.expected) == (path, type_)
    assert error.hint == f"fill={{{path!r}: {advised!r}}}"
    next(iter(ps.Loader(dataset, 2, fill={path: advised})))


def test_a_fill_of_a_column_that_is_not_read_is_ignored(tmp_path: Path) -> None:
    ps.write({"a": [1, None], "b": [1.0, None], "o": [{"x": 1}, None]}, tmp_path / "x.parquet")
    fill = {"a": 0, "b": -1, "o.x": 0}
    (batch,) = ps.Loader(ps.open(tmp_path / "x.parquet"), 2, columns=["b"], fill=fill)
    assert batch["b"].tolist() == [1, -1]
    with pytest.raises(ps.SchemaError, match="no such column for fill="):
        ps.Loader(ps.open(tmp_path / "x.parquet"), 2, columns=["b"], fill={"c": 0})


def test_missing_text_and_bytes_are_filled(tmp_path: Path) -> None:
    columns = {"text": ["a", None], "data": [None, b"b"], "tags": [["x", None], None]}
    ps.write(columns, tmp_path / "x.parquet")
    dataset = ps.open(tmp_path / "x.parquet")
    (batch,) = ps.Loader(dataset, 2, ragged="list")
    assert [batch["text"].tolist(), batch["data"].tolist()] == [["a", None], [None, b"b"]]
    (batch,) = ps.Loader(dataset, 2, fill={"text": "", "data": b"-", "tags": "?"}, ragged="list")
    assert [batch["text"].tolist(), batch["data"].tolist()] == [["a", ""], [b"-", b"b"]]
    assert [tags.tolist() for tags in batch["tags"]] == [["x", "?"], []]


@pytest.mark.parametrize("fill", [0, 1, 0.5, [("x", 1)]])
def test_fill_that_is_not_a_dict_is_refused(tmp_path: Path, fill: Any) -> None:
    ps.write({"x": [1, None]}, tmp_path / "x.parquet")
    with pytest.raises(TypeError, match=r"fill is a dict, such as \{'x': "):
        ps.Loader(ps.open(tmp_path / "x.parquet"), 2, fill=fill)

"""The language of conditions: its meaning, compared with DuckDB's SQL, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import compute

import penstock as ps
from penstock.conditions import fields_of, filter_of, parse

BATCH = pa.record_batch(
    {
        "x": pa.array([1, None, 3, 4, -7], pa.int32()),
        "f": pa.array([1.0, 2.5, None, 0.0, -7.0]),
        "t": ["a", "bb", None, "é", ""],
        "data": pa.array([b"a", b"b\xff", None, b"d", b""], pa.binary_view()),
        "ok": [True, False, None, True, False],
        "tokens": [[1, 2], None, [], [3], [3, None]],
        "s": pa.array([{"q": 1}, None, {"q": 3}, {"q": None}, {"q": 5}]),
        "a-b/c": [1, 2, 3, 4, 5],
        "s.r": [5, 4, 3, 2, 1],
        "u": pa.array([1, 2, 3, 2**64 - 1, None], pa.uint64()),
        "label": pa.array(["cat", "dog", None, "cat", "eel"]).dictionary_encode(),
        "when": pa.array([0, 10**6, None, 2 * 10**6, 3 * 10**6], pa.timestamp("us")),
    }
)


def kept(where: Any, batch: pa.RecordBatch = BATCH) -> list[int]:
    """The numbers of the records for which a condition is true."""
    found = filter_of(where, batch.schema.names)
    columns = batch if found.columns is None else batch.select(found.columns)
    return np.flatnonzero(found.holds(columns)).tolist()


@pytest.mark.parametrize(
    ("where", "numbers"),
    [
        ("ok", [0, 3]),
        ("not ok", [1, 4]),
        ("ok or x == 3", [0, 2, 3]),
        ("not (ok and x > 1)", [0, 1, 4]),
        ("x not in [1, 4]", [2, 4]),
        ("x not in [1, null]", []),
        ("x in [1, 2.5, 99999999999]", [0]),
        ("2 < x", [2, 3]),
        ("x is null or t is null", [1, 2]),
        ("x == null", []),
        ("null is null or x == 3", [0, 1, 2, 3, 4]),
        ("a-b/c - 1 == 2", [2]),
        ("`a-b/c` / 2 > 1.5", [3, 4]),
        ("x % 4 == -3", [4]),
        ("x / f is null", [1, 2, 3]),
        ("f + x * 2 == 3", [0]),
        ("(f + x) * 2 == 4", [0]),
        ("s.q >= 3", [2, 4]),
        ("s.r >= 3", [0, 1, 2]),
        ("len(t) == 1", [0, 3]),
        ("len(data) == 2", [1]),
        ("len(tokens) == 0", [2]),
        ("contains(tokens, 3)", [3, 4]),
        ('contains(t, "b")', [1]),
        ('startswith(data, "b")', [1]),
        ('matches(t, "^(a|é)$")', [0, 3]),
        ('cast(x, "string") == "-7"', [4]),
        ('lookup(x + 7, ["a", "b", "c", "d", "e", "f", "g", "h", "k", "l", "m", "n"]) == "k"', [0]),
        ('lookup(label, {"cat": 5, "dog": 6, "eel": null}) == 5', [0, 3]),
        ('lookup(a-b/c - 1, ["a", "b", "c", "b", "e"]) == "b"', [1, 3]),
        ("u == 18446744073709551615", [3]),
        ("u > x", [3]),
        ('label == "cat"', [0, 3]),
        ('when > "1970-01-01T00:00:01"', [3, 4]),
        ("t == data", [0, 4]),
        ("x == 1 or x == 3 and ok", [0]),
    ],
)
def test_a_condition_selects_exactly_these_records(where: str, numbers: list[int]) -> None:
    assert kept(where) == numbers


def test_an_expression_and_a_function_mean_the_same_as_the_text() -> None:
    expression = (compute.field("x") > 1) & compute.field("ok").is_valid()
    assert kept(expression) == kept("x > 1 and ok is not null") == [3]
    by_function = kept(lambda batch: np.array(batch["x"].fill_null(0)) > 1)
    assert by_function == kept("x > 1") == [2, 3]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("x -1 > 2", "expected spaces around `-`"),
        ("1 < x < 3", "expected an `and`, as in"),
        ("x > 1 x", "expected an operator, an `and` or an `or`"),
        ("len(x", r"expected `\)`"),
        ("x == {}", "not a single value"),
        ("in == 3", 'if "in" is the name of a field, write it in backquotes: `in`'),
        ('matches(t, "(")', "not a regular expression"),
        ('cast(x, "number")', "not a type"),
        ("x == NaN + ", "expected a value"),
        ("x == 'cat'", "expected a text in double quotes"),
        ("lookup(x, 3) == 1", r"expected a table, such as .*, at '3\) == 1'"),
        ("lookup(x, []) == 1", "expected a table, such as"),
        ("lookup(x, [[1]]) == 1", "expected a table, such as"),
        ('lookup(x, [1, "b"]) == 1', "a table whose values have one type"),
        ("(" * 1000 + "x", "nested"),
        ("not " * 1000 + "ok", "nested"),
        ("[" * 100_000, "expected a value"),
    ],
)
def test_an_invalid_condition_names_what_was_expected_and_where(where: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(where)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("y > 1", "'y': no such column"),
        ("x", "'x': values of type int32 are not booleans"),
        ("t > 1", "'t': string cannot be compared with 1"),
        ("t + 1 > 2", "'t': values of type string are not numbers"),
        ("contains(x, 1)", "'x': contains looks for 1"),
        ("len(x) > 1", "'x': values of type int32 have no length"),
        ('cast(t, "int32") > 1', "'t': the condition cannot be computed"),
        ("lookup(u, [0, 1, 2, 3]) == 1", "'u': the condition cannot be computed: Integer value"),
        ("lookup(x, [0, 1]) == 1", "'x': lookup has no entry for 3, only for 0 to 1"),
        ("lookup(a-b/c, [7, 8, 9, 10, 11]) == 1", "no entry for 5, only for 0 to 4"),
        (
            'lookup(label, {"cat": 1}) == 1',
            "'label': lookup has no entry for 'dog', only for 1 names",
        ),
        ('lookup(x, {"1": 2}) == 1', "'x': lookup by name needs texts or bytes, not int32"),
        ("lookup(f, [1]) == 1", "'f': lookup in a list needs whole numbers, not double"),
        ('x in [1, "1"]', "'x': int32 cannot be compared with '1'"),
        ("x in [1, true]", "'x': int32 cannot be compared with True"),
        ("s.z == 1", "s has no field z"),
        ("x + 9223372036854775807 > 0", "'x': the condition cannot be computed: overflow"),
    ],
)
def test_a_condition_that_does_not_fit_the_columns_is_a_schema_error(
    where: str, message: str
) -> None:
    with pytest.raises(ps.SchemaError, match=message):
        kept(where)


def test_lists_views_and_tensors_have_a_length_and_values() -> None:
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12).reshape(2, 3, 2))
    batch = pa.record_batch(
        {
            "large": pa.array([[1], [2, 3]], pa.large_list(pa.int8())),
            "fixed": pa.array([[1, 2], None], pa.list_(pa.int8(), 2)),
            "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int8())),
            "tensor": tensors,
        }
    )
    assert kept("len(large) == 2", batch) == [1]
    assert kept("contains(large, 3)", batch) == [1]
    assert kept("len(fixed) == 2", batch) == [0]
    assert kept("len(map) == 1", batch) == [0]
    assert kept("len(tensor) == 3", batch) == [0, 1]
    assert kept("contains(fixed, 2)", batch) == [0]


# -- compared with DuckDB -------------------------------------------------------------------------

NUMBERS = st.sampled_from(["x", "f", "2", "-3", "1.5", "0"])
TEXTS = st.sampled_from(["t", '"a"', '""'])


def _sums(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(inner, st.sampled_from("+-*/%"), inner).map(
        lambda parts: f"({' '.join(parts)})"
    )


NUMERIC = st.recursive(NUMBERS, _sums, max_leaves=4)
COMPARED = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
SIMPLE = st.one_of(
    st.tuples(NUMERIC, COMPARED, NUMERIC).map(" ".join),
    st.tuples(TEXTS, COMPARED, TEXTS).map(" ".join),
    st.sampled_from(["ok", "true", "x is null", "t is not null", "f in [1, 2.5]"]),
    st.sampled_from(["x not in [1, 3]", "x in [4, null]", "len(t) == 1", 't in ["a", null]']),
)
CONDITION = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        inner.map(lambda one: f"not ({one})"),
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(
            lambda parts: f"({parts[0]}) {parts[1]} ({parts[2]})"
        ),
    ),
    max_leaves=6,
)


def sql_of(where: str) -> str:
    """The same condition in DuckDB's SQL."""
    for sign, other in {'"': "'", "==": "=", "!=": "<>", "[": "(", "]": ")"}.items():
        where = where.replace(sign, other)
    for literal in ("1.5", "2.5"):
        where = where.replace(literal, f"{literal}::double")
    return where


@given(CONDITION)
@settings(max_examples=300, deadline=None)
def test_conditions_mean_what_they_mean_in_sql(where: str) -> None:
    if not fields_of(parse(where)):
        where = f"({where}) and (x is null or x is not null)"
    table = pa.Table.from_batches([BATCH.select(["x", "f", "t", "ok"])])
    numbered = table.append_column("n", pa.array(range(len(table))))
    query = f"select n from numbered where {sql_of(where)} order by n"
    with duckdb.connect() as connection:
        for setting in ("error_on_division_by_zero", "ieee_floating_point_ops"):
            connection.execute(f"set {setting} = false")  # dividing by zero gives null
        connection.register("numbered", numbered)
        wanted = [n for (n,) in connection.execute(query).fetchall()]
    assert kept(where) == wanted


@pytest.mark.parametrize("where", ['"x" is not null', '"x" == 3', "1 == 1", "true"])
def test_a_condition_that_names_no_column_is_refused(where: str) -> None:
    with pytest.raises(ValueError, match="names no column: write names without quotes"):
        kept(where)


def test_a_text_that_is_not_json_is_named_with_its_file_and_record(tmp_path: Path) -> None:
    texts = [f'{{"iso": {n}}}' for n in range(500)]
    texts[321] = "{iso: 3}"
    path = str(tmp_path / "a.parquet")
    ps.write({"meta": texts}, path)
    with pytest.raises(ps.SchemaError, match=r'types=\{"meta": "json"\}'):
        ps.open(path).filter("meta.iso == 3").to_table()
    ds = ps.open(path, types={"meta": "json"})
    with pytest.raises(ps.SchemaError, match="is not JSON") as caught:
        ds.filter("meta.iso == 3").to_table()
    assert (caught.value.file, caught.value.record) == (path, 321)
    texts[321] = "{}"
    ps.write({"meta": texts}, path, overwrite=True)
    assert len(ps.open(path, types={"meta": "json"}).filter("meta.iso == 3")) == 1


def test_a_condition_on_a_missing_field_names_the_existing_fields(tmp_path: Path) -> None:
    ps.write({"a": [1, 2]}, tmp_path / "a.tfrecord")
    with pytest.raises(ps.SchemaError, match="no such column; there are: a"):
        ps.convert(tmp_path / "a.tfrecord", tmp_path / "b.parquet", where="nope > 3")
    assert not (tmp_path / "b.parquet").exists()


VALUES = st.none() | st.integers(-4, 4)
LITERALS = st.integers(-5, 5)


@st.composite
def texts_of_one_field(draw: st.DrawFn, depth: int = 2) -> str:
    if depth and draw(st.booleans()):
        parts = [draw(texts_of_one_field(depth - 1)) for _ in range(2)]
        return draw(st.sampled_from(["({} and {})", "({} or {})", "not ({})"])).format(*parts)
    sign = draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]))
    kinds = [f"x {sign} {draw(LITERALS)}", f"x in [{draw(LITERALS)}, {draw(LITERALS)}]"]
    return draw(st.sampled_from([*kinds, "x is null", "x is not null", "x % 2 == 0"]))


@st.composite
def expressions_of_one_field(draw: st.DrawFn, depth: int = 2) -> Any:
    if depth and draw(st.booleans()):
        left, right = (draw(expressions_of_one_field(depth - 1)) for _ in range(2))
        return draw(st.sampled_from([left & right, left | right, ~left]))
    x, value = compute.field("x"), draw(LITERALS)
    every = [x == value, x != value, x < value, x >= value, x.isin([value, draw(LITERALS)])]
    return draw(st.sampled_from([*every, x.is_null(), x.is_valid()]))


@settings(max_examples=300)
@given(texts_of_one_field() | expressions_of_one_field(), st.lists(VALUES, min_size=1, max_size=4))
def test_bounds_exclude_no_values_for_which_the_condition_is_true(
    where: Any, values: list[int | None]
) -> None:
    batch = pa.record_batch({"x": pa.array(values, pa.int64())})
    found = filter_of(where, ["x"], schema=batch.schema)
    known = [value for value in values if value is not None]
    low, high = (min(known), max(known)) if known else (None, None)
    if found.holds(batch).any():
        for bound in found.bounds:
            assert bound.may_hold(low, high)
            assert bound.may_hold(low, high, has_nulls=None in values)


JSON_ROWS = [
    {"label": 3, "name": "a", "deep": {"q": 1.5}, "tags": ["x"], "ok": True},
    {"label": None, "name": "b", "deep": None, "tags": [], "ok": False},
    None,
    {"label": 4, "deep": {"q": 2}, "tags": ["x", "y"]},
    [1, 2],
    {"name": "a", "deep": "no object", "label": 3},
]
JSON_BATCH = pa.record_batch(
    {
        "json": pa.array([None if r is None else json.dumps(r) for r in JSON_ROWS], pa.json_()),
        "s": pa.StructArray.from_arrays(
            [pa.array([json.dumps({"n": n}) for n in range(6)], pa.json_())], names=["in"]
        ),
        "json.dot": list(range(6)),
    }
)


@pytest.mark.parametrize(
    ("where", "numbers"),
    [
        ("json.label == 3", [0, 5]),
        ("json.label is null", [1, 2, 4]),
        ("json.label + 1 > 4", [3]),
        ("json.deep.q >= 2", [3]),
        ("json.deep.q is null and json.label == 3", [5]),
        ('json.name in ["a"]', [0, 5]),
        ("json.ok", [0]),
        ("not json.ok", [1]),
        ("len(json.tags) == 2", [3]),
        ('contains(json.tags, "x")', [0, 3]),
        ("json.missing == 3", []),
        ("json.missing is null", [0, 1, 2, 3, 4, 5]),
        ("s.in.n > 3", [4, 5]),
        ("json.dot == 2", [2]),
        ('cast(json.label, "string") == "3"', [0, 5]),
    ],
)
def test_fields_of_json(where: str, numbers: list[int]) -> None:
    assert kept(where, JSON_BATCH) == numbers


@pytest.mark.parametrize(
    "ending", ["tar", "parquet", "arrow", "tfrecord", "h5", "msgpack", "beton"]
)
def test_fields_of_json_in_every_format(ending: str, tmp_path: Path) -> None:
    texts = [json.dumps({"label": n % 4}) for n in range(20)]
    table = pa.table({"json": pa.array(texts, pa.json_()), "n": range(20)})
    ps.write(table, tmp_path / f"a.{ending}", **({"key": "n"} if ending == "tar" else {}))
    ds = ps.open(tmp_path / f"a.{ending}")
    assert ds.count("json.label == 3") == 5
    made = ps.convert(ds, tmp_path / "b.arrow", where="json.label == 3 and json.none is null")
    assert made.num_records == 5


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["{", "{}"], "not JSON"),
        (["[" * 100_000], "not JSON"),
        (['{"a": 1}', '{"a": "b"}'], "no common type"),
        (['{"a": 99999999999999999999999}'], "no common type"),
        (['{"a": "\\ud800"}'], "no common type"),
    ],
)
def test_json_that_has_no_values_to_compare(texts: list[str], message: str) -> None:
    batch = pa.record_batch({"json": pa.array(texts, pa.json_())})
    with pytest.raises(ps.SchemaError, match=message) as told:
        kept("json.a == 1", batch)
    assert told.value.field == "json.a"
